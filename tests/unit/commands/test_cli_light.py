"""Commands that only print: at once, without what trains, and each problem in one line on stderr."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.unit.reports.written_study import write_run
from vitlab.cli import COMMANDS, main
from vitlab.commands.describe import GROUPS
from vitlab.config import TrainConfig, compose, identity, names, resolved
from vitlab.data.opening import contents, open_data
from vitlab.files import write_json
from vitlab.studies.grid import compose_models, compose_study, make_spec
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

DRAWS = {"wandb", "altair", "vl_convert", "sklearn", "scipy", "pandas"}
TRAINS = {"lightning", "timm", "torchvision", "torchmetrics"}
HEAVY = {"torch", *TRAINS, *DRAWS}


@dataclass
class Done:
    """How a command went: its exit code, its output, the lines of its errors."""

    code: int
    out: str
    lines: list[str]


@pytest.fixture
def vitlab(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder, in this process, which saves half a second each."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        before = set(tmp_path.rglob("*"))
        try:
            code = main(words)
        except SystemExit as end:  # of --help
            code = end.code
        assert set(tmp_path.rglob("*")) == before, "nothing is written"
        output = capsys.readouterr()
        return Done(code, output.out, output.err.splitlines())

    return run


def read_errors(done, count=1):
    """The one line of each problem of a command that was wrong."""
    assert done.code == 2
    assert done.out == ""
    assert len(done.lines) == count, done.lines
    for line in done.lines:
        assert line.startswith("vitlab: ")
    return done.lines if count > 1 else done.lines[0]


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)], ids=str)
def test_help_names_every_command(vitlab, words):
    done = vitlab(*words)
    assert (done.code, done.lines) == (0, [])
    for name in COMMANDS:
        assert f"  {name} " in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(vitlab, command):
    done = vitlab(command, "--help")
    assert (done.code, done.lines) == (0, [])
    assert done.out.startswith(f"usage: vitlab {command}")


def test_lists_hold_every_file_of_their_folder(vitlab):
    for what, group in GROUPS.items():
        done = vitlab("list", what)
        assert (done.code, done.lines) == (0, [])
        listed, of_models = [line.split()[0] for line in done.out.splitlines()], what == "models"
        assert listed == ["layers"] * of_models + names(group) + ["timm:NAME"] * of_models
        for line in done.out.splitlines():
            assert len(line.split()) > 2, "each with what it is"


def test_all_mistakes_in_a_training_command_at_once(vitlab):
    model, rate, decay, word = read_errors(
        vitlab("train", "model=vit_nanoo", "trainer.lrr=1", "recipe.weight_decay=-1", "x=1"), 4
    )
    assert "model=vit_nanoo: unknown model; did you mean 'vit_nano'? choices: " in model
    assert "trainer.lrr: no key 'lrr' in 'trainer'; did you mean 'recipe.lr'? choices: accelerator" in rate
    assert "x: no key 'x'" in decay
    assert "recipe.weight_decay=-1.0: must be at least 0" in word


def test_a_list_that_the_shell_cut_at_a_space_asks_for_quotes(vitlab):
    first, second = read_errors(vitlab("scale", "models=[vit_nano,", "resnet_nano]"), 2)
    assert first.startswith("vitlab: models=[vit_nano,: the list has no ']'; quote a list with spaces")
    assert "'resnet_nano]' is not key=value; quote a list with spaces" in second


MISTAKES = [
    (("scal",), "vitlab: unknown command 'scal'; did you mean 'scale'? choices: scale, status"),
    (("train", "--ouut", "x"), "unrecognized arguments: --ouut; did you mean '--out'?"),
    (("scale", "--jobs", "0"), "--jobs: '0' is not a positive integer, nor auto"),
    (("scale", "--executor", "locl"), "executor=locl: unknown executor; did you mean 'local'? choices: local"),
    (("scale", "--detach"), "--detach: runs on executor=local end with this command; leave it out, or give --executor"),
    (("scale", "qick"), "study=qick: unknown study; did you mean 'quick'?"),
    (("scale", "quick", "other"), "'other' is not key=value, and the study is 'quick' already"),
    (("train", "data=imagefolder"), "data.root is missing: give data.root=VALUE"),
    (("list", "modles"), "unknown 'modles'; did you mean 'models'? choices: models, data"),
    (("list",), "the following arguments are required: what"),
    (("eval", "nowhere"), "nowhere: not a run, it holds no config.yaml"),
    (("train", "--model", "vit_nano"), "unrecognized arguments: --model; did you mean model=NAME?"),
    (("train", "vit_nano"), "'vit_nano' is not key=value; did you mean model=vit_nano?"),
    (("train", "model="), "model=: has no value; give one after '=', null for none"),
    (("report", "nowhere"), "nowhere: not a study, it holds no study.yaml"),
    (("status", "nowhere"), "nowhere: not a study, it holds no study.yaml"),
    (("generate", "run", "--temperature", "-1"), "--temperature: '-1' is not a number from 0 to 1e+06"),
    (
        ("generate", "run", "--beams", "3", "--temperature", "0.5", "--top-p", "0.9"),
        "--beams cannot be combined with sampling options (--temperature, --top-p)",
    ),
    (
        ("generate", "run", "--length-penalty", "0.5"),
        "--length-penalty only works with beam search; give --beams N too",
    ),
    (
        ("describe", "model=gpt2", "image_size=64"),
        "image_size=64: model=gpt2 does not have this; choices: length, vocabulary",
    ),
    (
        ("describe", "model=vit_nano", "data=digits", "channels=3"),
        "channels=3: data=digits sets it too; give channels or data, not both",
    ),
    (
        ("train", "data=pydoc", "data.tokenizer=null"),
        "data.tokenizer=null: expected text",
    ),
    (
        ("scale", "text_quick", "recipe.batch_size=4"),
        "recipe.batch_size: 'recipe' has no keys in a study; give "
        '"set=[model.dropout=0.2,recipe.batch_size=4]" for every run',
    ),
    (("scale", "model.depth=4"), "model.depth: no key 'model' in a study; give \"set=[model.depth=4]\" for every run"),
]


@pytest.mark.parametrize(
    ("words", "says"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_a_mistake_is_one_line_with_the_nearest_choice(vitlab, words, says):
    is_followed = words[:2] == ("generate", "run") and "-1" not in words  # by the run that is not there
    found = read_errors(vitlab(*words), 1 + is_followed)
    assert says in (found[0] if is_followed else found)


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


def test_commands_that_only_print_import_nothing_heavy(tmp_path):
    commands = [words for words, _ in MISTAKES] + [[command, "--help"] for command in COMMANDS]
    commands += [["list", what] for what in GROUPS]
    commands += [["list", f"{what}.keys"] for what in GROUPS if what != "studies"]
    _, modules = run_elsewhere(commands, tmp_path)
    assert "vitlab.commands.analyze" in modules
    assert not HEAVY & modules


def test_neither_does_a_study_that_has_finished(tmp_path):
    words = ["data.train_images=720", "data.test_images=72", "sizes=[500]", "seeds=[0]"]
    config = compose_study("quick", words)
    data = contents(config.data, open_data(config.data))
    files = StudyFiles(tmp_path / "study")
    cells = [(variant, 500, 0) for variant in ("vit_nano", "resnet_nano")]
    files.add_start(resolved(config), cells, "quick: 2 runs")
    for place, (variant, run) in enumerate(compose_models(config).items()):
        spec = make_spec(resolved(run), 500, 0)
        write_run(files, "quick", variant, "vit", 500, place, 0)
        own = files.run(spec.name)
        own.write_config(spec.config)
        write_json(own.result_path, {**own.result(), "id": identity(spec.config, data)})
    report = ["scale", "quick", *words, "--out", str(files.folder)]
    files.write_rows(files.finished_rows())
    files.report_path.write_text("a page")
    lines, modules = run_elsewhere([report, ["status", str(files.folder)]], tmp_path)
    assert lines[-1].startswith("2 runs: 2 finished")
    assert any(line.split()[:1] == ["500"] for line in lines)
    assert files.report_path.read_text() == "a page", "not drawn again"
    assert not HEAVY & modules


def test_counting_a_model_imports_torch_alone(tmp_path):
    lines, modules = run_elsewhere([["describe", "model=vit_b16"], ["describe", "model=bert_base"]], tmp_path)
    assert any("86,567,656" in line for line in lines)
    assert "torch" in modules
    assert not (TRAINS | DRAWS) & modules


@pytest.mark.parametrize("lacks", ["title", "examples"])
def test_an_own_analysis_that_lacks_a_key_is_refused_at_start_up(vitlab, tmp_path, lacks):
    options = {"kind": "mylab.spread", "title": "spread", "examples": 4}
    (tmp_path / "own.yaml").write_text("".join(f"{k}: {v}\n" for k, v in options.items() if k != lacks))
    said = f"analyses=./own.yaml: {lacks} is missing"
    for command in ("train", "scale"):
        assert said in read_errors(vitlab(command, "analyses=[./own.yaml]"))
    run = RunFiles(tmp_path / "run")
    run.write_config(resolved(compose(TrainConfig)))
    write_json(run.result_path, {"study": "s", "run": "run", "model": "m", "train_size": 7, "seed": 0})
    assert f"./own.yaml: {lacks} is missing" in read_errors(vitlab("analyze", "run", "./own.yaml"))
    assert "./gone.yaml: no such file" in read_errors(vitlab("analyze", "run", "./gone.yaml"))


def test_mistakes_in_what_is_asked_of_a_run_come_before_the_run_is_loaded(vitlab, tmp_path):
    run = RunFiles(tmp_path / "run")
    run.write_config(resolved(compose(TrainConfig)))
    assert "run: the run is not finished" in read_errors(vitlab("eval", "run"))
    write_json(run.result_path, {"study": "s", "run": "run", "model": "m", "train_size": 7, "seed": 0})
    for command in (("eval", "run"), ("analyze", "run", "--out", "other")):
        assert "data=digts: unknown data; did you mean 'digits'?" in read_errors(vitlab(*command, "data=digts"))


def test_a_folder_that_holds_something_else_is_refused_before_anything_is_imported(vitlab, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "--out mine: is not empty and holds no study" in read_errors(vitlab("scale", "--out", "mine"))
    (tmp_path / "file").touch()
    assert "--out file: is a file; give a folder" in read_errors(vitlab("scale", "--out", "file"))
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]


def test_a_pipe_that_closes_early_is_no_traceback(tmp_path):
    """`vitlab list models | head -0`"""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "vitlab.cli", "list", "models"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert "Traceback" not in done.stderr
