"""Commands that only print: at once, without what trains, and each problem in one line on stderr."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.commands.test_mistakes import MISTAKES, ROWS
from vitlab.cli import COMMANDS, main
from vitlab.commands.describe import GROUPS
from vitlab.config import TrainConfig, compose, names, resolved
from vitlab.files import write_json
from vitlab.studies.grid import compose_study
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

DRAWS = {"wandb", "altair", "vl_convert", "sklearn", "scipy", "pandas"}
TRAINS = {"lightning", "timm", "torchvision", "torchmetrics"}
HEAVY = {"torch", *TRAINS, *DRAWS}


@pytest.fixture
def vitlab(tmp_path, capsys):
    """Runs a command in an empty folder, in this process; gives its exit code, its output, the lines of its errors."""

    def run(*words):
        before = set(tmp_path.rglob("*"))
        try:
            code = main(words)
        except SystemExit as end:  # of --help
            code = end.code
        assert set(tmp_path.rglob("*")) == before, "nothing is written"
        output = capsys.readouterr()
        return code, output.out, output.err.splitlines()

    return run


def read_error(done):
    """The one line of a command that was wrong."""
    code, out, (line,) = done
    assert (code, out, line[:8]) == (2, "", "vitlab: ")
    return line


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)], ids=str)
def test_help_names_every_command(vitlab, words):
    code, out, errors = vitlab(*words)
    assert (code, errors) == (0, [])
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(vitlab, command):
    code, out, errors = vitlab(command, "--help")
    assert (code, errors) == (0, [])
    assert out.startswith(f"usage: vitlab {command}")


def test_lists_hold_every_file_of_their_folder(vitlab):
    for what, group in GROUPS.items():
        code, out, errors = vitlab("list", what)
        assert (code, errors) == (0, [])
        listed, of_models = [line.split() for line in out.splitlines()], what == "models"
        assert [first for first, *_ in listed] == ["layers"] * of_models + names(group) + ["timm:NAME"] * of_models
        assert all(len(line) > 2 for line in listed), "each with what it is"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("scale", "arrow"),
        ("scale data=digits", "quick"),
        ("scale quick name=mine", "mine"),
        ("train data=digits seed=3", "vit_nano-digits-nall-s3"),
    ],
)
def test_a_study_without_a_name_is_arrow_or_quick_and_files_go_below_runs(words, name, there, monkeypatch):
    folders = []
    for what in ("scale.scale", "train.run_rank_0"):
        monkeypatch.setattr(f"vitlab.commands.{what}", lambda config, folder, *_, **__: folders.append(folder) or 0)
    assert main(words.split()) == 0
    assert folders == [Path("runs", name)]


def run_elsewhere(commands, folder):
    """What commands print, one after the other in a process of their own, and the modules that they import."""
    code = """
import contextlib, json, sys
from vitlab.cli import main
for words in json.loads(sys.argv[1]):
    with contextlib.suppress(SystemExit):
        main(words)
print(*sys.modules)
"""
    command = [sys.executable, "-c", code, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    *lines, modules = done.stdout.splitlines()
    return lines, set(modules.split())


def test_commands_that_only_print_import_nothing_heavy(there):
    commands = [words for words, _ in ROWS[: MISTAKES[""].count(" -> ")]]
    commands += [[command, "--help"] for command in COMMANDS]
    commands += [["list", what] for what in GROUPS]
    commands += [["list", f"{what}.keys"] for what in GROUPS if what != "studies"]
    _, modules = run_elsewhere(commands, there)
    assert "vitlab.commands.analyze" in modules
    assert not HEAVY & modules


def test_neither_does_the_status_of_a_study(tmp_path):
    files = StudyFiles(tmp_path / "study")
    files.add_start(resolved(compose_study("quick", ["sizes=[500]", "seeds=[0]"])), [("vit_nano", 500, 0)])
    lines, modules = run_elsewhere([["status", str(files.folder)]], tmp_path)
    assert lines[-1].startswith("1 run: 1 waiting")
    assert not HEAVY & modules


def test_counting_a_model_imports_torch_alone(tmp_path):
    lines, modules = run_elsewhere([["describe", "model=vit_b16"], ["describe", "model=bert_nano"]], tmp_path)
    assert any("86,567,656" in line for line in lines)
    assert "torch" in modules
    assert not (TRAINS | DRAWS) & modules


def test_mistakes_in_what_is_asked_of_a_run_come_before_the_run_is_loaded(vitlab, tmp_path):
    run = RunFiles(tmp_path / "run")
    run.write_config(resolved(compose(TrainConfig)))
    assert "run: the run is not finished" in read_error(vitlab("eval", "run"))
    write_json(run.result_path, {"study": "s", "run": "run", "model": "m", "train_size": 7, "seed": 0})
    for command in (("eval", "run"), ("analyze", "run", "--out", "other"), ("scale", "quick"), ("train",)):
        assert "data=digts: unknown data; did you mean 'digits'?" in read_error(vitlab(*command, "data=digts"))
    (tmp_path / "own.yaml").write_text("kind: mylab.spread\ntitle: spread\n")
    assert "./own.yaml: examples is missing" in read_error(vitlab("analyze", "run", "./own.yaml"))
    assert "./gone.yaml: no such file" in read_error(vitlab("analyze", "run", "./gone.yaml"))


def test_a_pipe_that_closes_early_is_no_traceback(tmp_path):
    """`vitlab list models | head -0`"""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "vitlab.cli", "list", "models"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert "Traceback" not in done.stderr
