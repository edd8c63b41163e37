"""Figure 1: the metric against size, compute and time; known answers, what is left out."""

import math
import statistics
from types import SimpleNamespace

import pytest

from tests.unit.reports.figures.charts import read_column, read_encoding, read_points
from tests.unit.reports.written_study import make_study
from vitlab.reports.figures import metric
from vitlab.studies.results import Results, load_results


def row(model, size, seed, accuracy, flops, seconds, **more):
    found = {"run": f"{model}-n{size}-s{seed}", "model": model, "family": "vit", "train_size": size, "seed": seed}
    return {**found, "accuracy": accuracy, "train_flops": flops, "wall_s": seconds, **more}


ROWS = [
    row("vit_a", 53, 0, 0.5, 2e12, 7.0),
    row("vit_a", 53, 1, 0.7, 4e12, 11.0),
    row("vit_a", 1009, 0, 0.9, 3e13, 130.0),
    row("vit_b", 53, 0, 0.4, 6e12, 23.0),
]


def draw(rows):
    """The views of Figure 1 by their choice."""
    runs = {one["run"]: SimpleNamespace(result={}) for one in rows}
    results = Results(rows, run_files=runs, outcomes={})
    return {figure.choice: figure for figure in metric.draw(results)}


# ---- against size


def test_the_line_is_the_mean_and_the_band_its_interval(tmp_path):
    study = make_study(tmp_path / "quick", sizes=(500, 2000))
    figures = {figure.choice: figure for figure in metric.draw(load_results(study.folder))}
    values = [
        one["accuracy"] for one in study.finished_rows() if one["model"] == "vit_nano" and one["train_size"] == 500
    ]
    assert len(values) == 2
    mean = statistics.fmean(values)
    cell = next(load_results(study.folder).cells.query("model == 'vit_nano' and train_size == 500").itertuples())
    (band,) = read_points(figures["accuracy"], "bands", model="vit_nano", x=500)
    assert read_column(figures["accuracy"], "y", "lines", model="vit_nano")[0] == pytest.approx(mean)
    assert (band["low"], band["high"]) == (pytest.approx(cell.low), pytest.approx(cell.high))
    assert read_column(figures["error"], "y", "lines", model="vit_nano")[0] == pytest.approx(1 - mean)
    assert [read_encoding(figures["error"], "lines", axis)["scale"]["type"] for axis in "xy"] == ["log", "log"]
    (end,) = read_points(figures["error"], "above", model="vit_nano")
    assert (end["x"], end["y"]) == (2000, read_column(figures["error"], "y", "lines", model="vit_nano")[-1])
    assert end["text"] == f"{100 * read_column(figures['error'], 'y', 'lines', model='vit_nano')[-1]:.1f}%"
    assert read_points(figures["error"], "below", model="resnet_nano")
    rings = read_points(figures["error"], "runs", model="vit_nano")
    assert rings[0]["link"] == "vit_nano-n500-s0/"
    assert len(rings) == 4


def test_no_error_has_no_place_on_a_log_axis():
    figures = draw([*ROWS[:2], row("vit_a", 1009, 0, 1.0, 3e13, 130.0)])
    assert read_column(figures["error"], "y", "lines", model="vit_a") == [pytest.approx(0.4), None]
    assert read_column(figures["accuracy"], "y", "lines", model="vit_a") == [pytest.approx(0.6), 1.0]


# ---- against cost


def test_times_of_different_machines_are_marked_as_not_comparable():
    for device, marked in (("cpu", False), ("NVIDIA H200", True)):
        devices = ("cpu", "cpu", "cpu", device)
        runs = {
            one["run"]: SimpleNamespace(result={"environment": {"device": d}})
            for one, d in zip(ROWS, devices, strict=True)
        }
        captions = [figure.caption for figure in metric.draw(Results(ROWS, run_files=runs, outcomes={}))]
        assert sum("on different machines, so their times are not comparable" in text for text in captions) == marked


def test_line_goes_through_the_means_of_both_in_order_of_size():
    figure = draw(list(reversed(ROWS)))["compute"]
    line = read_points(figure, "means", model="vit_a")
    assert [(one["x"], one["y"]) for one in line] == [(3e12, pytest.approx(0.6)), (3e13, 0.9)]
    assert [one["train_size"] for one in read_points(figure, "lines", model="vit_a")] == [53, 1009]
    assert line[0]["text"] == "vit_a, 53 training examples\n60.0% ± 14.1 over 2 seeds\n3.00 TFLOP"
    assert [one["link"] for one in line] == ["", "vit_a-n1009-s0/"]
    assert sorted(read_column(figure, "x", "runs", model="vit_a")) == [2e12, 4e12, 3e13]
    assert "vit_a: 90.0% for 30.0 TFLOP with 1,009 training examples" in figure.alt


def test_time_is_in_the_unit_that_its_longest_run_is_read_in():
    assert read_column(draw(ROWS)["time"], "x", "lines", model="vit_a") == [9.0, 130.0]
    for factor, unit, text in ((60, "min", "23 min"), (3600, "h", "23 h 00 min")):
        figure = draw([{**one, "wall_s": factor * one["wall_s"]} for one in ROWS])["time"]
        assert f"({unit}, log scale)" in read_encoding(figure, "lines", "x")["axis"]["title"]
        assert read_column(figure, "x", "lines", model="vit_a")[0] == pytest.approx(9.0)
        assert read_column(figure, "text", "means", model="vit_b")[0].splitlines()[-1] == text


@pytest.mark.parametrize("perplexity", [False, True])
def test_frontiers_are_the_planted_best_of_each_family_and_of_all(perplexity):
    planted = [  # model, family, size, accuracy, cost: the first of a line is on its family's frontier
        ("vit_s", "vit", 100, 0.50, 1e12),
        ("vit_s", "vit", 900, 0.60, 1e12),
        ("vit_b", "vit", 100, 0.55, 4e12),  # dearer and worse than vit_s with 900
        ("vit_b", "vit", 900, 0.90, 4e12),
        ("vit_l", "vit", 900, 0.90, 9e12),  # as good, but dearer
        ("resnet_s", "resnet", 100, 0.70, 2e12),
        ("resnet_b", "resnet", 900, 0.80, 8e12),  # the best ResNet, but vit_b is better for less
    ]
    rows = [row(model, size, 0, value, flops, 1.0, family=family) for model, family, size, value, flops in planted]
    if perplexity:
        rows = [{**one, "accuracy": None, "perplexity": 1 / one["accuracy"]} for one in rows]
    figure = draw(rows)["compute"]
    expected = {"best of ViT": ([1e12, 4e12], [0.6, 0.9]), "best of ResNet": ([2e12, 8e12], [0.7, 0.8])}
    expected["best of all"] = ([1e12, 2e12, 4e12], [0.6, 0.7, 0.9])
    for label, (x, y) in expected.items():
        assert read_column(figure, "x", label) == [*x, 9e12], "to the cost of the dearest"
        values = [1 / value if perplexity else value for value in (*y, y[-1])]
        assert read_column(figure, "y", label) == pytest.approx(values)
    if not perplexity:
        assert "best of ViT: 60.0% for 1.00 TFLOP, 90.0% for 4.00 TFLOP." in figure.alt


def test_budgets_are_cells_over_sizes_and_the_caption_compares_more_data_with_more_steps():
    accuracy = {(100, 500): 0.5, (200, 500): 0.6, (100, 900): 0.55, (200, 900): 0.8}
    rows = [
        {"model": f"vit steps={steps}", "family": "vit", "train_size": size, "seed": 0, "accuracy": value, "run": ""}
        | {"budget": f"steps={steps}", "train_flops": steps}
        for (steps, size), value in accuracy.items()
    ]
    results = Results(rows, {"name": "x"}, outcomes={})
    (figure,) = metric.draw_budgets(results)
    assert figure.caption.endswith(
        "From vit with 500 examples and 100 steps, 900 examples bring 5.0 points, 200 steps 10.0 points."
    )
    (cells,) = figure.spec["datasets"].values()
    assert [(cell["text"], cell["row"], cell["column"]) for cell in cells] == [
        ("50.0", 0, 0),
        ("55.0", 0, 1),
        ("60.0", 1, 0),
        ("80.0", 1, 1),
    ]
    assert not [*metric.draw_budgets(Results(rows[:1], {"name": "x"}, outcomes={}))]


def test_runs_without_a_cost_are_left_out():
    free = [row("vit_a", 53, 2 + seed, 0.5, flops, 7.0) for seed, flops in enumerate((None, 0, -1.0, math.nan, "?"))]
    figure = draw([*free, *ROWS[1:]])["compute"]
    assert read_column(figure, "x", "lines", model="vit_a") == [4e12, 3e13]
    assert "compute" not in draw(free)


def test_trials_have_a_figure_though_fixed_steps_make_one_cost_of_a_model():
    accuracies = {1: 0.5, 2: 0.7, 3: 0.6}
    rows = [
        row(f"vit_{model}", 53, seed, accuracy, {"a": 2e12, "b": 3e12}[model], 7.0, trial=trial)
        | {"run": f"{model}{seed}{trial}", "validation_accuracy": accuracy}
        for trial, accuracy in accuracies.items()
        for model in "ab"
        for seed in (0, 1)
    ]
    figures = draw(rows)
    assert [*figures] == ["error", "accuracy", "trials"]
    assert figures["trials"].alt.endswith("vit_a: 70.0% with 3 trials. vit_b: 70.0% with 3 trials.")
