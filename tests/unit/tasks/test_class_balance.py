"""Class weights in the loss, the metric that a study names, and what is right of each class."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.unit.tasks.test_classification import CLASSES, Fixed, task
from vitlab.config import UserError
from vitlab.studies.experiment import count_right
from vitlab.studies.stats import Outcomes
from vitlab.tasks.metrics import main_metric


def test_balanced_weights_are_those_of_the_training_subset():
    one = task("recipe.class_weights=balanced")
    one.loss(Fixed(), (torch.rand(2, 3, 7, 11), torch.tensor([0, 3])))  # as the forecast of a run's operations asks
    one.train_on(np.array([0, 1, 5, 10, 15, 16]))  # labels 0 3 0 0 0 3: two classes occur
    assert one.objective.weights.tolist() == pytest.approx([6 / (2 * 4), 3, 3, 6 / (2 * 2), 3])
    images, labels = torch.rand(7, 3, 7, 11), torch.tensor([0, 3, 0, 3, 0, 0, 3])
    losses = F.cross_entropy(Fixed()(images), labels, reduction="none")
    wanted = (losses * torch.tensor([0.75, 1.5, 0.75, 1.5, 0.75, 0.75, 1.5])).sum()
    assert one.loss(Fixed(), (images, labels)).item() == pytest.approx(wanted.item(), rel=1e-5)
    assert task().loss(Fixed(), (images, labels)).item() == pytest.approx(losses.sum().item(), rel=1e-5)


def test_a_metric_that_is_not_measured_is_refused_with_those_that_are():
    with pytest.raises(UserError, match=r"task\.metric=map: is not measured here.*macro_f1"):
        task("task.metric=map")
    task("task.metric=balanced_accuracy")


def test_a_study_is_about_the_metric_that_it_names():
    row = {"accuracy": 0.9, "macro_f1": 0.5, "unit": "example"}
    assert main_metric([row]).key == "accuracy"
    assert main_metric([{**row, "metric": "macro_f1"}]).key == "macro_f1"


def test_right_answers_are_counted_by_class():
    right = np.array([1, 0] * 8 + [1], dtype=np.float32)  # of labels 0 3 1 4 2 0 3 ...
    found = count_right(task(), Outcomes("accuracy", right, np.ones(17, dtype=np.int32)))["by_class"]
    labels = np.arange(17) * 3 % CLASSES
    assert found == {name: [int(right[labels == c].sum()), int((labels == c).sum())] for c, name in enumerate("abcde")}
    assert count_right(task(), Outcomes("loss", right, np.ones(17, dtype=np.int32))) == {}
