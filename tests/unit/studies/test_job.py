"""What a cell leaves behind where it does not end with a result."""

import pytest

from vitlab.config import UserError
from vitlab.studies.grid import Spec
from vitlab.studies.job import StudyJob


def test_a_study_that_was_deleted_does_not_appear_again(tmp_path):
    job = StudyJob(tmp_path / "study", cores=1, settled={})
    with pytest.raises(UserError, match=r"holds no study\.yaml any more"):
        job(Spec("vit_nano-n10-s0", {}), lambda progress: None, lambda: False)
    assert not (tmp_path / "study").exists()
