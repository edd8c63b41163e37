"""The page that compares two runs: real runs, in a browser."""

import json
import re
import shutil

import numpy as np
import pytest

from tests.unit.reports.few_runs import EVIL_RUN, FOUR, RESNET, draws_shares, layer_text
from tests.unit.reports.html_page import Page, read_script_data
from vitlab.reports.pages import compare
from vitlab.reports.pages.study import write_report
from vitlab.studies.results import RunResults, load_results


def test_two_runs_of_other_depths_are_under_one_slider(browser, few_runs, compare):
    browser.open(compare)
    assert browser.run("[document.getElementById('a').value, document.getElementById('b').value]") == [FOUR, EVIL_RUN]
    assert layer_text(browser) == "A layer 5 of 5, B layer 2 of 2"
    a, b = (f'[data-picture="1"] [data-side="{letter}"] canvas' for letter in "AB")
    four, two = (RunResults(few_runs.run(run)).attention_maps().maps.mean(axis=2) for run in (FOUR, EVIL_RUN))
    assert (four.shape, two.shape) == ((8, 5, 4, 2), (8, 2, 2, 4))
    browser.run("document.getElementById('layer').focus()")
    for mine, theirs in ((5, 2), (4, 2), (3, 2), (2, 1)):
        assert layer_text(browser) == f"A layer {mine} of 5, B layer {theirs} of 2"
        assert draws_shares(browser, a, four[1, mine - 1], four[:, mine - 1].max())
        assert draws_shares(browser, b, two[1, theirs - 1], two[:, theirs - 1].max())
        browser.press("ArrowLeft")
    browser.assert_quiet()


def test_another_run_is_chosen_and_the_address_says_so(browser, few_runs, compare):
    browser.open(compare)
    browser.choose("#b", RESNET)
    assert browser.run("document.querySelector('h1').textContent") == f"{FOUR} against {RESNET}"
    assert browser.run("location.hash") == f"#a={FOUR}&b={RESNET}"
    assert layer_text(browser) == "layer 5 of 5"
    assert "has no attention over patches" in browser.run("document.getElementById('lacking').textContent")
    rows = {row["run"]: row for row in few_runs.rows()}
    numbers = browser.run(
        "[...document.querySelectorAll('#numbers tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    by_name = {line[0]: line[1:] for line in numbers}
    gap = round(100 * (rows[RESNET]["accuracy"] - rows[FOUR]["accuracy"]), 1)
    said = by_name["accuracy"][2].replace("\u2212", "-").removesuffix(" points")
    assert (0.0 if said == "same" else float(said)) == pytest.approx(gap, abs=0.06)
    assert by_name["steps"] == ["4", "4", "same"]
    certain = browser.run("document.getElementById('gap').textContent").replace("\u2212", "-")
    found = re.match(
        r"Accuracy of resnet_nano with [\d,]+ examples against vit_nano .*: ([-+]?[\d.]+) ± [\d.]+ points", certain
    )
    assert float(found[1]) == pytest.approx(gap, abs=0.06)
    assert "held-out items; of one seed, other seeds are not covered)" in certain
    settings = browser.run(
        "[...document.querySelectorAll('#settings tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert ["model.name", "vit_nano", "resnet_nano"] in settings
    assert all(a != b for _, a, b in settings)
    browser.page.wait_for_function("document.querySelectorAll('[data-chart=train] .mark-line path').length === 2")
    browser.page.wait_for_function("document.querySelectorAll('[data-chart=distances] .mark-line path').length === 1")
    browser.run("document.getElementById('swap').click()")
    assert browser.run("document.querySelector('h1').textContent") == f"{RESNET} against {FOUR}"
    browser.assert_quiet()


def test_an_address_chooses_the_runs_and_an_unknown_one_is_said(browser, compare):
    browser.open(compare)
    wait = "new Promise((done) => setTimeout(done, 50))"
    browser.run(f"location.hash = new URLSearchParams({{a: {json.dumps(EVIL_RUN)}, b: {json.dumps(FOUR)}}}).toString()")
    browser.run(wait)
    assert browser.run("document.querySelector('h1').textContent") == f"{EVIL_RUN} against {FOUR}"
    browser.run("location.hash = new URLSearchParams({a: '<b>gone</b>'}).toString()")
    browser.run(wait)
    told = browser.run("document.getElementById('unknown').textContent")
    assert told == "This study has no finished run <b>gone</b>."
    assert browser.run("document.querySelectorAll('b').length") == 0
    assert browser.errors == []


def test_a_curve_is_read_by_pointing_at_it(browser, few_runs, compare):
    browser.open(compare)
    browser.page.wait_for_selector("[data-chart=train] .mark-symbol path")
    items = browser.run("""[...document.querySelectorAll('[data-chart=train] .mark-symbol path')]
        .map(({ __data__: item }) => [item.datum.label, item.datum.x, item.datum.y])""")
    for letter, run in (("A", FOUR), ("B", EVIL_RUN)):
        logged = [[row["step"], row["train/loss"]] for row in few_runs.run(run).metrics() if "train/loss" in row]
        shown = [[x, y] for label, x, y in items if label == letter]
        np.testing.assert_allclose(shown, logged, rtol=1e-3)
    browser.page.locator("[data-chart=train] .mark-symbol path").first.hover(force=True)
    tip = browser.page.wait_for_selector("#vg-tooltip-element.visible").text_content()
    assert re.match(r"[AB]: [\d.]+ at \d", tip)


# ---- what is missing or too much


def test_maps_that_were_added_later_are_found_and_lacking_ones_have_a_command(copy):
    run = copy.run(FOUR)
    path = run.analysis_folder / "attention_maps.npz"
    (run.analysis_folder / "trained").mkdir()
    shutil.move(path, run.analysis_folder / "trained" / path.name)
    assert RunResults(run).attention_maps() is not None
    (run.analysis_folder / "trained" / path.name).unlink()
    write_report(load_results(copy.folder))
    text = Page(copy.report_path.read_text()).text
    assert f"vitlab analyze 'a b/{FOUR}' attention_maps" in text
    lacking = {one["name"]: one["maps"] for one in read_script_data((copy.folder / "compare.html").read_text())["runs"]}
    assert lacking[FOUR]["command"] == f"vitlab analyze 'a b/{FOUR}' attention_maps && vitlab report 'a b'"
    assert lacking[RESNET] == {"why": "has no attention over patches"}
    assert "set" in lacking[EVIL_RUN]


def test_runs_share_their_pictures_and_maps_past_the_limit_are_left_out(few_runs, monkeypatch):
    results = load_results(few_runs.folder)
    found, sets = compare.pack_maps(results)
    assert len(sets) == 1
    assert (len(sets[0]["pictures"]), sets[0]["count"]) == (8, 8)
    assert [one.get("set") for one in found] == [0, 0, None]
    monkeypatch.setattr(compare, "MOST", 8 * 5 * 8)
    found, _ = compare.pack_maps(results)
    assert [one.get("why") for one in found][:2] == [None, "has maps, which are left out to keep this page small"]
