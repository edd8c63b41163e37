import re

import numpy as np
import pytest

from tests.unit.reports.figures.charts import read_points
from tests.unit.reports.figures.test_metric import draw
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
    assert found.describe_multipliers()[0].startswith("vit needs 0.")
    assert found.crossovers["vit", "resnet"].size == pytest.approx(6_000, rel=0.1)
    timed = fit_study([row | {"wall_s": row["train_size"] / 100} for row in rows])
    assert re.fullmatch(r"0?[\d.]+ \([\d.]+ to [\d.]+\)", found.law_table[1][-1])
    assert timed.describe_next_runs()[0].count("less variance") == 3
    views = draw(rows)
    figure = next(iter(views.values()))
    law, beyond = (read_points(figure, mark, "vit") for mark in ("law", "law beyond"))
    assert (law[0]["x"], beyond[-1]["x"]) == pytest.approx((1_000, 128_000))
    assert law[-1]["y"] == pytest.approx(read_points(figure, "line", "vit")[-1]["y"], rel=0.1)
    band = [point for point in read_points(figure, "band", "vit") if point["line"] == "law beyond"]
    assert all(at["low"] <= point["y"] <= at["high"] for point, at in zip(beyond, band, strict=True))
    first, last = read_points(figure, "strip")
    assert first["x"] < read_points(figure, "rule")[0]["x"] < last["x"]


def test_a_curve_that_jumps_is_drawn_without_a_law():
    laws = {"vit": lambda x: 0.8 if x < 10_000 else 0.02, "resnet": lambda x: 0.5 * (x / 1_000) ** -0.3}
    rows = make_rows(lambda e: {"accuracy": 1 - e}, laws)
    found = fit_study(rows)
    assert found.law_table[1][-1].startswith("none: it misses measured errors")
    figure = next(iter(draw(rows).values()))
    assert read_points(figure, "law", "resnet")
    assert read_points(figure, "rule")
    assert not read_points(figure, "law", "vit")
