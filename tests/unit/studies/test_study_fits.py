import re

import numpy as np
import pytest

from tests.unit.reports.figures.charts import read_points
from tests.unit.reports.figures.test_metric import draw
from vitlab.reports.figures.metric import LAW_POINTS
from vitlab.reports.words import headline
from vitlab.studies.results import Results

SIZES = (1_000, 4_000, 16_000, 64_000)


def fits_of(rows):
    return Results(rows, outcomes={}).fits


def make_rows(to_row, laws=None, sizes=SIZES):
    """Rows of two models, three seeds, whose errors cross at 6,000."""
    rng = np.random.default_rng(3)
    laws = laws or {"vit": lambda x: 0.12 * (x / 6_000) ** -0.6, "resnet": lambda x: 0.12 * (x / 6_000) ** -0.25}
    return [
        {"run": f"{model}-{size}-{seed}", "model": model, "family": model, "train_size": size, "seed": seed}
        | to_row(float(law(size) * np.exp(0.02 * rng.normal())))
        for model, law in laws.items()
        for size in sizes
        for seed in range(3)
    ]


@pytest.mark.parametrize(
    "to_row",
    [lambda e: {"accuracy": 1 - e, "chance": 0.1}, lambda e: {"perplexity": np.exp(10 * e)}],
    ids=["accuracy", "perplexity"],
)
def test_figure_1_has_laws_and_the_crossover(to_row):
    rows = make_rows(to_row)
    found = fits_of(rows)
    assert found.describe_crossovers()[0].startswith("vit passes resnet at ")
    assert found.describe_multipliers()[0].startswith("vit needs 0.")
    assert found.crossovers["vit", "resnet"].size == pytest.approx(6_000, rel=0.1)
    assert re.fullmatch(r"[\d.]+%? \([\d.]+ to [\d.]+\)", found.law_table[1][-1])
    views = draw(rows)
    figure = next(iter(views.values()))
    law, beyond = (read_points(figure, "lines", model="vit", beyond=beyond) for beyond in (False, True))
    assert (law[0]["x"], beyond[-1]["x"]) == pytest.approx((1_000, 128_000))
    assert law[-1]["y"] == pytest.approx(read_points(figure, "means", model="vit")[-1]["y"])
    band = read_points(figure, "bands", model="vit")
    assert all(at["low"] <= point["y"] <= at["high"] for point, at in zip(law, band, strict=True))
    assert (len(law), len(beyond)) == (len(SIZES), LAW_POINTS), "means, and beyond the data the law"
    assert re.fullmatch(r"crossover \d,\d00 \(\d,\d00 to \d,\d00\)", read_points(figure, "numbers")[0]["numbers"])
    (strip,) = read_points(figure, "strips")
    assert strip["low"] < strip["x"] < strip["high"]


def test_a_curve_that_jumps_is_drawn_without_a_law():
    laws = {"vit": lambda x: 0.8 if x < 10_000 else 0.02, "resnet": lambda x: 0.5 * (x / 1_000) ** -0.3}
    rows = make_rows(lambda e: {"accuracy": 1 - e}, laws)
    found = fits_of(rows)
    assert found.law_table[1][-1].startswith("none: off by more than 1.5x")
    figure = next(iter(draw(rows).values()))
    assert len(read_points(figure, "lines", model="resnet", beyond=True)) == LAW_POINTS
    assert read_points(figure, "crossovers")
    assert (
        len(read_points(figure, "lines", model="vit")) == len(read_points(figure, "bands", model="vit")) == len(SIZES)
    )


def undertrain(rows, sizes):
    """The rows, undertrained at these sizes."""
    return [{**row, "undertrained": row["train_size"] in sizes} for row in rows]


def test_laws_are_fitted_without_undertrained_cells():
    laws = {model: lambda x: max(0.2, 0.5 * (x / 1_000) ** -0.4) for model in ("vit", "resnet")}
    rows = make_rows(lambda e: {"accuracy": 1 - e}, laws, sizes=(500, 1_000, 2_000, 4_000, 16_000, 64_000))
    marked = undertrain(rows, (16_000, 64_000))
    free, every = fits_of(marked), fits_of(rows)
    assert free.by_model["vit"].largest == pytest.approx(4_000)
    assert every.by_model["vit"].largest == pytest.approx(64_000)
    assert free.left_out
    assert not free.on_budget
    assert float(free.by_model["vit"].predict(64_000)) < 0.18
    figure = next(iter(draw(marked).values()))
    assert [point["x"] for point in read_points(figure, "undertrained", model="vit")] == [16_000, 64_000]
    assert len(read_points(figure, "means", model="vit")) == 4
    assert "(without undertrained points)" in figure.caption
    assert "Hollow: undertrained." in figure.caption


def test_three_sizes_are_too_few_to_leave_the_others_out():
    found = fits_of(undertrain(make_rows(lambda e: {"accuracy": 1 - e}), SIZES[3:]))
    assert found.by_model["vit"].largest == pytest.approx(SIZES[-1])
    assert found.on_budget == {"vit", "resnet"}
    assert not found.left_out


def test_what_rests_on_undertrained_cells_says_so_first():
    rows = undertrain(make_rows(lambda e: {"accuracy": 1 - e}), SIZES[1:])
    found = fits_of([row | {"budget": "steps=600"} for row in rows])
    assert found.on_budget == {"vit", "resnet"}
    assert found.by_model["vit"].largest == pytest.approx(SIZES[-1])
    assert found.describe_headline().startswith("With 600 steps each, ViT passes ResNet at ")
    assert found.law_table[1][2].startswith("undertrained: ")
    rows = undertrain(make_rows(lambda e: {"balanced_accuracy": 1 - e}), SIZES[1:])
    text = headline(Results([row | {"budget": f"flops={row['seed']}e9"} for row in rows], outcomes={}))[0]
    assert text.startswith("In balanced accuracy, with these budgets, ViT passes ")


def test_each_doubling_of_a_power_law_lowers_the_error_alike():
    laws = {"vit": lambda x: 0.5 * (x / 1_000) ** -0.5}
    found = fits_of(make_rows(lambda e: {"accuracy": 1 - e}, laws))
    share = r"(2[6-9]|3[0-2])% \(\d+ to \d+\)"  # 1 - 2 ** -0.5 = 29%
    text = found.describe_law("vit")
    assert re.fullmatch(
        rf"each doubling of the data lowers the error by {share} at 1,000 training examples, by {share} at 64,000", text
    )
    assert re.fullmatch(rf"{share} at 1,000, {share} at 64,000", found.law_table[1][2])
