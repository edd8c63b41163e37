"""Sizes of models, the best one with a budget of FLOPs, and L(N, D), on planted laws and on published runs.

hoffmann_runs.csv: 245 runs that Besiroglu et al. (2024, arXiv 2404.10102) read from figure 4 of Hoffmann et al. (2022);
github.com/Besiroglu/data, svg_extracted_data.csv, five digits. They leave out the five runs with the highest losses.
"""

import csv
import re
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from tests.unit.reports.figures.test_metric import draw
from vitlab.config import UserError, compose, resolved
from vitlab.config.schema import DescribeConfig
from vitlab.statistics.surfaces import find_best_sizes, fit_surface

PUBLISHED = {  # value, standard error: table 1 of Besiroglu et al.
    "A": (482.01, 124.58),
    "B": (2085.43, 1293.23),
    "E": (1.8172, 0.03),
    "alpha": (0.3478, 0.02),
    "beta": (0.3658, 0.02),
}


def describe(*words):
    return compose(DescribeConfig, words).model


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["vit_ti16", "118.5"], {"depth": 32, "width": 1280, "heads": 20}),  # ViT-H has these but for 16 heads
        (["vit_nano", "4"], {"depth": 5, "width": 112, "heads": 7, "mlp_width": 224}),
        (["vit_nano", "0.25"], {"depth": 4, "width": 32, "heads": 2, "mlp_width": 64}),
        (["vit_nano", "2", "model.depth=8"], {"depth": 10, "width": 80}),
        (
            ["vit_caption_nano", "1", "model.encoder.size=4", "model.encoder.patch_size=8"],
            {"encoder.depth": 5, "encoder.width": 112},
        ),
        (["gpt_nano", "4"], {"depth": 5, "width": 224, "heads": 7}),
        (["resnet_nano", "4"], {"layers": [1, 1, 1], "widths": [16, 32, 64]}),
        (["resnet_nano", "8"], {"layers": [2, 2, 2], "widths": [16, 32, 64]}),
    ],
)
def test_a_size_is_a_factor_of_the_blocks_parameters_and_heads_keep_their_width(words, expected):
    name, size, *more = words
    model = describe(f"model={name}", f"model.size={size}", *more)
    assert {key: attrgetter(key)(model) for key in expected} == expected
    again = compose(DescribeConfig, base={"model": resolved(model)}).model
    assert resolved(again) == resolved(model), "a resolved model is not scaled again"


@pytest.mark.parametrize("size", ["0", "-1", ".inf", "1e9", "big"])
def test_a_size_out_of_range_is_named(size):
    with pytest.raises(UserError, match=r"^model\.size="):
        describe("model=vit_nano", f"model.size={size}")


def test_the_published_law_of_hoffmann_s_runs_comes_out():
    with (Path(__file__).parent / "hoffmann_runs.csv").open() as file:
        params, flops, losses = np.array(list(csv.reader(file))[1:], float).T
    kept = losses.argsort()[:-5]
    assert len(kept) == 240
    narrow = kept[params[kept] / params[kept].min() < 3]
    with pytest.raises(UserError, match=r"vary by 4x each, else E is open; here 2\.\d+x"):
        fit_surface(params[narrow], flops[narrow] / (6 * params[narrow]), losses[narrow])
    law = fit_surface(params[kept], flops[kept] / (6 * params[kept]), losses[kept])
    found = law.params
    for name, (value, error) in PUBLISHED.items():
        assert found[name][0] == pytest.approx(value, abs=0.25 * error)
        assert found[name][1] < value < found[name][2]
    for name in ("alpha", "beta"):  # their standard errors are of 4,000 draws
        assert (found[name][2] - found[name][1]) / 3.29 == pytest.approx(PUBLISHED[name][1], abs=0.006)
    assert law.rmse < 0.01


def make_runs(best=lambda budget: 3e4 * (budget / 1e12) ** 0.5, seeds=3, noise=0.02):
    """Runs of five sizes with three budgets whose log errors are parabolas around the best size."""
    random, rows = np.random.default_rng(1), []
    for budget in (1e12, 4e12, 1.6e13):
        for params in 2e4 * 2.0 ** np.arange(5):
            for seed in range(seeds):
                error = 0.2 * (budget / 1e12) ** -0.2 * np.exp(0.1 * np.log(params / best(budget)) ** 2)
                rows.append((budget, params, seed, error * np.exp(noise * random.standard_normal())))
    return rows


def test_the_best_size_is_the_parabola_s_minimum_and_one_at_the_edge_is_not_inside():
    budgets, params, _, errors = np.array(make_runs()).T
    found = find_best_sizes(budgets, params, errors)
    for one in found:
        assert one.best[1] < np.log(3e4 * (one.budget / 1e12) ** 0.5) < one.best[2]
    assert re.fullmatch(
        r"with 4.00 TFLOP at [\d.]+k parameters \(90% interval [\d.]+k to [\d.]+k\)", found[1].describe()
    )
    budgets, params, _, errors = np.array(make_runs(lambda budget: 1e6 if budget > 1e13 else 4e3)).T
    first, _, last = (one.describe() for one in find_best_sizes(budgets, params, errors))
    assert first == "with 1.00 TFLOP not inside the sizes but at their end, 20.0k"
    assert last == "with 16.0 TFLOP not inside the sizes but at their end, 320k"
    assert find_best_sizes(*np.array([(1e12, 1, 2), (1e12, 2, 1), (1e12, 4, 2)], float).T) == [], "no residual"


def test_a_study_of_sizes_and_budgets_says_the_best_sizes_and_the_law():
    rows = [
        {"run": f"{n}", "model": f"vit_nano size={params} flops={budget:g}", "family": "vit", "train_size": 900}
        | {"seed": seed, "accuracy": 1 - error, "budget": f"flops={budget:g}", "params": params}
        | {"examples_seen": budget / params, "train_flops": budget, "wall_s": 1.0}
        for n, (budget, params, seed, error) in enumerate(make_runs())
    ]
    figure = draw(rows)["model size"]
    assert "vit_nano, 900 training examples: lowest with 1.00 TFLOP at " in figure.caption
    assert "vit_nano, N parameters, D examples seen: E + A/N^alpha + B/D^beta with alpha " in figure.caption
    points = [point for name in ("fitted", "best") for point in read_kind(figure, name)]
    assert len(points) == 15 + 3
    assert all(point["left"] < point["x"] < point["right"] for point in points[15:])
    for row in rows:  # no budgets of FLOPs: a line for each amount of data
        row["model"], row["budget"], row["train_size"] = (
            f"vit_nano size={row['params']}",
            "steps=5",
            row["examples_seen"],
        )
    figure = draw(rows)["model size"]
    assert "lowest" not in figure.caption.partition("diamond")[2].partition(".")[2]
    assert read_kind(figure, "law")


def read_kind(figure, kind):
    (points,) = figure.spec["datasets"].values()
    return [point for point in points if point["kind"] == kind]
