import pytest


@pytest.fixture(scope="module")
def chromium():
    """The system's Chromium; the test is skipped without one."""
    from tests.unit.reports.chromium import CHROMIUM, launch_chromium

    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with launch_chromium() as chromium:
        yield chromium


@pytest.fixture
def browser(chromium):
    """A new tab for each test."""
    from tests.unit.reports.chromium import Browser

    tab = Browser(chromium)
    yield tab
    tab.page.context.close()


@pytest.fixture(scope="session")
def few_runs(made_once):
    """The files of a study of three runs, which no test changes."""
    from tests.unit.reports.few_runs import train_few  # imports torch
    from vitlab.studies.store import StudyFiles

    return StudyFiles(made_once("few", train_few))


@pytest.fixture
def compare(few_runs):
    """Its page that compares runs."""
    return few_runs.folder / "compare.html"
