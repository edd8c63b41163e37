"""The interface of tasks to the training loop, their shared parts, and a model's metrics on a split of a task's data.

An `Objective` says what a `TargetTask` predicts for each item, of images or of texts: classes, labels or numbers.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from vitlab.config import UserError
from vitlab.data.base import Show, Split
from vitlab.data.loader import eval_loader
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.data.text import NO_TAG
from vitlab.tasks.metrics import CHOICES, IMAGES, LABELS, MEASURES, METRICS, TABLES, TEXTS

if TYPE_CHECKING:
    import torchmetrics

    from vitlab.data.text.tokenization import Tokenizer
    from vitlab.tasks.metrics import Metric


Measured = Mapping[str, Sequence[Any]]  # arguments of the `update` of metrics by name


class Task(Protocol):
    """The interface of tasks. They derive from it, for the values that most of them share, or have its members."""

    shape: dict[str, Any]  # what a model must be built for, as `vitlab.models.build` takes it
    train: Split  # what a run trains on: the data's own items, or what the task makes of them
    validation: Split  # what choices are made on
    test: Split  # what is read once, at the end
    classes: Sequence[str] = ()  # empty where there are none
    writes_texts: bool = False  # that the detailed metrics compare, which takes long
    metric: "Metric | None" = None  # what choices on validation go by; `vitlab.tasks.build` sets it
    strata: Sequence[str] = ()  # classes by which training sets are stratified; or none
    eval_batch_size: int | None = None  # items evaluated at a time, where memory asks for fewer than usual
    scale: tuple[float, float] | None = None  # mean and std of training targets, where it predicts standardised numbers
    item: str  # what one item is called, in the singular
    of: str  # the kind of its targets, by which METRICS and TABLES are chosen
    outputs: int = 1  # of the model for a target
    tokenizer: "Tokenizer | None" = None  # that of its texts; a run's folder keeps it
    training_indices: np.ndarray | None = None  # as `train_on` was given them; None: all

    def train_on(self, indices: np.ndarray) -> None:
        """Train on the items of `train` at `indices`; a task learns from no other labels.

        Raises UserError if they are not enough for that.
        """
        self.training_indices = indices

    def prepare(self, batch: Any, generator: Generator | None = None) -> Any:
        """Turn a loader's batch into the model's input; augment it if a generator is given."""

    def inputs(self, batch: Any) -> Any:
        """Return the inputs of a prepared batch that an analysis shows the model: images, or a `TokenInputs`."""

    def example(self) -> Any:
        """Make a prepared batch of one item on the meta device, of zeros."""

    def count_targets(self, batch: Any) -> Tensor:
        """Count the targets of a prepared batch for each term of the loss (terms,), such as examples or tokens."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return each term of the training loss of a prepared batch, summed over its targets (terms,).

        Training minimizes the sum of the terms, each divided by the number of its targets.
        """

    def metrics(self, detailed: bool = False) -> "torchmetrics.MetricCollection":
        """Make fresh metrics, named as in results.csv, that `update` fills; `detailed` is for a last look alone."""
        return make_metrics(self.of, self.outputs, detailed, self.metric)

    def measure(self, model: nn.Module, batch: Any) -> Measured:
        """Compute the metrics' inputs from a prepared held-out batch, by their names; "" stands for all others."""

    def update(self, metrics: "torchmetrics.MetricCollection", model: nn.Module, batch: Any) -> None:
        """Add a prepared held-out batch to the metrics."""
        fill(metrics, self.measure(model, batch))


def make_metrics(
    of: str, outputs: int, detailed: bool, chosen: "Metric | None" = None
) -> "torchmetrics.MetricCollection":
    """Make the metrics of a kind of targets, and the one that choices go by."""
    from torchmetrics import MetricCollection  # takes 8 s, which `vitlab predict` does without

    fitting = (each for each in (*METRICS, *TABLES) if each.fits(of, outputs, detailed or each is chosen))
    return MetricCollection({metric.key: metric.make(outputs, of) for metric in fitting}, compute_groups=False)


def fill(metrics: "torchmetrics.MetricCollection", measured: Measured) -> None:
    """Update each metric with the measurement of its name, or else of ""."""
    for name, metric in metrics.items():
        metric.update(*measured[name if name in measured else ""])


class TokenInputs(NamedTuple):
    """Texts as a model takes them: tokens (B, N), mask bool (B, N), False at padding, segments (B, N) or None.

    special bool (B, N) is True at special tokens such as [CLS]. For sources, a decoder reads `given` (B, T) of their
    targets and predicts `following` (B, T), IGNORE_INDEX at padding.
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
        """The arguments of a model's forward beside the tokens."""
        return {"mask": self.mask} | ({} if self.segments is None else {"segments": self.segments})


def sum_cross_entropy(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, weight: Tensor | None = None
) -> Tensor:
    """Sum the cross-entropy of logits (..., C) over targets (...) other than IGNORE_INDEX; 0 if there are none.

    The targets may be shares of the classes too (B, C).
    """
    options = {"ignore_index": IGNORE_INDEX, "label_smoothing": label_smoothing, "reduction": "sum"}
    weight = None if weight is None else weight.to(logits.device)
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(0, logits.ndim - 2), weight=weight, **options)


def count_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute each target's cross-entropy, float32 (...), from logits (..., C); 0 if the target is IGNORE_INDEX."""
    options = {"ignore_index": IGNORE_INDEX, "reduction": "none"}
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), **options).view_as(targets)


class Objective:
    """Prediction of each item by a number of outputs: the loss, and what metrics `of` its kind take."""

    dtype, shape = torch.float32, ()  # of one item's targets
    scale: tuple[float, float] | None = None  # as a task has it

    def __init__(self, of: str, outputs: int = 1):
        self.of, self.outputs = of, outputs

    def learn(self, train: Split, indices: np.ndarray) -> None:
        """Learn what the loss needs from the training items at `indices`. Raises UserError for too few."""

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Compute the loss of each item (B,)."""

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Compute the loss of training, summed over the items."""
        return self.losses(logits, targets).sum()

    def judge(self, logits: Tensor, targets: Tensor) -> Measured:
        """Return the metrics' inputs: losses for loss and outcomes, predictions and targets for all others."""
        losses = [self.losses(logits, targets)]
        return {"loss": losses, "outcomes": losses, "": (logits, targets)}


class Classes(Objective):
    """One of `outputs` classes for each item: cross-entropy; items whose label is NO_TAG do not count.

    `of` is IMAGES, TEXTS, TAGS (a class of each token that carries one) or CHOICES (their order means nothing). A
    `weighted` loss weighs each class by how rare it is. Tags are counted by the tokens that carry one: a word counts
    once, an entity of several words as often as it has words.
    """

    dtype = torch.int64
    weights: Tensor | None = None  # (classes,): items / (classes * items of the class); their mean over the items is 1

    def __init__(self, of: str, outputs: int, label_smoothing: float = 0.0, weighted: bool = False):
        super().__init__(of, outputs)
        self.label_smoothing, self.weighted = label_smoothing, weighted

    def learn(self, train: Split, indices: np.ndarray) -> None:
        if self.weighted:
            counts = np.bincount(train.labels[indices], minlength=self.outputs)
            weights = counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1))
            self.weights = torch.from_numpy(weights).float()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return sum_cross_entropy(logits, labels, self.label_smoothing, self.weights)

    def judge(self, logits: Tensor, labels: Tensor) -> Measured:
        counted = labels != NO_TAG
        outcomes = logits.argmax(dim=-1) == labels, counted if labels.ndim > 1 else None
        logits, labels = logits[counted], labels[counted]
        return {"loss": [F.cross_entropy(logits, labels, reduction="none")], "outcomes": outcomes, "": (logits, labels)}


class Labels(Objective):
    """The objective of several labels an item, targets (B, outputs): binary cross-entropy, averaged over labels."""

    def __init__(self, outputs: int):
        super().__init__(LABELS, outputs)
        self.shape = (outputs,)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)


class Numbers(Objective):
    """A number for each item, targets (B,): mean squared error of standardised targets.

    The model gives (target - mean) / std, with `scale` from the run's own training targets, so that a recipe's rate
    fits any unit; a constant prediction of their mean has the loss 1 on them. `of` is MEASURES, or NUMBERS, which are
    measured as standardised.
    """

    def learn(self, train: Split, indices: np.ndarray) -> None:
        targets = train.targets[indices]
        self.scale = float(targets.mean(dtype=np.float64)), float(targets.std(dtype=np.float64))
        if not self.scale[1]:
            raise UserError(f"train_size={len(targets)}: the targets of these are all {targets[0]:g}; give more")

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Compute each squared error, float32, by targets standardised in float64, for numbers far from 0."""
        standardised = ((targets.double() - self.scale[0]) / self.scale[1]).float()
        return F.mse_loss(logits[:, 0].float(), standardised, reduction="none")

    def judge(self, logits: Tensor, targets: Tensor) -> Measured:
        mean, std = self.scale if self.of == MEASURES else (0.0, 1.0)
        return {**super().judge(logits, targets), "": (logits[:, 0] * std + mean, targets)}


class TargetTask(Task):
    """A task with an objective; `answer` gives the logits, float32, and the targets of a prepared batch."""

    def __init__(self, objective: Objective, data: Any, *splits: Split):
        self.objective, (self.train, self.validation, self.test) = objective, splits
        self.of, self.outputs = objective.of, objective.outputs
        self.classes = () if isinstance(objective, Numbers) else data.classes
        self.strata = data.classes if objective.of in (IMAGES, TEXTS, CHOICES) else ()
        self.train_on(np.arange(len(self.train)))

    @property
    def scale(self) -> tuple[float, float] | None:
        return self.objective.scale

    def train_on(self, indices: np.ndarray) -> None:
        super().train_on(indices)
        self.objective.learn(self.train, indices)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.objective.loss(*self.answer(model, batch))[None]

    def measure(self, model: nn.Module, batch: Any) -> Measured:
        return self.objective.judge(*self.answer(model, batch))


BATCH = 256


def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    autocast: AbstractContextManager,
    workers: int,
    *,
    detailed: bool = False,
    indices: np.ndarray | None = None,
    progress: Show | None = None,
) -> "torchmetrics.MetricCollection":
    """Measure the task's metrics on a split, without augmentation: scalars, and with `detailed` its tables and texts.

    It takes the items at `indices` (N,), by default all, on the model's device, with its outputs in the precision of
    `autocast`. `model` is in eval mode.
    """
    device, done = next(model.parameters()).device, 0
    metrics = task.metrics(detailed).to(device)
    with torch.inference_mode():
        size = task.eval_batch_size or BATCH
        for batch in eval_loader(split, batch_size=size, workers=workers, indices=indices, device=device):
            with autocast:
                task.update(metrics, model, task.prepare([part.to(device, non_blocking=True) for part in batch]))
            done += len(batch[0])
            if progress:
                progress(f"test {task.item}s", done, len(split))
    return metrics
