"""Metrics that torchmetrics does not have, or that treat missing values in another way."""

from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric, PearsonCorrCoef
from torchmetrics.classification import MulticlassCalibrationError, MulticlassF1Score
from torchmetrics.utilities import dim_zero_cat


class Mean(MeanMetric):
    """The mean of all values; NaN if one of them is NaN, which torchmetrics' own leaves out."""

    def __init__(self) -> None:
        super().__init__(nan_strategy="disable")


class Perplexity(Mean):
    """A function of the mean nats per token, by default its exponential."""

    def __init__(self, transform: Callable[[Tensor], Tensor] = torch.exp):
        super().__init__()
        self.transform = transform

    def compute(self) -> Tensor:
        return self.transform(super().compute())


class SumOfMeans(Metric):
    """The sum of several terms, each the mean of its own number of values; a term without values counts as 0."""

    def __init__(self, terms: int):
        super().__init__()
        for name in ("totals", "counts"):
            self.add_state(name, torch.zeros(terms), dist_reduce_fx="sum")

    def update(self, *terms: Tensor) -> None:
        self.totals += torch.stack([values.sum() for values in terms])
        self.counts += self.counts.new_tensor([values.numel() for values in terms])

    def compute(self) -> Tensor:
        return (self.totals / self.counts.clamp(min=1)).sum()


class SecondClassF1(MulticlassF1Score):
    """F1 of the second of two classes."""

    def __init__(self) -> None:
        super().__init__(2, average="none")

    def compute(self) -> Tensor:
        return super().compute()[1]


class Pearson(PearsonCorrCoef):
    """Pearson's correlation; 0 where one side is constant, which leaves it undefined."""

    def compute(self) -> Tensor:
        return super().compute().nan_to_num(0.0)


class Reliability(MulticlassCalibrationError):
    """The bins that the calibration error sums over: (3, bins).

    Rows: number of images, mean confidence, accuracy; the latter two are NaN in an empty bin. A bin includes its lower
    edge, the last one both edges; torchmetrics has one more bin, for a confidence of exactly 1.
    """

    def compute(self) -> Tensor:
        confidences, correct = dim_zero_cat(self.confidences), dim_zero_cat(self.accuracies).to(torch.float64)
        edges = torch.linspace(0, 1, self.n_bins + 1, dtype=confidences.dtype, device=confidences.device)
        bins = (torch.bucketize(confidences, edges, right=True) - 1).clamp(max=self.n_bins - 1)
        counts = torch.bincount(bins, minlength=self.n_bins)
        sums = [torch.bincount(bins, weights=w, minlength=self.n_bins) for w in (confidences.double(), correct)]
        return torch.stack([counts.double(), *(total / counts for total in sums)])
