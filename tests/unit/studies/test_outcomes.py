"""What runs keep of each test item: read back as written, and with the metric as its mean."""

import numpy as np
import pytest

from vitlab.config import UserError
from vitlab.studies.stats import Outcomes, read_outcomes, write_outcomes
from vitlab.tasks.metrics import list_metrics

BY_KEY = {metric.key: metric for metric in list_metrics()}


@pytest.mark.parametrize(("key", "most"), [("accuracy", 1), ("accuracy", 5), ("loss", 7)])
def test_outcomes_are_read_back(tmp_path, key, most):
    rng = np.random.default_rng(0)
    counts = rng.integers(1, most + 1, 1009)
    means = rng.random(1009) if key == "loss" else rng.binomial(counts, 0.7) / counts
    path = tmp_path / "heldout.npz"
    write_outcomes(path, Outcomes(key, means, counts))
    found = read_outcomes(path)
    assert found.key == key
    np.testing.assert_allclose(found.means, means, rtol=1e-6)
    np.testing.assert_array_equal(found.counts, counts)
    if most == 1:
        assert path.stat().st_size < 1009 / 8 + 500


def test_a_damaged_file_is_said_in_a_line(tmp_path):
    assert read_outcomes(tmp_path / "heldout.npz") is None
    (tmp_path / "heldout.npz").write_bytes(b"PK\3\4 no archive")
    with pytest.raises(UserError, match=r"heldout\.npz: is damaged, .*; delete the run's folder"):
        read_outcomes(tmp_path / "heldout.npz")


def test_items_influence_the_metric_as_leaving_one_out_does():
    rng = np.random.default_rng(0)
    counts, losses = rng.integers(1, 60, 500), rng.gamma(3, 1, 500)
    outcomes = Outcomes("loss", losses, counts)
    perplexity = float(np.exp(np.average(losses, weights=counts)))
    items = outcomes.of_metric(BY_KEY["perplexity"], perplexity)
    assert items.mean() == pytest.approx(perplexity)
    without = [np.exp(np.average(np.delete(losses, i), weights=np.delete(counts, i))) for i in range(500)]
    jackknife = 500 * perplexity - 499 * np.array(without)
    assert items.std() == pytest.approx(jackknife.std(), rel=0.03)
    assert outcomes.of_metric(BY_KEY["pearson"], 0.5) is None


def test_what_a_run_generated_right_is_kept_under_its_metric(tmp_path):
    write_outcomes(tmp_path / "heldout.npz", Outcomes("exact_match", np.array([1.0, 0, 1, 1]), np.ones(4, dtype=int)))
    found = read_outcomes(tmp_path / "heldout.npz")
    assert found.means.tolist() == [1, 0, 1, 1]
    assert found.of_metric(BY_KEY["exact_match"], 0.75).tolist() == [1, 0, 1, 1]
    assert found.of_metric(BY_KEY["accuracy"], 0.75) is None
