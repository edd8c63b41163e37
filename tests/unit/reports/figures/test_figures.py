import json
import math

import numpy as np
import pytest

from tests.unit.reports.written_study import make_study
from vitlab.reports.figures import heads_by_layer, layers_by_step, metric_by_cost, metric_by_size, theme
from vitlab.reports.figures.backends import matplotlib_backend, plotly_backend
from vitlab.reports.figures.learning_curves import plot_training_curves
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.ticks import spaced
from vitlab.reports.results.study_results import load_results
from vitlab.training.files import write_analysis


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("studies") / "quick")


ANALYSIS = "attention_distance"


def distances_of(study, model):
    return heads_by_layer.plot_heads_by_size(load_results(study.folder), model, ANALYSIS)


def layers_of(study):
    return layers_by_step.plot_layers_by_size(load_results(study.folder), "vit_nano", ANALYSIS)


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


def test_layers_have_a_line_against_the_step_where_a_run_was_looked_at_while_it_trained(tmp_path):
    study = make_study(tmp_path / "study")
    assert layers_of(study) is None, "before and after alone"
    run = study.run("vit_nano-n2000-s0")
    rows = run.analysis("attention_distance")["rows"]
    last = max(row["step"] for row in rows)
    steps = [{**row, "step": step, "value": step / 100 + row["head"]} for step in (20, 30) for row in rows[::2]]
    steps[0]["value"] = math.nan  # of layer 1, head 1, step 20
    write_analysis(run.analysis_folder, {**run.analysis("attention_distance"), "rows": [*rows, *steps]})
    figure = layers_of(study)
    assert figure.title == "Mean attention distance while training, vit_nano"
    assert [panel.title for panel in figure.panels] == [f"{n} examples" for n in ("500", "2,000", "8,000", "32,000")]
    first, second, *_ = figure.panels[1].series
    assert [list(one.x) for one in (first, second)] == [[0, 20, 30, last]] * 2
    assert list(first.y[1:3]) == pytest.approx([0.2 + 3, 0.3 + 2.5])
    assert list(second.y[1:3]) == pytest.approx([0.2 + 2.5, 0.3 + 2.5])
    trained = [row["value"] for row in rows if (row["step"], row["layer"]) == (last, 2)]
    assert second.y[3] == pytest.approx(sum(trained) / 4)
    assert [list(panel.series[0].x) for panel in figure.panels[2:]] == [[0, last]] * 2
    assert "2,000 examples: layer 1 from" in figure.alt
    untrained, heads = distances_of(study, "vit_nano").panels[1].series
    assert sorted(untrained.y) == sorted(row["value"] for row in rows if row["step"] == 0)
    assert sorted(heads.y) == sorted(row["value"] for row in rows if row["step"] == last)
    matplotlib_backend.png_bytes(figure)
    plotly_backend.plotly_figure(figure)


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


def test_panels_of_other_grids_have_their_own_hundred_percent_and_one_without_references_is_drawn_in_pixels():
    runs = [(planted([10.0, 6.0], {"uniform attention": size}), "", "") for size in (10.0, 5.0)]
    figure = heads_by_layer.plot_panels("f", "f", runs, "vit")
    assert [list(panel.series[-1].y) for panel in figure.panels] == [[1.0, 0.6], [2.0, 1.2]]
    for missing in ({}, {"uniform attention": 0.0}, {"uniform attention": math.nan}):
        old = heads_by_layer.plot_panels("f", "f", [*runs, (planted([10.0, 6.0], missing), "", "")], "vit")
        assert [list(series.y) for series in old.series] == [[10.0, 6.0]] * 3
        assert old.y == Axis("attention distance (pixels)", from_zero=True)


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


def test_ticks_with_little_room_keep_the_ends():
    assert spaced((100, 200, 400, 800, 1600), 2, log=True) == [100, 400, 1600]
    assert spaced((100, 1500, 1600), 3, log=True) == [100, 1600]
    assert spaced((500,), 3, log=True) == [500]


def test_looks_differ_without_colour():
    models = {"a": "vit", "b": "vit", "c": "resnet", "d": "mixer", "e": "fnet", "f": "vit"}
    looks = theme.looks(models)
    assert len({(look.marker, look.dash) for look in looks.values()}) == len(models)
    assert looks["a"].colour_key == looks["b"].colour_key == "vit"
    assert looks["c"].colour_key == "resnet"
    assert len({look.colour_key for look in looks.values()}) == 4
    assert theme.looks({"c": "resnet"})["c"] == looks["c"]  # whatever else is in the study


@pytest.mark.parametrize("name", ["light", "dark"])
def test_contrast_with_the_paper(name):
    found = theme.THEMES[name]
    least = {"ink": 7, "muted": 4.5, "untrained": 3, **dict.fromkeys((*theme.FIXED, *theme.OTHERS), 4)}
    for key, ratio in least.items():
        assert contrast(found[key], found["paper"]) >= ratio, key


def contrast(a, b):
    """WCAG 2.2, of two #rrggbb."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)
