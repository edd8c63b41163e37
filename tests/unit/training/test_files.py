"""Files of a run that are damaged or dangerous, when the run goes on or is loaded."""

import pytest
import torch

from vitlab.config import UserError
from vitlab.files import write_json
from vitlab.training.checkpoints import read_checkpoint
from vitlab.training.files import RunFiles


def test_a_damaged_result_is_renamed_and_a_whole_one_stays(tmp_path):
    files = RunFiles(tmp_path)
    write_json(files.result_path, {"study": "s", "run": "r", "model": "m", "train_size": 7, "seed": 0})
    files.set_aside_damaged_result()
    files.result_path.write_text(files.result_path.read_text()[:-9])
    with pytest.warns(UserWarning, match=r"result\.json: cannot read it"):
        files.set_aside_damaged_result()
    assert [path.name for path in tmp_path.iterdir()] == ["result.damaged.json"]


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_a_checkpoint_is_not_unpickled(tmp_path):
    torch.save({"state_dict": {}, "callbacks": Bomb()}, tmp_path / "last.ckpt")
    with pytest.raises(UserError, match=r"last\.ckpt"):
        read_checkpoint(tmp_path / "last.ckpt")
