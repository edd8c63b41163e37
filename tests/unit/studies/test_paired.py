"""Intervals of means and differences: by formulas of others where they have one, else by planted effects."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind, ttest_rel

from vitlab.studies.paired import estimate_mean, mean_over_seeds, moderated_spreads, paired_difference


def test_values_per_seed_give_the_interval_of_the_paired_t_test():
    first, second = {0: 0.80, 1: 0.84, 2: 0.88, 5: 0.1}, {2: 0.90, 1: 0.83, 0: 0.86, 7: 0.9}
    low, high = ttest_rel([0.80, 0.84, 0.88], [0.86, 0.83, 0.90]).confidence_interval()
    found = paired_difference(first, second)
    assert (found.low, found.high, found.seeds) == (pytest.approx(low), pytest.approx(high), 3)
    assert paired_difference({0: 0.8}, {0: 0.9}).half_width is None
    assert not paired_difference({0: 0.8}, {0: 0.9}).clear


def test_models_without_common_seeds_have_welchs_interval():
    first, second = {0: 0.80, 1: 0.84, 2: 0.88}, {5: 0.9, 6: 0.83}
    low, high = ttest_ind([*first.values()], [*second.values()], equal_var=False).confidence_interval()
    found = paired_difference(first, second)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert paired_difference({0: 0.8}, {1: 0.9}) is None


def test_one_seed_has_the_interval_over_items():
    first, second = np.array([1.0, 1, 0, 1, 1, 0, 1]), np.array([0.0, 1, 0, 1, 0, 0, 1])
    low, high = ttest_1samp(first - second, 0).confidence_interval()
    found = paired_difference({3: first}, {3: second})
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert (found.seeds, found.items) == (1, 7)


def test_items_and_seeds_each_widen_the_interval():
    """The variance of the mean of a balanced table, by the components that it was drawn with."""
    rng = np.random.default_rng(0)
    of_seed, of_item = 0.02, 0.5
    table = (
        of_seed * rng.standard_normal((40, 1)) + of_item * rng.standard_normal((1, 900)) + rng.normal(0, 1, (40, 900))
    )
    truth = 1.96 * np.sqrt(of_seed**2 / 40 + of_item**2 / 900 + 1 / 36000)
    assert estimate_mean(table).half_width == pytest.approx(truth, rel=0.15)
    assert mean_over_seeds(table.mean(axis=1)).half_width < 0.8 * truth


def test_two_points_on_every_seed_are_a_difference_and_copies_of_a_model_are_level():
    rng = np.random.default_rng(0)
    level = 0
    for _ in range(100):
        ease = rng.random(2000)
        first, second = ({s: (rng.random(2000) ** 6 < ease).astype(float) for s in range(3)} for _ in range(2))
        level += not paired_difference(first, second).clear
    assert level >= 90
    worse = {seed: values.copy() for seed, values in first.items()}
    for values in worse.values():
        values[np.flatnonzero(values)[rng.choice(1500, 40, replace=False)]] = 0.0
    found = paired_difference(first, worse)
    assert found.mean == pytest.approx(0.02)
    assert found.clear


def test_models_that_answer_alike_are_level():
    same = {seed: np.ones(50) for seed in range(3)}
    found = paired_difference(same, same)
    assert (found.mean, found.half_width, found.clear) == (0.0, 0.0, False)
    one_sided = paired_difference(same, {0: 1.0, 1: 0.9, 2: 0.8})  # an old run kept no items
    assert (one_sided.items, one_sided.seeds) == (0, 3)


def test_spreads_that_are_alike_are_pooled_and_others_are_not():
    rng = np.random.default_rng(1)
    alike = {size: list(rng.normal(0.5, 0.02, 3)) for size in range(40)}
    spreads = moderated_spreads({**alike, 99: [0.5]})
    assert all(spread.std == pytest.approx(0.02, rel=0.35) for spread in spreads.values())
    assert spreads[99].degrees <= 80
    apart = {0: [0.1, 0.5, 0.9], 1: [0.5, 0.5001, 0.5002], 2: [0.3, 0.34, 0.38]}
    spreads = moderated_spreads(apart)
    assert spreads[0].std > 20 * spreads[1].std
    assert moderated_spreads({0: [0.5], 1: [0.6]}) == {}
