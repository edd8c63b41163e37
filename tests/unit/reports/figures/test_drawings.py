"""The drawings of analyses: each writes its files, with its titles and axes, and shows the numbers it was given."""

import base64
import io
import json
from types import SimpleNamespace
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pytest
from PIL import Image

from tests.captioned import captioned
from tests.unit.reports.figures.charts import read_column, read_encoding, read_layers, read_points
from vitlab.analysis.capture import Findings
from vitlab.analysis.heads import PATTERNS
from vitlab.config import load, names
from vitlab.reports.figures import Figure, draw_findings, save_figure
from vitlab.reports.figures.curves import estimate_share
from vitlab.reports.figures.images import VECTORS, draw_cells, plot_positions, write_samples

B, LAYERS, HEADS, GRID, SIZE = 3, 2, 5, (2, 3), (10, 21)
CLASSES = ("<a> $x$ & b", "c")
NASTY = "</text> $run$ & <b>"


def heads(**more):
    return [
        {"step": 7, "layer": layer, "head": head, "value": layer / 10 + head / 100, **more}
        for layer in range(1, LAYERS + 1)
        for head in range(1, HEADS + 1)
    ]


def steps(*rows):
    return [{"step": 7, **row} for row in rows]


def typed(kind):
    return {"type": kind, "row": 0.1, "column": 0.2, "local": 0.3, "global": 0.4, "sink": 0.5}


def labelled(kind):
    return {"label": kind, "scores": {"next token": None, "same token": 0.3, "null": 0.6}}


RNG = np.random.default_rng(0)
GIVEN = {
    "attention_distance": {"rows": heads()},
    "attention_entropy": {"rows": heads()},
    "head_patterns": {"rows": [{**row, **labelled("null" if row["head"] > 3 else "none")} for row in heads()]},
    "head_types": {"rows": [{**typed("sink" if row["head"] > 3 else "local"), **row} for row in heads()]},
    "alignment": {
        "rows": [{"layer": 1, "head": head, "value": 0.5, "step": 9} for head in (1, 2, "mean")],
        "arrays": {
            "weights": RNG.random((B, 3, 2, 4)),
            "sources": np.array([["a", "b", "<i>", ""]] * B),
            "targets": np.array([["x", "y"]] * B),
        },
    },
    "rollout": {"arrays": {"rollout": RNG.random((B, *GRID), dtype=np.float32)}},
    "explanation": {
        "arrays": {"maps": RNG.random((B, *GRID), dtype=np.float32)},
        "rows": [{"picture": picture, "class": 0, "value": 0.5} for picture in range(B)],
    },
    "attention_maps": {"arrays": {"maps": RNG.random((B, LAYERS, HEADS, *GRID), dtype=np.float32)}},
    "position_similarity": {"arrays": {"similarity": RNG.uniform(-1, 1, (*GRID, *GRID))}},
    "rgb_filters": {"arrays": {"filters": RNG.normal(size=(11, 3, 5, 7)), "explained": np.ones(11)}},
    "cka": {
        "rows": steps(
            *(
                {"layer": a, "other": b, "value": None if a == b == 3 else a / b / 3}
                for a in (1, 2, 3)
                for b in (1, 2, 3)
            )
        )
    },
    "token_reach": {"rows": [{"step": 5, "distance": at, "value": 0.5, "reach": 8.0} for at in (0, 8)]},
    "receptive_field": {
        "arrays": {"fields": RNG.random((2, *SIZE))},
        "rows": steps({"layer": 2, "grid": [3, 7], "value": 3.5}, {"layer": 5, "grid": [1, 2], "value": 11.25}),
    },
    "embedding": {"arrays": {"points": RNG.normal(size=(B, 2)).astype(np.float32)}},
    "robustness": {
        "rows": steps(
            *({"kind": "shuffle", "strength": grid, "value": 1 / grid} for grid in (1, 2, 5)),
            *({"kind": "occlusion", "strength": share, "value": 1 - share} for share in (0, 0.5)),
        )
    },
}
IMAGES = RNG.integers(0, 256, (B, 1, *SIZE), dtype=np.uint8)


def figures(name, source="run", drawings=(), **changes):
    config = load("analysis", {"name": name, "drawings": list(drawings)} if drawings else name)
    found = {"rows": [], **GIVEN[name], "images": IMAGES, "labels": np.array([1, 0, 1]), "classes": CLASSES, **changes}
    return list(draw_findings(Findings(name=name, unit="share", **found), config, source))


@pytest.mark.parametrize("name", [name for name in names("analysis") if load("analysis", name).drawings])
def test_every_analysis_is_drawn_to_files_of_its_own_with_its_title(name, tmp_path):
    found = figures(name, NASTY)
    assert len({figure.name for figure in found}) == len(found) > 0
    for figure in found:
        svg, png = save_figure(figure, tmp_path)
        assert figure.title.startswith(f"{NASTY}: {load('analysis', name).title}")
        text = svg.read_text()
        assert "&lt;/text&gt; $run$ &amp; &lt;b&gt;" in text
        assert NASTY not in text
        assert np.asarray(Image.open(png).convert("L")).std() > 5, "not an empty page"


def read_cells(figure):
    """(row, column) -> (value, text) of a table drawn as single cells."""
    cells = read_points(figure, "cells")
    return {(cell["row"], cell["column"]): (cell["value"], cell["text"]) for cell in cells}


def read_labels(figure, channel):
    expression = next(iter(read_layers(figure).values()))["encoding"][channel]["axis"]["labelExpr"]
    return json.loads(expression.removesuffix("[datum.value]"))


def read_tiles(figure):
    """The picture of tiles or of a large table: uint8 (Y, X, 3)."""
    (url,) = read_column(figure, "url", "picture")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))


def test_no_two_kinds_of_heads_share_a_color():
    kinds = [*PATTERNS, "mixed", "none"]
    scores = {"scores": dict.fromkeys(PATTERNS, 0.1)}
    rows = [{"step": 7, "layer": 1, "head": n, "value": 0.2, "label": kind, **scores} for n, kind in enumerate(kinds)]
    (figure,) = figures("head_patterns", drawings=["head_types"], rows=rows)
    encoding = read_layers(figure)["heads"]["encoding"]
    colors, markers = (encoding[channel]["scale"]["range"] for channel in ("color", "shape"))
    assert dict(zip(colors[:5], kinds, strict=False)).keys().isdisjoint(colors[5:])
    assert len({*colors[:5]}) == 5
    assert len({*zip(colors, markers, strict=True)}) == len(kinds)


def test_no_text_of_a_user_ends_or_holds_the_renderer(tmp_path):
    names = ["a\0b", "bell\a\b", "half\ud800", "\uffff", "\N{GRINNING FACE}", "\\u0000", "<b>", "x" * 100_000]
    rows = [{"name": name, "x": place} for place, name in enumerate(names)]
    chart = alt.Chart(alt.Data(values=rows)).mark_point().encode(x="x:Q", color=alt.Color("name:N", sort=names))
    svg, _ = save_figure(Figure("texts", "a\0title", chart), tmp_path)
    texts = {element.text for element in ElementTree.parse(svg).iter() if element.tag.endswith("text")}
    shown = {r"a\u0000b", r"bell\u0007\b", r"half\ud800", r"\uffff", "\N{GRINNING FACE}", r"\u0000", "<b>", "x" * 1000}
    assert texts >= {*shown, r"a\x00title"}


def test_a_matrix_has_a_cell_per_pair_and_none_where_there_is_no_value():
    (figure,) = figures("cka")
    cells = read_cells(figure)
    assert cells[0, 1] == (pytest.approx(1 / 6), "0.17")
    assert cells[1, 0] == (pytest.approx(2 / 3), "0.67")
    assert (2, 2) not in cells
    assert read_labels(figure, "x") == read_labels(figure, "y") == ["1", "2", "3"]


def test_a_large_table_is_a_picture_of_the_same_shades():
    side = int(VECTORS**0.5) + 1
    values = np.full((side, side), 0.0)
    values[3, 7] = 1.0
    names = [f"class {i}" for i in range(side)]
    figure = Figure("f", "t", draw_cells(values.tolist(), names, names, x="x", y="y"))
    picture = read_tiles(figure)
    factor = picture.shape[0] // side
    assert picture[3 * factor, 7 * factor].tolist() == [0x05, 0x32, 0x5B]
    assert picture[7 * factor, 3 * factor].tolist() == [255, 255, 255]


def test_curves_have_a_figure_per_kind_and_the_axis_that_the_yaml_names():
    shuffle, occlusion = figures("robustness")
    assert (shuffle.name, occlusion.name) == ("robustness-shuffle", "robustness-occlusion")
    assert read_encoding(shuffle, "line", "x")["axis"]["title"] == "patches along a side that change places"
    assert read_column(shuffle, "x", "line") == [1, 2, 5]
    assert read_column(occlusion, "value", "line") == [1, 0.5]
    size = figures("receptive_field", **GIVEN["receptive_field"])[1]
    assert read_column(size, "value", "line") == [3.5, 11.25]


def test_of_attention_maps_the_last_layer_is_drawn_a_head_a_column():
    maps = np.zeros((B, LAYERS, HEADS, *GRID), dtype=np.float16)
    maps[0, -1, 3, 0, 2] = 1
    (figure,) = figures(
        "attention_maps", drawings=["attention_overlay"], arrays={"maps": maps}, images=np.zeros_like(IMAGES)
    )
    assert read_labels(figure, "x") == ["picture", *(f"head {n}" for n in range(1, 6))]
    assert read_labels(figure, "y") == ["c", CLASSES[0], "c"]
    sheet = read_tiles(figure).astype(float).mean(axis=-1)
    tall, wide = sheet.shape[0] / B, sheet.shape[1] / (1 + HEADS)
    tile = sheet[: int(0.9 * tall), int(4 * wide) : int(4.9 * wide)]
    row, column = np.unravel_index(tile.argmax(), tile.shape)
    assert np.ptp(tile) > 10
    assert row < tall / 2, "over the patch that it belongs to"
    assert column > 0.6 * wide


# ---- the share of right items of a class


def test_one_seed_has_wilsons_interval():
    share, low, high = estimate_share([[8, 10]])
    assert (share, low, high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)  # Wilson, 1927, by hand


def test_seeds_that_differ_widen_it_and_all_right_is_not_certain():
    alike, apart = estimate_share([[50, 100], [50, 100]]), estimate_share([[20, 100], [80, 100]])
    assert apart[0] == alike[0] == 0.5
    assert apart[2] - apart[1] > 2 * (alike[2] - alike[1])
    assert estimate_share([[9, 9]])[1:] == pytest.approx((0.7009, 1.0), abs=1e-3)
    assert estimate_share([[0, 0]]) is None


# ---- samples of the training sets


def test_samples_of_a_size_are_what_it_adds_with_their_captions(tmp_path):
    data = captioned()
    write_samples(SimpleNamespace(train=data.train), data, [3, 8], tmp_path, 0, "nested")
    small, large = json.loads((tmp_path / "samples.json").read_text())
    assert (small["size"], len(small["pictures"]), large["size"], len(large["pictures"])) == (3, 3, 8, 5)
    assert not {*small["pictures"]} & {*large["pictures"]}
    assert len(small["texts"]) == 3
    assert all(small["texts"])


def test_long_lists_of_numbers_and_labels_are_drawn_whole(tmp_path):
    (path, _) = save_figure(
        plot_positions("table", np.random.default_rng(0).random((197, 192)).tolist(), "m"), tmp_path
    )
    assert ">190<" in path.read_text()


def test_text_in_a_cell_is_dark_on_light_and_white_on_dark_shades():
    drawn = draw_cells([[0.45, 0.55]], ["a"], ["b", "c"], x="x", y="y", ends=(0.0, 1.0), texts=[["p", "q"]]).to_dict()
    assert drawn["layer"][1]["encoding"]["color"]["condition"] == {"test": "datum.value > 0.5", "value": "white"}
