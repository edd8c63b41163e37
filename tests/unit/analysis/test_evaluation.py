"""What `vitlab eval` measures and draws, on cases whose answer is known."""

import csv
import json
import math
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.reports.figures.charts import read_column
from vitlab.commands.analyze import rank_confused_pairs, write
from vitlab.config import TrainConfig, compose
from vitlab.data.base import ImageData, Split
from vitlab.reports import figures
from vitlab.reports.figures import images
from vitlab.tasks.base import fill
from vitlab.tasks.images import ImageTask
from vitlab.tasks.metrics import IMAGES
from vitlab.training.finished import fit_temperature, soften


def task(classes):
    config = compose(TrainConfig)
    none = Split(np.zeros(0, dtype=np.int64), None)
    data = ImageData("made", tuple(f"class {i}" for i in range(classes)), (1, 1), 1, none, none)
    return ImageTask(config.recipe, data, config.data, IMAGES, classes)


def measured(probabilities, labels, detailed=True):
    """The metrics of predicted probabilities (B, classes), in two batches."""
    found = task(probabilities.shape[1])
    metrics = found.metrics(detailed=detailed)
    for part in (slice(0, 3), slice(3, None)):
        fill(metrics, found.measure(nn.Identity(), (probabilities[part].log(), labels[part])))
    return metrics.compute()


def confident(confidences, classes):
    """Rows that give class 0 this probability and the others the same share of the rest."""
    rest = [[(1 - p) / (classes - 1)] * (classes - 1) for p in confidences]
    return torch.tensor([[p, *others] for p, others in zip(confidences, rest, strict=True)])


def test_the_calibration_error_of_a_case_by_hand():
    """Ten images of 85% confidence, seven right: 0.15; ten of 55%, six right: 0.05. Half of each."""
    probabilities = confident([0.85] * 10 + [0.55] * 10, classes=3)
    labels = torch.tensor([0] * 7 + [1] * 3 + [0] * 6 + [2] * 4)
    found = measured(probabilities, labels)
    assert found["accuracy"].item() == pytest.approx(13 / 20)
    assert found["calibration_error"].item() == pytest.approx((0.15 + 0.05) / 2, abs=1e-6)
    images, confidence, right = found["reliability"]
    assert images.nonzero()[:, 0].tolist() == [8, 12]  # of 15 bins
    assert images[[8, 12]].tolist() == [10, 10]
    np.testing.assert_allclose(confidence[[8, 12]], [0.55, 0.85], atol=1e-6)
    np.testing.assert_allclose(right[[8, 12]], [0.6, 0.7])
    assert torch.isnan(right[0])


def test_top5_and_the_confusion_matrix_are_counted_by_hand():
    order = torch.tensor([[6, 5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5, 6], [3, 1, 0, 6, 5, 4, 2], [2, 3, 1, 0, 6, 5, 4]])
    logits = torch.empty(4, 7).scatter_(1, order, torch.arange(7.0).flip(0).expand(4, 7))  # highest first
    labels = torch.tensor([6, 5, 5, 4])  # at place 1, 6, 5 and 7
    found = measured(logits.softmax(dim=1), labels)
    assert (found["accuracy"].item(), found["top5_accuracy"].item()) == (0.25, 0.5)
    expected = torch.zeros(7, 7, dtype=torch.int64)
    expected[6, 6] = expected[5, 0] = expected[5, 3] = expected[4, 2] = 1  # a row per true class
    assert torch.equal(found["confusion_matrix"], expected)


def test_the_most_confused_pairs_come_first_and_only_mistakes():
    confusion = torch.tensor([[50, 0, 3], [11, 20, 0], [0, 3, 7]])
    assert rank_confused_pairs(confusion, ("a", "b", "c")) == [
        {"true": "b", "predicted": "a", "images": 11, "share": pytest.approx(11 / 31)},
        {"true": "a", "predicted": "c", "images": 3, "share": pytest.approx(3 / 53)},
        {"true": "c", "predicted": "b", "images": 3, "share": pytest.approx(3 / 10)},
    ]
    assert rank_confused_pairs(torch.eye(3, dtype=torch.int64), ("a", "b", "c")) == []
    assert confusion[0, 0] == 50


def test_thousands_of_classes_take_little_memory_and_their_worst_are_shown(tmp_path, monkeypatch):
    classes, drawn = 5000, []
    counts = torch.diag(torch.full((classes,), 4))
    counts[classes - 1, classes - 1] = 0  # no images
    for place in range(60):  # right less and less often, the last two never; mistaken for the one before or another
        counts[place, place] = max(0, 58 - place)
        counts[place, place - 1 if place % 2 else 999] = place + 1
    monkeypatch.setattr(figures, "save_figure", lambda figure, folder: drawn.append(figure) or [])
    subject = SimpleNamespace(name="run", data=SimpleNamespace(name="made"))
    names = [f"class {place}" for place in range(classes)]
    tracemalloc.start()
    try:
        rank_confused_pairs(counts, names)
        write(tmp_path, {}, {"confusion_matrix": counts}, subject, names)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    (figure,) = drawn
    assert "the 50 worst of 5,000 classes" in figure.title
    spec = json.dumps(figure.spec)
    assert "class 59" in spec
    assert "(other classes)" in spec
    assert "class 5000" not in spec
    with (tmp_path / "confusion_matrix.csv").open() as file:
        found = {(row["true"], row["predicted"]): int(row["count"]) for row in csv.DictReader(file)}
    assert found[names[59], names[58]] == 60
    assert sum(found.values()) == counts.sum()
    assert 0 not in found.values()


# ---- figures


def test_the_reliability_diagram_has_a_point_for_each_bin_with_images(tmp_path):
    bins = [[0.0, 10.0, 30.0], [math.nan, 0.5, 0.9], [math.nan, 0.4, 0.7]]
    figure = images.plot_reliability(bins, 0.175, "run on set")
    assert read_column(figure, "share", "perfect") == [0, 1]
    assert read_column(figure, "confidence", "points", label="accuracy") == [0.5, 0.9]
    assert read_column(figure, "share", "points", label="accuracy") == [0.4, 0.7]
    assert read_column(figure, "share", "points", label="share of all images") == [0.25, 0.75]
    assert "17.5%" in figure.title
    assert all(path.stat().st_size > 1000 for path in figures.save_figure(figure, tmp_path))


# ---- a temperature is found again


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
