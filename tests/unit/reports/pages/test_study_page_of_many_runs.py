"""The report of a hundred runs in a browser: light enough to open at once, usable by keyboard, names are text."""

import json
import math
import time
from itertools import pairwise

import numpy as np
import pytest

from tests.unit.reports.chromium import Browser
from tests.unit.reports.html_page import read_script_data
from tests.unit.reports.written_study import change_results, make_study
from vitlab.files import write_text
from vitlab.reports.pages.study import write_report
from vitlab.studies.results import load_results

pytestmark = pytest.mark.slow
SCRIPT = "<script>alert(1)<script>"  # no folder has a slash in its name
IMAGE = "<img src=x onerror=alert(1)>"
MODELS = {SCRIPT: "vit", IMAGE: "resnet", "vit_nano": "vit", "resnet_nano": "resnet", "mixer_nano": "mixer"}
SIZES, SEEDS, METRICS = (500, 2000, 8000, 32000), (0, 1, 2, 3, 4), 2000
ROWS = "[...document.querySelectorAll('#runs-table tbody tr:not([hidden])')]"
COUNT = "document.querySelector('#announce').textContent"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A hundred runs of 2,000 rows of metrics, with names that are markup."""
    study = make_study(
        tmp_path_factory.mktemp("studies") / "hundred", name=SCRIPT, models=MODELS, seeds=SEEDS, failed=0
    )
    logged = [metrics(seed) for seed in SEEDS]
    rows = study.finished_rows()
    for row in rows:
        write_text(study.run(row["run"]).metrics_path, logged[row["seed"]])
    costs = lambda row: {  # noqa: E731
        "wall_s": 30.0 + row["train_size"] / 400 + row["seed"],
        "train_flops": row["train_flops"] * row["train_size"],
    }
    change_results(study, lambda row: {"data": IMAGE, **costs(row)})
    assert len(rows) == 100
    return write_report(load_results(study.folder))


def metrics(seed):
    """metrics.jsonl of a run: the training loss at every tenth step, the held-out loss at every thousandth."""
    noise = np.random.default_rng(seed).normal(0, 0.05, METRICS)
    losses = [0.2 + 3 * math.exp(-i / 300) + float(noise[i]) for i in range(METRICS)]
    rows = [{"step": 10 * i, "train/loss": loss, "train/lr": 0.004} for i, loss in enumerate(losses, start=1)]
    for i in range(99, METRICS, 100):
        rows[i]["validation/loss"] = losses[i] + 0.2
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def browser(browser):
    """The browser, which notes in each page whether a name was run as a script."""
    browser.page.add_init_script("window.alert = () => { window.ran = true; };")
    return browser


def test_the_page_is_small_and_its_first_figure_there_at_once(browser, page):
    assert page.stat().st_size < 2_000_000
    seconds = browser.open(page)
    begin = time.monotonic()
    browser.show_figure("#figure-1")
    assert seconds + time.monotonic() - begin < 4
    charts = read_script_data(page.read_text())["charts"]
    datasets = [data["columns"] for chart in charts for data in chart["datasets"].values()]
    assert max(len(column) for columns in datasets for column in columns.values()) < 8000


def test_no_error_no_request_whatever_is_clicked(browser, page):
    browser.open(page)
    browser.run("document.querySelector('details').open = true")
    figures = browser.run("[...document.querySelectorAll('figure[id]:has(.plot)')].map((figure) => figure.id)")
    assert len(figures) >= 4  # the metric, attention of two models, curves
    for figure in figures:
        browser.show_figure(f"#{figure}")
        for view in range(browser.run(f"document.querySelectorAll('#{figure} input').length")):
            browser.run(f"document.querySelectorAll('#{figure} input')[{view}].click()")
            assert browser.run(f"document.querySelectorAll('#{figure} .view:not([hidden])').length") == 1
            browser.show_figure(f"#{figure} .view:not([hidden])")
    for _ in range(2):
        browser.run("document.querySelector('#theme').click()")
    browser.run("document.querySelector('#runs-table thead button').click()")
    browser.choose("#filter", "nano")
    browser.assert_quiet()


def test_names_are_text_wherever_they_stand(browser, page):
    browser.open(page)
    browser.show_figure("#figure-1")
    text = browser.run("document.querySelector('main').textContent")
    for place in ("header", "#figure-1 .role-legend", "#sizes thead", "#runs-table tbody", "#fixed thead"):
        assert SCRIPT in browser.run(f"document.querySelector('{place}').textContent"), place
    assert f"{SCRIPT}-n500-s0" in text
    assert f"{IMAGE}-n500-s0" in text
    assert browser.run("document.title").startswith(SCRIPT)
    browser.page.locator("#figure-1 .role-legend-label text").first.click()
    others = "#figure-1 .mark-symbol.role-mark path[fill='var(--resnet)']"
    browser.wait(f"""!document.querySelector("{others}")""")
    browser.page.mouse.move(*browser.find_mark("#figure-1", "/script.*-n\\d+-s/.test(datum.text)"))
    tip = browser.page.wait_for_selector("#vg-tooltip-element.visible")
    assert f"{SCRIPT}-n" in tip.text_content()
    assert browser.run("document.querySelectorAll('img:not(#samples img), [onerror]').length") == 0
    assert browser.run("[...document.scripts].every((script) => !script.src && !script.closest('main, header'))")
    assert browser.run("typeof window.ran") == "undefined"
    assert browser.errors == []


def test_runs_are_filtered_by_words_and_by_choices(browser, page):
    browser.open(page)
    browser.run("document.querySelector('details').open = true")
    assert browser.run(COUNT) == "100 runs"
    browser.run("document.querySelector('#filter').focus()")
    browser.type("NANO n2000-")
    assert browser.run(COUNT) == "15 of 100 runs"
    assert browser.run(f"{ROWS}.every((row) => row.textContent.includes('nano-n2000-'))")
    browser.choose("#by-seed", "3")
    assert browser.run(COUNT) == "3 of 100 runs"
    browser.choose("#by-model", "vit_nano")
    assert browser.run(f"{ROWS}.map((row) => row.dataset.run)") == ["vit_nano-n2000-s3/"]
    browser.choose("#by-train_size", "500")
    assert browser.run(COUNT) == "0 of 100 runs"
    browser.choose("#filter", "")
    assert browser.run(COUNT) == "1 of 100 runs"
    assert browser.run("document.querySelector('#announce').ariaLive") == "polite"
    browser.run("document.querySelectorAll('#runs-table thead button')[3].click()")
    assert browser.run(COUNT) == "1 of 100 runs, sorted by accuracy, ascending"
    browser.choose("#by-model", SCRIPT)
    browser.choose("#by-train_size", "")
    assert browser.run(f"{ROWS}.map((row) => row.dataset.trainSize)") == ["500", "2000", "8000", "32000"]  # as sorted


def test_all_but_the_figures_is_there_without_scripts(chromium, page):
    browser = Browser(chromium, java_script_enabled=False)
    browser.open(page)
    browser.run("document.querySelector('details').open = true")
    shown = "[...document.querySelectorAll('%s')].filter((node) => node.checkVisibility()).length"
    assert "folder figures" in browser.run("document.querySelector('noscript').innerText")
    assert browser.run(shown % ".plot, .keys, .choice, .filter, .hint") == 0
    assert browser.run(shown % "#runs-table tbody tr") == 100


def test_whoever_reads_by_ear_finds_names_headings_and_landmarks(browser, page):
    browser.open(page)
    browser.show_figure("#figure-1")
    named = {"button", "link", "textbox", "searchbox", "combobox", "radio", "image", "img", "table", "region", "figure"}
    nodes = browser.session.send("Accessibility.getFullAXTree")["nodes"]
    found = [node for node in nodes if not node["ignored"] and node["role"]["value"] in named]
    unnamed = [node["role"]["value"] for node in found if not node.get("name", {}).get("value", "").strip()]
    assert unnamed == []
    roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
    assert (roles.count("main"), roles.count("banner")) == (1, 1)
    levels = browser.run("[...document.querySelectorAll('h1, h2, h3, h4')].map((head) => Number(head.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert browser.run("[...document.querySelectorAll('th')].every((head) => head.scope)")
    assert browser.run("new Set([...document.querySelectorAll('[id]')].map((node) => node.id)).size") == browser.run(
        "document.querySelectorAll('[id]').length"
    )
