"""The drawings of analyses: each writes its files, with its titles and axes, and shows the numbers it was given."""

import numpy as np
import pytest
from PIL import Image

from vitlab.analysis.capture.findings import Findings
from vitlab.config import load, names
from vitlab.reports.figures.analyses import draw_findings
from vitlab.reports.figures.backends import image_grid, matplotlib_backend
from vitlab.reports.figures.spec import Figure, HeatMap, Tiles

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
        assert isinstance(figure, Figure | HeatMap | Tiles)
        svg, png = matplotlib_backend.save(figure, tmp_path)
        assert figure.title.startswith(f"{NASTY}: {load('analysis', name).title}")
        text = svg.read_text()
        assert "&lt;/text&gt; $run$ &amp; &lt;b&gt;" in text
        assert NASTY not in text
        assert np.asarray(Image.open(png).convert("L")).std() > 5, "not an empty page"


def test_a_matrix_has_a_cell_per_pair_and_none_where_there_is_no_value():
    (figure,) = figures("cka")
    assert figure.values[0][1] == pytest.approx(1 / 6)
    assert figure.values[1][0] == pytest.approx(2 / 3)
    assert (figure.values[2][2], figure.texts[2][2], figure.texts[1][0]) == (None, "", "0.67")
    assert (figure.rows, figure.columns) == (["1", "2", "3"],) * 2


def test_curves_have_a_figure_per_kind_and_the_axis_that_the_yaml_names():
    shuffle, occlusion = figures("robustness")
    assert (shuffle.name, occlusion.name) == ("robustness-shuffle", "robustness-occlusion")
    assert (shuffle.x.label, list(shuffle.series[0].x)) == ("patches along a side that change places", [1, 2, 5])
    assert list(occlusion.series[0].y) == [1, 0.5]
    size = figures("receptive_field", **GIVEN["receptive_field"])[1]
    assert (size.x.label, list(size.series[0].y)) == ("layer", [3.5, 11.25])


def test_of_attention_maps_the_last_layer_is_drawn_a_head_a_column():
    maps = np.zeros((B, LAYERS, HEADS, *GRID), dtype=np.float16)
    maps[0, -1, 3, 0, 2] = 1
    (figure,) = figures(
        "attention_maps", drawings=["attention_overlay"], arrays={"maps": maps}, images=np.zeros_like(IMAGES)
    )
    assert figure.images.shape == (B, 1 + HEADS, *SIZE, 3)
    assert list(figure.columns) == ["picture", *(f"head {n}" for n in range(1, 6))]
    assert list(figure.rows) == ["c", CLASSES[0], "c"]
    brightness = figure.images.astype(float).mean(axis=-1)
    assert np.ptp(brightness[0, 4]) > 10
    assert np.ptp(brightness[0, 3]) == np.ptp(brightness[1, 4]) == 0
    bright = np.unravel_index(brightness[0, 4].argmax(), SIZE)
    assert bright[0] < 5, "over the patch that it belongs to"
    assert bright[1] >= 14


def test_a_single_map_stands_below_its_picture():
    (figure,) = figures("rollout")
    assert figure.images.shape == (2, B, *SIZE, 3)
    np.testing.assert_array_equal(figure.images[0, 1], image_grid.pixels(IMAGES[1]))


def test_a_grid_keeps_its_places_and_the_scale_of_all_maps():
    values = np.zeros((*GRID, *GRID))
    values[1, 2, 0, 1] = 1
    (figure,) = figures("position_similarity", arrays={"similarity": values})
    peak = image_grid.shaded(np.array([1.0]), (-1, 1))[0]
    where = np.argwhere((figure.images == peak).all(axis=-1))
    assert where.tolist() == [[1, 2, 0, 1]]
    assert figure.ends == (-1, 1)
