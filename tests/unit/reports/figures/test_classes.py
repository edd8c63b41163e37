"""The share of right items of a class, with an interval over seeds and items."""

import pytest

from vitlab.reports.figures.curves import estimate_share


def test_one_seed_has_wilsons_interval():
    share, low, high = estimate_share([[8, 10]])
    assert (share, low, high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)  # Wilson, 1927, by hand


def test_seeds_that_differ_widen_it_and_all_right_is_not_certain():
    alike, apart = estimate_share([[50, 100], [50, 100]]), estimate_share([[20, 100], [80, 100]])
    assert apart[0] == alike[0] == 0.5
    assert apart[2] - apart[1] > 2 * (alike[2] - alike[1])
    assert estimate_share([[9, 9]])[1:] == pytest.approx((0.7009, 1.0), abs=1e-3)
    assert estimate_share([[0, 0]]) is None
