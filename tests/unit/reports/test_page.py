"""The report in a browser."""

import pytest

from tests.unit.reports.chromium import needs_chromium
from tests.unit.reports.test_study import make_study
from vitlab.reports.pages.study import write_report
from vitlab.reports.results.study_results import load_results


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write_report(load_results(make_study(tmp_path_factory.mktemp("studies") / "quick").folder))


def see(browser, figure):
    """Scroll to a figure, and wait until it is drawn: as for a reader, that is when it comes near the window."""
    browser.run(f"""new Promise((seen) => {{
        const figure = document.querySelector('{figure}');
        figure.scrollIntoView({{ behavior: 'instant' }});
        const look = () => figure.querySelector('.scatterlayer .trace') ? seen() : requestAnimationFrame(look);
        look();
    }})""")


@needs_chromium
def test_opens_without_an_error_or_a_request(browser, page):
    seconds = browser.open(page)
    assert browser.errors == []
    assert [address for address in browser.requests if not address.startswith("data:")] == [page.resolve().as_uri()]
    for figure in ("#figure-1", "#figure-2", "#figure-3"):
        see(browser, figure)
    assert browser.run("document.querySelectorAll('.plot .main-svg .scatterlayer .trace').length") > 20
    assert browser.errors == []
    assert seconds < 20  # under 2 on an idle machine


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_page_does_not_scroll_sideways(browser, page, scheme):
    browser.open(page, width=400, scheme=scheme)
    see(browser, "#figure-3")
    assert browser.run("document.documentElement.scrollWidth") == 400
    assert browser.run("document.querySelector('#runs-table').offsetWidth") > 400  # inside a box that scrolls
    widths = browser.run("[...document.querySelectorAll('.plot .main-svg')].map(s => s.getBoundingClientRect().width)")
    assert max(widths) < 400
    assert browser.errors == []


@needs_chromium
def test_theme_follows_the_system_and_the_button(browser, page):
    look = """(() => { const tick = document.querySelector('.plot .xtick text');
        return [getComputedStyle(document.body).backgroundColor, getComputedStyle(tick).fill] })()"""
    browser.open(page, scheme="light")
    see(browser, "#figure-1")
    light = browser.run(look)
    browser.open(page, scheme="dark")
    see(browser, "#figure-1")
    dark = browser.run(look)
    assert light[0] == "rgb(252, 252, 251)"
    assert dark[0] == "rgb(19, 21, 25)"
    assert light[1] != dark[1]
    browser.run("document.querySelector('#theme').click()")
    assert browser.run(look) == light
    browser.open(page, scheme="dark")
    see(browser, "#figure-1")
    assert browser.run(look) == light  # it was remembered
    browser.run("localStorage.clear()")


@needs_chromium
def test_table_is_sorted_and_filtered_by_keyboard(browser, page):
    browser.open(page)
    heading = "document.querySelectorAll('#runs-table thead button')[3]"  # run, examples, seed, accuracy
    values = "[...document.querySelectorAll('#runs-table tbody tr')].map(r => Number(r.cells[3].dataset.value))"
    for order in ("ascending", "descending"):
        browser.run(f"{heading}.focus()")
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            browser.call("Input.dispatchKeyEvent", type=kind, **key)
        found = browser.run(values)
        assert found == sorted(found, reverse=order == "descending")
        assert browser.run(f"{heading}.parentElement.getAttribute('aria-sort')") == order
        assert browser.run("document.querySelector('#announce').textContent") == f"15 runs, sorted by accuracy, {order}"
    browser.run("document.querySelector('#filter').focus()")
    browser.call("Input.insertText", text="vit s1")
    shown = browser.run("[...document.querySelectorAll('#runs-table tbody tr:not([hidden]) a[href$=\"-s1/\"]')].length")
    assert shown == 4
    assert browser.run("document.querySelector('#announce').textContent").startswith("4 of 15 runs")


@needs_chromium
def test_point_opens_its_run(browser, page):
    browser.open(page)
    see(browser, "#figure-1")
    browser.run("document.querySelector('#filter').value = 'nothing'")
    browser.run("document.querySelector('#by-model').value = 'vit_nano'")
    browser.run("""document.querySelector('.plot').emit('plotly_click',
        {points: [{customdata: 'resnet_nano-n500-s1/'}], event: {}})""")
    assert browser.run("document.querySelector('tr.found').dataset.run") == "resnet_nano-n500-s1/"
    assert browser.run("document.activeElement === document.querySelector('tr.found')")
    assert browser.run("document.querySelector('tr.found').hidden") is False


@needs_chromium
def test_legend_hides_a_curve_in_every_panel(browser, page):
    browser.open(page)
    see(browser, "#figure-3")
    traces = "document.querySelectorAll('#figure-3 .scatterlayer .trace').length"
    before = browser.run(traces)
    browser.run("document.querySelector('#figure-3 .keys button').click()")
    assert browser.run(traces) == before - 8  # four sizes, a line and a band each
    assert browser.run("document.querySelector('#figure-3 .keys button').getAttribute('aria-pressed')") == "false"


@needs_chromium
def test_models_are_chosen_where_there_are_many(browser, tmp_path):
    models = {"vit_a": "vit", "vit_b": "vit", "resnet_a": "resnet", "<i>mixer</i>": "mixer"}
    study = make_study(tmp_path / "many", models={m.replace("/", "|"): f for m, f in models.items()}, sizes=(500, 2000))
    browser.open(write_report(load_results(study.folder)))
    figure = browser.run("document.querySelector('figure select').closest('main > figure').id")
    see(browser, f"#{figure}")
    chooser = "document.querySelector('figure select')"
    traces = f"{chooser}.closest('figure').querySelectorAll('.scatterlayer .trace').length"
    assert browser.run(f"{chooser}.value") == "vit_a"
    assert browser.run(traces) == 8  # two sizes, two losses, a line and a band each
    browser.run(f"{chooser}.value = ''; {chooser}.dispatchEvent(new Event('change'))")
    assert browser.run(traces) == 30  # one model has a single seed at one size, and no band there
    assert browser.errors == []


@needs_chromium
def test_print_shows_the_still_figures(browser, page):
    browser.open(page, width=794, scheme="dark", media="print")
    shown = "[...document.querySelectorAll('%s')].map(e => getComputedStyle(e).display)"
    assert set(browser.run(shown % ".plot")) == {"none"}
    assert set(browser.run(shown % "img.static")) == {"block"}
    assert browser.run("getComputedStyle(document.body).color") == "rgb(27, 29, 33)"
    assert browser.run("document.documentElement.scrollWidth") <= 794


@needs_chromium
def test_no_other_script_runs_and_nothing_is_loaded(browser, page):
    browser.open(page)
    browser.run("""(() => { const s = document.createElement('script'); s.textContent = 'window.evil = 1';
        document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; })()""")
    assert browser.run("typeof window.evil") == "undefined"
    assert browser.run("fetch('http://127.0.0.1:9/').then(() => 'loaded', () => 'refused')") == "refused"
    assert any("Content Security Policy" in text for text in browser.errors)
