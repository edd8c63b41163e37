"""No command writes over a file that it did not write."""

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from tests.integration.commands import FINISHED, PLAIN, succeed, vitlab

MARKS = [f"vit,{size},{seed},{0.5 / size + 0.01 * seed}" for size in (1, 2, 4, 8) for seed in (1, 2)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory, finished):
    """Give the words of each command that has --out, beside a folder that it has written: {name: (words, folder)}."""
    root = tmp_path_factory.mktemp("outputs")
    for number in range(8):
        color = (25 * number, 120, 200 - 20 * number)
        (root / "photos" / f"{number % 2}").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), color).save(root / "photos" / f"{number % 2}" / f"{number}.png")
    table = root / "table.csv"
    table.write_text("\n".join(["model,train_size,seed,error", *MARKS]))
    study = ["scale", "quick", *PLAIN, "models=[vit_nano]", "sizes=[60]", "seeds=[0]", "budget.steps=2", "name=few"]
    words = {
        "train": ["train", *FINISHED],
        "scale": [*study, "--jobs", "1"],
        "report": ["report", table],
        "fit": ["fit", table],
        "data": ["data", root / "photos"],
        "advise": ["advise", root / "photos"],
        "analyze": ["analyze", finished, "attention_distance"],
        "eval": ["eval", finished],
        "describe": ["describe", "model=vit_nano", "--positions"],
    }
    for name, some in words.items():
        if name not in ("train", "advise"):
            succeed(*some, "--out", root / name)
    (root / "advise").mkdir()  # takes minutes: its files' names, and the mark of `data` with another command
    for file in ("data.html", "data.json", "advice.json", "advice.html", "pictures.csv", "networks.yaml"):
        (root / "advise" / file).touch()
    mark = json.loads((root / "data" / ".vitlab.json").read_text())
    (root / "advise" / ".vitlab.json").write_text(json.dumps(mark | {"command": "advise"}))
    return {name: (some, finished if name == "train" else root / name) for name, some in words.items()}


def read_files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_refused(words, out):
    before = read_files(out)
    done = vitlab(*words, "--out", out)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (words, out, done.stderr)
    assert done.stderr.startswith(f"vitlab: --out {out}: "), done.stderr
    assert read_files(out) == before


def test_a_command_refuses_a_folder_of_someone_else(outputs, tmp_path):
    """Each command with each file that it writes, in a folder of another program."""
    for command, (words, written) in outputs.items():
        for name in {path.name for path in written.iterdir() if not path.name.startswith(".")}:
            folder = tmp_path / command / name
            folder.mkdir(parents=True)
            (folder / name).write_text("mine: 1\n")
            done = vitlab(*words, "--out", folder)
            assert done.returncode == 2, (command, name)
            assert str(folder) in done.stderr.splitlines()[0]
            assert read_files(folder) == {name: b"mine: 1\n"}


def test_a_command_refuses_the_folders_of_other_commands(outputs):
    for command, (words, _) in outputs.items():
        for other, (_, written) in outputs.items():
            if other != command:
                assert_refused(words, written)


def test_a_command_writes_again_about_the_same_and_refuses_another_subject(outputs, tmp_path):
    words, written = outputs["report"]
    succeed(*words, "--out", written)
    other = tmp_path / "table.csv"
    other.write_text(words[1].read_text())
    assert_refused(["report", other], written)
    assert_refused(["fit", other], outputs["fit"][1])
    succeed("report", "table.csv")
    done = vitlab("report", words[1])
    assert done.returncode == 2
    assert f"holds what 'vitlab report' wrote about {other.resolve()}" in done.stderr


def test_report_next_to_its_source_keeps_the_source(outputs, tmp_path):
    text = outputs["report"][0][1].read_text()
    Path("results.csv").write_text(text)
    assert vitlab("report", "results.csv", "--out", ".").returncode == 2
    assert (Path("results.csv").read_text(), os.listdir()) == (text, ["results.csv"])


@pytest.mark.parametrize("name", ["model.safetensors", "model.onnx"])
def test_export_refuses_a_file_that_exists(finished, tmp_path, name):
    (tmp_path / name).write_text("mine")
    done = vitlab("export", finished, tmp_path / name)
    assert (done.returncode, done.stderr) == (
        2,
        f"vitlab: FILE {tmp_path / name}: exists; delete it, or give another name\n",
    )
    assert (tmp_path / name).read_text() == "mine"
