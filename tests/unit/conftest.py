import shutil

import pytest

from tests.unit.reports.chromium import Browser
from vitlab.studies.store import StudyFiles


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def few_runs(tmp_path_factory):
    from tests.unit.reports.few_runs import train_few  # which brings torch

    return train_few(tmp_path_factory.mktemp("studies") / "few")


@pytest.fixture
def compare(few_runs):
    """Its page that compares two runs."""
    return few_runs.folder / "compare.html"


@pytest.fixture
def copy(few_runs, tmp_path):
    """The same study to change, in a folder whose name a shell must quote."""
    return StudyFiles(shutil.copytree(few_runs.folder, tmp_path / "a b"))
