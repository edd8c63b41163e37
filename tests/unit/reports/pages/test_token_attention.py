"""The page of attention between tokens: what is in it, and the page in a browser."""

import base64
import json

import numpy as np
import pytest
import torch

from tests.learning import bert, language_model, randomized
from tests.unit.reports.html_page import EVIL, Page, read_script_data
from vitlab.analysis.capture import attention_maps
from vitlab.analysis.heads import PATTERNS, HeadPatterns, pattern_targets
from vitlab.reports.pages.attention import pack_text, write_text_page

LAYERS, HEADS, N = 2, 3, 11
TOKENS = ["[CLS]", "the", "cat", "saw", "the", "[SEP]", "a", "d<b>og", "ran", "&amp;", "[SEP]"]
SEGMENTS = [0] * 6 + [1] * 5
IDS = torch.tensor([[2, 5, 7, 11, 5, 3, 13, 17, 19, 23, 3]])


def random_weights(layers=LAYERS, heads=HEADS, tokens=N, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(tokens, 0.1), (layers, heads, tokens))


def pack(tokens, weights, segments=None, name=""):
    return pack_text({"tokens": tokens}, {"layer": [(one, "tokens", "tokens") for one in weights]}, segments, name)


def unpacked(layer):
    """(heads, queries, keys)"""
    queries, keys = layer["grid"]
    levels = np.frombuffer(base64.b64decode(layer["attention"]["levels"]), np.uint8).reshape(-1, queries, keys)
    largest = np.frombuffer(base64.b64decode(layer["attention"]["largest"]), "<f4").reshape(-1, queries, 1)
    assert len(levels) == len(largest) == layer["heads"]
    return levels * largest.astype(np.float64) / 255


def labels():
    rows = []
    for layer in range(1, LAYERS + 1):
        for head in range(1, HEADS + 1):
            scores = dict.fromkeys(PATTERNS, 0.1) | {"null": None, "next token": round(0.3 * head, 1)}
            label = "next token" if head > 1 else "none"
            rows.append({"layer": layer, "head": head, "label": label, "score": 0.3 * head, "scores": scores})
    return rows


# ---- what is in the page


def test_weights_are_off_by_at_most_a_510th_of_the_querys_largest(tmp_path):
    weights = random_weights() * np.array([1, 0.5, 0.01])[None, :, None, None]
    path = write_text_page(tmp_path / "page.html", "heads", [pack(TOKENS, weights, SEGMENTS)])
    (text,) = read_script_data(path.read_text())["items"]
    assert text["tokens"] == {"tokens": TOKENS}
    assert text["segments"] == SEGMENTS
    for layer, expected in zip(text["layers"], weights, strict=True):
        found = unpacked(layer)
        assert found.shape == (HEADS, N, N)
        largest = expected.max(axis=2, keepdims=True)
        error = np.abs(found - expected) / largest
        assert 1 / 1000 < error.max() < 1 / 510 + 1e-6
        np.testing.assert_allclose(found.max(axis=2, keepdims=True), largest)


def test_user_text_is_never_markup(tmp_path):
    text = pack([EVIL, "\u2028", "a b", "\n", "", *TOKENS[5:]], random_weights(), SEGMENTS, EVIL)
    rows = labels()
    rows[0]["label"] = EVIL
    path = tmp_path / "page.html"
    plain = Page(write_text_page(path, "title", [pack(TOKENS, random_weights(), SEGMENTS)], labels()).read_text())
    found = Page(write_text_page(path, EVIL, [text, pack(TOKENS, random_weights())], rows).read_text())
    assert len(found.scripts) == len(plain.scripts)
    assert [tag for tag, _ in found.elements].count("iframe") == 0
    assert not [tag for tag, _ in found.elements if tag == "b"]
    assert not [key for _, attributes in found.elements for key in attributes if key.startswith("on")]
    data = next(script for script in found.scripts if script.startswith("{"))
    assert not set("<>&\u2028\u2029") & set(data)
    shown = json.loads(data)["items"][0]["tokens"]["tokens"][:5]
    assert shown == [EVIL, "\\u2028", "a\u2423b", "\\n", "\u2205"]
    assert found.text.count(EVIL) >= 4  # in the title, the heading, the name of the text, a label


# ---- in a browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of a real BERT, on two texts, and of a real language model."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("pages")
    sizes = {"length": N, "width": 24, "depth": LAYERS, "heads": HEADS}
    special, mask = (IDS == 2) | (IDS == 3), torch.ones_like(IDS, dtype=torch.bool)
    paths = {}
    for name, build in (("bert", bert), ("lm", language_model)):
        model = randomized(build(29, **sizes))
        options = {"segments": torch.tensor([SEGMENTS])} if name == "bert" else {}
        found = HeadPatterns()
        targets = pattern_targets(IDS, mask, special, options.get("segments"), causal=name == "lm")
        weights = []
        for layer, map_ in attention_maps(model, IDS, **options):
            found.add(layer, map_, targets)
            weights.append(map_[0])
        texts = [pack(TOKENS, weights, SEGMENTS if options else None, "first")]
        if name == "bert":
            texts.append(pack(["\u201cx\u201d"] * 5, random_weights(tokens=5), None, "second"))
        rows = found.rows()
        paths[name] = (write_text_page(folder / f"{name}.html", f"A tiny {name} {EVIL}", texts, rows), weights, rows)
    return paths


def chosen(browser):
    return browser.run(
        "document.querySelector('#chosen').textContent.replace(document.querySelector('#label').textContent, '').trim()"
    )


def reading(browser):
    return browser.run("document.querySelector('#reading').textContent")


@pytest.mark.parametrize("name", ["bert", "lm"])
def test_opens_without_an_error_or_a_request(browser, pages, name):
    path, weights, _ = pages[name]
    browser.open(path)
    browser.assert_quiet()
    assert browser.run("document.title").endswith(EVIL)
    assert browser.run("document.querySelectorAll('.thumb canvas').length") == LAYERS * HEADS
    assert browser.run("document.querySelectorAll('b').length") == 0
    # the square root of a weight is the opacity, on a scale without a first query that has but itself to attend to
    image = browser.read_pixels(".thumb[data-layer='2'][data-head='2'] canvas")[..., 3]
    head = weights[1][1].numpy()
    largest = head[name == "lm" :].max()
    np.testing.assert_allclose(np.reshape(image, (N, N)) / 255, np.sqrt(head / largest).clip(max=1), atol=0.05)


def test_a_picture_chooses_its_head_by_click_and_by_keys(browser, pages):
    path, _, rows = pages["bert"]
    browser.open(path)
    assert chosen(browser) == "layer 1, head 1"
    browser.run("document.querySelectorAll('.thumb')[4].click()")
    assert chosen(browser) == "layer 2, head 2"
    assert browser.run("document.querySelector('#label').textContent") == rows[4]["label"]
    assert browser.run("['layer', 'head'].map((id) => document.getElementById(id).value).join()") == "2,2"
    browser.run("document.querySelector('.thumb[tabindex=\"0\"]').focus()")
    for name in ("ArrowUp", "ArrowRight", "ArrowRight", "Enter"):
        browser.press(name)
    assert chosen(browser) == "layer 1, head 3"
    assert browser.run("document.querySelectorAll('.thumb[aria-current=true]').length") == 1
    browser.run("document.querySelectorAll('.go')[3].click()")
    assert chosen(browser) == "layer 2, head 1"
    browser.choose("#head", "")
    assert chosen(browser) == f"layer 2, mean over {HEADS} heads"
    assert browser.errors == []


def test_the_heat_map_is_read_cell_by_cell(browser, pages):
    path, weights, _ = pages["lm"]
    browser.open(path)
    browser.run("document.querySelector('#map').focus({focusVisible: true})")
    for name in ("ArrowDown", "ArrowDown", "ArrowRight"):
        browser.press(name)
    words = reading(browser)
    assert words.startswith("\u201ccat\u201d (3) gives \u201cthe\u201d (2)")
    assert float(words.split()[-1]) == pytest.approx(weights[0][0][2, 1].item(), abs=1 / 510 + 0.0005)
    row = weights[0][0][2].numpy()
    assert browser.run("document.querySelectorAll('#lines line').length") == (row > row.max() / 50).sum()
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    assert reading(browser).endswith(" 0.00")  # it cannot look ahead
    drawn = browser.read_pixels("#map canvas")[..., 3] / 255  # the weight is the opacity
    np.testing.assert_allclose(drawn, weights[0][0].numpy(), atol=0.006)
    names = browser.run(
        "['keys', 'queries'].map((id) => [...document.getElementById(id).children].map((n) => n.textContent))"
    )
    assert names == [TOKENS, TOKENS]
    assert browser.errors == []


def test_a_target_has_the_decoders_layers_and_looks_at_the_source(browser, tmp_path):
    words = {"tokens": TOKENS, "given": ["[BOS]", "4", "2"], "following": ["4", "2", "[EOS]"]}
    own, cross = random_weights(1, tokens=3), np.random.default_rng(1).dirichlet(np.ones(N), (1, 2, 3))
    layers = {
        "encoder": [(one, "tokens", "tokens") for one in random_weights()],
        "decoder": [(own[0], "given", "given")],
        "cross-attention": [(cross[0], "following", "tokens")],
    }
    text = pack_text(words, layers, SEGMENTS, "first")
    browser.open(write_text_page(tmp_path / "page.html", "translator", [text], labels()))
    names = browser.run("[...document.querySelectorAll('.heads > span')].map((name) => name.textContent)")
    assert names == ["encoder 1", "encoder 2", "decoder 1", "cross-attention 1"]
    assert browser.run("document.querySelectorAll('.thumb:not([data-label=\"\"])').length") == LAYERS * HEADS
    browser.choose("#head", "3")
    browser.choose("#layer", "4")
    assert chosen(browser) == "cross-attention 1, head 2", "it has two"
    browser.choose("#head", "1")
    browser.run("document.querySelector('#map').focus({focusVisible: true})")
    for name in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        browser.press(name)
    found = reading(browser)
    assert found.startswith("\u201c[EOS]\u201d (3) gives \u201cthe\u201d (2)")
    assert float(found.split()[-1]) == pytest.approx(cross[0, 0, 2, 1], abs=1 / 510 + 0.0005)
    thumb = browser.read_pixels(".thumb[data-layer='4'][data-head='2'] canvas")[..., 3]
    expected = np.sqrt(cross[0, 1] / cross[0, 1].max())
    np.testing.assert_allclose(np.reshape(thumb, (3, N)) / 255, expected, atol=0.05)
    assert browser.errors == []
