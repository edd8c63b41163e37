"""The verdict says what the runs say: who is best, whether that is sure, what more labels bring."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.unit.reports.few_runs import losses
from vitlab.reports.advice import advise, describe_advice
from vitlab.studies.results import Results
from vitlab.training.mistakes import Examined

SIZES = (100, 200, 400, 800)
FLOPS = {"color_histogram": 1e3, "resnet_nano": 1e6, "vit_nano": 3e6}
FAMILIES = {"color_histogram": "histogram", "resnet_nano": "resnet", "vit_nano": "vit"}


def make_results(curves, seeds=5, noise=0.004, metric="accuracy", **more):
    """A study with repeated hold-out: `curves` gives of each model its metric at SIZES."""
    rng = np.random.default_rng(0)
    rows = []
    for model, values in curves.items():
        for size, value in zip(SIZES, values, strict=True):
            for seed in range(seeds):
                measured = float(np.clip(value + rng.normal(0, noise), 0, 1)) if value < 1 else 1.0
                row = {"model": model, "family": FAMILIES[model], "train_size": size, "seed": seed, metric: measured}
                costs = {"wall_s": 10.0, "params": 1000, "train_flops": FLOPS[model] * 100, "examples_seen": 100}
                counts = {"train_items": size, "test_items": 200, "unit": "example", "holdout": "repeated"}
                rows.append({**row, **costs, **counts, **more, "run": f"{model}-n{size}-s{seed}"})
    config = {"name": "toy", "data": {"name": "imagetable", "holdout": "repeated"}}
    runs = {row["run"]: SimpleNamespace(outcomes=None) for row in rows}
    return Results(rows, config, None, runs)


def says(results, **options):
    return describe_advice(advise(results), **options)


def test_a_clear_leader_is_taken_with_its_interval_and_its_lead():
    curves = {"vit_nano": (0.5, 0.6, 0.68, 0.744), "resnet_nano": (0.7, 0.79, 0.85, 0.895)}
    first, *rest = says(make_results(curves))
    assert first.startswith("Take resnet_nano: 89.")
    assert "accuracy with 800 training labels, " in first
    assert "points ahead of vit_nano." in first
    assert rest[0].startswith("With twice the labels, 1,600, resnet_nano is expected at 92")
    assert rest[1].startswith("1,000 more labels: +")


def test_a_verdict_that_rests_on_the_budget_says_so_first():
    curves = {"vit_nano": (0.5, 0.6, 0.68, 0.744), "resnet_nano": (0.7, 0.79, 0.85, 0.895)}
    assert says(make_results(curves, **losses("budget")))[0].startswith("Limited by the budget: take resnet_nano: 89.")
    assert says(make_results(curves, **losses("data")))[0].startswith("Take resnet_nano: 89.")


def test_the_interval_of_twice_the_labels_holds_a_curve_that_goes_on():
    sizes = np.array(SIZES)
    curves = {"resnet_nano": 1 - 3 * sizes**-0.5, "vit_nano": 1 - 6 * sizes**-0.5}
    advice = advise(make_results(curves))
    later = advice.best_later.later
    assert later.low < 1 - 3 * 1600**-0.5 < later.high
    assert later.high - later.low < 0.06
    gain = advice.chosen.gain
    assert gain.low < 3 * (800**-0.5 - 1800**-0.5) < gain.high


def test_models_that_cannot_be_told_apart_are_undecided_and_say_why():
    curves = {"vit_nano": (0.5, 0.6, 0.68, 0.74), "resnet_nano": (0.5, 0.6, 0.68, 0.76)}
    first, second, *_ = says(make_results(curves, noise=0.05))
    assert first.startswith("Undecided between ")
    assert first.endswith(" may be chance.")
    assert second.startswith("Until there are more, take ")


def test_of_models_that_are_level_the_cheapest_is_taken():
    curves = {"vit_nano": (0.5, 0.6, 0.68, 0.7405), "resnet_nano": (0.5, 0.6, 0.68, 0.7403)}
    first, *_ = says(make_results(curves, noise=0.001))
    assert first.startswith("Take resnet_nano: 74.")
    assert first.endswith("vit_nano cost more and give the same.")


def test_colors_that_decide_everything_are_said():
    curves = {"color_histogram": (0.99, 1, 1, 1), "resnet_nano": (0.9, 0.95, 0.99, 1.0)}
    sentences = says(make_results(curves))
    assert sentences[0].startswith("Take color_histogram: 100.0%")
    assert sentences[1] == "The colors alone decide: no network is needed to tell these classes apart."
    assert sentences[2] == "It makes no mistake on the test pictures, so what more labels bring cannot be seen."


def test_of_undecided_models_within_a_point_the_cheapest_is_taken():
    curves = {"color_histogram": (0.87, 0.92, 0.958, 0.967), "resnet_nano": (0.79, 0.9, 0.956, 0.970)}
    first, second, third, *_ = says(make_results(curves, seeds=3, noise=0.006))
    assert first.startswith(
        "Undecided between color_histogram and resnet_nano with 800 training labels, because the lead"
    )
    assert second.startswith("Until there are more, take color_histogram: 96.")
    assert second.endswith(", the cheapest within 1 point of the best.")
    assert third.startswith("The colors alone decide so far: ")


def test_models_below_chance_are_no_choice():
    curves = {"vit_nano": (0.3, 0.3, 0.31, 0.3), "resnet_nano": (0.29, 0.3, 0.3, 0.3)}
    first, *_ = says(make_results(curves, chance=0.34))
    assert first == "Undecided: no model beats always choosing the largest class, 34.0% with 800 training labels."


@pytest.mark.parametrize(("sure", "wrong", "warned"), [(4, 10, False), (90, 200, True), (30, 200, False)])
def test_many_sure_mistakes_are_a_sign_of_wrong_labels(sure, wrong, warned):
    curves = {"vit_nano": (0.5, 0.6, 0.68, 0.74), "resnet_nano": (0.7, 0.79, 0.8, 0.81)}
    examined = Examined([], sure, wrong, 1000, None, 1.0)
    assert any("labels seem to be wrong" in text for text in says(make_results(curves), examined=examined)) == warned


def test_an_error_is_better_the_lower_it_is():
    curves = {"vit_nano": (0.9, 0.8, 0.7, 0.65), "resnet_nano": (0.8, 0.66, 0.55, 0.45)}
    first, *rest = says(make_results(curves, metric="nrmse"))
    assert first.startswith("Take resnet_nano: 0.45")
    assert rest[-1].startswith("1,000 more labels: +0.")


def test_seeds_that_draw_their_own_tests_have_wider_intervals():
    curves = {"resnet_nano": (0.7, 0.79, 0.85, 0.89), "vit_nano": (0.5, 0.6, 0.68, 0.74)}
    drawn, fixed = make_results(curves, noise=0.02), make_results(curves, noise=0.02, holdout=None)
    nows = [advise(results).standings[0].now for results in (drawn, fixed)]
    widths = [now.high - now.low for now in nows]
    assert widths[0] / widths[1] == pytest.approx(np.sqrt(1 + 5 * 200 / 800), rel=1e-6)
