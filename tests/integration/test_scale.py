"""`vitlab scale`: the grid, its files, and everything that can interrupt it."""

import contextlib
import csv
import hashlib
import html
import json
import os
import re
import shlex
import shutil
import signal
import threading
from unittest.mock import Mock

import pytest

from tests.integration import commands
from tests.runs import train_run
from vitlab.commands import scale
from vitlab.config import TrainConfig, compose, load
from vitlab.data import load as load_data
from vitlab.data.split import subset
from vitlab.studies.outcomes import read_outcomes
from vitlab.studies.store import COLUMNS, StudyFiles
from vitlab.training.files import RunFiles

GRID = ["data=digits", "sizes=[60,150]", "budget.steps=6", "trainer.evaluations=1", "trainer.log_every=2"]
ASKED = ("knn", "fewshot")
GRID += ["seeds=[0]", f"probes=[{','.join(ASKED)}]"]
PROBED = ("knn", "fewshot_1", "fewshot_5", "fewshot_10", "fewshot_25")
LONG = ["models=[vit_nano]", "seeds=[0]", "data=digits", "sizes=[60,150]", "analyses=[]", "budget.steps=60"]
LONG += ["trainer.evaluations=1", "trainer.checkpoint_every=0.3"]

DRAWN = ["sizes=[60]", "budget.steps=2", "tune.recipe.lr=log(x0.1,x10)", "tune.trials=64"]


def results(folder):
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def table(folder):
    """Without the times."""
    return [{k: v for k, v in row.items() if k not in ("wall_s", "images_per_s")} for row in results(folder)]


def contents(folder):
    """Every run's files, for comparing before and after."""
    return {path: path.read_bytes() for path in folder.glob("*-n*-s*/*.*")}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A finished study of 2 models x 2 sizes x 1 seed."""
    folder = tmp_path_factory.mktemp("scale") / "study"
    done = commands.succeed("scale", "quick", *GRID, "--jobs", "1", "--out", folder)
    return folder, done


def test_a_study_leaves_the_files_of_the_contract(study):
    folder, done = study
    rows = results(folder)
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    assert {"train_items", "unit", "chance", "test_items", "balanced_accuracy", "macro_f1", *PROBED} <= {*rows[0]}
    for row in rows:
        kept = read_outcomes(folder / row["run"] / "heldout.npz")
        assert len(kept.means) == int(row["test_items"])
        assert kept.means.mean() == pytest.approx(float(row["accuracy"]), abs=1e-6)
    assert {(r["model"], r["train_size"]) for r in rows} == {
        (m, n) for m in ("vit_nano", "resnet_nano") for n in ("60", "150")
    }
    assert all(r["status"] == "finished" and r["budget"] == "steps=6" for r in rows)
    for row in rows:
        run = folder / row["run"]
        result = json.loads((run / "result.json").read_text())
        assert float(row["accuracy"]) == result["accuracy"]
        assert (run / "config.yaml").is_file()
        assert (run / "checkpoints" / "last.ckpt").is_file()
        (trained,) = [r["validation/accuracy"] for r in RunFiles(run).metrics() if "validation/accuracy" in r]
        kept = [r["validation/accuracy"] for r in commands.wandb_history(run) if "validation/accuracy" in r]
        assert kept == [pytest.approx(trained, abs=1e-6)]
        assert (run / "analysis" / "attention_distance.json").exists() == (row["family"] == "vit")
    assert (folder / "report.html").stat().st_size > 900_000
    assert {path.name for path in (folder / "figures").iterdir()} >= {
        *(f"accuracy_against_size.{kind}" for kind in ("svg", "png")),
        "samples.json",
    }
    assert {path.name for path in (folder / "tables").iterdir()} == {"results.md", "results.tex"}
    assert "\u2026" not in done.stdout, "a table in a pipe is whole"
    assert "report.html" in done.stdout
    assert f"vitlab sync {folder}" in done.stdout.replace("\n", "")
    assert "Traceback" not in done.stderr


def test_wandb_has_a_summary_of_the_study_with_figures_tables_and_numbers(study):
    folder, done = study
    logged, *by_size = commands.wandb_history(folder)
    assert [(row["train_size"], "by_size/accuracy/vit_nano" in row) for row in by_size] == [(60, True), (150, True)]
    assert logged["study/accuracy_against_size._type"] == "image-file"
    assert {logged[f"study/{name}.ncols"] for name in ("cells", "gaps")} == {12, 8}
    (run,) = [record["run"] for record in commands.wandb_records(folder) if record["type"] == "run"][:1]
    assert (run["job_type"], run["run_group"]) == ("summary", run["display_name"])
    updates = [r["summary"]["update"] for r in commands.wandb_records(folder) if r["type"] == "summary"]
    summary = {key: value for update in updates for key, value in update.items()}
    means = [
        float(row["accuracy"]) for row in results(folder) if (row["model"], row["train_size"]) == ("vit_nano", "150")
    ]
    assert summary["vit_nano/accuracy"] == pytest.approx(sum(means) / len(means))
    assert summary["runs"] == len(results(folder))
    assert summary["headline"] in " ".join(done.stdout.split())


def test_probes_of_every_run_are_columns(study):
    folder, _ = study
    for row in results(folder):
        result = json.loads((folder / row["run"] / "result.json").read_text())
        assert 0.1 < float(row["knn"]) == result["knn"] <= 1
        assert row["fewshot_25"] == "", "neither 60 nor 150 images are 25 of each of ten classes"
        assert (row["fewshot_10"] == "") == (row["train_size"] == "60")


def test_every_panel_of_the_workspace_names_what_the_runs_logged(study):
    folder, _ = study
    commands.succeed("report", folder, "--wandb")
    records = commands.wandb_records(folder / "vit_nano-n150-s0")
    logged = {key for record in records if record["type"] == "history" for key in record["history"]["item"]}
    view = json.loads((folder / "wandb-workspace.json").read_text())
    sections = view["spec"]["section"]["panelBankConfig"]["sections"]
    panels = [(panel["viewType"], panel["config"]) for section in sections for panel in section["panels"]]
    summary = commands.wandb_records(folder)
    logged |= {key for record in summary if record["type"] == "history" for key in record["history"]["item"]}
    drawn = {key for kind, config in panels if kind == "Run History Line Plot" for key in config["metrics"]}
    assert {"train/loss", "validation/accuracy", "by_size/accuracy/vit_nano"} <= drawn <= logged
    browsed = {key for kind, config in panels if kind == "Media Browser" for key in config["mediaKeys"]}
    assert "study/accuracy_against_size" in browsed
    assert {f"{key}._type" for key in browsed} <= logged
    colours = view["spec"]["section"]["customRunColors"]
    assert set(colours) == {json.loads(p.read_text())["wandb"]["id"] for p in folder.glob("*/result.json")}


def test_the_manifest_says_which_images_each_size_holds(study):
    folder, _ = study
    manifest = json.loads((folder / "subsets" / "digits-seed0.json").read_text())
    labels = load_data(load("data", "digits")).train.labels
    for entry, size in zip(manifest["subsets"], (60, 150), strict=True):
        indices = subset(labels, size, 0).astype("<i8")
        assert entry["sha256"] == hashlib.sha256(indices.tobytes()).hexdigest()
        assert entry["per_class"] == {str(digit): (labels[indices] == digit).sum() for digit in range(10)}
        assert sum(entry["per_class"].values()) == entry["size"] == size


def test_given_again_it_says_the_same_and_trains_nothing(study):
    folder, first = study
    before = contents(folder)
    (folder / "report.html").unlink()
    (folder / "results.csv").unlink()
    done = commands.vitlab("scale", "quick", *GRID, "--out", folder)
    assert (done.returncode, done.stdout) == (0, first.stdout), done.stderr
    assert "4 finished already" in done.stderr
    assert (folder / "report.html").is_file()
    assert len(results(folder)) == 4
    assert contents(folder) == before


def test_a_report_that_fails_at_the_end_costs_no_result(study, tmp_path, monkeypatch):
    folder = shutil.copytree(study[0], tmp_path / "study")
    (folder / "report.html").unlink()
    kept, maps = contents(folder), folder / "vit_nano-n60-s0" / "analysis" / "attention_maps.npz"
    for code, said in ((2, str(maps)), (1, "RuntimeError: no room")):
        (folder / "results.csv").unlink()
        maps.write_bytes(b"no maps")
        done = commands.vitlab("scale", "quick", *GRID, "--out", folder)
        assert (done.returncode, said in done.stderr, len(results(folder))) == (code, True, 4), done.stderr
        assert contents(folder) == kept
        monkeypatch.setattr("vitlab.reports.pages.study.write_report", Mock(side_effect=RuntimeError("no room")))


@pytest.mark.slow
def test_a_size_that_is_added_trains_only_its_own_runs(study):
    folder, _ = study
    before = contents(folder)
    added = ["models=[resnet_nano]", "sizes=[60,90]"]
    commands.succeed("scale", "quick", *GRID, *added, "--jobs", "1", "--out", folder)
    after = contents(folder)
    assert {path: after[path] for path in before} == before
    assert sorted({int(row["train_size"]) for row in results(folder)}) == [60, 90, 150]


def test_the_metric_of_a_finished_study_is_another_one_at_once(study, tmp_path):
    folder = shutil.copytree(study[0], tmp_path / "study")
    done = commands.succeed("scale", "quick", *GRID, "task.metric=macro_f1", "--out", folder)
    assert "4 finished already" in done.stderr
    assert "macro F1" in done.stdout


def test_another_study_is_refused_in_the_same_folder(study):
    folder, _ = study
    before = contents(folder)
    done = commands.vitlab("scale", "quick", *GRID, "budget.steps=7", "--out", folder)
    assert done.returncode == 2
    assert "budget.steps 6 -> 7" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert contents(folder) == before


def test_a_run_that_fails_stops_no_other(tmp_path):
    folder = tmp_path / "study"
    broken = "models={vit_nano: vit_nano, resnet_nano: {model: resnet_nano, recipe.lr: 1e30, recipe.clip_norm: null}}"
    words = [*GRID, "sizes=[60]", "probes=[]", "wandb.mode=off"]
    done = commands.vitlab("scale", "quick", *words, broken, "--jobs", "1", "--out", folder)
    assert done.returncode == 1
    assert [row["model"] for row in results(folder)] == ["vit_nano"]
    assert "resnet_nano-n60-s0" in done.stdout
    assert "recipe.lr" in done.stdout
    assert "Traceback" not in done.stderr
    assert "recipe.lr" in (folder / "report.html").read_text()


@contextlib.contextmanager
def run_in_thread(action, *, once):
    end = threading.Event()

    def watch():
        while not once():
            if end.wait(0.02):
                return
        action()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.slow
def test_a_study_that_was_stopped_and_then_killed_is_continued_by_the_same_command(tmp_path):
    """Ctrl-C while the first run trains, kill -9 when it has finished: the third start does the rest."""
    folder = tmp_path / "stopped"
    words = ["scale", "quick", *LONG, "wandb.mode=off", "--jobs", "1", "--out", folder]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with run_in_thread(lambda: os.kill(os.getpid(), signal.SIGINT), once=lambda: [*folder.glob("*/metrics.jsonl")]):
        done = commands.vitlab(*words)
    signal.signal(signal.SIGINT, before)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    (stopped,) = [path.parent for path in folder.glob("*-n*/metrics.jsonl")]
    assert not (stopped / "result.json").exists()
    config = compose(TrainConfig, base=RunFiles(stopped).config())

    program = commands.Program(*words)
    program.wait_for(lambda: list(folder.glob("*/result.json")))
    program.kill()
    finished = {path: path.read_bytes() for path in folder.glob("*/result.json")}
    assert stopped / "result.json" in finished
    commands.succeed(*words)
    assert {path: path.read_bytes() for path in finished} == finished
    assert len(results(folder)) == 2
    straight = train_run(config, tmp_path / "straight")
    continued = RunFiles(stopped).result()
    assert (continued["loss"], continued["accuracy"]) == (straight["loss"], straight["accuracy"])


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("of_runs", [["sizes=[60,90,150]"], DRAWN], ids=["sizes", "drawn trials"])
def test_two_starts_at_once_share_a_study(tmp_path, of_runs, killed):
    words = ["scale", "quick", *LONG, *of_runs, "wandb.mode=off", "--jobs", "1", "--out"]
    read_logs = lambda: [log.read_text() for log in tmp_path.glob("shared/*/log.txt")]  # noqa: E731
    programs = [commands.Program(*words, tmp_path / "shared") for _ in range(2)]
    if killed:
        programs[0].wait_for(lambda: any(": trained" in text for text in read_logs()))  # written after a result
        programs.pop(0).kill()
    assert {program.end().returncode for program in programs} == {0}
    commands.succeed(*words, tmp_path / "alone")
    assert table(tmp_path / "shared") == table(tmp_path / "alone")
    logs = read_logs()
    assert {log.count(": trained") for log in logs} == {1}
    assert len(logs) == (64 if of_runs is DRAWN else 3)


@pytest.mark.slow
def test_runs_without_a_valid_result_are_named_and_trained_again(tmp_path, monkeypatch):
    """One is deleted while the other trains; then both results are damaged, each in its own way."""
    monkeypatch.setattr(scale, "finish", lambda files, failed, *_: len(failed))  # no report, which takes its time
    folder, names = tmp_path / "study", ("vit_nano-n60-s0", "vit_nano-n150-s0")
    words = ["scale", "quick", *LONG, "budget.steps=90", "wandb.mode=off", "--jobs", "1", "--out", folder]
    first, second = (folder / name for name in names)
    with run_in_thread(lambda: shutil.rmtree(first), once=(second / "metrics.jsonl").exists):
        done = commands.vitlab(*words)
    assert done.returncode == 0, done.stderr
    assert f"1 finished run whose result was deleted or damaged since: {names[0]}" in done.stderr
    rows = [{"run": row["run"], "accuracy": row["accuracy"], "loss": row["loss"]} for row in results(folder)]
    assert [row["run"] for row in rows] == [*names]

    (first / "result.json").write_text("[]")
    (second / "result.json").write_text(json.dumps({**RunFiles(second).result(), "accuracy": "high"}))
    found = json.loads(commands.vitlab("status", folder, "--json").stdout)
    assert (found["finished"], found["waiting"]) == (0, 2)
    assert ["it is no result" in found["runs"][0]["error"], '"high"' in found["runs"][1]["error"]] == [True, True]
    done = commands.succeed(*words)
    assert [done.stderr.count(f"{folder / name / 'result.json'}: cannot read it (") for name in names] == [1, 1]
    assert [{key: row[key] for key in rows[0]} for row in results(folder)] == rows


@pytest.mark.slow
def test_images_that_were_added_to_a_study_or_replaced_are_noticed(tmp_path, photos):
    folder = tmp_path / "study"
    words = ["data=imagefolder", f"data.root={photos}", "budget.steps=1", "models=[vit_nano]", "sizes=[all]"]
    words = ["scale", *words, "seeds=[0]", "wandb.mode=off", "--jobs", "1", "--out", folder]
    commands.succeed(*words)
    path = photos / "sea" / "1.jpg"
    before = path.read_bytes()
    path.write_bytes(before + b"-")  # as many as before, and the run is finished
    for more in ([], ["models=[resnet_nano]"]):  # also where the start leaves out the runs of before
        done = commands.vitlab(*words, *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"--out {folder}: data=imagefolder has changed since vit_nano-n" in done.stderr
    path.write_bytes(before)
    shutil.copy(photos / "sea" / "1.jpg", photos / "sea" / "99.jpg")
    shutil.copy(photos / "sea" / "1.jpg", photos / "sea" / "98.jpg")
    done = commands.vitlab(*words)
    assert done.returncode == 2
    assert "data=imagefolder has changed since vit_nano-n" in done.stderr


def test_a_dry_run_prints_every_run_and_writes_nothing(tmp_path):
    folder = tmp_path / "study"
    done = commands.succeed("scale", "quick", *GRID, "models=[vit_nano]", "--dry-run", "--out", folder)
    assert not folder.exists()
    assert "quick: timing the first steps of each model" in done.stderr
    for run in ("vit_nano-n60-s0", "vit_nano-n150-s0"):
        assert run in done.stdout
    assert "FLOPs" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["data=digits", "budget.flops=1000"], ["budget.flops=1000"]),
        (["data=digits", "trainer.precision=16-mixed", "trainer.accelerator=cpu"], ["trainer.precision=16-mixed"]),
        (["data=digits", "sizes=[5,1000000]"], ["sizes=5", "sizes=1000000"]),
        (["data=digits", "models=[timm:resnet999]"], ["timm:resnet999"]),
        (["data=imagefolder", "data.root=/nowhere/at/all"], ["/nowhere/at/all"]),
    ],
)
def test_what_only_the_data_can_tell_is_one_line_each(tmp_path, words, expected):
    done = commands.vitlab("scale", *words, "--out", tmp_path / "study")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == len(expected)
    assert all(text in line for text, line in zip(expected, lines, strict=True))
    assert not (tmp_path / "study").exists()


# ---- the commands that a report prints

STUDY = ["data=imagefolder", "data.image_size=16", "sizes=[8]", "seeds=[0]", "budget.steps=2", "trainer.evaluations=1"]
STUDY += ["models=[resnet_nano]", "analyses=[]", "wandb.mode=off"]


@pytest.mark.slow  # five commands, a minute of processor time
def test_printed_commands_work_with_a_relative_root(photos, tmp_path, monkeypatch):
    started = tmp_path / "started"
    started.mkdir()
    monkeypatch.chdir(started)
    commands.succeed("scale", *STUDY, "data.root=../photos", "--jobs", "1", "--out", "a b/study")
    study = StudyFiles(started / "a b" / "study")
    monkeypatch.chdir("/")  # where the page is written again does not matter
    commands.succeed("report", study.folder)
    page = study.report_path.read_text()
    section = page[page.index('<section id="repeat">') :].partition("</section>")[0]
    (place,) = re.findall(r"was started, <code>(.*?)</code>", section)
    assert (study.folder / place).resolve() == started
    monkeypatch.chdir(study.folder / place)
    printed = [shlex.split(text) for text in re.findall(r"<dd><code>(.*?)</code>", html.unescape(section))]
    assert {words[1] for words in printed} == {"scale", "report", "eval"}
    for program, *words in printed:
        assert program == "vitlab"
        commands.succeed(*words)
    again = StudyFiles(started / "a b" / "study-again")
    assert [row["run"] for row in again.finished_rows()] == [row["run"] for row in study.finished_rows()]
