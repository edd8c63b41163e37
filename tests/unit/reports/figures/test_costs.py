"""The metric against compute and time: known answers, what is left out, how the axis is labelled."""

import pytest

from vitlab.reports.figures import metric_by_cost


def row(model, size, seed, accuracy, flops, seconds, **more):
    found = {"run": f"{model}-n{size}-s{seed}", "model": model, "family": "vit", "train_size": size, "seed": seed}
    return {**found, "accuracy": accuracy, "train_flops": flops, "wall_s": seconds, **more}


ROWS = [
    row("vit_a", 53, 0, 0.5, 2e12, 7.0),
    row("vit_a", 53, 1, 0.7, 4e12, 11.0),
    row("vit_a", 1009, 0, 0.9, 3e13, 130.0),
    row("vit_b", 53, 0, 0.4, 6e12, 23.0),
]


def of(figure, label):
    return next(series for series in figure.series if series.label == label)


def test_line_goes_through_the_means_of_both_in_order_of_size():
    figure = metric_by_cost.plot_metric_by_flops(list(reversed(ROWS)))
    line = of(figure, "vit_a")
    assert (list(line.x), list(line.y)) == ([3e12, 3e13], [pytest.approx(0.6), 0.9])
    assert not line.has_band
    assert line.hover[0] == "vit_a, 53 training examples\n60.0% ± 14.1 over 2 seeds\n3.00 TFLOP"
    assert list(line.links) == ["", "vit_a-n1009-s0/"]
    assert sorted(of(figure, "vit_a, each run").x) == [2e12, 4e12, 3e13]
    assert figure.title == "Held-out accuracy against training compute"
    assert "vit_a: 90.0% for 30.0 TFLOP with 1,009 training examples" in figure.alt


def test_time_is_in_the_unit_that_its_longest_run_is_read_in():
    figure = metric_by_cost.plot_metric_by_time(ROWS)
    assert figure.x.label == "time to train and evaluate (s, log scale)"
    assert list(of(figure, "vit_a").x) == [9.0, 130.0]
    for factor, unit, first in ((60, "min", 9.0), (3600, "h", 9.0)):
        figure = metric_by_cost.plot_metric_by_time([{**one, "wall_s": factor * one["wall_s"]} for one in ROWS])
        assert f"({unit}, log scale)" in figure.x.label
        assert of(figure, "vit_a").x[0] == pytest.approx(first)
        assert of(figure, "vit_b").hover[0].splitlines()[-1] == ("23 min" if unit == "min" else "23 h 00 min")


def test_frontiers_are_the_planted_best_of_each_family_and_of_all():
    planted = [  # model, family, size, accuracy, cost: the first of a line is on its family's frontier
        ("vit_s", "vit", 100, 0.50, 1e12),
        ("vit_s", "vit", 900, 0.60, 1e12),
        ("vit_b", "vit", 100, 0.55, 4e12),  # dearer and worse than vit_s with 900
        ("vit_b", "vit", 900, 0.90, 4e12),
        ("vit_l", "vit", 900, 0.90, 9e12),  # as good, but dearer
        ("resnet_s", "resnet", 100, 0.70, 2e12),
        ("resnet_b", "resnet", 900, 0.80, 8e12),  # the best ResNet, but vit_b is better for less
    ]
    rows = [
        {**row(model, size, 0, value, flops, 1.0), "family": family} for model, family, size, value, flops in planted
    ]
    for found in (rows, [{**one, "accuracy": None, "perplexity": 1 / one["accuracy"]} for one in rows]):
        figure = metric_by_cost.plot_metric_by_flops(found)
        values = [0.6, 0.9], [0.7, 0.8], [0.6, 0.7, 0.9]
        if found is not rows:
            values = [[1 / value for value in some] for some in values]
        costs = [1e12, 4e12], [2e12, 8e12], [1e12, 2e12, 4e12]
        for label, x, y in zip(("best of ViT", "best of ResNet", "best of all"), costs, values, strict=True):
            stairs = of(figure, label)
            assert list(stairs.x) == [at for pair in zip(x, [*x[1:], 9e12], strict=True) for at in pair]
            assert list(stairs.y) == pytest.approx([value for value in y for _ in range(2)])
    figure = metric_by_cost.plot_metric_by_flops(rows)
    assert of(figure, "best of all").hover[2] == "best of all: resnet_s, 100 training examples\n70.0% for 2.00 TFLOP"
    assert "best of ViT: 60.0% for 1.00 TFLOP, 90.0% for 4.00 TFLOP." in figure.alt
    alone = metric_by_cost.plot_metric_by_flops(rows[:2])
    assert not [series for series in alone.series if series.label.startswith("best")]


@pytest.mark.parametrize("value", [None, 0, -1.0, float("nan"), "?"])
def test_runs_without_a_cost_are_left_out(value):
    rows = [{**ROWS[0], "train_flops": value}, *ROWS[1:]]
    assert list(of(metric_by_cost.plot_metric_by_flops(rows), "vit_a").x) == [4e12, 3e13]
    assert metric_by_cost.plot_metric_by_flops([{**one, "train_flops": value} for one in ROWS]).series == []
    assert metric_by_cost.plot_metric_by_flops([]).series == []
