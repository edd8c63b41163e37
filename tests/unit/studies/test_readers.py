"""Runs of other programs: planted mixes are grouped rightly, or refused in one line."""

import json
import math

import pytest

from vitlab.cli import main
from vitlab.config import UserError
from vitlab.studies.readers import load_others
from vitlab.studies.results import load_results

MODELS = {"vit": 0.1, "resnet": 0.2}


def make_rows():
    """Two models, two sizes, three seeds; the accuracies of a cell average to its middle one."""
    return [
        {"model": model, "train_size": size, "seed": seed, "lr": 0.1, "val_acc": gap + 200 / size + 0.01 * seed}
        for model, gap in MODELS.items()
        for size in (500, 1000)
        for seed in range(3)
    ]


WHOLE = {(m, n): (gap + 200 / n + 0.01, 3) for m, gap in MODELS.items() for n in (500, 1000)}  # mean and count by cell


def rename(old, new, only=lambda row: True):
    def change(rows):
        return [{new if k == old and only(row) else k: v for k, v in row.items()} for row in rows]

    return change


def put(key, value, places=slice(None)):
    def change(rows):
        for row in rows[places]:
            row[key] = value(row) if callable(value) else value
        return rows

    return change


def repeat_steps(rows):
    return [{**row, "step": step, "val_acc": row["val_acc"] * step / 30} for row in rows for step in (10, 20, 30)]


def without(places, key=None):
    """Leave out a key of some rows (None: of all), or the rows."""

    def change(rows):
        hit = range(len(rows)) if places is None else places
        if key is None:
            return [row for n, row in enumerate(rows) if n not in hit]
        return [{k: v for k, v in row.items() if k != key or n not in hit} for n, row in enumerate(rows)]

    return change


def cells_but(model, size, count, mean):
    return WHOLE | {(model, size): (mean, count)}


SPLIT = {(m if m == "resnet" else "vit lr=0.1", n): v for (m, n), v in WHOLE.items()}
SPLIT |= {("vit lr=0.1", 500): (0.515, 2), ("vit lr=0.2", 500): (0.5, 1)}
VAL_LOSS = {"metric": "val_loss"}
MIXES = {  # the change, options, the cells or the words of the refusal, words of the notes
    "as it is": (lambda rows: rows, {}, WHOLE, ""),
    "a seed under another name": (rename("seed", "hparams.random_state"), {}, WHOLE, ""),
    "two names of the seed": (rename("seed", "rng_seed", lambda row: row["model"] == "vit"), {}, WHOLE, ""),
    "a setting differs in one run": (put("lr", 0.2, slice(1)), {}, SPLIT, "not averaged: lr; --ignore lr"),
    "and is averaged on demand": (put("lr", 0.2, slice(1)), {"ignore": ["lr"]}, WHOLE, "averaged over: lr"),
    "a setting of one run": (put("warmup", 5, slice(1)), {}, ["vit warmup=5", "vit warmup=none"], "warmup"),
    "a setting follows the model": (put("depth", lambda row: len(row["model"])), {}, WHOLE, "model or size: depth"),
    "a setting follows the seed": (put("data_seed", lambda row: row["seed"] + 7), {}, WHOLE, "the seed: data_seed"),
    "a folder a run": (put("output_dir", lambda row: f"o/{hash(str(row))}"), {}, WHOLE, "run to run: output_dir"),
    "two metrics": (put("val_f1", lambda row: row["val_acc"] / 2), {}, WHOLE, ""),
    "the other metric": (put("val_loss", lambda row: 1 - row["val_acc"]), VAL_LOSS, {("vit", 500): (0.49, 3)}, ""),
    "two names of the metric": (rename("val_acc", "eval/top1", lambda row: row["seed"] == 0), {}, WHOLE, ""),
    "training beside validation": (put("train_acc", 1.0), {}, WHOLE, ""),
    "a run without the metric": (without([0], "val_acc"), {}, cells_but("vit", 500, 2, 0.515), "left out: runs:2"),
    "percents": (put("val_acc", lambda row: 100 * row["val_acc"]), {}, WHOLE, ""),
    "percents and shares": (put("val_acc", lambda row: 100 * row["val_acc"], slice(3)), {}, "up to 1 and above", ""),
    "steps in place of epochs": (repeat_steps, {}, WHOLE, ""),
    "a missing run": (without([0]), {}, cells_but("vit", 500, 2, 0.515), ""),
    "a missing seed": (without([0, 1], "seed"), {}, "2 runs without a seed (runs:2, runs:3)", ""),
    "no seed at all": (without(None, "seed"), {}, WHOLE, ""),
    "no size at all": (without(None, "train_size"), {}, "6 runs with the model, size and seed of another", ""),
    "runs are counted": (without(None, "train_size"), {"seed": "none"}, {("vit", 1): (0.41, 6)}, ""),
    "NaN": (put("val_acc", math.nan, slice(1)), {}, cells_but("vit", 500, 2, 0.515), "a finite val_acc: runs:2"),
    "a copy": (lambda rows: [*rows, rows[0]], {}, WHOLE, "1 copy of runs left out: runs:14"),
    "a run again, other result": (lambda rows: [*rows, {**rows[0], "val_acc": 0.9}], {}, "1 run with the", ""),
    "a size in words": (put("train_size", "all", slice(1)), {}, "1 run without a size (runs:2: all)", ""),
    "shares of the data": (put("train_size", lambda row: row["train_size"] / 1000), {}, {("vit", 50): (0.51, 3)}, ""),
    "nothing held out": (rename("val_acc", "train_acc"), {}, "no number is named as one on held-out data", ""),
    "a key that is not there": (lambda rows: rows, {"model": "arch"}, "--model arch: no run has it", ""),
}  # fmt: skip


@pytest.mark.parametrize(("change", "options", "expected", "words"), MIXES.values(), ids=MIXES)
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_planted_mixes_are_grouped_or_refused(tmp_path, change, options, expected, words, kind):
    rows, path = change(make_rows()), tmp_path / f"runs.{kind}"
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [",".join(keys), *(",".join(str(row.get(key, "")) for key in keys) for row in rows)]
    path.write_text("\n".join(["", *map(json.dumps, rows)] if kind == "jsonl" else lines))
    if isinstance(expected, str):
        with pytest.raises(UserError) as caught:
            load_others([path], **options)
        assert len(caught.value.problems) == 1
        assert expected in str(caught.value)
        return
    found = load_others([path], **options)
    assert words in " ".join(found.config["notes"])
    if isinstance(expected, list):
        assert sorted({*found.cells.model} - {"resnet"}) == expected
        return
    cells = {(row.model, row.train_size): (row["mean"], row.n) for _, row in found.cells.iterrows()}
    assert len(cells) == len(expected) or len(expected) == 1
    for cell, (mean, count) in expected.items():
        assert cells[cell] == (pytest.approx(mean, abs=1e-9), count)


def test_the_command_writes_the_report_of_a_table(tmp_path, capsys):
    path, out = tmp_path / "sweep.jsonl", tmp_path / "out"
    path.write_text("\n".join(map(json.dumps, make_rows())))
    assert main(["report", str(path), "--out", str(out), "--chance", "0.1", "--json"]) == 0
    output = capsys.readouterr()
    read_as = "model = model, size = train_size, seed = seed, metric = val_acc (higher is better), runs = 12 runs of 1"
    assert output.err.startswith(read_as)
    document = json.loads(output.out)
    assert {gap["verdict"] for gap in document["gaps"]} == {"lead"}
    assert {cell["chance"] for cell in document["cells"]} == {0.1}
    page = (out / "report.html").read_text()
    assert "resnet leads" in page
    assert all(
        text in page for text in ("How the runs were read", f"vitlab report {path}", "vit", "95% intervals over")
    )
    assert {file.name for file in out.iterdir()} == {"report.html", "compare.html", "results.csv", "figures", "tables"}
    assert load_results(path).gaps.verdict.tolist() == load_results(out / "results.csv").gaps.verdict.tolist()
    assert main(["report", str(path), "--out", str(tmp_path)]) == 2
    assert "holds no results.csv" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "empty")]) == 2
