"""A result.json that is no result, when its run goes on."""

import pytest

from vitlab.files import write_json
from vitlab.training.files import RunFiles


def test_a_damaged_result_is_renamed_and_a_whole_one_stays(tmp_path):
    files = RunFiles(tmp_path)
    write_json(files.result_path, {"study": "s", "run": "r", "model": "m", "train_size": 7, "seed": 0})
    files.set_aside_damaged_result()
    files.result_path.write_text(files.result_path.read_text()[:-9])
    with pytest.warns(UserWarning, match=r"result\.json: cannot read it"):
        files.set_aside_damaged_result()
    assert [path.name for path in tmp_path.iterdir()] == ["result.damaged.json"]
