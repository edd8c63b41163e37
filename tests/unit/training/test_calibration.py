"""A temperature is found again, and softened probabilities sum to one."""

import numpy as np
import pytest

from vitlab.training.predict import fit_temperature, soften


@pytest.mark.parametrize("planted", [0.4, 1.0, 3.0])
def test_a_planted_temperature_is_found(planted):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (20000, 5))
    shares = soften(logits)
    labels = (rng.random((20000, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(max=4)
    assert fit_temperature(planted * logits, labels) == pytest.approx(planted, rel=0.05)


def test_it_never_leaves_its_range_and_huge_logits_stay_finite():
    logits = np.array([[1e4, 0.0, -1e4]] * 8)
    assert fit_temperature(logits, np.zeros(8, dtype=int)) == 1.0, "all are right"
    assert 0.01 <= fit_temperature(logits, np.array([0] * 7 + [1])) <= 100
    assert soften(logits).sum(axis=1) == pytest.approx(np.ones(8))
