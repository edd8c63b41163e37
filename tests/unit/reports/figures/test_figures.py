import json
import math

import numpy as np
import pytest

from tests.unit.reports.written_study import make_study
from vitlab.reports.figures import heads_by_layer, metric_by_cost, metric_by_size
from vitlab.reports.figures.backends import matplotlib_backend, plotly_backend
from vitlab.reports.figures.learning_curves import plot_training_curves
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.results.study_results import load_results


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("studies") / "quick")


ANALYSIS = "attention_distance"


def distances_of(study, model):
    return heads_by_layer.plot_heads_by_size(load_results(study.folder), model, ANALYSIS)


def built(study):
    yield metric_by_size.plot_metric_by_size(study.rows())
    yield plot_training_curves(load_results(study.folder))
    yield distances_of(study, "vit_nano")
    yield metric_by_cost.plot_metric_by_flops(study.rows())
    yield metric_by_cost.plot_metric_by_time(study.rows())
    analysis = study.run("vit_nano-n500-s0").analysis("attention_distance")
    yield heads_by_layer.plot_heads(analysis, "one run")


def test_both_backends_draw_every_series(study):
    for figure in built(study):
        canvas = matplotlib_backend.draw(figure)
        lines = [line for axes in canvas.axes for line in axes.get_lines()]
        traces = [t for t in plotly_backend.plotly_figure(figure).data if t.meta["role"] == "series"]
        assert len(lines) == len(traces) == len(figure.series) > 0
        for line, trace, series in zip(lines, traces, figure.series, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), list(series.x))
            np.testing.assert_array_equal(list(trace.y), list(series.y))
        bands = [t for t in plotly_backend.plotly_figure(figure).data if t.meta["role"] == "band"]
        drawn_bands = [c for axes in canvas.axes for c in axes.collections]
        assert len(bands) == len(drawn_bands) == sum(series.has_band for series in figure.series)


def test_band_is_mean_and_standard_deviation_over_seeds(study):
    figure = metric_by_size.plot_metric_by_size(study.rows())
    mean = next(series for series in figure.series if series.label == "vit_nano")
    values = [row["accuracy"] for row in study.rows() if row["model"] == "vit_nano" and row["train_size"] == 500]
    assert len(values) == 2
    assert mean.y[0] == pytest.approx(np.mean(values))
    assert mean.high[0] - mean.y[0] == pytest.approx(np.std(values, ddof=1))
    points = next(series for series in figure.series if series.label == "vit_nano, each run")
    assert points.links[0] == "vit_nano-n500-s0/"
    assert len(points.y) == 8


def test_panel_per_size_that_has_a_run(study):
    assert [panel.title for panel in plot_training_curves(load_results(study.folder)).panels] == [
        "500 examples",
        "2,000 examples",
        "8,000 examples",
        "32,000 examples",
    ]
    figure = distances_of(study, "vit_nano")
    untrained, trained = figure.panels[0].series
    assert (untrained.label, untrained.colour_key, untrained.style) == ("untrained heads", "untrained", "rings")
    assert (trained.label, trained.colour_key, len(trained.x)) == ("trained heads", "vit", 16)


def test_runs_whose_files_are_gone_are_left_out(tmp_path):
    study = make_study(tmp_path / "study")
    for name in ("vit_nano-n500-s0", "resnet_nano-n500-s1"):
        study.run(name).metrics_path.unlink()
    (study.run("vit_nano-n2000-s0").analysis_folder / "attention_distance.json").unlink()
    left = plot_training_curves(load_results(study.folder)).panels[0].series
    assert [series.link for series in left] == 2 * ["vit_nano-n500-s1/"] + 2 * ["resnet_nano-n500-s0/"]
    attention = distances_of(study, "vit_nano")
    assert attention.panels[1].series[0].links[0] == "vit_nano-n2000-s1/"


def planted(values, references, step=9):
    rows = [{"step": step, "layer": 1 + k, "head": 1, "value": value} for k, value in enumerate(values)]
    return {"name": ANALYSIS, "unit": "pixels", "rows": rows, "references": references}


NEAR_UNIFORM = {"uniform attention": 20.0, "3 x 3 neighbourhood": 8.0}


@pytest.mark.parametrize(
    ("values", "listed", "drawn", "from_zero"),
    [
        ([19.0, 19.6], "3 x 3 neighbourhood: 8.00 pixels, 40%, off this scale", False, False),
        ([16.0, 21.0], "3 x 3 neighbourhood: 8.00 pixels, 40%", True, False),
        ([4.0, 21.0], "3 x 3 neighbourhood: 8.00 pixels, 40%", True, True),
    ],
)
def test_heads_are_shown_as_shares_of_uniform_attention_on_a_scale_that_tells_them_apart(
    values, listed, drawn, from_zero
):
    figure = heads_by_layer.plot_heads(planted(values, NEAR_UNIFORM), "one run")
    uniform, near, heads = figure.series
    assert (uniform.label, list(uniform.y)) == ("uniform attention: 20.0 pixels", [1.0, 1.0])
    assert (near.label, list(near.y)) == (listed, [0.4, 0.4] if drawn else [])
    assert list(heads.y) == pytest.approx([value / 20 for value in values])
    assert heads.hover[0].endswith(f" pixels, {values[0] / 20:.0%} of uniform attention")
    assert (figure.y.percent, figure.y.from_zero) == (True, from_zero)
    low, high = matplotlib_backend.draw(figure).axes[0].get_ylim()
    assert (max(values) - min(values)) / 20 > 0.2 * (high - low), "the heads take a part of the axis that is seen"
    plotly_backend.plotly_figure(figure)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_value_that_is_no_number(tmp_path, value):
    study = make_study(tmp_path / "study")
    rows = study.rows()
    rows[0]["accuracy"] = value
    figure = metric_by_size.plot_metric_by_size(rows)
    mean, points = figure.series[:2]
    assert mean.low[0] == mean.y[0] == mean.high[0] == rows[1]["accuracy"]  # one seed is left at this size
    assert len(points.y) == 7
    run = study.run("vit_nano-n500-s0")
    lines = run.metrics_path.read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "train/loss": value})
    run.metrics_path.write_text("\n".join(lines))
    curves = plot_training_curves(load_results(study.folder))
    assert curves.series[0].y[0] is None
    drawn = json.loads(plotly_backend.plotly_figure(curves).to_json(), parse_constant=pytest.fail)
    band, line = drawn["data"][:2]
    assert line["y"][0] is None
    assert len(band["x"]) == 2 * (len(line["x"]) - 1)  # a band has no gaps: it leaves the point out
    matplotlib_backend.png_bytes(curves)


def test_names_are_text_not_markup_in_plots():
    name = "<b>%{x}</b> $a$ <a href='http://example.org'>"
    series = Series(name, [1, 2], [1.0, 2.0], "vit", hover=[name, name])
    figure = Figure("f", name, Axis("x"), Axis("y"), (Panel((series,), name), Panel((series,))))
    plot = plotly_backend.plotly_figure(figure)
    texts = [plot.layout.title.text, plot.layout.annotations[0].text, plot.data[0].name, plot.data[0].hovertext[0]]
    assert all("<" not in text for text in texts)
    assert plot.data[0].hovertemplate is None  # where %{x} would be filled in
    assert "&lt;b&gt;%{x}&lt;/b&gt; $a$" in matplotlib_backend.svg_bytes(figure).decode()
