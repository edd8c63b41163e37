"""The report of a study that runs: written as runs finish, and its errors stay out of the study."""

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.commands.scale import LOOK, WRITE, LiveReport, pause_after

SMALL = {"models": {"resnet_nano": "resnet"}, "sizes": (500, 2000), "seeds": (0,)}
RELOADS = '<meta http-equiv="refresh" content="15">'


def test_the_page_is_written_between_two_events_but_not_again_at_once(tmp_path):
    study = make_study(tmp_path / "quick", **SMALL)
    with pytest.raises(RuntimeError), LiveReport(study) as live:  # noqa: PT012
        live.update(changed=False)
        live.update(changed=True)
        assert not study.report_path.exists(), "the next run starts first"
        live.update(changed=False)
        said = ("The study is running", "2 runs: 1 finished, 1 failed", "failed: Diverged")  # `vitlab scale`'s table
        assert all(text in study.report_path.read_text() for text in said)
        assert RELOADS in study.report_path.read_text()
        written = study.report_path.stat().st_mtime_ns
        live.update(changed=True)
        live.update(changed=False)
        assert study.report_path.stat().st_mtime_ns == written
        live.due = 0.0
        live.update(changed=False)
        assert study.report_path.stat().st_mtime_ns > written
        raise RuntimeError
    page = study.report_path.read_text()
    assert "The study is running" not in page
    assert RELOADS not in page, "a study that ends early reloads no more"


def test_what_goes_wrong_in_the_report_leaves_the_study_alone(tmp_path):
    study = make_study(tmp_path / "quick", **SMALL)
    next(study.folder.glob("*-n*/config.yaml")).write_text("recipe: [")
    with LiveReport(study) as live:
        live.update(changed=True)
        live.update(changed=False)
        assert "config.yaml: is damaged or was cut" in (study.folder / "report.log").read_text()


def test_a_look_that_was_suspended_does_not_stop_the_next_ones():
    assert [pause_after(took, *LOOK) for took in (0.001, 0.5, 3600)] == [0.2, 10, 30]
    assert [pause_after(took, *WRITE) for took in (0.5, 2, 3600)] == [15, 40, 600], "of the report: 5% of the time"
