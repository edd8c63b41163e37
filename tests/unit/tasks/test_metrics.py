"""Metrics of single items and of uneven classes: against the collection's own means, and against scikit-learn."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score, matthews_corrcoef
from torch.profiler import ProfilerActivity, profile

from tests import classified
from tests.unit.tasks.test_text_tasks import FOR, batch_of, built, task_of
from vitlab import models
from vitlab.tasks.base import fill, judge, make_metrics
from vitlab.tasks.measures import BalancedAccuracy, Matthews
from vitlab.tasks.metrics import IMAGES, TEXTS


def weighted_mean(outcomes):
    means, counts = outcomes.double()
    return float((means * counts).sum() / counts.sum())


@pytest.mark.parametrize("name", FOR)
@torch.no_grad()
def test_the_losses_of_sequences_average_to_the_perplexity(name):
    task, config = task_of(name)
    net, metrics = built(task, config).eval(), task.metrics(detailed=True)
    for rows in ([0, 1, 2], [3, 4]):
        batch = batch_of(task, rows, split="test" if len(task.test) > 4 else "train")
        fill(metrics, task.measure(net, batch, detailed=True))
    found = metrics.compute()
    assert found["outcomes"].shape == (2, 5)
    assert np.exp(weighted_mean(found["outcomes"])) == pytest.approx(float(found["perplexity"]), rel=1e-5)


@pytest.mark.parametrize("kind", classified.KINDS)
@torch.no_grad()
def test_the_outcomes_of_texts_average_to_the_result(kind):
    task, config = classified.build(kind, *classified.BODIES["bert"])
    torch.manual_seed(1)
    model, metrics = models.build(config.model, **task.shape).eval(), task.metrics(detailed=True)
    for rows in ([0, 1, 2], [3, 4]):
        fill(metrics, task.measure(model, classified.whole(task, rows=rows)))
    found = metrics.compute()
    assert found["outcomes"].shape == (2, 5)
    key = "loss" if kind == "numbers" else "accuracy"
    assert weighted_mean(found["outcomes"]) == pytest.approx(float(found[key]), rel=1e-5)


def test_uneven_classes_are_seen_by_balanced_accuracy_macro_f1_and_chance():
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 500, p=[0.6, 0.2, 0.15, 0.05])
    logits = torch.randn(500, 5, generator=torch.Generator().manual_seed(0))  # no item is of the fifth class
    logits[:, 0] += 1.5
    metrics = make_metrics(IMAGES, 5, detailed=True)
    for part in (slice(0, 300), slice(300, None)):
        fill(metrics, judge(IMAGES, logits[part], torch.from_numpy(labels[part])))
    found, predicted = metrics.compute(), logits.argmax(1).numpy()
    assert 4 in predicted
    assert found["macro_f1"].item() == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert np.array_equal(found["confusion_matrix"].numpy(), confusion_matrix(labels, predicted, labels=range(5)))
    assert found["chance"].item() == pytest.approx(np.bincount(labels).max() / 500)
    with pytest.warns(UserWarning, match="not in y_true"):
        assert found["balanced_accuracy"].item() == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert Matthews(5)(logits, torch.from_numpy(labels)).item() == pytest.approx(matthews_corrcoef(labels, predicted))
    always = BalancedAccuracy(5)
    always.update(torch.eye(5)[[0] * 500], torch.from_numpy(labels))
    assert always.compute().item() == pytest.approx(0.25)


@pytest.mark.parametrize("key", ["f1", "macro_f1", "matthews", "balanced_accuracy", "accuracy", "chance"])
def test_metrics_of_many_classes_need_no_array_of_all_pairs_for_each_item(key, request):
    request.addfinalizer(partial(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()))
    torch.use_deterministic_algorithms(True)
    items, classes = 67, 211
    metric = make_metrics(TEXTS, classes, detailed=True)[key]
    logits, labels = torch.randn(items, classes), torch.randint(classes, (items,))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        metric.update(logits, labels)
        metric.compute()
    assert max(event.cpu_memory_usage for event in profiler.events()) < 10 * 8 * classes**2
