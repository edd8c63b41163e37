"""The pages of attention over pictures and the comparison of two runs: of real runs, in a browser."""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from chromium import needs_chromium
from test_report_html import Page
from test_report_study import make_study

from vitlab.commands.scale import collect
from vitlab.commands.training import train_run
from vitlab.config import TrainConfig, UserError, compose
from vitlab.reports import attention_pages, compare_page, run_findings
from vitlab.reports.html import write_report
from vitlab.reports.tiles import SHADES
from vitlab.studies.store import StudyFiles

EVIL_RUN = "<img src=x onerror=alert(1)>"
EVIL_MODEL = "<script>alert(1)</script>"
FOUR, RESNET = "vit_nano-n60-s0", "resnet_nano-n60-s0"
ALL = "attention_distance,attention_entropy,head_types,attention_maps,receptive_field"
RUNS = {
    FOUR: ["model=vit_nano", "model.depth=5", "model.patch_size=[4,8]", f"analyses=[{ALL}]"],
    EVIL_RUN: ["model=vit_nano", "model.depth=2", "model.pool=token", "model.patch_size=[8,4]"],
    RESNET: ["model=resnet_nano", f"analyses=[{ALL}]"],
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Three runs of a few steps and their report: two ViTs of other depths and grids, and a ResNet; 16 x 16 pixels."""
    study = StudyFiles(tmp_path_factory.mktemp("studies") / "few")
    study.write_config({"name": "few", "models": ["vit_nano", "resnet_nano"], "sizes": [60], "seeds": [0]})
    shared = ["data=digits", "train_size=60", "budget.steps=4", "trainer.evaluations=2", "trainer.log_every=1"]
    for run, words in RUNS.items():
        config = compose(TrainConfig, [*shared, "study=few", "wandb.mode=off", *words])
        train_run(config, study.folder / run)
    rows = sorted(collect(study), key=lambda row: list(RUNS).index(row["run"]))
    rows[1]["model"] = EVIL_MODEL
    study.write_rows(rows)
    write_report(study.folder)
    return study


@pytest.fixture
def page(study):
    return study.folder / "attention" / f"{FOUR}.html"


@pytest.fixture
def compare(study):
    return study.folder / "compare.html"


def press(browser, key, code):
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


def left(browser):
    press(browser, "ArrowLeft", 37)


def quiet(browser, path):
    """No console message, no exception, and no request but for the file itself."""
    assert browser.errors == []
    assert [address for address in browser.requests if not address.startswith("data:")] == [path.resolve().as_uri()]


def shades_of(browser, selector):
    """The colours of a canvas, red, green and blue, row by row."""
    found = browser.run(f"""(() => {{ const c = document.querySelector({json.dumps(selector)});
        const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', {{willReadFrequently: true}});
        copy.drawImage(c, 0, 0);
        return [c.height, c.width, ...copy.getImageData(0, 0, c.width, c.height).data] }})()""")
    return np.array(found[2:]).reshape(*found[:2], 4)[..., :3]


def expected_shades(values, most):
    return (255 * SHADES(np.clip(values / most, 0, 1))[..., :3]).round().astype(int)


def near(found, values, most):
    """Shades that are the values' to within a level of the 255."""
    low, high = (expected_shades(np.clip(values + by * most / 255, 0, most), most) for by in (-2, 2))
    return (np.minimum(low, high) - 2 <= found).all() and (found <= np.maximum(low, high) + 2).all()


def slider(browser):
    return browser.run("document.getElementById('layer').getAttribute('aria-valuetext')")


# ---- the page of a run


@needs_chromium
def test_the_slider_moves_by_keyboard_and_shows_the_layers_maps(browser, study, page):
    browser.open(page)
    maps = run_findings.maps(study.run(FOUR))
    assert maps.maps.shape == (8, 5, 4, 4, 2)
    browser.run("document.getElementById('layer').focus()")
    canvases = {kind: f'[data-picture="2"] [data-map="{kind}"] canvas' for kind in ("map", "rollout")}
    pictures = []
    for layer in (5, 4, 3):
        assert slider(browser) == f"layer {layer} of 5"
        mean = maps.maps.mean(axis=2)[:, layer - 1]
        pictures.append(shades_of(browser, canvases["map"]))
        assert near(pictures[-1], mean[2], mean.max())
        reached = maps.rollout[:, layer - 1]
        assert near(shades_of(browser, canvases["rollout"]), reached[2], reached.max())
        shown = browser.run("[...document.querySelectorAll('tr[data-layer]:not([hidden])')].map(r => r.dataset.layer)")
        assert shown == [str(layer)] * 4
        assert browser.run("[...document.querySelectorAll('g.now')].map(g => g.dataset.layer)") == [str(layer)] * 2
        left(browser)
    assert not np.array_equal(pictures[0], pictures[1])
    quiet(browser, page)


@needs_chromium
def test_a_head_and_a_scale_are_chosen(browser, study, page):
    browser.open(page)
    maps = run_findings.maps(study.run(FOUR)).maps
    for id_, value in (("head", "1"), ("scale", "all")):
        browser.run(f"""(() => {{ const s = document.getElementById('{id_}'); s.value = '{value}';
            s.dispatchEvent(new Event('change')) }})()""")
    assert near(shades_of(browser, '[data-picture="5"] [data-map="map"] canvas'), maps[5, 4, 1], maps[:, :, 1].max())
    assert browser.run("document.querySelector('#maps h2').textContent") == "layer 5 of 5, head 2"
    browser.run("document.getElementById('scale').value = 'map'")
    browser.run("document.getElementById('scale').dispatchEvent(new Event('change'))")
    found = shades_of(browser, '[data-picture="5"] [data-map="map"] canvas')
    assert near(found, maps[5, 4, 1], maps[5, 4, 1].max())


@needs_chromium
def test_a_patch_is_read_by_keyboard_and_by_pointer(browser, study, page):
    browser.open(page)
    maps = run_findings.maps(study.run(FOUR))
    mean = maps.maps.mean(axis=2)
    browser.run("document.querySelector('[data-picture=\"0\"]').focus({focusVisible: true})")
    press(browser, "ArrowRight", 39)
    reading = "document.getElementById('reading').textContent"
    words, attention, reached = re.fullmatch(r"(.*): attention (.*), rollout (.*)", browser.run(reading)).groups()
    assert words == f"Picture 1, {maps.names[0]}, row 1, column 2"
    assert float(attention) == pytest.approx(mean[0, 4, 0, 1], rel=0.06)
    assert float(reached) == pytest.approx(maps.rollout[0, 4, 0, 1], rel=0.06)
    assert browser.run("document.querySelectorAll('.cursor').length") == 3  # in the picture and in both maps
    box = browser.run("""(() => { const r = document.querySelector('[data-picture="3"] [data-map="map"]')
        .getBoundingClientRect(); return [r.left + r.width * 0.9, r.top + r.height * 0.6] })()""")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    assert browser.run(reading).startswith(f"Picture 4, {maps.names[3]}, row 3, column 2: ")


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["attention", "compare"])
def test_narrow_pages_fit_and_the_theme_changes(browser, page, compare, name, scheme):
    path = page if name == "attention" else compare
    browser.open(path, width=400, scheme=scheme)
    assert browser.run("document.documentElement.scrollWidth") == 400
    paper = "getComputedStyle(document.body).backgroundColor"
    before = browser.run(paper)
    browser.run("document.querySelector('#theme').click()")
    assert {before, browser.run(paper)} == {"rgb(252, 252, 251)", "rgb(19, 21, 25)"}
    browser.run("localStorage.clear()")
    quiet(browser, path)


@needs_chromium
def test_print_shows_the_present_layer_and_no_controls(browser, page):
    browser.open(page, width=794, scheme="dark", media="print")
    assert browser.run("getComputedStyle(document.querySelector('.bar')).display") == "none"
    assert browser.run("getComputedStyle(document.body).color") == "rgb(27, 29, 33)"
    assert browser.run("document.querySelector('#maps h2').textContent") == "layer 5 of 5, mean over 4 heads"
    assert browser.run("document.documentElement.scrollWidth") <= 794


def test_the_page_holds_the_heads_numbers(study, page):
    found = Page(page.read_text())
    analysis = json.loads((study.run(FOUR).analysis_folder / "head_types.json").read_text())
    last = [row for row in analysis["rows"] if row["step"] == 4]
    assert len(last) == 20
    assert [attributes["data-layer"] for attributes in found.all("tr") if "data-layer" in attributes] == [
        str(row["layer"]) for row in last
    ]
    assert f"{last[0]['type']} " in found.text
    assert "not a class token" in found.text
    assert "What the class token attends to" in Page((study.folder / "attention" / f"{EVIL_RUN}.html").read_text()).text
    assert page.stat().st_size < 100_000


# ---- the report's links, and names with markup


def test_the_report_links_what_there_is_and_says_what_a_resnet_lacks(study):
    found = Page(study.report_path.read_text())
    addresses = [a["href"] for a in found.all("a") if a.get("href", "").startswith(("attention/", "compare", "resnet"))]
    there = [unquote(address) for address in addresses]
    assert {f"attention/{FOUR}.html", f"attention/{EVIL_RUN}.html", "compare.html"} <= set(there)
    assert f"{RESNET}/analysis/receptive_field.png" in there
    assert all((study.folder / address).exists() for address in there)
    assert "has no attention over patches." in found.text
    assert not (study.folder / "attention" / f"{RESNET}.html").exists()


@needs_chromium
@pytest.mark.parametrize("name", [f"attention/{EVIL_RUN}.html", "compare.html", "report.html"])
def test_names_are_never_markup(browser, study, name):
    path = study.folder / name
    plain = Page(path.read_text())
    assert not [attributes for attributes in plain.all("img") if attributes.get("src") == "x"]
    assert not [key for _, attributes in plain.elements for key in attributes if key.startswith("on")]
    browser.open(path)
    labels = "[...document.querySelectorAll('optgroup')].map(g => g.label).join(' ')"
    text = browser.run(
        f"document.querySelector('main').textContent + document.querySelector('h1').textContent + {labels}"
    )
    assert EVIL_RUN in text
    assert (EVIL_MODEL in text) or name.startswith("attention"), "a run's page names the run alone"
    assert browser.run("document.querySelectorAll('img[src=x], [onerror]').length") == 0
    assert browser.errors == []


# ---- two runs


@needs_chromium
def test_two_runs_of_other_depths_are_under_one_slider(browser, study, compare):
    browser.open(compare)
    assert browser.run("[document.getElementById('a').value, document.getElementById('b').value]") == [FOUR, EVIL_RUN]
    assert slider(browser) == "A layer 5 of 5, B layer 2 of 2"
    a, b = (f'[data-picture="1"] [data-side="{letter}"] canvas' for letter in "AB")
    four, two = (run_findings.maps(study.run(run)).maps.mean(axis=2) for run in (FOUR, EVIL_RUN))
    assert (four.shape, two.shape) == ((8, 5, 4, 2), (8, 2, 2, 4))
    browser.run("document.getElementById('layer').focus()")
    for mine, theirs in ((5, 2), (4, 2), (3, 2), (2, 1)):
        assert slider(browser) == f"A layer {mine} of 5, B layer {theirs} of 2"
        assert near(shades_of(browser, a), four[1, mine - 1], four[:, mine - 1].max())
        assert near(shades_of(browser, b), two[1, theirs - 1], two[:, theirs - 1].max())
        left(browser)
    quiet(browser, compare)


@needs_chromium
def test_another_run_is_chosen_and_the_address_says_so(browser, study, compare):
    browser.open(compare)
    choose = (
        "(() => {{ const s = document.getElementById('{}'); s.value = {}; s.dispatchEvent(new Event('change')) }})()"
    )
    browser.run(choose.format("b", json.dumps(RESNET)))
    assert browser.run("document.querySelector('h1').textContent") == f"{FOUR} against {RESNET}"
    assert browser.run("location.hash") == f"#a={FOUR}&b={RESNET}"
    assert slider(browser) == "layer 5 of 5"
    assert "has no attention over patches" in browser.run("document.getElementById('lacking').textContent")
    rows = {row["run"]: row for row in study.rows()}
    numbers = browser.run(
        "[...document.querySelectorAll('#numbers tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    by_name = {line[0]: line[1:] for line in numbers}
    gap = round(100 * (rows[RESNET]["accuracy"] - rows[FOUR]["accuracy"]), 1)
    said = by_name["accuracy"][2].replace("\u2212", "-").removesuffix(" points")
    assert (0.0 if said == "same" else float(said)) == pytest.approx(gap, abs=0.06)
    assert by_name["steps"] == ["4", "4", "same"]
    settings = browser.run(
        "[...document.querySelectorAll('#settings tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert ["model.name", "vit_nano", "resnet_nano"] in settings
    assert all(a != b for _, a, b in settings)
    assert browser.run("document.querySelectorAll('[data-chart=\"train\"] .curve').length") == 2
    assert browser.run("document.querySelectorAll('[data-chart=\"distances\"] .curve').length") == 1
    browser.run("document.getElementById('swap').click()")
    assert browser.run("document.querySelector('h1').textContent") == f"{RESNET} against {FOUR}"
    quiet(browser, compare)


@needs_chromium
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


@needs_chromium
def test_a_curve_is_read_by_keyboard(browser, study, compare):
    browser.open(compare)
    browser.run("document.querySelector('[data-chart=\"train\"] svg').focus({focusVisible: true})")
    press(browser, "Home", 36)
    rows = {run: study.run(run).metrics() for run in (FOUR, EVIL_RUN)}
    first = [next(row["train/loss"] for row in rows[run] if "train/loss" in row) for run in (FOUR, EVIL_RUN)]
    found = browser.run("document.querySelector('[data-chart=\"train\"] .value').textContent")
    step, a, b = re.fullmatch(r"step (\d+): A ([\d.]+), B ([\d.]+)", found).groups()
    assert step == "1"
    assert [float(a), float(b)] == pytest.approx(first, abs=0.006)


# ---- what is missing, malformed or too much


@pytest.fixture
def copy(study, tmp_path):
    return StudyFiles(shutil.copytree(study.folder, tmp_path / "a b"))


def embedded(path):
    text = path.read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


def test_maps_that_were_added_later_are_found_and_lacking_ones_have_a_command(copy):
    run = copy.run(FOUR)
    path = run.analysis_folder / "attention_maps.npz"
    (run.analysis_folder / "trained").mkdir()
    shutil.move(path, run.analysis_folder / "trained" / path.name)
    assert run_findings.maps(run) is not None
    (run.analysis_folder / "trained" / path.name).unlink()
    write_report(copy.folder)
    text = Page(copy.report_path.read_text()).text
    assert f"vitlab analyze 'a b/{FOUR}' attention_maps" in text
    lacking = {one["name"]: one["maps"] for one in embedded(copy.folder / "compare.html")["runs"]}
    assert lacking[FOUR]["command"] == f"vitlab analyze 'a b/{FOUR}' attention_maps"
    assert lacking[RESNET] == {"why": "has no attention over patches"}
    assert "set" in lacking[EVIL_RUN]


def test_runs_share_their_pictures_and_maps_past_the_limit_are_left_out(study, monkeypatch):
    rows = study.rows()
    configs = {row["run"]: study.run(row["run"]).config() for row in rows}
    found, sets = compare_page.packed_maps(study, rows, configs)
    assert len(sets) == 1
    assert len(sets[0]) == 8
    assert [one.get("set") for one in found] == [0, 0, None]
    monkeypatch.setattr(compare_page, "MOST", 8 * 5 * 8)
    found, _ = compare_page.packed_maps(study, rows, configs)
    assert [one.get("why") for one in found][:2] == [None, "has maps, but they are left out to keep this page small"]


def test_pictures_past_the_limit_are_left_out_and_said(copy, monkeypatch):
    monkeypatch.setattr(attention_pages, "MOST", 3 * (5 * 4 * 8 + 5 * 8))
    write_report(copy.folder)
    text = (copy.folder / "attention" / f"{FOUR}.html").read_text()
    assert len(Page(text).all("img")) == 3
    assert "5 more are left out" in text


@pytest.mark.parametrize("change", ["not a file of numpy", {"maps": np.full((8, 5, 4, 4, 2), np.nan)}, {"names": None}])
def test_malformed_maps_are_one_line_that_names_the_file(copy, change):
    path = copy.run(FOUR).analysis_folder / "attention_maps.npz"
    if isinstance(change, str):
        path.write_text(change)
    else:
        with np.load(path) as arrays:
            kept = {key: value for key, value in {**arrays, **change}.items() if value is not None}
        np.savez(path, **kept)
    with pytest.raises(UserError) as caught:
        write_report(copy.folder)
    (line,) = caught.value.problems
    assert line.startswith(f"{path}: ")


def test_an_older_study_has_its_comparison_and_no_page(tmp_path):
    study = make_study(tmp_path / "old")
    write_report(study.folder)
    assert not (study.folder / "attention").exists()
    data = embedded(study.folder / "compare.html")
    assert len(data["runs"]) == 15
    assert data["start"] == ["vit_nano-n32000-s0", "resnet_nano-n32000-s0"]
    (first, *_) = data["runs"]
    assert [len(layer) for layer in first["distances"]] == [4] * 4
    assert len(first["curves"]["train"][0]) == 40


def test_one_run_is_compared_with_none(copy):
    rows = copy.rows()
    assert Path(copy.folder / "compare.html").is_file()
    copy.write_rows(rows[:1])
    write_report(copy.folder)
    assert not (copy.folder / "compare.html").exists()
    assert "compare.html" not in copy.report_path.read_text()
    assert "compare.html" not in (copy.folder / "attention" / f"{rows[0]['run']}.html").read_text()
