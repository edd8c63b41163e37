import math
import re
from dataclasses import replace

import numpy as np
import pytest

from vitlab.reports.words import WIDTH, describe_undertrained, headline, make_size_table, say_result, shorten
from vitlab.statistics.stats import Estimate, find_visible, quantile
from vitlab.studies.results import Results

ONE_SEED = "One seed each: no interval."
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


def told(rows):
    """The first sentence."""
    return all_told(rows)[0]


def both(vit, resnet, **options):
    return told(rows_of({"vit": vit, "resnet": resnet}, **options))


def near(*means, spread=0.002):
    """Three seeds about each mean."""
    return tuple((mean - spread, mean, mean + spread) for mean in means)


def test_who_leads_over_the_whole_range_or_at_the_largest_size():
    assert both(near(0.4, 0.62, 0.78, 0.88), near(0.782, 0.87, 0.93, 0.961)) == (
        "ResNet leads at every size from 500 to 32,000, by 8.1 points (7.9 to 8.3) there."
    )
    found = all_told(rows_of({"vit": near(0.5, 0.5, 0.5), "resnet": near(0.6, 0.501, 0.6, spread=-0.002)}))
    assert found[0].startswith("ResNet leads with 8,000 examples, by 10.0 points (")
    assert found[1] == "ResNet leads at 500 and 8,000 examples."
    assert told(rows_of({"vit": near(0.5), "resnet": near(0.6)})).startswith("ResNet leads with 500 examples,")


def test_a_sure_crossover_comes_first():
    found = all_told(rows_of({"vit": near(0.4, 0.6, 0.9, 0.98), "resnet": near(0.7, 0.8, 0.85, 0.96)}))
    assert found[0].startswith("ViT passes ResNet at 4,")
    assert "extrapolated" not in found[0]
    assert found[1:3] == [
        "ViT leads with 32,000 examples, by 2.0 points (1.8 to 2.2).",
        "ResNet leads at 500 and 2,000 examples; ViT leads from 8,000 examples on.",
    ]


@pytest.mark.parametrize(
    ("gap", "seeds", "said"),
    [
        (
            0.002,
            3,
            r"a difference of \d\.\d points, \d\.\d points with 6 seeds each\. To settle 0\.2 points plan \d+ seeds",
        ),
        (0.3, 3, r"a difference of \d\.\d points, \d\.\d points with 6 seeds each\.$"),
        (0.002, 2, r"a difference of \d\.\d points with 4 seeds each, \d\.\d points with 6 seeds each\. To settle"),
        (0.002, 1, "^$"),
    ],
    ids=["undecided", "lead", "two seeds", "one seed"],
)
def test_the_last_sentence_says_what_the_study_could_see_and_what_more_would_buy(gap, seeds, said):
    shifts = (-0.004, 0.004, 0.001)[:seeds]
    curves = {name: (tuple(0.5 + lead + shift for shift in shifts),) for name, lead in (("vit", 0), ("resnet", gap))}
    first, _, sight = headline(Results(rows_of(curves), outcomes={}))
    assert re.search(said, sight), sight
    assert "seeds each" not in first


def test_twice_the_items_help_as_far_as_items_are_what_is_unknown():
    gap = Estimate(0.0, 0.02, 50.0, 3, 2000, over_seeds=1e-4, over_items=2e-4)
    now, seeds, items = (find_visible(gap, 3, 2, **more) for more in ({}, {"seeds": 6}, {"items": 2}))
    assert now == pytest.approx((quantile(50) + 0.84) * 0.02, rel=0.03)
    assert seeds / now == pytest.approx((3.5e-4 / 4e-4) ** 0.5, rel=0.02)
    assert items / now == pytest.approx((3e-4 / 4e-4) ** 0.5, rel=0.02)
    assert find_visible(gap, 3, 8) > now


def test_seeds_that_agree_to_the_last_digit_are_no_certainty():
    logged = rows_of({"vit": ((0.93, 0.93),), "resnet": ((0.94, 0.94),)})
    assert Results(logged, outcomes={}).gap("resnet", "vit", 500).verdict == "undecided"


def test_leads_hold_for_all_sizes_at_once_and_no_place_shows_what_one_size_would_say():
    """The difference at one size is clear by itself, but not as the clearest of three."""
    gaps, shifts = (0.0, 0.0052, 0.0), np.array([-0.004, 0.0, 0.004])
    curves = {"vit": [tuple(0.5 + gap + shifts) for gap in gaps], "resnet": [tuple(0.5 - gap - shifts) for gap in gaps]}
    found = Results(rows_of(curves), outcomes={})
    gap = found.gap("vit", "resnet", 2000)
    assert (gap.verdict, gap.estimate.comparisons) == ("undecided", pytest.approx(3))
    assert replace(gap.estimate, comparisons=1).clear
    assert not any("leads" in text or "chance" in text for text in say_result(found))
    assert make_size_table(found).body[1][-1].startswith("undecided: vit ahead by 1.0 points (-")


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_did_not_finish_or_has_no_number(value):
    assert told([]) == "No run has finished yet."
    assert told(rows_of({"vit": (value,), "resnet": (value,)})) == (
        "No finished run has a result on the held-out data."
    )
    found = both((*near(0.4), value, *near(0.6)), near(0.5, 0.6, 0.8))
    assert found.startswith("ResNet leads at every size from 500 to 8,000, by 20.0 points (")
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
    assert told(rows) == "ResNet and ViT are level within 1 point at every size from 500 to 32,000."
    assert "Undecided" in all_told(rows, margin=0.3)[0]
    vit, resnet = pairs((0.7, 0.8), 0.001, 0.005)
    assert "level" not in all_told(rows_of({"vit": vit, "resnet": resnet}))


def with_outcomes(shares, items=2000, **columns):
    """Write the first sentence of one seed of each model, by the share of items that it gets right."""
    rng, rows, outcomes = np.random.default_rng(0), [], {}
    for model, share in shares.items():
        outcomes[model] = (rng.random(items) < share).astype(float)
        rows.append({"run": model, "model": model, "family": model, "train_size": 500, "seed": 0})
        rows[-1] |= {"accuracy": outcomes[model].mean(), **columns}
    return " ".join(all_told(rows, outcomes))


def test_a_headline_of_one_seed_says_that_others_are_not_covered():
    ending = ". One seed each: the interval covers test examples alone."
    found = with_outcomes({"vit": 0.8, "resnet": 0.9})
    assert found.startswith("ResNet leads with 500 examples, by 11.")
    assert found.endswith(f"){ending}")
    assert with_outcomes({"vit": 0.800, "resnet": 0.805}).startswith("Undecided: ResNet ahead of ViT by ")
    assert all_told(rows_of({"vit": (0.4,), "resnet": (0.5,)}))[-1] == ONE_SEED
    assert ONE_SEED not in all_told(rows_of({"vit": ((0.4, 0.41),), "resnet": ((0.5, 0.5),)}))


def test_the_headline_says_when_no_model_beats_chance():
    found = with_outcomes({"vit": 0.50, "resnet": 0.49}, chance=0.5)
    assert found.startswith("No model beats chance: 5")
    assert found.endswith("guessing the largest class gives 50.0%.")
    assert with_outcomes({"vit": 0.51}, items=200, chance=0.5).startswith("No model beats chance")
    assert with_outcomes({"vit": 0.60, "resnet": 0.49}, chance=0.5).startswith("ViT leads with 500")
    early = [
        {**row, "chance": 0.1}
        for row in rows_of({"vit": ((0.09, 0.11), (0.9, 0.91)), "resnet": ((0.1, 0.1), (0.7, 0.7))})
    ]
    assert told(early).startswith("ViT leads with 2,000 examples, by 20.5 points (")


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


def test_a_heading_ends_its_sentence():
    long = "With unequal trials, 12 of ViT, 3 of ResNet: ViT leads at every size to 8,000, by 2.0 points{} there."
    full = long.format(" (1.4 to 2.6; 3 seeds)")
    assert shorten([full, "More."], []) == [long.format(""), full, "More."]


def test_an_interval_over_all_values_says_that_seeds_are_too_few():
    assert both([(0.1, 0.9)], [(0.2, 0.7)]).endswith(
        " by 5.0 points (too few seeds for an interval) with 500 examples."
    )


def test_undertrained_cells_are_named_with_twice_their_budget():
    def told(budget, **sizes):
        rows = rows_of({model: ((0.5, 0.6),) * len(SIZES) for model in sizes})
        rows = [{**row, "undertrained": row["train_size"] in sizes[row["model"]], "budget": budget} for row in rows]
        return describe_undertrained(Results(rows, outcomes={}))

    assert told("steps=600", vit=SIZES[3:], resnet=()) == "ViT at 32,000 is undertrained: try budget.steps=1200."
    assert told("epochs=2.5", vit=SIZES[2:], resnet=(2000, 32000)) == (
        "ViT from 8,000 on and ResNet at 2,000 and 32,000 are undertrained: try budget.epochs=5."
    )
    assert told(None, vit=SIZES, resnet=SIZES) == "ViT and ResNet at every size are undertrained."
    assert not told("steps=600", vit=(), resnet=())


def tuned(models, sizes=SIZES[:2]):
    """Rows of trials from model -> a curve of each trial."""
    found = []
    for model, curves in models.items():
        for trial, curve in enumerate(curves, 1):
            rows = rows_of({model: near(*curve)}, sizes=sizes)
            found += [
                {**row, "run": f"{model} {trial}", "trial": trial, "validation_accuracy": row["accuracy"]}
                for row in rows
            ]
    return found


def test_a_study_with_trials_says_first_whether_they_change_who_leads():
    told = lambda rows: all_told(rows, tune={"trials": 16})[0]  # noqa: E731
    few_are_good, alike = [(0.5, 0.7)] * 12 + [(0.5, 0.9)] * 4, [(0.6, 0.815)] * 16
    assert told(tuned({"vit": few_are_good, "resnet": alike})) == (
        "Who leads at 2,000 depends on the tuning: ResNet with up to 2 trials each, ViT with more."
    )
    curves = (0.4, 0.6, 0.9, 0.98), (0.7, 0.8, 0.85, 0.96)
    alike = {model: [curve] * 4 for model, curve in zip(("vit", "resnet"), curves, strict=True)}
    found = told(tuned(alike, SIZES))
    assert found.startswith("With any number of trials, ViT passes ResNet at 4,")
    worse = (0.4, 0.55, 0.7, 0.75)
    assert told(tuned(alike | {"vit": [worse] * 3 + [curves[0]]}, SIZES)).startswith("Undecided")
    missing = tuned({"vit": [(0.5, 0.6)] * 2, "resnet": [(0.6, 0.8)]})
    assert told(missing).startswith("With unequal trials, 2 of vit and 1 of resnet: ResNet leads at every size")
    assert told(missing[1:]).startswith("With unequal trials, 1 to 2 of vit and 1 of resnet: ")
