import re

import numpy as np
import pytest

from vitlab.reports.figures.metric_by_size import plot_metric_by_size
from vitlab.reports.results.fits import fit_study

SIZES = (1_000, 4_000, 16_000, 64_000)


def make_rows(to_row, laws=None):
    """Rows of two models, three seeds, whose errors cross at 6,000."""
    rng = np.random.default_rng(3)
    laws = laws or {"vit": lambda x: 0.12 * (x / 6_000) ** -0.6, "resnet": lambda x: 0.12 * (x / 6_000) ** -0.25}
    return [
        {"run": f"{model}-{size}-{seed}", "model": model, "family": model, "train_size": size, "seed": seed}
        | to_row(float(law(size) * np.exp(0.02 * rng.normal())))
        for model, law in laws.items()
        for size in SIZES
        for seed in range(3)
    ]


@pytest.mark.parametrize(
    "to_row",
    [lambda e: {"accuracy": 1 - e, "chance": 0.1}, lambda e: {"perplexity": np.exp(10 * e)}],
    ids=["accuracy", "perplexity"],
)
def test_figure_1_has_laws_and_the_crossover(to_row):
    rows = make_rows(to_row)
    found = fit_study(rows)
    assert found.describe_crossovers()[0].startswith("vit passes resnet at ")
    assert found.crossovers["vit", "resnet"].size == pytest.approx(6_000, rel=0.1)
    timed = fit_study([row | {"wall_s": row["train_size"] / 100} for row in rows])
    assert re.fullmatch(r"0?[\d.]+ \([\d.]+ to [\d.]+\)", found.law_table[1][-1])
    assert timed.describe_next_runs()[0].count("less variance") == 3
    figure = plot_metric_by_size(rows, found)
    lines = {series.dash: series for series in figure.series if series.label == "vit, fit"}
    assert (lines["solid"].x[0], lines["dash"].x[-1]) == pytest.approx((1_000, 128_000))
    measured = next(series for series in figure.series if series.label == "vit")
    assert lines["solid"].y[-1] == pytest.approx(measured.y[-1], rel=0.1)
    assert all(
        low <= y <= high for low, y, high in zip(lines["dash"].low, lines["dash"].y, lines["dash"].high, strict=True)
    )
    strip, line = (
        next(series for series in figure.series if series.label == name) for name in ("interval", "crossover")
    )
    assert strip.x[0] < line.x[0] < strip.x[1]


def test_a_curve_that_jumps_is_drawn_without_a_law():
    laws = {"vit": lambda x: 0.8 if x < 10_000 else 0.02, "resnet": lambda x: 0.5 * (x / 1_000) ** -0.3}
    rows = make_rows(lambda e: {"accuracy": 1 - e}, laws)
    found = fit_study(rows)
    assert found.law_table[1][-1].startswith("none: it misses measured errors")
    assert {series.label for series in plot_metric_by_size(rows, found).series} >= {"resnet, fit", "crossover"}
    assert "vit, fit" not in {series.label for series in plot_metric_by_size(rows, found).series}
