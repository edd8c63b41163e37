"""What the training loop asks of a task, what the tasks share, and a model's metrics on a split of a task's data."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from vitlab.config import UserError
from vitlab.config.checks import find_excluded
from vitlab.config.schema import RecipeConfig
from vitlab.data.base import Split, TextData
from vitlab.data.loader import eval_loader
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.tasks import evaluation_metrics

if TYPE_CHECKING:
    import torchmetrics

    from vitlab.data.text.tokenization import Tokenizer
    from vitlab.tasks.metrics import Metric


class Task(Protocol):
    """Tasks derive from it, for the values that most of them share, or are like it."""

    shape: dict[str, Any]  # what a model must be built for, as `vitlab.models.build` takes it
    train: Split  # what a run trains on: the data's own items, or what the task makes of them
    validation: Split  # what choices are made on
    test: Split  # what is read once, at the end
    classes: Sequence[str] = ()  # empty where there are none
    metric: "Metric | None" = None  # what choices on validation go by; `vitlab.tasks.build` sets it
    strata: Sequence[str] = ()  # classes by which training sets are stratified; or none
    eval_batch_size: int | None = None  # items evaluated at a time, where memory asks for fewer than usual
    scale: tuple[float, float] | None = None  # mean and std of training targets, where it predicts standardised numbers
    item: str  # what one item is called, in the singular
    tokenizer: "Tokenizer | None" = None  # that of its texts; a run's folder keeps it
    training_indices: np.ndarray | None = None  # as `train_on` was given them; None: all

    def train_on(self, indices: np.ndarray) -> None:
        """Train on the items of `train` at `indices`; whatever a task learns from labels, it learns from these alone.

        Raises UserError where they are not enough for that.
        """
        self.training_indices = indices

    def prepare(self, batch: Any, generator: Generator | None = None) -> Any:
        """A loader's batch as the model takes it; augmented when a generator is given."""

    def inputs(self, batch: Any) -> Any:
        """What an analysis shows the model of a prepared batch: images, or a `TokenInputs`."""

    def example(self) -> Any:
        """A prepared batch of one item on the meta device, of zeros."""

    def count_targets(self, batch: Any) -> Tensor:
        """How many targets of a prepared batch each term of the loss has (terms,), such as examples or tokens."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Each term of the training loss of a prepared batch, summed over its targets (terms,).

        What is made small is each sum over the number of its targets, added.
        """

    def metrics(self, detailed: bool = False) -> "torchmetrics.MetricCollection":
        """Fresh metrics, named as in results.csv, that `update` fills; `detailed` ones are for a last look alone."""

    def update(self, metrics: "torchmetrics.MetricCollection", model: nn.Module, batch: Any) -> None:
        """Add a prepared held-out batch to the metrics."""


def collect(metrics: "dict[str, torchmetrics.Metric]") -> "torchmetrics.MetricCollection":
    """Metrics by name as one. torchmetrics takes 8 s to import, which `vitlab predict` does without."""
    from torchmetrics import MetricCollection

    return MetricCollection(metrics, compute_groups=False)


class TokenInputs(NamedTuple):
    """Texts as a model takes them: tokens (B, N), mask bool (B, N), False at padding, segments (B, N) or None.

    special bool (B, N) is True at special tokens such as [CLS]. Of sources, `given` (B, T) is what a decoder reads of
    their targets, and `following` (B, T) what it predicts, IGNORE_INDEX at padding.
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
        """The same texts in chunks of at most `size`."""
        firsts = range(0, len(self.tokens), size)
        return [TokenInputs(*(None if part is None else part[k : k + size] for part in self)) for k in firsts]

    @property
    def options(self) -> dict[str, Tensor]:
        """What a model's forward takes beside the tokens."""
        return {"mask": self.mask} | ({} if self.segments is None else {"segments": self.segments})


def refuse_several_parts(data: TextData) -> None:
    """Raise UserError for data of pairs or choices: a language model would only read the first part."""
    if len(data.train.parts) > 1:
        raise UserError(
            f"data={data.name}: its texts have {len(data.train.parts)} parts; give one column of text, or "
            "task=text_classification, or task=translation for pairs"
        )


def sum_cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """(..., C), (...) -> the sum over the targets but those of IGNORE_INDEX; 0 where there are no others."""
    options = {"ignore_index": IGNORE_INDEX, "label_smoothing": label_smoothing, "reduction": "sum"}
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), **options)


def count_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """(..., C), (...) -> the cross-entropy of each target in float32 (...); 0 for those of IGNORE_INDEX."""
    options = {"ignore_index": IGNORE_INDEX, "reduction": "none"}
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), **options).view_as(targets)


def refuse_image_recipe(recipe: RecipeConfig) -> None:
    """Raise UserError for a recipe with augmentation that is only for images."""
    problems = list(find_excluded(recipe, "text"))
    if problems:
        raise UserError(problems)


BATCH = 256


def collect_logits(model: nn.Module, task: Any, split: Split, autocast: AbstractContextManager) -> Tensor:
    """What a model says of every item of a split, float32 (N, outputs) on the CPU; `model` is in eval mode.

    `task` is of images, or text_classification.
    """
    device, rows = next(model.parameters()).device, []
    with torch.inference_mode():
        for batch in eval_loader(split, batch_size=task.eval_batch_size or BATCH, device=device):
            with autocast:
                rows.append(task.logits(model, task.prepare([part.to(device) for part in batch])).cpu())
    return torch.cat(rows)


def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    autocast: AbstractContextManager,
    workers: int,
    *,
    detailed: bool = False,
    indices: np.ndarray | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> "torchmetrics.MetricCollection":
    """The task's metrics on a split, without augmentation: scalars, and with `detailed` its tables and texts.

    Of the items at `indices` (N,), by default all. On the model's device, with its outputs in the precision of
    `autocast`. `model` is in eval mode.
    """
    device, done = next(model.parameters()).device, 0
    metrics = (task.metrics(detailed=True) if detailed else evaluation_metrics(task)).to(device)
    with torch.inference_mode():
        size = task.eval_batch_size or BATCH
        for batch in eval_loader(split, batch_size=size, workers=workers, indices=indices, device=device):
            with autocast:
                task.update(metrics, model, task.prepare([part.to(device, non_blocking=True) for part in batch]))
            done += len(batch[0])
            if progress:
                progress(f"test {task.item}s", done, len(split))
    return metrics
