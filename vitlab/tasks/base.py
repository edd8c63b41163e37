"""What the training loop asks of a task."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch import Generator, Tensor, nn
from torchmetrics import MetricCollection

from vitlab.data.base import Split

if TYPE_CHECKING:
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
    training_indices: np.ndarray | None = None  # of the items of `train` that a run trains on, set by it; None: all

    def prepare(self, batch: Any, generator: Generator | None = None) -> Any:
        """A loader's batch as the model takes it; augmented when a generator is given."""

    def inputs(self, batch: Any) -> Any:
        """What an analysis shows the model of a prepared batch: images, or a `vitlab.tasks.common.text.TokenInputs`."""

    def example(self) -> Any:
        """A prepared batch of one item on the meta device, of zeros."""

    def count_targets(self, batch: Any) -> Tensor:
        """How many targets of a prepared batch each term of the loss has (terms,), such as examples or tokens."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Each term of the training loss of a prepared batch, summed over its targets (terms,).

        What is made small is each sum over the number of its targets, added.
        """

    def metrics(self, detailed: bool = False) -> MetricCollection:
        """Fresh metrics, named as in results.csv, that `update` fills; `detailed` ones are for a last look alone."""

    def update(self, metrics: MetricCollection, model: nn.Module, batch: Any) -> None:
        """Add a prepared held-out batch to the metrics."""
