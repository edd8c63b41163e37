"""What nobody foresaw, and names that would steer the terminal: one line each."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.cli import main
from vitlab.commands.inference import SLACK, report_difference
from vitlab.config import UserError
from vitlab.console import Console, ShownControls, shown_controls
from vitlab.files import write_json
from vitlab.studies.status import Display, RunState, StudyStatus
from vitlab.studies.store import StudyFiles

STEERS = "\x1b[2J\x07\x00\x9b\u202e\u2066"
SHOWN = r"\u001b[2J\u0007\u0000\u009b\u202e\u2066"


@pytest.fixture
def deep(tmp_path, monkeypatch):
    """A study that cannot be read for a reason that nobody foresaw."""

    def fail(self):
        raise RecursionError("too deep")

    study = make_study(tmp_path / "study", models={"a": "vit"}, sizes=(100,), seeds=(0,), failed=0)
    monkeypatch.setattr(StudyFiles, "run_keys", fail)
    return str(study.folder)


def test_an_unexpected_error_is_one_line_with_its_traceback_in_a_file(deep, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = {*tmp_path.rglob("*")}
    assert main(["status", deep]) == 1
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    (path,) = {*tmp_path.rglob("*")} - before
    assert out == ""
    assert line.startswith("vitlab: RecursionError: ")
    assert line.endswith(f"(traceback: {path}; VITLAB_DEBUG=1 shows it)")
    command, first, *_ = path.read_text().splitlines()
    assert (command, first) == (f"vitlab status {deep}", "Traceback (most recent call last):")


def test_vitlab_debug_shows_the_traceback_of_an_unexpected_error(deep, monkeypatch, capsys):
    monkeypatch.setenv("VITLAB_DEBUG", "1")
    assert main(["status", deep]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-1].startswith("vitlab: RecursionError: ")


def test_control_characters_of_names_and_texts_are_shown_not_obeyed(tmp_path, capsys):
    study = make_study(tmp_path / "\x1b[2J\u202e", models={"a": "vit"}, sizes=(100, 200), seeds=(0,), failed=1)
    error = study.run("a-n200-s0").error_path
    write_json(error, {**json.loads(error.read_text()), "error": f"no class {STEERS}"})
    assert main(["status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    first, *rest = out.splitlines()
    assert first == rf"{tmp_path}/\u001b[2J\u202e"  # by print
    # by Rich, which leaves out a bell
    assert f"no class {SHOWN}".replace(r"\u0007", "") in "\n".join(rest)
    assert main(["status", str(study.folder), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert runs[1]["error"] == f"no class {STEERS}", "a document keeps what it holds"


def test_a_live_table_moves_the_cursor_and_an_error_in_it_does_not(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with shown_controls():
        console = Console(stderr=True, width=120)
        with Display(console) as display:
            display.show(StudyStatus([RunState("a", "vit", 10, "running"), RunState("b", "vit", 10)]))
            display.live.refresh()
            display.show(StudyStatus([RunState("a", "vit", 10, "failed", error=f"no class {STEERS}")]))
            display.live.refresh()
            console.print("[red]failed[/red]", Path(STEERS).name)
            print(f"\r50%{STEERS}\r", end="", file=ShownControls(terminal))
    written = terminal.getvalue()
    assert "\x1b[1A" in written, "the table is drawn in its place"
    assert "\x1b[31mfailed\x1b[0m" in written
    assert f"\r50%{SHOWN}\r" in written
    assert not re.search("\x1b\\[2J|[\x07\x00\x9b\u202e\u2066]", written)


def test_a_file_whose_logits_are_off_is_refused(tmp_path, capsys):
    report_difference(tmp_path, SLACK, "onnxruntime")
    report_difference(tmp_path, None, "onnxruntime")
    with pytest.raises(UserError, match=r"its logits are off by 10\.0% of the largest"):
        report_difference(tmp_path, 0.1, "onnxruntime")
    assert capsys.readouterr().err.count("not compared with the run, which needs onnxruntime") == 1


def test_an_answer_of_advise_is_no_run(tmp_path, capsys):
    write_json(tmp_path / "advice" / "advice.json", {"predictor": {"run": "study-0/vit_nano-n9-s0"}})
    before = {*tmp_path.rglob("*")}
    assert main(["export", str(tmp_path / "advice"), str(tmp_path / "photos.onnx")]) == 2
    assert "not a run, it holds no config.yaml" in capsys.readouterr().err
    assert {*tmp_path.rglob("*")} == before
