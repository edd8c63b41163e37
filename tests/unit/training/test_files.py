"""A run's files: what a crash or a full disk leaves behind."""

import copy
import errno
import os

import pytest

from vitlab.cli import report_full_disk
from vitlab.config import TrainConfig, UserError, compose, identity, resolved
from vitlab.files import replacing, write_json
from vitlab.training.files import RunFiles

RESULT = {"study": "s", "run": "r", "model": "vit_nano", "train_size": 100, "seed": 0}


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


def test_a_finished_run_stays_finished_for_a_version_with_more_keys(tmp_path):
    config = resolved(compose(TrainConfig, ["data=digits", "model=vit_nano"]))
    fewer = copy.deepcopy(config)
    del fewer["data"]["augment"]["crop_aspect"]
    run = RunFiles(tmp_path)
    run.write_config(fewer)
    write_json(run.result_path, {**RESULT, "id": identity(fewer, "contents")})
    assert run.has_finished(config, "contents")
    assert not run.has_finished(config, "other contents")
    config["data"]["augment"]["crop_aspect"] = [0.5, 2.0]
    assert not run.has_finished(config, "contents")
