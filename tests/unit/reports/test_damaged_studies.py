"""Studies whose files are damaged or come from elsewhere: one line that says so, and nothing written."""

import errno
import json
import os
import zipfile

import numpy as np
import pytest

from tests.unit.reports.test_study import make_study
from vitlab.cli import report_full_disk
from vitlab.config import UserError
from vitlab.files import replacing
from vitlab.formatting import DASH, finite, whole
from vitlab.reports.pages.quantize import packed
from vitlab.reports.pages.study import write_report
from vitlab.reports.pages.urls import file_stem
from vitlab.reports.results.analysis_files import read_maps
from vitlab.training.files import RunFiles

MODELS = {"vit_nano": "vit", "resnet_nano": "resnet"}


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path / "quick", models=MODELS, sizes=(50, 130), seeds=(0,), failed=0)


def refusal(study):
    """What `write_report` says, of a study in which it wrote nothing."""
    before = {path: path.stat().st_mtime_ns for path in study.folder.rglob("*")}
    with pytest.raises(UserError) as error:
        write_report(study.folder)
    assert {path: path.stat().st_mtime_ns for path in study.folder.rglob("*")} == before
    assert all("\n" not in line for line in error.value.problems)
    return error.value.problems


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"run": "x" * 300}, "is not a folder of the study"),
        ({"run": "vit_nano-n50-s0"}, "run=vit_nano-n50-s0 stands there twice"),
        ({"accuracy": 2.0}, "accuracy=2.0 is not a share between 0 and 1"),
        ({"accuracy": -0.1}, "accuracy=-0.1 is not a share between 0 and 1"),
        ({"wall_s": 1e308}, "wall_s=1e+308 is too large a number"),
        ({"train_flops": 1e308}, "train_flops=1e+308 is too large a number"),
        ({"train_size": "9" * 400}, "train_size=inf is not a number of examples"),
        ({"train_size": "9" * 200}, "train_size=1e+200 is too large a number"),
    ],
)
def test_a_row_that_no_run_writes_is_refused(study, change, says):
    rows = study.rows()
    rows[1] |= change
    study.write_rows(rows)
    assert any(says in line for line in refusal(study))


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("failed.json", "[" * 100_000, "nested too deep"),
        ("RUN/result.json", "[" * 100_000, "nested too deep"),
        ("RUN/result.json", '{"environment": {"cpu": ["x"]}}', "environment.cpu is neither a text nor a number"),
        ("RUN/result.json", '{"wandb": {"id": ["x"]}}', "wandb.id is neither a text nor a number"),
        ("RUN/config.yaml", "analyses: 3", "analyses=3 is not a list"),
        ("RUN/metrics.jsonl", '{"step": NaN, "train/loss": 1}', "step is not a whole number"),
        ("RUN/metrics.jsonl", f'{{"step": {"9" * 400}, "train/loss": 1}}', "step is not a whole number"),
        ("RUN/analysis/attention_maps.npz", "x", "cannot read it: File is not a zip file; delete it, then"),
        ("figures/samples.json", '[{"size": 1e999, "texts": []}]', "cannot read it"),
    ],
)
def test_a_damaged_file_is_named(study, file, content, says):
    path = study.folder / file.replace("RUN", "vit_nano-n130-s0")
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    (line,) = refusal(study)
    assert line.startswith(str(path))
    assert says in line


@pytest.mark.parametrize("key", ["data", "set"])
def test_a_study_of_other_types_is_refused(study, key):
    study.write_config({**study.config(), key: 3})
    (line,) = refusal(study)
    assert f"{key}=3 is not a" in line


@pytest.mark.parametrize(
    "change",
    [{"layer": "x"}, {"layer": 0}, {"layer": [1]}, {"head": None}, {"head": 1.5}, {"step": "4"}, {"step": -1},
     {"step": True}, {"value": "<b>"}, {"value": [1]}],
)  # fmt: skip
def test_a_row_of_heads_that_is_none_is_refused(study, change):
    row = {"step": 4, "layer": 1, "head": 1, "value": 3.5}
    path = study.run("vit_nano-n130-s0").analysis_folder / "attention_entropy.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"name": "attention_entropy", "unit": "bits", "rows": [row, row | change]}))
    (line,) = refusal(study)
    assert line.startswith(f"{path}: row 2: {next(iter(change))}=")


def arrays():
    """A file's arrays of 2 pictures, 3 layers, 5 heads, 7 x 4 patches."""
    return {
        "maps": np.full((2, 3, 5, 7, 4), 0.03, np.float16),
        "rollout": np.full((2, 3, 7, 4), 0.03, np.float16),
        "pictures": np.zeros((2, 1, 14, 8), np.uint8),
        "names": np.array(["a", "b"]),
        "class_token": np.array(1, np.uint8),
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"maps": np.zeros((2, 3, 5, 7, 4), np.complex64)}, "maps and rollout of floats"),
        ({"rollout": np.zeros((2, 3, 7, 4), "M8[s]")}, "maps and rollout of floats"),
        ({"names": np.arange(2)}, "names of text"),
        ({"names": np.array("a")}, "a list of names"),
        ({"class_token": np.array("False")}, "class_token of one 0 or 1"),
        ({"class_token": np.array([1, 0])}, "class_token of one 0 or 1"),
    ],
)
def test_maps_of_other_types_are_refused(change, says, tmp_path):
    np.savez(tmp_path / "maps.npz", **arrays())
    assert read_maps(tmp_path / "maps.npz").maps.shape == (2, 3, 5, 7, 4)
    np.savez(tmp_path / "maps.npz", **{**arrays(), **change})
    with pytest.raises(UserError, match=says):
        read_maps(tmp_path / "maps.npz")


def test_maps_that_are_damaged_or_unpack_without_end_are_refused(tmp_path):
    path = tmp_path / "maps.npz"
    np.savez_compressed(path, **arrays())
    whole_file = path.read_bytes()
    flags = whole_file.index(b"PK\x01\x02") + 8
    for at, value, says in ((flags, 1, "encrypted"), (flags + 2, 99, "compression"), (70, 0xFF, "cannot read it")):
        path.write_bytes(whole_file[:at] + bytes([value]) + whole_file[at + 1 :])
        with pytest.raises(UserError, match=says) as error:
            read_maps(path)
        assert len(error.value.problems) == 1
        assert "\n" not in str(error.value)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("maps.npy", "w") as member:
        for _ in range(17):
            member.write(bytes(1 << 26))
    assert path.stat().st_size < 2_000_000
    with pytest.raises(UserError, match=r"unpacks to 1\.1 GB, more than the 1 GB"):
        read_maps(path)


def test_numbers_too_large_or_too_small_are_none_or_exact():
    assert finite(10**400) is None
    assert whole(10**400) == DASH
    assert len(file_stem("x" * 5000)) == 150
    with np.errstate(all="raise", under="ignore"):
        levels = packed(np.array([[1e-45, 0.0]], np.float32))["levels"]
    assert levels == "/wA="


@pytest.mark.parametrize("content", ["", "null", "{}", '{"rows": 3}', '{"rows": [{}]}', '{"rows": [{"step": "4"}]}'])
def test_a_run_does_not_go_on_with_a_damaged_analysis(content, tmp_path):
    run = RunFiles(tmp_path)
    assert run.analysis_rows("cka") is None
    run.write_analysis("cka", "", [{"step": 4, "value": 0.5}])
    assert run.analysis_rows("cka") == [{"step": 4, "value": 0.5}]
    (run.analysis_folder / "cka.json").write_text(content)
    with pytest.raises(UserError, match=r"cka\.json: cannot read it"):
        run.analysis_rows("cka")


@pytest.mark.parametrize("content", ["null", "[1]", "{}", '{"sha256": 3}'])
def test_a_run_whose_data_are_no_longer_known_is_refused(content, tmp_path):
    run = RunFiles(tmp_path)
    assert run.contents() is None
    run.data_path.write_text(content)
    with pytest.raises(UserError, match=r"data\.json: holds no sha256"):
        run.contents()


def save_on_a_full_disk(path):
    """What torch.save does there: its archive ends with an error of its own."""
    with replacing(path) as file:
        file.write(b"new")
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            raise RuntimeError("unexpected pos 221568 vs 221456")  # noqa: B904


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "last.ckpt"
    path.write_text("old")
    with pytest.raises(UserError, match=r"last\.ckpt: No space left on device; free some space"), report_full_disk():
        save_on_a_full_disk(path)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]
