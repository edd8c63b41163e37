"""`vitlab export`: what it refuses, and a file whose logits are off."""

import pytest

from vitlab.cli import main
from vitlab.commands.inference import SLACK, report_difference
from vitlab.config import UserError
from vitlab.files import write_json


def test_a_file_whose_logits_are_off_is_removed(tmp_path, capsys):
    for name in ("model.onnx", "folder"):
        path = tmp_path / name
        path.mkdir() if name == "folder" else path.touch()
        report_difference(path, SLACK, "onnxruntime")
        report_difference(path, None, "onnxruntime")
        assert path.exists()
        with pytest.raises(UserError, match=rf"{name}: its logits are off by 10\.0% of the largest"):
            report_difference(path, 0.1, "onnxruntime")
        assert not path.exists()
    assert capsys.readouterr().err.count("not compared with the run, which needs onnxruntime") == 2


def test_an_answer_of_advise_is_no_run(tmp_path, capsys):
    write_json(tmp_path / "advice" / "advice.json", {"predictor": {"run": "study-0/vit_nano-n9-s0"}})
    before = {*tmp_path.rglob("*")}
    assert main(["export", str(tmp_path / "advice"), str(tmp_path / "photos.onnx")]) == 2
    assert "not a run, it holds no config.yaml" in capsys.readouterr().err
    assert {*tmp_path.rglob("*")} == before
