"""What the training loop asks of a task."""

from typing import Any, Protocol

from torch import Generator, Tensor, nn
from torchmetrics import MetricCollection


class Task(Protocol):
    outputs: int  # width of the model's output

    def prepare(self, batch: Any, generator: Generator | None = None) -> Any:
        """A loader's batch as the model takes it; augmented when a generator is given."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The training loss of a prepared batch, a scalar."""

    def metrics(self, detailed: bool = False) -> MetricCollection:
        """Fresh metrics, named as in results.csv, that `update` fills; `detailed` ones are for a last look alone."""

    def update(self, metrics: MetricCollection, model: nn.Module, batch: Any) -> None:
        """Add a prepared held-out batch to the metrics."""
