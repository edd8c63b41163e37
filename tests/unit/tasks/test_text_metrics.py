"""Metrics and loss of text classification against scikit-learn and SciPy."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, matthews_corrcoef

from tests.classified import LENGTH, build, data
from vitlab.data.loader import eval_loader
from vitlab.data.text import NO_TAG
from vitlab.tasks.base import fill


class Fixed(torch.nn.Module):
    """Logits that were drawn beforehand, the next ones at each call."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.seen = logits, 0
        self.text = SimpleNamespace(supports_padding_mask=True)

    def forward(self, tokens, mask, segments):
        first, self.seen = self.seen, self.seen + len(tokens)
        return (
            self.logits[first : self.seen, : tokens.shape[1]]
            if self.logits.dim() == 3
            else self.logits[first : self.seen]
        )


def measured(task, logits, batch_size=7):
    """The metrics of a model with such logits, over batches the last of which is short."""
    metrics, model = task.metrics(detailed=True), Fixed(logits)
    for batch in eval_loader(task.test, batch_size=batch_size):
        fill(metrics, task.measure(model, task.prepare(batch), detailed=True))
    return {name: value.tolist() for name, value in metrics.compute().items()}


@pytest.mark.parametrize("classes", [2, 3])
def test_metrics_of_classes_are_scikit_learns(classes):
    toy = data(classes=tuple("xyz")[:classes])
    toy.test.labels[:] %= classes
    task, _ = build(of=toy)
    logits = torch.randn(17, classes)
    found, y, guess = measured(task, logits), toy.test.labels, logits.argmax(1).numpy()
    assert found["accuracy"] == pytest.approx(accuracy_score(y, guess))
    average = {"average": "binary"} if classes == 2 else {"average": "macro"}
    assert found["f1"] == pytest.approx(f1_score(y, guess, **average))
    assert found["matthews"] == pytest.approx(matthews_corrcoef(y, guess))
    assert found["loss"] == pytest.approx(F.cross_entropy(logits, torch.from_numpy(y)).item())
    assert found["confusion_matrix"] == confusion_matrix(y, guess).tolist()
    assert {"calibration_error", "reliability"} <= found.keys()


def test_metrics_of_numbers_are_scipys_in_standard_deviations_of_training():
    task, _ = build("numbers")
    train, test = (getattr(data("numbers"), split).targets for split in ("train", "test"))
    guess = torch.randn(17, 1)
    found = measured(task, guess)
    assert found["pearson"] == pytest.approx(pearsonr(guess[:, 0], test).statistic, abs=1e-5)
    assert found["spearman"] == pytest.approx(spearmanr(guess[:, 0], test).statistic, abs=1e-5)
    standard = (test - train.mean()) / train.std()
    assert found["loss"] == pytest.approx(((guess[:, 0].numpy() - standard) ** 2).mean(), rel=1e-5)
    assert (set(task.metrics()), task.classes) == ({"loss", "pearson", "spearman"}, ())
    assert measured(task, torch.full((17, 1), 0.5))["pearson"] == 0, "undefined for a constant"


@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_of_tags_count_the_tokens_that_carry_one(classes):
    toy = data("tags", classes=tuple("abcde")[:classes])
    tags = toy.test.tags
    tags.values[tags.values != NO_TAG] %= classes
    task, _ = build(of=toy)
    logits = torch.randn(17, LENGTH, classes)
    pairs = [
        (int(tag), int(logits[row, 1 + place].argmax()), logits[row, 1 + place])
        for row in range(17)
        for place, tag in enumerate(tags[row])
        if tag != NO_TAG
    ]
    y, guess, rows = zip(*pairs, strict=True)
    found = measured(task, logits)
    assert found["accuracy"] == pytest.approx(accuracy_score(y, guess))
    assert found["f1"] == pytest.approx(f1_score(y, guess, average="macro"))
    assert found["loss"] == pytest.approx(F.cross_entropy(torch.stack(rows), torch.tensor(y)).item(), rel=1e-5)


def test_metrics_of_choices_compare_the_outputs_of_one_item():
    task, _ = build("choices")
    logits = torch.randn(17 * 3, 1)
    by_item, y = logits.view(17, 3), data("choices").test.labels
    found = measured(task, logits)
    assert found["accuracy"] == pytest.approx(accuracy_score(y, by_item.argmax(1)))
    assert found["loss"] == pytest.approx(F.cross_entropy(by_item, torch.from_numpy(y)).item())
    assert not {"f1", "confusion_matrix"} & found.keys()
