"""The interface of tasks to the training loop, their shared parts, and a model's metrics on a split of its data."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig
from vitlab.data.base import BREAK, Show, Split
from vitlab.data.loader import eval_loader
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.data.text import NO_TAG
from vitlab.tasks.metrics import CHOICES, EVERY, IMAGES, LABELS, MEASURES, METRICS, NUMBERS, TABLES, TEXTS

if TYPE_CHECKING:
    import torchmetrics

    from vitlab.data.text.tokenization import Tokenizer
    from vitlab.tasks.metrics import Metric


Measured = Mapping[str, Sequence[Any]]  # arguments of the `update` of metrics by name


class Task(Protocol):
    """The interface of tasks. A task derives from it, and so gets the usual values, or has its members."""

    shape: dict[str, Any]  # arguments of `vitlab.models.build`
    train: Split  # training items: the data's own, or made of them by the task
    validation: Split  # items for choices
    test: Split  # items that a run reads once, at the end
    classes: Sequence[str] = ()  # empty if there are none
    writes_texts: bool = False  # for the detailed metrics to compare; writing takes long
    test_items: int = sys.maxsize  # the most items, of test and of validation, that texts are written for
    metric: "Metric | None" = None  # decides choices on validation; `vitlab.tasks.build` sets it
    strata: Sequence[str] = ()  # classes by which training sets are stratified; or none
    eval_batch_size: int | None = None  # items evaluated at a time, if memory holds fewer than usual
    scale: tuple[float, float] | None = None  # mean and std of training targets, if it predicts standardised ones
    item: str  # the name of one item, in the singular
    of: str  # the kind of targets; METRICS and TABLES go by it
    outputs: int = 1  # of the model for a target
    tokenizer: "Tokenizer | None" = None  # of the texts; a run's folder keeps it
    training_indices: np.ndarray | None = None  # the argument of `train_on`; None: all

    def train_on(self, indices: np.ndarray) -> None:
        """Train on the items of `train` at `indices`; a task learns from no other labels.

        Raises UserError if they are too few.
        """
        self.training_indices = indices

    def prepare(self, batch: Any, generator: Generator | None = None) -> Any:
        """Turn a loader's batch into the model's input; augment it if a generator is given."""

    def inputs(self, batch: Any) -> Any:
        """Return a prepared batch's inputs for an analysis: images, or a `TokenInputs`."""

    def example(self) -> Any:
        """Make a prepared batch of one item on the meta device, of zeros."""

    def count_targets(self, batch: Any) -> Tensor:
        """Count the targets of a prepared batch for each term of the loss (terms,), such as examples or tokens."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return each term of the training loss of a prepared batch, summed over its targets (terms,).

        Training minimizes the sum of the terms, each divided by the number of its targets.
        """

    def metrics(self, detailed: bool = False) -> "torchmetrics.MetricCollection":
        """Make fresh metrics, named as in results.csv; ask for `detailed` ones only at the end."""
        return make_metrics(self.of, self.outputs, detailed, self.metric)

    def measure(self, model: nn.Module, batch: Any, detailed: bool = False) -> Measured:
        """Compute the metrics' inputs from a prepared held-out batch, keyed by metric; "" stands for all others."""


def read_written(rows: Tensor) -> list[list[str]]:
    """Return the texts that `join_written` joined, of each row (B, W)."""
    return [[text.decode() for text in bytes(row[row != IGNORE_INDEX].tolist()).split(BREAK)] for row in rows]


def find_batch_length(count: Callable[[np.ndarray], np.ndarray], items: int, batch_size: int) -> int:
    """Find the mean length of 16 random batches, padded to their longest item; `count` gives the tokens of items."""
    draw, size = np.random.default_rng(0), min(items, batch_size)
    return round(np.mean([count(draw.choice(items, size, replace=False)).max() for _ in range(16)]))


def make_metrics(
    of: str, outputs: int, detailed: bool, chosen: "Metric | None" = None
) -> "torchmetrics.MetricCollection":
    """Make the metrics of a kind of targets, and the `chosen` metric."""
    from torchmetrics import MetricCollection  # takes 8 s; `vitlab predict` does without

    fitting = (each for each in (*METRICS, *TABLES) if each.fits(of, outputs, detailed or each is chosen))
    return MetricCollection({metric.key: metric.make(outputs, of) for metric in fitting}, compute_groups=False)


def fill(metrics: "torchmetrics.MetricCollection", measured: Measured) -> None:
    """Update each metric with the measurement under its name, else with the one under ""."""
    for name, metric in metrics.items():
        metric.update(*measured[name if name in measured else ""])


class TokenInputs(NamedTuple):
    """Hold a model's text inputs: tokens (B, N), mask bool (B, N), False at padding, segments (B, N) or None.

    special bool (B, N) is True at special tokens such as [CLS]. With sources, a decoder reads their targets' `given`
    (B, T) and predicts `following` (B, T), IGNORE_INDEX at padding.
    """

    tokens: Tensor
    mask: Tensor
    segments: Tensor | None
    special: Tensor
    given: Tensor | None = None
    following: Tensor | None = None

    @classmethod
    def of(cls, tokens: Tensor, mask: Tensor | None, segments: Tensor | None, special: Sequence[int]) -> "TokenInputs":
        mask = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        return cls(tokens, mask, segments, torch.isin(tokens, torch.tensor(special, device=tokens.device)))

    def split(self, size: int) -> list["TokenInputs"]:
        """Split the texts into chunks of at most `size`."""
        firsts = range(0, len(self.tokens), size)
        return [TokenInputs(*(None if part is None else part[k : k + size] for part in self)) for k in firsts]

    @property
    def options(self) -> dict[str, Tensor]:
        """Arguments of a model's forward beside the tokens."""
        return {"mask": self.mask} | ({} if self.segments is None else {"segments": self.segments})


def sum_cross_entropy(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, weight: Tensor | None = None
) -> Tensor:
    """Sum the cross-entropy of logits (..., C) over targets (...) other than IGNORE_INDEX; 0 if there are none.

    Also takes targets that are shares of the classes (B, C).
    """
    options = {"ignore_index": IGNORE_INDEX, "label_smoothing": label_smoothing, "reduction": "sum"}
    weight = None if weight is None else weight.to(logits.device)
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(0, logits.ndim - 2), weight=weight, **options)


def count_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute each target's cross-entropy, float32 (...), from logits (..., C); 0 if the target is IGNORE_INDEX."""
    options = {"ignore_index": IGNORE_INDEX, "reduction": "none"}
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), **options).view_as(targets)


def count_losses(of: str, logits: Tensor, targets: Tensor, scale: tuple[float, float] | None = None) -> Tensor:
    """Compute the loss of each item (B,) by the kind of its target.

    A class: cross-entropy. LABELS (B, outputs): binary cross-entropy, averaged over the labels. A number: the squared
    error, float32; float64 standardises targets, because numbers may lie far from 0.
    """
    if of == LABELS:
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)
    if scale is not None:
        standardised = ((targets.double() - scale[0]) / scale[1]).float()
        return F.mse_loss(logits[:, 0].float(), standardised, reduction="none")
    return F.cross_entropy(logits, targets, reduction="none")


def judge(of: str, logits: Tensor, targets: Tensor, scale: tuple[float, float] | None = None) -> Measured:
    """Return the metrics' inputs: losses; outcomes (for classes: is each right?); else predictions and targets.

    Skips NO_TAG. Measures MEASURES in their own unit, NUMBERS as standardised by `scale`.
    """
    outcomes: Sequence[Any] = ()
    if of in EVERY:
        counted = targets != NO_TAG
        outcomes = logits.argmax(dim=-1) == targets, counted if targets.ndim > 1 else None
        logits, targets = logits[counted], targets[counted]
    losses = [count_losses(of, logits, targets, scale)]
    if scale is not None:
        mean, std = scale if of == MEASURES else (0.0, 1.0)
        logits = logits[:, 0] * std + mean
    return {"loss": losses, "outcomes": outcomes or losses, "": (logits, targets)}


class TargetTask(Task):
    """Predicts a target for each item; `answer` gives the logits, float32, and the targets of a prepared batch.

    `of` is the kind of target: one of `outputs` classes (IMAGES, TEXTS; CHOICES, in any order; TAGS: a class of each
    tagged token), LABELS (B, outputs), or a number (MEASURES, NUMBERS). `recipe.class_weights` gives rare classes more
    weight. For a number the model predicts (target - mean) / std, with `scale` from the run's own training targets, so
    that a recipe's rate fits any unit; always predicting their mean has the loss 1 on them.
    """

    weights: Tensor | None = None  # (classes,): items / (classes * items of the class); their mean over the items is 1

    def __init__(self, of: str, outputs: int, recipe: RecipeConfig, data: Any, *splits: Split):
        self.of, self.outputs, (self.train, self.validation, self.test) = of, outputs, splits
        self.label_smoothing, self.weighted = recipe.label_smoothing, recipe.class_weights is not None
        self.classes = () if of in (MEASURES, NUMBERS) else data.classes
        self.strata = data.classes if of in (IMAGES, TEXTS, CHOICES) else ()
        self.dtype = torch.int64 if of in EVERY else torch.float32
        self.train_on(np.arange(len(self.train)))

    def train_on(self, indices: np.ndarray) -> None:
        super().train_on(indices)
        if self.of in (MEASURES, NUMBERS):
            targets = self.train.targets[indices]
            self.scale = float(targets.mean(dtype=np.float64)), float(targets.std(dtype=np.float64))
            if not self.scale[1]:
                raise UserError(f"train_size={len(targets)}: the targets of these are all {targets[0]:g}; give more")
        elif self.weighted and self.of in EVERY:
            counts = np.bincount(self.train.labels[indices], minlength=self.outputs)
            weights = counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1))
            self.weights = torch.from_numpy(weights).float()

    def sum_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Sum the training losses of the items; targets may be shares of the classes (B, classes)."""
        if self.of in EVERY:
            return sum_cross_entropy(logits, targets, self.label_smoothing, self.weights)
        return count_losses(self.of, logits, targets, self.scale).sum()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.sum_losses(*self.answer(model, batch))[None]

    def measure(self, model: nn.Module, batch: Any, detailed: bool = False) -> Measured:
        return judge(self.of, *self.answer(model, batch), self.scale)


BATCH = 256


def by_length(split: Split, rows: np.ndarray | None = None) -> np.ndarray:
    """Order items, by default all, by the lengths of their sources, if they have them: the longest need most memory."""
    rows = np.arange(len(split)) if rows is None else rows
    return rows if split.lengths is None else rows[np.argsort(-split.lengths[rows], kind="stable")]


def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    autocast: AbstractContextManager,
    workers: int,
    *,
    detailed: bool = False,
    indices: np.ndarray | None = None,
    progress: Show = lambda *_: None,
) -> "torchmetrics.MetricCollection":
    """Measure the task's metrics on a split, without augmentation: scalars, and with `detailed` its tables and texts.

    Takes the items at `indices` (N,), by default all, on the model's device, and computes outputs in the precision of
    `autocast`. `model` is in eval mode.
    """
    device, done = next(model.parameters()).device, 0
    metrics = task.metrics(detailed).to(device)
    with torch.inference_mode():
        size = task.eval_batch_size or BATCH
        total = len(split) if indices is None else len(indices)
        for batch in eval_loader(split, batch_size=size, workers=workers, indices=indices, device=device):
            with autocast:
                prepared = task.prepare([part.to(device, non_blocking=True) for part in batch])
                fill(metrics, task.measure(model, prepared, detailed))
            done += len(batch[0])
            progress(f"test {task.item}s", done, total)
    return metrics
