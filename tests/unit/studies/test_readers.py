"""Runs of other programs: read as these logged them, planted mixes grouped rightly or refused in one line."""

import gzip
import json
import math
import os
import re
import shlex
import sqlite3
import zipfile
from contextlib import nullcontext
from dataclasses import fields
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import wandb

from tests.configurations import refused
from tests.unit.reports.written_study import change_results, make_study
from vitlab.cli import main
from vitlab.config import TrainConfig, UserError
from vitlab.formatting import DASH
from vitlab.reports.words import headline, make_size_table
from vitlab.studies.others import load_others
from vitlab.studies.readers import from_wandb, is_unfinished, read_source
from vitlab.studies.results import load_results

PROGRAMS = ["timm", "transformers", "lightning", "tensorboard", "mlflow", "mlruns", "wandb", "trackio", "sklearn"]
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


def repeat_steps_of_two(rows):
    return repeat_steps(rows) + repeat_steps(put("lr", 0.2)(rows))


LESS = WHOLE | {("vit", 500): (0.515, 2)}
VAL_LOSS, VAL_ACC = {"metric": "val_loss"}, {"metric": "val_acc"}
MIXES = {  # the change, options, the cells or the words of the refusal, words of the notes
    "as it is": (lambda rows: rows, {}, WHOLE, ""),
    "two names of the seed": (rename("seed", "rng_seed", lambda row: row["model"] == "vit"), {}, WHOLE, ""),
    "a setting differs in one run": (put("lr", 0.2, slice(1)), {}, "differ in lr; make these models", ""),
    "and makes a model": (put("lr", 0.2, slice(1)), {"model": "model,lr"}, {("vit lr=0.1", 500): (0.515, 2)}, ""),
    "and is averaged": (put("lr", 0.2, slice(1)), {"ignore": "lr"}, WHOLE, ""),
    "a setting of one run": (put("warmup", 5, slice(1)), {}, "differ in warmup", ""),
    "a random rate": (put("rate", lambda row: row["val_acc"] / 7), {}, "differ in rate", ""),
    "a trial is no seed": (rename("seed", "trial"), {}, "differ in trial; ", ""),
    "but may be one": (rename("seed", "trial"), {"seed": "trial"}, WHOLE, ""),
    "a setting follows the model": (put("depth", lambda row: len(row["model"])), {}, WHOLE, ""),
    "another seed": (put("data_seed", lambda row: row["seed"] + 7), {}, WHOLE, ""),
    "a folder a run": (put("output_dir", lambda row: f"o/{hash(str(row))}"), {}, WHOLE, ""),
    "two tasks": (lambda rows: [row | {"task": t} for t in "ab" for row in rows], {}, "report one by --where", ""),
    "of which one": (
        lambda rows: [row | {"task": t} for t in "ab" for row in rows],
        {"where": "task=a"},
        WHOLE,
        "",
    ),
    "where no run is": (put("task", "a"), {"where": "task=c"}, "--where task=c: no run has it", ""),
    "two data sets": (put("dataset", lambda row: row["model"]), {}, "runs on vit, resnet are not compared", ""),
    "no model": (rename("model", "network type"), {}, "model: no column has a known name", ""),
    "two of one metric": (put("val_accuracy", 0.3), {}, "metric: no column has a known name, or two have", ""),
    "a metric without direction": (rename("val_acc", "gain"), {"metric": "gain"}, "add --lower-is-better", ""),
    "the other metric": (put("val_loss", lambda row: 1 - row["val_acc"]), VAL_LOSS, {("vit", 500): (0.49, 3)}, ""),
    "two names of the metric": (rename("val_acc", "eval/top1", lambda row: row["seed"] == 0), {}, WHOLE, ""),
    "training beside validation": (put("train_acc", 1.0), {}, WHOLE, ""),
    "a run without the metric": (without([0], "val_acc"), VAL_ACC, LESS, "left out: runs:2"),
    "percents": (put("val_acc", lambda row: 100 * row["val_acc"]), {}, WHOLE, ""),
    "percents and shares": (put("val_acc", lambda row: 100 * row["val_acc"], slice(3)), {}, "up to 1 and above", ""),
    "steps in place of epochs": (repeat_steps, {}, WHOLE, ""),
    "a run ends early": (lambda rows: without([2], None)(repeat_steps(rows)), {}, "differ in step; ", ""),
    "steps by model": (put("step", lambda row: len(row["model"])), {}, WHOLE, "end at different step"),
    "times of rows": (lambda rows: put("time", lambda row: f"at {row['step']}")(repeat_steps(rows)), {}, WHOLE, ""),
    "a spread": (put("val_acc__MIN", lambda row: row["val_acc"] / 2), {}, WHOLE, ""),
    "a type of model": (rename("model", "model.type"), {}, WHOLE, ""),
    "a model without a value": (put("model_name", "None"), {}, WHOLE, ""),
    "states in words": (put("State", "crash: no memory", slice(1)), {}, LESS, "1 run not finished"),
    "an epoch of each run": (lambda rows: put("epoch", 50)(without(None, "seed")(rows)), {}, WHOLE, ""),
    "two rates at each step": (repeat_steps_of_two, {}, "differ in lr, step; ", ""),
    "a missing seed": (without([0, 1], "seed"), {}, "2 runs without a seed: runs:2, runs:3", ""),
    "no seed at all": (without(None, "seed"), {}, WHOLE, ""),
    "no size at all": (without(None, "train_size"), {}, "6 runs with the model, size and seed, or all", ""),
    "runs are counted": (without(None, "train_size"), {"seed": "none", "size": "none"}, {("vit", 1): (0.41, 6)}, ""),
    "NaN": (put("val_acc", math.nan, slice(1)), {}, LESS, "a finite val_acc: runs:2"),
    "a copy": (lambda rows: [*rows, rows[0]], {}, WHOLE, "1 run left out as copies: runs:14"),
    "a run again, other result": (lambda rows: [*rows, {**rows[0], "val_acc": 0.9}], {}, "1 run with the", ""),
    "a size in words": (put("train_size", "all", slice(1)), {}, "1 run without a size: runs:2", ""),
    "shares of the data": (put("train_size", lambda row: row["train_size"] / 1000), {}, {("vit", 50): (0.51, 3)}, ""),
    "nothing held out": (rename("val_acc", "train_acc"), {}, "metric: no column has a known name", ""),
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
        (line,) = refused(load_others, [path], **options)
        assert expected in line
        return
    found = load_others([path], **options)
    assert words in " ".join(found.config["notes"])
    cells = {(row.model, row.train_size): (row["mean"], row.n) for _, row in found.cells.iterrows()}
    assert len(cells) == len(expected) or len(expected) == 1
    for cell, (mean, count) in expected.items():
        assert cells[cell] == (pytest.approx(mean, abs=1e-9), count)


TABLES = {  # of which file, the runs or the words of the refusal
    "a.csv": ('seed,val_loss\n0,"1,650"\n1,"1,432"\n', "val_loss=1,650: write 1650 or 1.650"),
    "b.csv": ('train_size,seed,val_acc\n"1,000",0,0.5\n"1,000",1,0.6\n', 2),
    "a_sweep.csv": ("batch_size,epoch,val_acc\n32,10,0.5\n64,20,0.6\n32,30,0.7\n", 3),
    "a_log.csv": ("lr,epoch,val_acc\n0.1,1,0.5\n0.2,2,0.6\n0.1,3,0.7\n", 1),
    "list.json": (json.dumps(make_rows(), indent=1), 12),
    "broken.json": ('[{"model": 1},', "give a list of JSON objects, or one a line"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_row_a_run_unless_its_rows_are_steps(tmp_path, name):
    text, expected = TABLES[name]
    (tmp_path / name).write_text(text)
    if isinstance(expected, int):
        runs = read_source(tmp_path / name)
        assert len(runs) == expected
        return
    with pytest.raises(UserError, match=expected):
        read_source(tmp_path / name)
    with pytest.raises(UserError, match=r"--reader=no\.such: no module named no\.such"):
        read_source(tmp_path / name, "no.such")


LOG = "epoch,val_acc\n0,0.1\n1,0.5\n"
FOLDERS = {  # files of a run of vit on 500 examples that reaches 0.5, and beside it what is not to be read
    "capital steps": {"a.csv": "Model,Train Size,Epoch,Val Acc\nvit,500,1,0.1\nvit,500,2,0.5\n"},
    "DeiT": {"vit-n500-s1/log.txt": '{"test_acc1": 40, "epoch": 0}\n{"test_acc1": 50, "epoch": 1}\n'},
    "mmengine": {"vit-n500-s1/v/scalars.json": '{"loss": 1, "step": 10}\n{"accuracy/top1": 50, "step": 1}\n'},
    "version folders": {"vit-n500-s1/version_0/metrics.csv": LOG},
    "two loggers": {"vit-n500-s1/csv/v/metrics.csv": LOG, "vit-n500-s1/mlflow/v/metrics.csv": LOG.replace("5", "6")},
    "Trainer": {
        "o/trainer_state.json": '{"log_history": [{"eval_accuracy": 0.5}]}',
        "o/all_results.json": '{"train_samples": 500}',
        "o/config.json": '{"_name_or_path": "", "model_type": "vit"}',
    },
    "best value of W&B": {"a.jsonl": '{"model": {"name": "vit"}, "train_size": 500, "val/acc": {"max": 0.5}}\n'},
    "cv_results_": {"a.csv": "params,n_train,split0_test_score,mean_test_score,std_test_score\nvit,500,0.1,0.5,0.7\n"},
    "tabs": {"a.tsv": "model\tn_train\tval_acc\nvit\t500\t0.5\n"},
    "semicolons": {"a.csv": "model;n_train;val_acc\nvit;500;0.5\n"},
    "crashed": {"a.csv": "status,model,n_train,val_acc\nFINISHED,vit,500,0.5\nFAILED,vit,500,0.1\n"},
    "MLflow's states": {
        f"{run}/{name}": text
        for run, (meta, value) in {
            "a": ("run_id: a\nstatus: 3", "1 0.5 0"),
            "b": ("run_id: b\nstatus: 4", "1 0.1 0"),
        }.items()
        for name, text in {
            "meta.yaml": meta,
            "params/model": "vit",
            "params/n_train": "500",
            "metrics/val_acc": value,
        }.items()
    },
}


@pytest.mark.parametrize("files", FOLDERS.values(), ids=FOLDERS)
def test_folders_are_read_as_their_programs_mean_them(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    cells = load_others([tmp_path]).cells
    assert cells[["model", "train_size", "mean", "n"]].values.tolist() == [["vit", 500, 0.5, 1]]


def test_bare_numbers_of_vitlabs_own_wandb_runs_are_tested(tmp_path):
    config = dict.fromkeys(field.name for field in fields(TrainConfig)) | {
        "variant": "vit",
        "data": {"name": "a"},
        "model": {},
    }
    run = from_wandb("a", tmp_path, config, {"accuracy": 0.5, "validation/accuracy": 0.9}, "finished")
    assert (run.values["test_accuracy"], run.settings["model"]) == (0.5, "vit")
    assert is_unfinished(from_wandb("a", tmp_path, config, {}, "failed"))


def test_runs_without_seeds_are_not_paired_by_their_order(tmp_path):
    (tmp_path / "a.csv").write_text("model,train_size,val_acc\na,1,.9\na,1,.8\nb,1,.7\nb,1,.6\n")
    assert load_others([tmp_path / "a.csv"]).runs.seed.is_unique


def test_folders_named_by_splits_are_one_run_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    for split, value in (("train", 0.9), ("validation", 0.5)):
        with SummaryWriter(tmp_path / "vit-n500-s1" / split) as writer:
            writer.add_scalar("epoch_accuracy", value)
    assert load_others([tmp_path]).cells[["model", "train_size", "mean", "n"]].values.tolist() == [["vit", 500, 0.5, 1]]


def test_settings_of_add_hparams_are_those_of_the_run_above(tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "run") as writer:
        writer.add_scalar("val/acc", 0.5)
        writer.add_hparams({"model": "vit", "n_train": 500}, {"hparam/val_acc": 0.1})
    assert load_others([tmp_path]).cells[["model", "train_size", "mean", "n"]].values.tolist() == [["vit", 500, 0.5, 1]]


def test_a_question_has_a_command_that_answers_it(tmp_path, capsys):
    for model, seed in product("ab", (1, 2)):
        path = tmp_path / "my runs" / f"{model}.{seed}" / "x" / "metrics.csv"
        path.parent.mkdir(parents=True)
        path.write_text(f"epoch,gain\n0,0\n1,{seed}\n")
    given = ["report", str(tmp_path / "my runs"), "--name", "{model}.{seed}", "--lower-is-better"]
    assert main(given) == 2
    line = capsys.readouterr().err
    assert "columns: epoch, name.model, name.seed, gain; " in line
    words = shlex.split(
        line.partition("type: vitlab ")[2].replace("--metric KEY", "--metric gain").replace("KEY", "none")
    )
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    assert "model = name.model, size = none, seed = name.seed, metric = gain (lower is b" in capsys.readouterr().err
    assert main([*given[:3], "{model}_{seed}"]) == 2
    assert capsys.readouterr().err.count("--name {model}_{seed}: 0 names of ") == 4


def test_the_command_writes_the_report_of_a_table(tmp_path, capsys):
    path, out = tmp_path / "sweep.jsonl", tmp_path / "out"
    path.write_text("\n".join(map(json.dumps, make_rows())))
    assert main(["report", str(path), "--out", str(out), "--chance", "0.1", "--json"]) == 0
    output = capsys.readouterr()
    read_as = "model = model, size = train_size, seed = seed, metric = val_acc (higher is better), runs = 12 runs of 1"
    assert output.err.startswith(read_as)
    assert output.err.splitlines()[1].startswith("ResNet leads")
    document = json.loads(output.out)
    assert {gap["verdict"] for gap in document["gaps"]} == {"lead"}
    assert {cell["chance"] for cell in document["cells"]} == {0.1}
    page = (out / "report.html").read_text()
    assert "ResNet leads" in page
    assert all(text in page for text in ("How the runs were read", f"vitlab report {path}", "vit", "95% interval over"))
    assert {file.name for file in out.glob("[!.]*")} == {
        "report.html",
        "compare.html",
        "results.csv",
        "figures",
        "tables",
    }
    assert load_others([path]).gaps.verdict.tolist() == load_others([out / "results.csv"]).gaps.verdict.tolist()
    assert main(["report", str(path), "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "empty")]) == 2


# ---- files of other programs


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """What tests/others/make.py left: a folder for each program, with runs of two models, sizes and three seeds."""
    folder = tmp_path_factory.mktemp("others")
    zipfile.ZipFile(Path(__file__).parents[2] / "others" / "runs.zip").extractall(folder)
    return folder


@pytest.mark.parametrize("program", PROGRAMS)
def test_means_are_those_of_the_program_itself(others, program):
    if program == "tensorboard":
        pytest.importorskip("tensorboard")
    found = load_others([others / program])
    cells = {f"{row.model} {row.train_size}": (row["mean"], row.n) for _, row in found.cells.iterrows()}
    means = json.loads((others / "means.json").read_text())[program]
    assert cells == {cell: (pytest.approx(mean, abs=1e-6), 3) for cell, mean in means.items()}
    assert set(found.gaps.verdict) <= {"lead", "level", "undecided"}


def test_a_model_of_two_sources_is_divided_by_them(others, tmp_path, capsys):
    sources = [str(others / name) for name in ("timm", "lightning")]
    found = load_others(sources)
    assert set(found.cells.model) == {f"{m} source={s}" for m in ("linear", "mlp") for s in ("timm", "lightning")}
    assert set(found.runs.source) == {"timm", "lightning"}
    assert "in percent in timm" in found.config["read_as"]["metric"]
    assert main(["report", *sources, "--ignore", "source", "--out", str(tmp_path / "out")]) == 2
    assert "runs of one model and size differ in lr" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_study_is_a_source_beside_others(others, tmp_path):
    study = make_study(tmp_path / "quick", seeds=(0, 1, 2), failed=0)
    change_results(study, lambda result: {"validation_accuracy": result["accuracy"] - 0.01})
    whole, found = load_results(study.folder), load_others([study.folder, others / "timm"])
    assert found.config["read_as"]["metric"].startswith("validation_accuracy or eval_top1")  # timm tests on none
    means = dict(zip(zip(found.cells.model, found.cells.train_size, strict=True), found.cells["mean"], strict=True))
    for cell in whole.cells.to_dict("records"):
        assert means[cell["model"], cell["train_size"]] == pytest.approx(cell["validation"], abs=1e-6)
    assert set(found.runs.source) == {"quick", "timm"}


def write_hostile(folder):
    """Files that look like those of other programs, by what is refused of them."""
    noise = np.random.default_rng(0).bytes(3000)
    np.savez(folder / "objects.npz", train_sizes=np.array([1], dtype=object), train_scores=[[1]], test_scores=[[1]])
    (folder / "x.db").write_bytes(b"SQLite format 3\0" + noise)
    (folder / "x.wandb").write_bytes(b":W&B" + noise)
    (folder / "x.json").write_text('{"log_history": [1]}')
    (folder / "x.jsonl").write_text('{"model": "a", "val_acc": 0.5}\nnope\n')
    (folder / "args.yaml").write_text("model: !!python/object/apply:os.mkdir [made]\nseed: 1\n")
    (folder / "summary.csv").write_text("epoch,eval_top1\n0,50\n1,60\n")
    return {
        "objects.npz": "Object arrays cannot be loaded",
        "x.db": "file is not a database",
        "x.wandb": "bad header",
        "x.json": "trainer_state.json as the Trainer writes it",
        "x.jsonl": "line 2: cannot read it",
        "summary.csv": "model, size: no column has a known name",
    }


def test_a_project_on_wandbs_server_is_a_source(tmp_path, monkeypatch):
    class Api:  # the network service
        def runs(self, project, filters, lazy):
            assert (project, filters, lazy) == ("me/project", {"state": "finished"}, False)
            for place, (arch, seed) in enumerate(product(("a", "b"), (0, 1))):
                config, summary = {"arch": arch, "opt": {"seed": seed}}, {"val/acc": 0.5 + place / 10, "_step": 7}
                yield SimpleNamespace(name="run", id=f"r{place}", config=config, summary_metrics=summary)

    monkeypatch.setattr(wandb, "Api", Api)
    results = load_others(["wandb:me/project"])
    assert results.cells[["model", "mean", "n"]].values.tolist() == [["a", 0.55, 2], ["b", 0.75, 2]]
    assert main(["report", "wandb:me/project", "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/report.html").is_file()
    monkeypatch.setattr(Api, "runs", lambda *_, **__: iter(()))
    with pytest.raises(UserError, match="wandb:me/empty: holds no runs"):
        load_others(["wandb:me/empty"])


def test_broken_and_hostile_files_are_refused_in_a_line_and_run_nothing(tmp_path):
    for name, expected in write_hostile(tmp_path).items():
        (line,) = refused(load_others, [tmp_path / name])
        assert re.search(expected, line)
    assert not Path("made").exists()


ROWS = ["model,train_size,seed,val_acc", *(f"{m},{n},{k},0.{5 + k}" for m, n, k in product("ab", (1, 2), (0, 1))), ""]
ROWS = "\n".join(ROWS).encode()
LAUGHS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
MANY = "\n".join(["model,val_acc", *(f"m{n},0.{n}" for n in range(1, 200))])
VIEW = "create view configs as with recursive c(x) as (select 1 union all select x + 1 from c) select * from c"
STRANGE = {  # the file's name (none: its folder is read), its content, and what is said of them; "" if they are read
    "UTF-16": ("r.csv", ROWS.decode().encode("utf-16"), "text in UTF-16"),
    "UTF-16 in a folder": ("", ROWS.decode().encode("utf-16"), "text in UTF-16"),
    "a byte-order mark": ("r.csv", b"\xef\xbb\xbf" + ROWS, ""),
    "CR line ends": ("r.csv", ROWS.replace(b"\n", b"\r"), ""),
    "gzip": ("r.csv.gz", gzip.compress(ROWS), ""),
    "NUL": ("r.csv", ROWS + b"a,2,3,\0", "line 10: holds a NUL"),
    "binary": ("r.csv", b"a,b\x82\n", "byte 3 (0x82) is not UTF-8"),
    "empty": ("r.csv", b"", "is empty"),
    "no table": ("r.csv", b"words\n", "names no columns"),
    "a long header": ("", ROWS.replace(b"\n", b"," + b"x" * 5000 + b"\n", 1), "not one cell for each of the 5 columns"),
    "great seeds": ("r.csv", ROWS.replace(b",0,", b",%d," % 2**53).replace(b",1,0.6", b",%d,0.6" % (2**53 + 1)), ""),
    "seeds < 0": ("r.csv", ROWS.replace(b",0,", b",-%d," % 2**60).replace(b",1,0.6", b",%d,0.6" % (-1 - 2**60)), ""),
    "a great size": ("r.csv", ROWS.replace(b",2,", b",%d," % 10**200), "4 runs without a size"),
    "great values": ("r.csv", ROWS.replace(b"0.", b"1e30"), "no run has a finite value"),
    "a surrogate": ("r.jsonl", b'{"model": "\\ud800", "train_size": 1, "seed": [1], "val_acc": 0.5}\n', ""),
    "a name in Latin-1": (os.fsdecode(b"caf\xe9.csv"), ROWS, ""),
    "a name of 300 letters": ("r" * 300, None, "no such file"),
    "aliases": ("args.yaml", b"a0: &a0 [x]\n" + LAUGHS.encode(), "over 50,000 parts"),
    "a long number": ("args.yaml", b"model: 0x" + b"f" * 4300, ""),
    "models": ("r.csv", MANY.encode(), "199 models"),
    "a pipe": ("events.out.tfevents.2", os.mkfifo, "a pipe, socket or device"),
    "a zip bomb": ("r.npz", lambda path: np.savez_compressed(path, train_sizes=np.zeros(10**6)), "over 4 MB when"),
    "a view": ("r.db", lambda path: sqlite3.connect(path).execute(VIEW), "has a view, configs"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "said"), STRANGE.values(), ids=STRANGE)
def test_strange_files_are_read_or_refused_in_a_line(tmp_path, name, content, said):
    path = tmp_path / name
    if isinstance(content, bytes):
        (path if name else tmp_path / "r.csv").write_bytes(content)
    elif content:
        content(path)
    if name == "args.yaml":
        path = tmp_path / "summary.csv"
        path.write_text("epoch,eval_top1\n0,50\n1,60\n")
    with pytest.raises(UserError, match=re.escape(said)) if said else nullcontext():
        found = load_others([path], size="none" if said == "199 models" or name == "args.yaml" else None)
        json.dumps(found.rows, ensure_ascii=False).encode()
        assert sum(found.cells.n) == len(found.rows)


def test_published_curves_of_one_seed_are_judged_by_their_scatter(tmp_path):
    lines = (Path(__file__).parents[3] / "docs/jft.csv").read_text().splitlines()
    models = ("BiT-R50x1", "ViT-B/16")
    kept = [line for line in lines if line.startswith("imagenet") and line.split(",")[1] in models]
    (tmp_path / "jft.csv").write_text("\n".join([lines[0], *kept]))
    found = load_others([tmp_path / "jft.csv"], size="examples_seen", metric="error", out=tmp_path / "out")
    assert headline(found)[0].startswith("In error, ViT-B/16 passes BiT-R50x1 at 280M examples seen (90% interval 2")
    table = make_size_table(found)
    assert (table.header[0], table.body[0][0], table.body[-1][0]) == ("examples seen", "5,000,000", "2B")
    assert table.body[3][-1].startswith("BiT-R50x1 by 7.")  # .754 against .812 at 50M
    assert table.body[-1][-1].startswith("ViT-B/16 by 16.")


def test_a_table_read_off_curves_has_dashes_where_no_model_was_measured(tmp_path):
    ranges = {"a": np.geomspace(100, 1500, 20), "b": np.geomspace(9000, 90_000, 20)}
    noise = np.random.default_rng(0).normal(1, 0.02, (2, 20))
    rows = [
        f"{m},{n:.0f},{e * n**-0.3:.6f}"
        for (m, of), es in zip(ranges.items(), noise, strict=True)
        for n, e in zip(of, es, strict=True)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["model,train_size,loss", *rows]))
    table = make_size_table(load_others([tmp_path / "runs.csv"], out=tmp_path / "out"))
    assert [row[1:] for row in table.body if row[0] in ("2,000", "5,000")] == [[DASH] * 3] * 2
