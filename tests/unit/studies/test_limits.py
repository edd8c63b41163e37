"""What limits a cell."""

import pytest

from vitlab.studies.store import limit_of, list_limits, predict_gain


def row(seen, unseen, **more):
    return {"model": "vit", "train_size": 100, "train_sample_loss": seen, "validation_loss": unseen, **more}


@pytest.mark.parametrize(
    ("seen", "limit"), [(0.47, "budget"), (0.26, "budget"), (0.13, "undecided"), (0.05, "data"), (0.0, "data")]
)
def test_a_model_that_fits_its_own_items_no_better_than_others_is_limited_by_the_budget(seen, limit):
    assert limit_of([row(seen, 0.62)]) == limit


def test_a_cell_is_judged_by_the_mean_of_its_runs():
    rows = [row(0.1, 1.0), row(0.4, 1.0), row(0.4, 1.0, train_size=200)]
    assert list_limits(rows) == {("vit", 100): "undecided", ("vit", 200): "budget"}


def test_runs_without_the_numbers_have_no_verdict():
    assert limit_of([{"model": "vit", "train_size": 100}]) is None
    assert list_limits([{"model": "vit", "train_size": 100}, row(0.1, 1.0, train_size=7)]) == {("vit", 7): "data"}
    assert limit_of([row(None, 0.4), row(0.3, 0.4)]) == "budget"


def test_gain_is_a_fifth_of_the_error_in_points():
    assert predict_gain([row(0.4, 0.5, error=0.2), row(0.4, 0.5, error=0.1)]) == pytest.approx(3.0)
    assert predict_gain([row(0.4, 0.5)]) is None


def test_a_model_without_a_mistake_is_not_limited_by_the_budget():
    assert limit_of([row(0.4, 0.4, validation_accuracy=1.0)]) == "undecided"
    assert limit_of([row(0.4, 0.4, validation_accuracy=1.0), row(0.4, 0.4, validation_accuracy=0.99)]) == "budget"
