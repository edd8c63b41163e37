"""How a study goes, from its files: what trains here and elsewhere, what was lost, what failed."""

import json
import os
import re
import time

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.cli import main
from vitlab.commands.scale import print_table
from vitlab.files import write_json
from vitlab.reports.words import SizeTable
from vitlab.studies.claims import hold, path_of

HERE, ELSEWHERE, LOST, WAITS, FAILED = (f"{name}-s1" for name in ("a-n100", "b-n100", "a-n200", "b-n200", "c-n200"))


@pytest.fixture
def study(tmp_path):
    """A study of 12 runs: of 7 finished ones by 20 s each; of seed 1, one of each other state."""
    study = make_study(tmp_path / "study", models=dict.fromkeys("abc", "vit"), sizes=(100, 200), failed=1)
    for run in (HERE, ELSEWHERE, LOST, WAITS):
        study.run(run).result_path.unlink()
    for path in study.folder.glob("*/result.json"):
        write_json(path, {**json.loads(path.read_text()), "wall_s": 20.0})
    return study


def leave_claim(folder, ago, **owner):
    """A claim of another host, whose last heartbeat was some seconds ago."""
    path = path_of(folder, 1)
    write_json(path, {"host": "node7", "pid": 1, "started": "", **owner})
    os.utime(path, (time.time() - ago,) * 2)


def write_progress(run, step, seconds):
    write_json(run.data_path, {"sha256": "", "steps": 100})
    row = {"step": step, "wall_s": seconds, "train/loss": 1.0}
    run.metrics_path.write_text(json.dumps(row) + "\n")


def test_the_state_of_each_run(study, capsys):
    write_progress(study.run(ELSEWHERE), 50, 18.0)
    leave_claim(study.run(ELSEWHERE).folder, 12.0)
    write_progress(study.run(LOST), 20, 4.0)
    leave_claim(study.run(LOST).folder, 400.0)
    write_progress(study.run(HERE), 50, 10.0)
    with hold(study.run(HERE).folder):
        before = {*study.folder.rglob("*")}
        assert main(["status", str(study.folder)]) == 0
        shown = capsys.readouterr().out
        assert main(["status", str(study.folder), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {*study.folder.rglob("*")} == before, "nothing is written"
    assert [found[state] for state in ("finished", "failed", "running", "waiting")] == [7, 1, 2, 2]
    runs = {run["run"]: run for run in found["runs"]}
    assert (runs[HERE]["step"], runs[HERE]["steps"]) == (50, 100)
    assert runs[HERE]["heard_seconds_ago"] < 5
    assert runs[ELSEWHERE]["where"] == "node7, process 1"
    assert runs[ELSEWHERE]["heard_seconds_ago"] == pytest.approx(12, abs=5)
    assert runs[ELSEWHERE]["seconds_left"] == 18
    assert (runs[LOST]["state"], runs[LOST]["step"]) == ("waiting", 20)
    assert runs[WAITS] == {"run": WAITS, "state": "waiting"}
    assert runs[FAILED]["error"].startswith("Diverged: the loss is not a number")
    # after 10 s one worker takes the 16 s of a run that was lost, after 18 s the other one 20 s
    assert found["seconds_left"] == pytest.approx(38)
    first, stopped, *rest = shown.splitlines()
    assert first == "12 runs: 7 finished, 1 failed, 2 running, 2 waiting; about 38 s left"
    assert stopped == f"stopped, to be continued: {LOST} at step 20"
    assert f"{FAILED}  Diverged" in shown
    assert "node7, process 1" in next(line for line in rest if line.startswith(ELSEWHERE))
    write_progress(study.run(ELSEWHERE), 100, 36.0)
    assert main(["status", str(study.folder)]) == 0
    assert "100 of 100 testing" in capsys.readouterr().out


def test_all_studies_of_a_folder_and_the_study_of_a_run(study, capsys):
    main(["status", str(study.folder.parent)])
    assert capsys.readouterr().out.startswith(f"{study.folder}\n12 runs: 7 finished")
    (study.run(HERE).folder / "config.yaml").touch()
    main(["status", str(study.run(HERE).folder), "--json"])
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 12


@pytest.mark.parametrize(("name", "text"), [("runs.json", "[[1]]"), (f"{FAILED}/error.json", "3")])
def test_a_file_of_something_else_is_one_line(study, capsys, name, text):
    path = study.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert main(["status", str(study.folder)]) == 2
    assert capsys.readouterr().err.startswith(f"vitlab: {path}: cannot read it (")


# ---- the table that ends a study

VERDICT = "undecided: a_model_with_a_long_name ahead by 6.4 points (-2.1 to 14.9)"
NAMES = ["a_model_with_a_long_name", "another_model_with_a_long_name", "a_third_model"]
TABLE = SizeTable(["training examples", *NAMES, "best vs. runner-up"], [["250", "73.6%", "79.9%", "1.0%", VERDICT]], "")


@pytest.mark.parametrize("columns", [200, 60])
def test_in_a_terminal_no_cell_is_cut_and_no_word_is_broken(columns, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(TABLE)
    text = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "\u2026" not in text
    words = {*" ".join(NAMES).split(), *VERDICT.split()}
    assert words <= set(text.split())
    assert max(map(len, text.splitlines())) <= columns
