from functools import partial
from unittest.mock import MagicMock, patch

import pytest


@pytest.fixture(autouse=True, scope="module")
def drawing():
    """A study's report has no files of its figures, which take as long as all the rest, but `with drawing():`."""
    from vitlab.reports.pages import study

    drawn_by = partial(patch.object, study, "ProcessPoolExecutor")
    before = study.ProcessPoolExecutor
    with drawn_by(MagicMock()):
        yield partial(drawn_by, before)
