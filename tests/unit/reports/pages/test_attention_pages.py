"""The pages of attention over pictures: of real runs, in a browser."""

import json
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pytest

from tests.unit.reports.few_runs import EVIL_MODEL, EVIL_RUN, FOUR, RESNET, draws_shares, layer_text
from tests.unit.reports.html_page import Page
from vitlab.reports.pages.attention import write_page
from vitlab.studies.results import RunResults, load_results
from vitlab.studies.store import StudyFiles


@pytest.fixture
def page(few_runs):
    return few_runs.folder / "attention" / f"{FOUR}.html"


# ---- the page of a run


def test_the_slider_moves_by_keyboard_and_shows_the_layers_maps(browser, few_runs, page):
    browser.open(page)
    maps = RunResults(few_runs.run(FOUR)).attention_maps()
    assert maps.maps.shape == (8, 5, 4, 4, 2)
    browser.run("document.getElementById('layer').focus()")
    canvases = {kind: f'[data-item="2"] [data-map="{kind}"] canvas' for kind in ("attention", "rollout")}
    pictures = []
    for layer in (5, 4, 3):
        assert layer_text(browser) == f"layer {layer} of 5"
        mean = maps.maps.mean(axis=2)[:, layer - 1]
        pictures.append(browser.read_pixels(canvases["attention"]))
        assert draws_shares(browser, canvases["attention"], mean[2], mean.max())
        reached = maps.rollout[:, layer - 1]
        assert draws_shares(browser, canvases["rollout"], reached[2], reached.max())
        marked = browser.run("[...document.querySelectorAll('tr.now')].map(row => row.dataset.layer)")
        assert marked == [str(layer)] * 4
        browser.press("ArrowLeft")
    assert not np.array_equal(pictures[0], pictures[1])
    browser.assert_quiet()


def test_a_head_and_a_scale_are_chosen(browser, few_runs, page):
    browser.open(page)
    maps = RunResults(few_runs.run(FOUR)).attention_maps().maps
    browser.run('document.querySelector(\'.go[data-layer="4"][data-head="3"]\').click()')
    assert browser.run("document.querySelector('#maps h2').textContent").strip() == "layer 4 of 5, head 3"
    browser.choose("#layer", "5")
    browser.choose("#head", "2")
    browser.choose("#scale", "all")
    assert draws_shares(browser, '[data-item="5"] [data-map="attention"] canvas', maps[5, 4, 1], maps[:, :, 1].max())
    assert browser.run("document.querySelector('#maps h2').textContent").strip() == "layer 5 of 5, head 2"
    browser.choose("#scale", "map")
    assert draws_shares(browser, '[data-item="5"] [data-map="attention"] canvas', maps[5, 4, 1], maps[5, 4, 1].max())


def test_the_page_holds_the_heads_numbers(few_runs, page):
    found = Page(page.read_text())
    analysis = json.loads((few_runs.run(FOUR).analysis_folder / "head_types.json").read_text())
    last = [row for row in analysis["rows"] if row["step"] == 4]
    assert len(last) == 20
    layers = [attributes["data-layer"] for attributes in found.all("tr") if "data-layer" in attributes]
    assert layers == [str(row["layer"]) for row in last]
    assert f"{last[0]['type']} " in found.text
    assert "does not read a class token" in found.text
    assert f"../compare.html#{FOUR}" in [a.get("href") for a in found.all("a")]
    assert "Attention of the class token" in Page((few_runs.folder / "attention" / f"{EVIL_RUN}.html").read_text()).text
    assert page.stat().st_size < 100_000


def test_pictures_beyond_1_mb_of_maps_are_left_out(few_runs, tmp_path, monkeypatch):
    results = load_results(few_runs.folder)
    results.files = StudyFiles(tmp_path)
    found = vars(results.run_files[FOUR].attention_maps())
    fine = {name: found[name].repeat(50, axis=-1).repeat(50, axis=-2) for name in ("maps", "rollout")}  # 400 KB each
    monkeypatch.setattr(RunResults, "attention_maps", lambda run: SimpleNamespace(**found | fine))
    write_page(results, FOUR)
    page = Page((tmp_path / "attention" / f"{FOUR}.html").read_text())
    assert "6 more are left out" in page.text
    assert len([image for image in page.all("img") if image["src"].startswith("data:")]) == 2


# ---- the report's links, and names with markup


def test_the_report_links_what_there_is(few_runs):
    found = Page(few_runs.report_path.read_text())
    addresses = [a["href"] for a in found.all("a") if a.get("href", "").startswith(("attention/", "compare", "resnet"))]
    there = [unquote(address) for address in addresses]
    assert {f"attention/{FOUR}.html", f"attention/{EVIL_RUN}.html", "compare.html"} <= set(there)
    assert f"{RESNET}/analysis/receptive_field.png" in there
    assert all((few_runs.folder / address).exists() for address in there)
    assert "no attention" not in found.text
    assert not (few_runs.folder / "attention" / f"{RESNET}.html").exists()


@pytest.mark.parametrize("name", [f"attention/{EVIL_RUN}.html", "compare.html", "report.html"])
def test_names_are_never_markup(browser, few_runs, name):
    path = few_runs.folder / name
    plain = Page(path.read_text())
    assert not [attributes for attributes in plain.all("img") if attributes.get("src") == "x"]
    assert not [key for _, attributes in plain.elements for key in attributes if key.startswith("on")]
    browser.open(path)
    text = browser.run("document.querySelector('main').textContent + document.querySelector('h1').textContent")
    assert EVIL_RUN in text
    assert (EVIL_MODEL in text) or name.startswith("attention"), "a run's page names the run alone"
    assert browser.run("document.querySelectorAll('img[src=x], [onerror]').length") == 0
    assert browser.errors == []
