import math

import numpy as np
import pytest

from tests.unit.reports.few_runs import losses
from vitlab.reports.words import WIDTH, describe_limits, say_result
from vitlab.studies.results import Results

ONE_SEED = "One seed, no interval."
SIZES = (500, 2000, 8000, 32000)


def rows_of(models, families=None, sizes=SIZES, key="accuracy"):
    """Rows of results.csv from model -> one value per size, or one tuple of values per size, a value per seed."""
    found = []
    for model, curve in models.items():
        for size, values in zip(sizes, curve, strict=False):
            for seed, value in enumerate(values if isinstance(values, tuple) else (values,)):
                row = {"model": model, "family": (families or {}).get(model, model), "train_size": size, "seed": seed}
                found.append({**row, key: value})
    return found


def all_told(rows, outcomes=None, **config):
    return say_result(Results(rows, config, outcomes=outcomes or {}))


def twice(rows):
    """What is told where each single seed has another of the same value: intervals of ± 0.0, which are left out."""
    again = [{**row, "seed": 1} for row in rows if row["seed"] == 0]
    rows = rows if any(row["seed"] for row in rows) else [*rows, *again]
    return [text.replace(" ± 0.0", "") for text in all_told(rows)]


def told(rows):
    """The first sentence."""
    return twice(rows)[0]


def both(vit, resnet, **options):
    return told(rows_of({"vit": vit, "resnet": resnet}, **options))


def test_one_family_ahead_everywhere():
    assert both((0.4, 0.62, 0.78, 0.88), (0.782, 0.87, 0.93, 0.961)) == (
        "ResNet leads at every size up to 32,000; the gap shrinks from 38.2 to 8.1 points."
    )
    assert both((0.40, 0.40, 0.40), (0.42, 0.45, 0.50)).endswith("the gap grows from 2.0 to 10.0 points.")
    assert both((0.40, 0.50, 0.60), (0.6, 0.70, 0.80)).endswith("the gap stays at 20.0 points.")
    assert both((0.30, 0.60, 0.70), (0.60, 0.65, 0.76)).endswith("the gap shrinks from 30.0 to 6.0 points.")
    assert both((0.40, 0.50, 0.40), (0.50, 0.90, 0.60)).endswith("the gap varies between 10.0 and 40.0 points.")


def test_who_leads_where():
    assert both((0.4, 0.6, 0.9, 0.98), (0.7, 0.8, 0.85, 0.96)) == (
        "ResNet leads up to 2,000; ViT leads from 8,000, by 2.0 points at 32,000."
    )
    assert both((0.4, 0.6, 0.7, 0.98), (0.7, 0.8, 0.85, 0.96)) == (
        "ResNet leads up to 8,000; ViT leads at 32,000, by 2.0 points."
    )
    rows = rows_of({"vit": (0.4, 0.9, 0.5, 0.5), "resnet": (0.5, 0.5, 0.6, 0.6)})
    assert twice(rows) == [
        "ResNet leads at 500; ViT leads at 2,000; ResNet leads from 8,000.",
        "ResNet leads by 10.0 points at 32,000 training examples.",
    ]
    assert all_told(rows) == [
        "Undecided: ResNet ahead by 10.0 points (one seed) at 32,000 training examples.",
        "ResNet ahead at 500 (undecided); ViT ahead at 2,000 (undecided); ResNet ahead from 8,000 (undecided).",
        ONE_SEED,
    ]
    assert told(rows_of({"vit": (0.5, 0.4) * 3, "resnet": (0.4, 0.5) * 3}, sizes=range(100, 700, 100))) == (
        "The lead changes 5 times over 6 sizes; ResNet leads by 10.0 points at 600."
    )


def test_sizes_that_are_level_within_the_spread_over_seeds():
    vit = ((0.40, 0.44), (0.60, 0.62), (0.84, 0.86), (0.95, 0.97))
    rows = rows_of({"vit": vit, "resnet": ((0.70, 0.72), (0.80, 0.81), (0.85, 0.86), (0.96, 0.965))})
    assert all_told(rows) == [
        "ResNet leads up to 2,000; ResNet ahead from 8,000 (undecided).",
        "Undecided: ResNet ahead by 0.3 ± 4.0 points (2 seeds) at 32,000 training examples.",
    ]
    assert both(vit[2:], ((0.87, 0.84), (0.97, 0.955))) == (
        "ResNet ahead at every size up to 2,000 (undecided: 0.3 ± 22.2 points at 2,000, 2 seeds)."
    )


def test_best_model_of_each_family_at_each_size():
    families = {"vit_s": "vit", "vit_l": "vit"}
    models = {"vit_s": (0.50, 0.60, 0.65, 0.70), "vit_l": (0.30, 0.50, 0.70, 0.90), "resnet": (0.6, 0.7, 0.75, 0.8)}
    assert told(rows_of(models, families)) == "ResNet leads up to 8,000; ViT leads at 32,000, by 10.0 points."
    del models["resnet"]
    assert told(rows_of(models, families)) == (
        "vit_s leads up to 2,000; vit_l leads from 8,000, by 20.0 points at 32,000."
    )


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_did_not_finish_or_has_no_number(value):
    assert told([]) == "No run has finished yet."
    assert told(rows_of({"vit": (value,), "resnet": (value,)})) == (
        "No finished run has a result on the held-out data."
    )
    found = told(rows_of({"a": (0.4, value, 0.6), "b": (0.5, 0.6, 0.8)}))
    assert found == "b leads at every size compared, up to 8,000; the gap grows from 10.0 to 20.0 points."
    apart = rows_of({"vit": (0.4,)}) + rows_of({"resnet": (0.5,)}, sizes=(2000,))
    assert "no training-set size in common" in told(apart)


def pairs(means, gap, noise):
    """Of two models a value per size and seed: `gap` apart, the difference scattered by `noise`."""
    shifts = np.array([-1.0, 0.0, 1.0])
    return [tuple(mean + noise * shifts) for mean in means], [
        tuple(mean + gap + noise * shifts[::-1]) for mean in means
    ]


def test_models_are_level_where_the_whole_interval_is_within_the_margin():
    vit, resnet = pairs((0.7, 0.8, 0.85, 0.9), 0.001, 0.001)
    rows = rows_of({"vit": vit, "resnet": resnet})
    assert told(rows) == "ResNet and ViT are level within 1 point at every size up to 32,000."
    assert "undecided" in all_told(rows, margin=0.3)[0]
    vit, resnet = pairs((0.7, 0.8), 0.001, 0.005)
    assert "level" not in all_told(rows_of({"vit": vit, "resnet": resnet}))


def with_outcomes(curves, items=2000, **columns):
    """Rows and what each run got right, from model -> (seeds, items) or a share that an item of one seed is right."""
    rng, rows, outcomes = np.random.default_rng(0), [], {}
    for model, right in curves.items():
        table = (rng.random((1, items)) < right).astype(float) if isinstance(right, float) else right
        for seed, values in enumerate(table):
            run = f"{model}-{seed}"
            outcomes[run] = values
            rows.append({"run": run, "model": model, "family": model, "train_size": 500, "seed": seed})
            rows[-1] |= {"accuracy": values.mean(), **columns}
    return " ".join(all_told(rows, outcomes))


def test_two_points_on_every_seed_are_a_lead_and_copies_of_a_model_are_level():
    rng = np.random.default_rng(0)
    ease = rng.random(2000)
    right = [(rng.random((3, 2000)) ** 6 < ease).astype(float) for _ in range(2)]
    assert with_outcomes({"vit": right[0], "resnet": right[1]}).startswith("Undecided: ViT ahead by 0.2 ± 3.1 points")
    worse = right[0].copy()
    for values in worse:
        values[rng.choice(np.flatnonzero(values), 40, replace=False)] = 0
    assert with_outcomes({"vit": worse, "resnet": right[0]}).startswith("ResNet leads by 2.0 ± 0.")


def test_a_headline_of_one_seed_says_that_others_are_not_covered():
    ending = ". One seed: the interval does not cover others."
    found = with_outcomes({"vit": 0.8, "resnet": 0.9})
    assert found.startswith("ResNet leads by 11.")
    assert found.endswith(f"at 500 training examples{ending}")
    assert with_outcomes({"vit": 0.800, "resnet": 0.805}).startswith("Undecided: ResNet ahead by ")
    assert all_told(rows_of({"vit": (0.4,), "resnet": (0.5,)}))[-1] == ONE_SEED
    assert ONE_SEED not in all_told(rows_of({"vit": ((0.4, 0.41),), "resnet": ((0.5, 0.5),)}))


def test_the_headline_says_when_no_model_beats_chance():
    found = with_outcomes({"vit": 0.50, "resnet": 0.49}, chance=0.5)
    assert found.startswith("No model beats chance: 5")
    assert found.endswith("guessing the largest class has 50.0%.")
    assert with_outcomes({"vit": 0.51}, items=200, chance=0.5).startswith("No model beats chance")
    assert with_outcomes({"vit": 0.60, "resnet": 0.49}, chance=0.5).startswith("ViT leads by")
    early = [
        {**row, "chance": 0.1}
        for row in rows_of({"vit": ((0.09, 0.11), (0.9, 0.91)), "resnet": ((0.1, 0.1), (0.7, 0.7))})
    ]
    assert told(early).startswith("No model beats chance (10.0%) at 500; ViT leads at 2,000, by 20.5 ± ")


LONG = "vit_large_patch16_224_augreg_in21k recipe.optimizer=muon recipe.lr=0.00"


@pytest.mark.parametrize(
    ("models", "families"),
    [
        ({"vit": ((0.2, 0.21), (0.61, 0.6), (0.85, 0.86), (0.94, 0.95)), "resnet": ((0.5, 0.49),) * 4}, {}),
        ({"vit": ((0.2, 0.61),) * 4, "resnet": ((0.5, 0.49),) * 4}, {}),
        ({"vit_nano": ((0.4, 0.5),) * 4}, {}),
        ({f"{LONG}{i}": (0.1 * i,) * 4 for i in range(1, 3)}, dict.fromkeys((f"{LONG}1", f"{LONG}2"), "vit")),
        ({f"{LONG}{i}": (0.5 + i / 1e4,) * 4 for i in range(9)}, {f"{LONG}{i}": "vit" for i in range(9)}),
        ({LONG: (0.5,)}, {LONG: "vit"}),
    ],
    ids=["crossover", "undecided", "one model", "long names", "many long names", "one long name"],
)
def test_the_first_sentence_is_short(models, families):
    first, *rest = all_told(rows_of(models, families))
    assert len(first) <= WIDTH
    if (names := [name for name in models if LONG in name]) and len(models) < 3:
        assert names[-1] in "".join(rest), "the full names follow"
        assert f"{names[-1][:10]}…{names[-1][-9:]}" in first


def with_limits(limits, **columns):
    """Results of two models at SIZES whose runs have a limit; model -> a limit per size."""
    rows = rows_of({model: ((0.5, 0.6),) * len(SIZES) for model in limits})
    rows = [{**row, **losses(limits[row["model"]][SIZES.index(row["train_size"])]), **columns} for row in rows]
    return Results(rows, outcomes={})


def test_more_steps_are_named_where_they_should_help():
    late, early = ["data", "data", "budget", "budget"], ["data", "budget", "undecided", "budget"]
    gain = "should gain more from more steps than from more data"
    fifth = "may lower the error by about a fifth, as on Fashion-MNIST."
    both = {"vit": late, "resnet": late}
    first = f"From 8,000 examples on both models {gain}"
    assert describe_limits(with_limits(both, budget="steps=600")) == f"{first}; budget.steps=1200 {fifth}"
    f1 = {"metric": "macro_f1", "macro_f1": 0.5}
    assert describe_limits(with_limits(both, budget="steps=600", **f1)) == f"{first}.", "it was measured of accuracy"
    assert describe_limits(with_limits({"vit": late, "resnet": early}, budget="epochs=2.5")) == (
        f"vit from 8,000 examples on and resnet at 2,000 and 32,000 examples {gain}; budget.epochs=5 {fifth}"
    )
    assert describe_limits(with_limits({"vit": ["budget"] * 4, "resnet": ["data"] * 4})) == f"At every size vit {gain}."
    assert not describe_limits(with_limits({"vit": ["data"] * 4, "resnet": ["undecided"] * 4}))
    assert not describe_limits(Results(rows_of({"vit": (0.4,)}), outcomes={})), "runs from before"
