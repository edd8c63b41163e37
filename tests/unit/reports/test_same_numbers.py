"""A pair of models has one difference and one interval, wherever a person reads it."""

import json
import re
import shutil

import pytest

from tests.unit.reports.html_page import read_script_data
from tests.unit.reports.written_study import change_results, make_study
from vitlab.cli import main
from vitlab.commands.scale import show
from vitlab.formatting import round_numbers, significant, whole
from vitlab.studies.results import load_results

MODELS = {"vit_nano": "vit", "resnet_nano": "resnet", "mixer_s16": "mixer"}
GAP = r"(?:by|level:) (-?[\d.]+ points \(-?[\d.]+ to -?[\d.]+\))"


def uneven(study):
    """One run of the largest size and one of the smallest have failed."""
    lost = {"resnet_nano-n32000-s1", "vit_nano-n500-s0"}
    for run in lost:
        shutil.rmtree(study.folder / run)


def repeated(study):
    """Each seed draws 6,000 test items out of 38,000; no interval is right that takes them for different ones."""
    study.write_config({**study.config(), "data": {"name": "glyphs", "kind": "glyphs", "holdout": "repeated"}})
    change_results(study, lambda _: {"test_items": 6000, "train_items": 32000})


def say(difference, low, high):
    return f"{100 * difference:.1f} points ({100 * max(low, -1):.1f} to {100 * min(high, 1):.1f})"


@pytest.mark.parametrize("change", [uneven, repeated])
def test_every_place_shows_the_interval_of_the_table_of_gaps(tmp_path, change, capsys, monkeypatch):
    study = make_study(tmp_path / "study", models=MODELS, seeds=(0, 1, 2), failed=0)
    change(study)
    results = load_results(study.folder)
    gaps, best = {}, {}
    for gap in results.gaps.itertuples():
        gaps[gap.train_size, frozenset((gap.best, gap.other))] = say(gap.difference, gap.low, gap.high)
    for size, of_size in results.cells.groupby("train_size"):
        first, second = of_size.sort_values("mean", ascending=False).model[:2]
        best[whole(size)] = gaps[size, frozenset((first, second))]
    assert len(gaps) == 12
    assert len(set(gaps.values())) > 9

    monkeypatch.setenv("COLUMNS", "250")
    show(results)
    printed = capsys.readouterr().out
    assert dict(re.findall(rf"^([\d,]+)  .*{GAP}", printed, re.M)) == best
    assert all(found in best.values() for found in re.findall(GAP, printed.splitlines()[-1]))
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main(["report", str(study.folder), "--json", "--wandb"]) == 0
    document = json.loads(capsys.readouterr().out)
    page = study.report_path.read_text()
    assert dict(re.findall(rf'<th scope="row">([\d,]+)</th>.*{GAP}', page)) == best
    markdown = (study.folder / "tables" / "results.md").read_text()
    assert dict(re.findall(rf"^\| ([\d,]+) \|.*{GAP}", markdown, re.M)) == best
    latex = (study.folder / "tables" / "results.tex").read_text()
    assert dict(re.findall(rf"^([\d,]+) &.*{GAP}", latex, re.M)) == best
    data = read_script_data((study.folder / "compare.html").read_text())
    cells = [
        (int(re.search(r", ([\d,]+) ex", one["label"])[1].replace(",", "")), one["model"]) for one in data["cells"]
    ]
    compared = {(cells[a][0], frozenset((cells[a][1], cells[b][1]))): text for a, b, text in data["gaps"]}
    assert {pair: re.search(GAP, text)[1] for pair, text in compared.items()} == gaps

    told = {
        (one["train_size"], frozenset((one["best"], one["other"]))): say(one["difference"], one["low"], one["high"])
        for one in document["gaps"]
    }
    assert told == gaps
    board = json.loads((study.folder / "wandb-report.json").read_text())
    assert all(text in json.dumps(board, ensure_ascii=False) for text in best.values())


def test_every_place_shows_the_same_laws_and_crossover(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("COLUMNS", "250")
    study = make_study(tmp_path / "study", sizes=(500, 1000, 2000, 4000, 8000), seeds=(0, 1, 2), failed=0)
    falls = {"vit_nano": (900, -1.1), "resnet_nano": (1.6, -0.25)}

    def change(row):
        scale, power = falls[row["model"]]
        error = round_numbers({"e": scale * row["train_size"] ** power * (1 + 0.03 * row["seed"])})["e"]
        return {"error": error, "accuracy": 1 - error}

    change_results(study, change)
    fits = load_results(study.folder).fits
    _, crossing = fits.between
    assert crossing.claim == "sure"
    keys = ("size", "low", "high", "claim")
    ends = [getattr(crossing, key) for key in keys]
    said = fits.describe_headline()

    assert main(["report", str(study.folder), "--json", "--wandb"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [[one[key] for key in keys] for one in document["crossovers"]] == [ends]
    assert said in " ".join(document["found"])
    laws = {one["model"]: one for one in document["laws"]}
    page = study.report_path.read_text()
    show(load_results(study.folder))
    board = json.loads((study.folder / "wandb-report.json").read_text())
    for place in (page, capsys.readouterr().out, json.dumps(board, ensure_ascii=False)):
        assert said in place
    assert main(["fit", str(study.results_path), "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert [[one[key] for key in keys] for one in fitted["crossovers"]] == [ends]
    assert [*fitted["groups"]] == [*fits.by_model]
    for name, fit in fits.by_model.items():
        prediction = [*map(float, (fit.predict(16_000.0), *fit.prediction_interval(16_000.0)))]
        assert fitted["groups"][name]["predict"]["16000"] == prediction
        assert [laws[name][key] for key in ("value", "low", "high")] == pytest.approx(prediction)
        value, low, high = (significant(100 * error) for error in prediction)
        assert f"{value}% ({low} to {high})" in page
