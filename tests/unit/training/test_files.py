"""A run's files: what a crash or a full disk leaves behind."""

import errno
import os

import pytest

from vitlab.cli import report_full_disk
from vitlab.config import UserError
from vitlab.files import replacing

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
