"""A pair of models has one difference and one interval, wherever a person reads it."""

import json
import re
import shutil

import pytest

from tests.unit.reports.html_page import read_script_data
from tests.unit.reports.written_study import change_results, make_study
from vitlab.cli import main
from vitlab.commands.scale import show
from vitlab.formatting import whole
from vitlab.reports.pages.study import write_report
from vitlab.studies.results import load_results

MODELS = {"vit_nano": "vit", "resnet_nano": "resnet", "mixer_s16": "mixer"}
GAP = r"(?:by|level:) (-?[\d.]+ ± [\d.]+) points"


def uneven(study):
    """One run of the largest size and one of the smallest have failed."""
    lost = {"resnet_nano-n32000-s1", "vit_nano-n500-s0"}
    for run in lost:
        shutil.rmtree(study.folder / run)


def repeated(study):
    """Each seed draws 6,000 test items out of 38,000; no interval is right that takes them for different ones."""
    study.write_config({**study.config(), "data": {"name": "glyphs", "kind": "glyphs", "holdout": "repeated"}})
    change_results(study, lambda _: {"test_items": 6000, "train_items": 32000})


@pytest.mark.parametrize("change", [uneven, repeated])
def test_every_place_shows_the_interval_of_the_table_of_gaps(tmp_path, change, capsys, monkeypatch):
    study = make_study(tmp_path / "study", models=MODELS, seeds=(0, 1, 2), failed=0)
    change(study)
    results = load_results(study.folder)
    gaps, best = {}, {}
    for gap in results.gaps.itertuples():
        texts = [f"{100 * value:.1f}" for value in (gap.difference, (gap.high - gap.low) / 2)]
        gaps[gap.train_size, frozenset((gap.best, gap.other))] = " ± ".join(texts)
    for size, of_size in results.cells.groupby("train_size"):
        first, second = of_size.sort_values("mean", ascending=False).model[:2]
        best[whole(size)] = gaps[size, frozenset((first, second))]
    assert len(gaps) == 12
    assert len(set(gaps.values())) == 12

    monkeypatch.setenv("COLUMNS", "250")
    show(results)
    printed = capsys.readouterr().out
    assert dict(re.findall(rf"^([\d,]+)  .*{GAP}", printed, re.M)) == best
    assert all(found in best.values() for found in re.findall(GAP, printed.splitlines()[-1]))
    page = write_report(results).read_text()
    assert dict(re.findall(rf'<th scope="row">([\d,]+)</th>.*{GAP}', page)) == best
    markdown = (study.folder / "tables" / "results.md").read_text()
    assert dict(re.findall(rf"^\| ([\d,]+) \|.*{GAP}", markdown, re.M)) == best
    data = read_script_data((study.folder / "compare.html").read_text())
    cells = [
        (int(re.search(r", ([\d,]+) ex", one["label"])[1].replace(",", "")), one["model"]) for one in data["cells"]
    ]
    compared = {(cells[a][0], frozenset((cells[a][1], cells[b][1]))): text for a, b, text in data["gaps"]}
    assert {pair: re.search(GAP, text)[1] for pair, text in compared.items()} == gaps

    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main(["report", str(study.folder), "--json", "--wandb"]) == 0
    document = json.loads(capsys.readouterr().out)
    told = {
        (one["train_size"], frozenset((one["best"], one["other"]))): " ± ".join(
            f"{100 * value:.1f}" for value in (one["difference"], (one["high"] - one["low"]) / 2)
        )
        for one in document["gaps"]
    }
    assert told == gaps
    board = json.loads((study.folder / "wandb-report.json").read_text())
    assert all(f"{text} points" in json.dumps(board, ensure_ascii=False) for text in best.values())
