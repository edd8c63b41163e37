"""The report of a study that runs: written as runs finish, and its errors stay out of the study."""

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.commands.scale import LOOK, WRITE, LiveReport, pause_after
from vitlab.reports.pages.study import write_report
from vitlab.studies.results import load_results

SMALL = {"models": {"resnet_nano": "resnet"}, "sizes": (500, 2000), "seeds": (0,)}


def test_the_page_is_written_between_two_events_but_not_again_at_once(tmp_path):
    study = make_study(tmp_path / "quick", **SMALL)
    with pytest.raises(RuntimeError), LiveReport(study) as live:  # noqa: PT012
        live.update(changed=False)
        live.update(changed=True)
        assert not study.report_path.exists(), "the next run starts first"
        live.update(changed=False)
        said = ("The study is running", "2 runs: 1 finished, 1 failed", "failed: Diverged")  # `vitlab scale`'s table
        assert all(text in study.report_path.read_text() for text in said)
        written = study.report_path.stat().st_mtime_ns
        live.update(changed=True)
        live.update(changed=False)
        assert study.report_path.stat().st_mtime_ns == written
        live.due = 0.0
        live.update(changed=False)
        assert study.report_path.stat().st_mtime_ns > written
        raise RuntimeError
    assert "The study is running" not in study.report_path.read_text(), "a study that ends early reloads no more"


def test_what_goes_wrong_in_the_report_leaves_the_study_alone(tmp_path):
    study = make_study(tmp_path / "quick", **SMALL)
    next(study.folder.glob("*-n*/config.yaml")).write_text("recipe: [")
    with LiveReport(study) as live:
        live.update(changed=True)
        live.update(changed=False)
        assert "config.yaml: is damaged or was cut" in (study.folder / "report.log").read_text()


@pytest.mark.slow
def test_the_page_reloads_where_it_was_scrolled_to_until_the_study_is_done(browser, tmp_path):
    results = load_results(make_study(tmp_path / "quick").folder)
    last = write_report(results).read_text()
    path = write_report(results, running=True)
    text = path.read_text()
    assert '<meta http-equiv="refresh" content="15">' in text
    path.write_text(text.replace('content="15"', 'content="3"'))
    browser.open(path)
    browser.show_figure("#figure-1")  # so that the page has its full height
    browser.run("scrollTo({top: 900, behavior: 'instant'}); window.seen = true")
    scrolled = browser.run("scrollY")  # the end of the page, where it is shorter
    assert scrolled > 400
    path.write_text(last)
    with browser.page.expect_navigation():
        pass
    browser.page.wait_for_timeout(500)
    assert abs(browser.run("scrollY") - scrolled) < 100, "the text above has other lines once the study is done"
    assert not browser.run("document.body.textContent.includes('The study is running')")
    browser.run("window.seen = true")
    browser.page.wait_for_timeout(5000)
    assert browser.run("window.seen"), "the last page stays"


def test_a_look_that_was_suspended_does_not_stop_the_next_ones():
    assert [pause_after(took, *LOOK) for took in (0.001, 0.5, 3600)] == [0.2, 10, 30]
    assert [pause_after(took, *WRITE) for took in (0.5, 2, 3600)] == [15, 40, 600], "of the report: 5% of the time"
