"""README and docs: every block of Python runs, every `vitlab` command is one that the program takes, every link leads
to a file."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.learning import bert, language_model
from tests.unit.reports.written_study import make_study
from vitlab.cli import COMMANDS, main
from vitlab.commands.arguments import CommandParser
from vitlab.config import TrainConfig, compose, names
from vitlab.data.text.tokenization import train_wordpiece
from vitlab.files import write_json
from vitlab.models.huggingface import save_huggingface
from vitlab.reports.figures import save_figure
from vitlab.studies.grid import compose_study
from vitlab.studies.results import load_results

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("notes/*.md")),
]
PLACEHOLDERS = {"...", "STUDY", "RUN"}


def read_blocks(page, language):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for of, block in blocks if of == language]


def list_commands():
    for page in PAGES:
        for block in read_blocks(page, ""):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.partition("| ")[0], comments=True) if line.startswith("vitlab ") else []
                if words and not any(word.startswith("$") for word in words):
                    yield pytest.param(words[1:], id=f"{page.stem}: {line[:60]}")


class Parsed(BaseException):
    """Passes the handler of a command's errors."""


def stop_after(parse):
    def stop(parser, words):
        raise Parsed(parse(parser, words))

    return stop


@pytest.fixture
def parse(monkeypatch, tmp_path):
    """What a command makes of its words, before it does anything."""
    for name in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(CommandParser, name, stop_after(getattr(CommandParser, name)))

    def run(words):
        with pytest.raises(Parsed) as caught:
            main(words)
        return caught.value.args[0]

    return run


@pytest.mark.parametrize("words", list(list_commands()))
def test_the_program_takes_every_command(words, parse, tmp_path):
    (tmp_path / "reviews.csv").touch()
    verb, *rest = words
    assert verb in COMMANDS
    arguments = parse([verb, *(word for word in rest if word not in PLACEHOLDERS)])
    if verb not in ("scale", "train") or "..." in rest:
        return
    given = arguments.words if verb == "scale" else arguments.overrides
    overrides = [word for word in given if "=" in word and "=./" not in word]  # a folder that a reader has
    if verb == "train":
        assert compose(TrainConfig, overrides).model.name
    else:
        study = next((word for word in given if word in names("study")), "arrow")
        assert all(word == study or word.endswith(".yaml") for word in given if "=" not in word)
        assert compose_study(study, overrides).models


def test_the_errors_that_are_shown_are_those_printed(capsys):
    shown = [block.splitlines() for page in PAGES for block in read_blocks(page, "") if "\nvitlab: " in block]
    assert shown
    for command, *lines in shown:
        assert main(shlex.split(command)[2:]) == 2
        assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize("page", [page for page in PAGES if read_blocks(page, "yaml")], ids=lambda page: page.stem)
def test_a_study_that_is_shown_is_one(page, tmp_path):
    for number, block in enumerate(read_blocks(page, "yaml")):
        if "models:" not in block:
            continue
        path = tmp_path / f"study{number}.yaml"
        path.write_text(block)
        assert compose_study(str(path), []).models


def save_sentence_model(folder):
    """Save a BERT with random weights and a tokenizer."""
    tokenizer = train_wordpiece(["The weather is lovely today.", "He drove to the stadium."], 60, lowercase=True)
    save_huggingface(bert(60, length=32, width=16, depth=1, heads=2), folder)
    tokenizer.save(folder / "tokenizer.json")


@pytest.mark.parametrize("page", [page for page in PAGES if read_blocks(page, "python")], ids=lambda page: page.stem)
def test_every_block_of_python_runs(page, tmp_path):
    model = language_model(50257, length=64, width=16, depth=1, heads=2)
    save_huggingface(model, tmp_path / "gpt2")
    make_study(tmp_path / "runs" / "arrow")
    save_sentence_model(tmp_path / "all-MiniLM-L6-v2")
    found, blocks = {}, re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    for language, block in blocks:
        if language == "python":
            exec(compile(block, page.name, "exec"), found)
        elif page.stem == "reuse":  # whose commands make what the next block reads
            assert [main(shlex.split(line)[1:]) for line in block.splitlines()] == [0] * block.count("\n")
    if "draw" in found:  # of a figure
        (figure,) = found["draw"](load_results(make_study(tmp_path / "quick").folder))
        assert all(path.stat().st_size > 5000 for path in save_figure(figure, tmp_path))
    if "losses" in found:  # of a head on the encoder
        assert found["losses"][-1] < found["losses"][0] / 2
        assert found["trainer"].global_step == 4
        assert torch.allclose(found["vectors"].norm(dim=1), torch.ones(3))
        assert found["found"][0]["label"] == found["table"]["prediction"][0]
        assert found["places"].shape == (2, 2)
    if "score_glue" in found:
        for task, result in {"cola": {"matthews": 0.5}, "mrpc": {"accuracy": 0.9, "f1": 0.7}}.items():
            write_json(tmp_path / "glue" / task / "result.json", result)
        assert found["score_glue"](tmp_path / "glue") == pytest.approx(65)
    if "load" in found:  # of a dataset
        data = found["load"](SimpleNamespace(name="stripes", period=4, images=6))
        assert data.train.read([0, 1]).shape == (2, 1, 16, 16)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_and_named_page_is_there(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [name for name in re.findall(r"\b(?:docs|notes)/[\w-]+\.md", text) if not (ROOT / name).is_file()] == []


def test_ci_runs_the_commands_of_readme_in_its_order():
    """The tests pass in a folder where somebody has trained the first study."""
    wanted = [line.partition("#")[0].split() for line in read_blocks(PAGES[0], "")[0].splitlines()]
    ran = [line.split() for line in (ROOT / ".ci" / "run").read_text().splitlines() if " && uv run " in line]
    assert [words[: len(line)] for words, line in zip(ran, wanted, strict=True)] == wanted


@pytest.mark.slow
def test_the_first_command_of_readme_ends_with_its_sentence(tmp_path):
    words = [sys.executable, "-m", "vitlab", "scale"]
    said = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "ViT passes ResNet" in " ".join(said.split())
    assert len((tmp_path / "runs/arrow/results.csv").read_text().splitlines()) == 25


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run_and_leave_what_it_names(tmp_path):
    page = ROOT / "docs" / "tutorial.md"
    (study,) = read_blocks(page, "yaml")
    (tmp_path / "patches.yaml").write_text(study)
    for line in "".join(read_blocks(page, "")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["vitlab"] and words[1] != "sync":  # which needs a network
            subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, check=True)
    named = re.findall(r"`(runs/[^`]+)`", page.read_text())
    assert named
    assert [path for path in named if not (tmp_path / path).exists()] == []
