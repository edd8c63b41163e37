"""The report of a small study in a browser."""

import re

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.reports.pages.study import write_report
from vitlab.studies.results import load_results


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write_report(load_results(make_study(tmp_path_factory.mktemp("studies") / "quick").folder))


def test_narrow_page_does_not_scroll_sideways(browser, page):
    browser.open(page, width=400)
    browser.show_figure("#figure-3")
    assert browser.run("document.documentElement.scrollWidth") == 400
    assert browser.run("document.querySelector('#runs-table').offsetWidth") > 400  # inside a box that scrolls
    widths = browser.run("[...document.querySelectorAll('.plot svg')].map(s => s.getBoundingClientRect().width)")
    assert max(widths) < 400
    assert browser.errors == []


def test_theme_follows_the_system_and_the_button(browser, page):
    look = """(() => { const tick = document.querySelector('.plot .role-axis-label text');
        return [getComputedStyle(document.body).backgroundColor, getComputedStyle(tick).fill] })()"""
    browser.open(page, scheme="light")
    browser.show_figure("#figure-1")
    light = browser.run(look)
    browser.open(page, scheme="dark")
    browser.show_figure("#figure-1")
    dark = browser.run(look)
    assert light[0] == "rgb(252, 252, 251)"
    assert dark[0] == "rgb(19, 21, 25)"
    assert light[1] != dark[1]
    browser.run("document.querySelector('#theme').click()")
    assert browser.run(look) == light
    for _ in range(20):  # the browser stores it in another process: late on a busy machine
        browser.page.wait_for_timeout(500)
        browser.open(page, scheme="dark")
        if browser.run("document.documentElement.dataset.theme"):
            break
    browser.show_figure("#figure-1")
    assert browser.run(look) == light  # it was remembered


def test_point_opens_its_run(browser, page):
    browser.open(page)
    browser.show_figure("#figure-1")
    browser.run("document.querySelector('#filter').value = 'nothing'")
    browser.run("document.querySelector('#by-model').value = 'vit_nano'")
    browser.page.mouse.click(*browser.find_mark("#figure-1", "/resnet_nano-n\\d+-s1/.test(datum.link)"))
    assert re.fullmatch(r"resnet_nano-n\d+-s1/", browser.run("document.querySelector('tr.found').dataset.run"))
    assert browser.run("document.activeElement === document.querySelector('tr.found')")
    assert browser.run("document.querySelector('tr.found').hidden") is False


def test_no_other_script_runs_and_nothing_is_loaded(browser, page):
    browser.open(page)
    browser.run("""(() => { const s = document.createElement('script'); s.textContent = 'window.evil = 1';
        document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; })()""")
    assert browser.run("typeof window.evil") == "undefined"
    assert browser.run("fetch('http://127.0.0.1:9/').then(() => 'loaded', () => 'refused')") == "refused"
    assert any("Content Security Policy" in text for text in browser.errors)


def test_the_fold_opens_on_paper_and_for_a_link_into_it(browser, page):
    for event in ("beforeprint", "hashchange"):
        browser.open(page)
        assert not browser.run("document.querySelector('details').open")
        browser.run(f"location.hash = 'runs', dispatchEvent(new Event('{event}'))")
        assert browser.run("document.querySelector('details').open")
