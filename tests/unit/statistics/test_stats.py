"""Intervals of means and differences: by formulas of others where they have one, else by planted effects."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind

from vitlab.statistics.stats import (
    adjust_p_values,
    combine_parts,
    compare_costs,
    correlate,
    estimate_mean,
    find_visible,
    moderated_spreads,
    subtract,
    summarize,
)


def difference(first, second, **options):
    return subtract(summarize(first), summarize(second), **options)


def test_two_models_have_welchs_interval_whatever_their_seeds_are_called():
    first, second = {0: 0.80, 1: 0.84, 2: 0.88}, {5: 0.9, 1: 0.83}
    low, high = ttest_ind([*first.values()], [*second.values()], equal_var=False).confidence_interval()
    found = difference(first, second)
    assert (found.low, found.high, found.seeds) == (pytest.approx(low), pytest.approx(high), 2)
    for other in (0, 1):
        assert difference({0: 0.8}, {other: 0.9}).half_width is None
        assert not difference({0: 0.8}, {other: 0.9}).clear


def test_the_difference_is_that_of_the_means_also_where_one_model_has_more_seeds():
    first, second = {0: 0.70, 1: 0.72, 2: 0.71, 3: 0.85}, {0: 0.72, 1: 0.735}
    found = difference(first, second)
    assert found.mean == pytest.approx(np.mean([*first.values()]) - np.mean([*second.values()]))
    assert found.seeds == 2
    assert difference(first, {0: 0.5}).half_width is not None  # one seed: it varies as the other model does


def test_one_seed_has_the_interval_over_items():
    first, second = np.array([1.0, 1, 0, 1, 1, 0, 1]), np.array([0.0, 1, 0, 1, 0, 0, 1])
    low, high = ttest_1samp(first - second, 0).confidence_interval()
    found = difference({3: first}, {3: second})
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
    assert estimate_mean(table.mean(axis=1)).half_width < 0.8 * truth


def test_spreads_that_are_alike_are_pooled_and_others_are_not():
    rng = np.random.default_rng(1)
    alike = {size: list(rng.normal(0.5, 0.02, 3)) for size in range(1, 41)}
    spreads = moderated_spreads({**alike, 99: [0.5]})
    assert all(spread.std == pytest.approx(0.02, rel=0.5) for spread in spreads.values())
    assert spreads[99].degrees <= 80
    rough = {250: [0.5, 0.7, 0.3], 1_000: [0.5, 0.5001, 0.5002], 4_000: [0.3, 0.5, 0.4], 16_000: [0.6, 0.6002, 0.6001]}
    spreads = moderated_spreads(rough)
    assert spreads[250].std > 5 * spreads[1_000].std  # variances that follow no line are borrowed little from
    one_noisy = {1_000: [0.12, 0.1, 0.1, 0.18], 2_000: [0.31, 0.56, -0.04, 0.5], 3_000: [0.04, 0.01, 0.02, 0.01]}
    spreads = moderated_spreads({**one_noisy, 4_000: [0.012, 0.005, 0.003, 0.006]})
    assert spreads[1_000].std == pytest.approx(np.std(one_noisy[1_000], ddof=1)), "not that of its noisy neighbor"
    assert moderated_spreads({1: [0.5], 2: [0.6]}) == {}


def test_spreads_that_fall_with_the_size_are_covered_at_the_noisiest():
    rng, sizes, stds = np.random.default_rng(0), (250, 1_000, 4_000, 16_000), (10, 4.6, 2.2, 1)
    held, widths = [], []
    for _ in range(400):
        values = {size: rng.normal(0, std, 3) for size, std in zip(sizes, stds, strict=True)}
        spreads = moderated_spreads(values)
        estimates = [estimate_mean(values[250], spread) for spread in (spreads[250], None)]
        held.append(estimates[0].low <= 0 <= estimates[0].high)
        widths.append([one.half_width for one in estimates])
    assert 0.92 <= np.mean(held) <= 0.98
    assert np.mean(widths, axis=0)[0] < 0.9 * np.mean(widths, axis=0)[1]


def test_one_seed_beyond_sizes_of_two_has_the_pooled_spread():
    rng, seeds = np.random.default_rng(0), {500: 2, 2_000: 2, 8_000: 2, 32_000: 1}
    trials = [{size: rng.standard_normal(number) for size, number in seeds.items()} for _ in range(300)]
    found = [estimate_mean(values[32_000], moderated_spreads(values)[32_000]) for values in trials]
    assert np.mean([estimate.low <= 0 <= estimate.high for estimate in found]) >= 0.93
    # a line through three sizes is worth .43 degrees there, with which it was 325
    assert np.median([estimate.half_width for estimate in found]) < 8


# ---- compute at equal accuracy


def test_a_family_that_needs_twice_the_compute_is_read_off_the_frontiers():
    other = [(cost, [value, value + 0.01, value + 0.02]) for cost, value in ((1e9, 0.5), (2e9, 0.7), (4e9, 0.8))]
    ours = [(2 * cost, values) for cost, values in other] + [(3e9, [0.1] * 3)]  # a bad cell is not on the frontier
    assert compare_costs(ours, other) == pytest.approx((0.81, 2, 2, 2))
    _, ratio, low, high = compare_costs(ours, [*other, (1e9, [0.8, 0.82, 0.84])])
    assert math.isnan(ratio)
    assert low > 2
    assert high == math.inf, "it may need less than its least"


def test_the_ratio_of_costs_has_an_interval_from_three_seeds_on():
    rng, truth, inside = np.random.default_rng(0), 0.5, 0
    curve = {1: 0.5, 2: 0.62, 4: 0.7, 8: 0.78}
    for _ in range(100):
        ours, other = (
            [(cost * times, mean + 0.005 * rng.standard_normal(3)) for cost, mean in curve.items()] for times in (1, 2)
        )
        _, ratio, low, high = compare_costs(ours, other)
        inside += low <= truth <= high
        assert low < ratio < high
    assert 80 <= inside <= 97  # of 90
    assert compare_costs([(1, [0.5, 0.5]), (2, [0.8, 0.8])], [(1, [0.4, 0.4]), (2, [0.9, 0.9])]) is None
    level, ratio, low, high = compare_costs([(1, [0.5] * 3), (2, [0.6] * 3)], [(1, [0.8] * 3), (2, [0.9] * 3)])
    assert (level, low, high) == (0.6, pytest.approx(2), math.inf), "the other one may reach it for less than its least"
    assert math.isnan(ratio)


@pytest.mark.parametrize(("over_seeds", "rest"), [(0.04, 0.001), (0.001, 0.002), (0.04, 0.01)])
def test_a_mean_varies_over_seeds_and_items_and_what_both_hold_counts_once(over_seeds, rest):
    right = np.tile([0.0, 1.0], 50)
    items = right.var(ddof=1) / 100
    found = combine_parts(0.5, over_seeds, 3.0, right, rest=rest, seeds=4, floor=0.0)
    assert found.error**2 == pytest.approx(max(over_seeds, rest) + max(items, rest) - rest)
    assert all(find_visible(found, 4, 2, **more) > 0 for more in ({"seeds": 1000}, {"items": 1000}))


def test_the_seeds_that_both_models_have_are_paired_by_their_correlation():
    a, b = np.array([0.80, 0.84, 0.88, 0.83]), np.array([0.86, 0.83, 0.90])
    models = dict(enumerate(a)), dict(enumerate(b))
    found = difference(*models, correlation=0.5, overlap=0.1)
    together = 0.5 * a.std(ddof=1) * b.std(ddof=1)
    drawn_again = a.var(ddof=1) + b.var(ddof=1) - 2 * together
    assert found.error**2 == pytest.approx(
        a.var(ddof=1) / 4 + b.var(ddof=1) / 3 - 2 * 3 * together / (4 * 3) + 0.1 * drawn_again
    )
    products = (a[:3] - a.mean()) @ (b - b.mean()) / 0.02
    assert correlate([*models, {7: 0.9, 8: 0.7}, {0: 0.9}], [0.1, 0.2, 0.1, 0.1]) == (pytest.approx(products), 2)


def test_spreads_of_several_models_are_one_the_more_the_less_they_differ():
    rng = np.random.default_rng(0)
    alike = {(model, size): rng.normal(0, 0.02 * size**-0.5, 3) for model in "abcdefgh" for size in (1, 4)}
    found = moderated_spreads({**alike, ("i", 4): [0.5]}, lambda key: key[1])
    assert all(spread.std == pytest.approx(0.02 * size**-0.5, rel=0.3) for (_, size), spread in found.items())
    assert 8 <= found["i", 4].degrees <= found["i", 4].most <= 32
    unlike = {("a", 1): [0.1, 0.2, 0.3], **{(model, 1): [0.1, 0.1 + 1e-3, 0.1 - 1e-3] for model in "bcd"}}
    found = moderated_spreads(unlike, lambda key: key[1])
    assert found["a", 1].std == pytest.approx(0.1, rel=0.2)
    assert found["a", 1].degrees == 2
    assert adjust_p_values([0.04, 0.01, 0.5]) == [0.08, 0.03, 0.5]
