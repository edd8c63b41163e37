"""What runs keep of each test item."""

import numpy as np
import pytest

from vitlab.studies.outcomes import Outcomes, read_outcomes, write_outcomes
from vitlab.tasks.metrics import METRICS

BY_KEY = {metric.key: metric for metric in METRICS}


@pytest.mark.parametrize(("key", "most"), [("accuracy", 1), ("exact_match", 1), ("accuracy", 5), ("loss", 7)])
def test_outcomes_are_read_back(tmp_path, key, most):
    rng = np.random.default_rng(0)
    counts = rng.integers(1, most + 1, 1009)
    means = rng.random(1009) if key == "loss" else rng.binomial(counts, 0.7) / counts
    path = tmp_path / "heldout.npz"
    write_outcomes(path, Outcomes(key, means, counts))
    found = read_outcomes(path)
    assert found.key == key
    assert (found.of_metric(BY_KEY["exact_match"], 0.7) is None) == (key != "exact_match")
    np.testing.assert_allclose(found.means, means, rtol=1e-6)
    np.testing.assert_array_equal(found.counts, counts)


def test_items_influence_the_metric_as_leaving_one_out_does():
    rng = np.random.default_rng(0)
    counts, losses = rng.integers(1, 60, 500), rng.gamma(3, 1, 500)
    outcomes, none = Outcomes("loss", losses, counts), Outcomes("bleu", 0 * losses, counts)
    perplexity = float(np.exp(np.average(losses, weights=counts)))
    items = outcomes.of_metric(BY_KEY["perplexity"], perplexity)
    assert items.mean() == pytest.approx(perplexity)
    without = [np.exp(np.average(np.delete(losses, i), weights=np.delete(counts, i))) for i in range(500)]
    jackknife = 500 * perplexity - 499 * np.array(without)
    assert items.std() == pytest.approx(jackknife.std(), rel=0.03)
    assert outcomes.of_metric(BY_KEY["pearson"], 0.5) is none.of_metric(BY_KEY["bleu"], 0.0) is None
