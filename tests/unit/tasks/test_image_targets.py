"""Several labels and numbers of images: losses and metrics against scikit-learn's, and the error of a result."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score, mean_absolute_error, r2_score
from torch import nn

from tests.learning import build
from vitlab.config import UserError
from vitlab.data.base import ImageData, Split
from vitlab.data.loader import eval_loader
from vitlab.studies.outcomes import Outcomes
from vitlab.tasks.base import fill
from vitlab.tasks.measures import Mean
from vitlab.tasks.metrics import find_metric
from vitlab.training.run import find_error

SIZE, LABELS = (7, 11), 3


def data(targets, classes=()):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (len(targets), 3, *SIZE), dtype=np.uint8)
    split = Split(np.zeros(len(targets), dtype=np.int64), pixels.__getitem__, targets=targets)
    return ImageData("toy", classes, SIZE, 3, split, split, split)


def several(count=37):
    return data(
        (np.random.default_rng(2).random((count, LABELS)) < [0.5, 0.4, 0.3]).astype(np.float32), ("a", "b", "c")
    )


def numbers(count=37):
    return data((np.random.default_rng(1).normal(50, 7, count)).astype(np.float32))


def task(name, of, *overrides):
    return build([f"task={name}", *overrides], of)[0]


def evaluate(one, outputs):
    """The metrics of a model with these outputs (N, outputs), and its loss over all items."""

    class Fixed(nn.Module):
        def forward(self, images):
            return outputs

    metrics = one.metrics(detailed=True)
    (batch,) = eval_loader(one.test, batch_size=64)
    prepared = one.prepare(batch)
    fill(metrics, one.measure(Fixed(), prepared))
    return metrics.compute(), one.loss(Fixed(), prepared).item()


def test_several_labels_are_measured_by_mean_average_precision():
    one, logits = task("multilabel", several()), torch.randn(37, LABELS, generator=torch.manual_seed(0))
    found, loss = evaluate(one, logits)
    targets = one.test.targets
    assert found["map"].item() == pytest.approx(
        average_precision_score(targets, logits.numpy(), average="macro"), abs=1e-5
    )
    wanted = F.binary_cross_entropy_with_logits(logits, torch.from_numpy(targets))
    assert found["loss"].item() == pytest.approx(wanted.item(), rel=1e-5)
    assert loss == pytest.approx(37 * wanted.item(), rel=1e-5)
    assert find_error({key: float(value) for key, value in found.items() if not value.ndim}) == 1 - float(found["map"])


def test_a_label_that_no_test_image_has_does_not_count():
    of = several()
    of.test.targets[:, 2] = 0
    one, logits = task("multilabel", of), torch.randn(37, LABELS, generator=torch.manual_seed(0))
    wanted = average_precision_score(of.test.targets[:, :2], logits[:, :2].numpy(), average="macro")
    assert evaluate(one, logits)[0]["map"].item() == pytest.approx(wanted, abs=1e-5)


def test_numbers_are_measured_in_their_own_unit():
    one, outputs = task("regression", numbers()), torch.randn(37, 1, generator=torch.manual_seed(0))
    found, _ = evaluate(one, outputs)
    truth = numbers().test.targets
    predicted = outputs[:, 0].numpy() * truth.std() + truth.mean()
    assert found["mae"].item() == pytest.approx(mean_absolute_error(truth, predicted), rel=1e-4)
    assert found["r2"].item() == pytest.approx(r2_score(truth, predicted), rel=1e-3)
    rmse = np.sqrt(((truth - predicted) ** 2).mean())
    assert found["nrmse"].item() == pytest.approx(rmse / truth.std(), rel=1e-4)
    assert find_error({key: float(value) for key, value in found.items() if not value.ndim}) == float(found["nrmse"])


def test_numbers_are_standardised_by_the_training_subset_alone():
    one, rows = task("regression", numbers()), np.array([2, 3, 5, 7, 11])
    one.train_on(rows)
    own = one.train.targets[rows].astype(float)
    assert one.scale == pytest.approx((own.mean(), own.std()))
    one.train.targets[rows] = 7
    with pytest.raises(UserError, match=r"train_size=5: the targets of these are all 7; give more"):
        one.train_on(rows)


def test_outcomes_of_numbers_have_the_metric_as_their_mean_and_its_slope():
    losses = np.random.default_rng(0).random(200).astype(np.float32)
    value = float(np.sqrt(losses.mean()))
    items = Outcomes("loss", losses, np.ones(200, dtype=np.int32)).of_metric(find_metric("nrmse"), value)
    assert items.mean() == pytest.approx(value)
    doubled = losses.copy()
    doubled[0] += 0.02
    assert (np.sqrt(doubled.mean()) - value) * 200 == pytest.approx(
        (items[0] - value) * 0.02 / (losses[0] - losses.mean()), rel=0.1
    )


@pytest.mark.parametrize(
    ("name", "of", "overrides", "says"),
    [
        ("multilabel", numbers(), (), "has no images with several labels"),
        ("regression", several(), (), "has no number for each image"),
        ("classification", several(), (), "has several labels for an image; give task=multilabel"),
        ("multilabel", several(), ("recipe.mixup=0.2",), "recipe.mixup=0.2: is for images of one class each"),
    ],
)
def test_data_and_recipes_that_do_not_fit(name, of, overrides, says):
    with pytest.raises(UserError, match=says):
        task(name, of, *overrides)


@pytest.mark.parametrize("around", [0.0, 1e4, 1e5, 1e8])
@pytest.mark.parametrize("spread", [10.0, 1e-4])
def test_a_constant_prediction_has_an_error_of_one_however_far_from_zero_the_numbers_are(around, spread):
    """In float32 sums of 1e5 +- 10 it was perfect, and so was everything of which the squares sum to less than 1e-4."""
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(200)
    targets = around + spread * signs
    predicted = {"constant": targets.mean().expand(400), "half": around + spread * signs / 2}
    for name, error in (("constant", 1.0), ("half", 0.5)):
        metrics = {key: find_metric(key).make(1) for key in ("nrmse", "r2", "mae", "pearson")}
        for rows in torch.arange(400).split(90):
            for metric in metrics.values():
                metric.update(predicted[name][rows], targets[rows])
        found = {key: metric.compute().item() for key, metric in metrics.items()}
        pearson = 0.0 if name == "constant" else 1.0
        wanted = {"nrmse": error, "r2": 1 - error**2, "mae": error * spread, "pearson": pearson}
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("predicted", "error"), [(5.0, 0.0), (6.0, 1.0)])
def test_numbers_that_are_all_equal_have_an_error_of_one_unless_they_are_met(predicted, error):
    metric = find_metric("nrmse").make(1)
    metric.update(torch.full((3,), predicted), torch.full((3,), 5.0))
    assert metric.compute() == error


def test_a_mean_goes_on_growing():
    """A sum in float32 stands still at 2^24 times what is added."""
    metric = Mean()
    metric.update(torch.full((1,), 2.0**25))
    for _ in range(64):
        metric.update(torch.ones(1))
    assert metric.compute().item() * 65 == 2**25 + 64
