"""Tasks of images: one label, several labels or a number for each.

Shapes: B batch, C channels, Y x X pixels.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.augment import Mixing, list_augmentations, normalize
from vitlab.data.base import ImageData
from vitlab.tasks.base import Task, collect
from vitlab.tasks.metrics import CHOICES, IMAGES, LABELS, MEASURES, MOST_CONFUSED, build_metrics
from vitlab.tasks.metrics.answers import BINS

if TYPE_CHECKING:
    from torchmetrics import Metric, MetricCollection

Batch = tuple[Tensor, Tensor]  # images (B, C, Y, X); labels (B,) or (B, classes), or targets float (B, labels) or (B,)


class ImagePreparation:
    """Images uint8 (B, C, Y, X) -> normalised ones of the same shape, augmented when a generator is given.

    Raises UserError for operations that are not for the data's images.
    """

    def __init__(self, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        self.recipe, self.config = recipe, data_config.augment
        self.mean, self.std = list(data_config.mean), list(data_config.std)
        checks = [check for augmentation in list_augmentations() if (check := getattr(augmentation, "check", None))]
        if problems := [line for check in checks for line in check(recipe, data)]:
            raise UserError(problems)

    def __call__(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        if generator is not None:
            for augmentation in list_augmentations():
                images = augmentation.apply(images, self.config, self.recipe, generator)
        return normalize(images, self.mean, self.std)


class ImageTask(Task):
    """A task that predicts something of each image: batches of images (B, C, Y, X) and targets (B, ...)."""

    item = "image"
    target_shape: tuple[int, ...] = ()  # of one image
    target_dtype = torch.float32

    def __init__(self, recipe: RecipeConfig, data: ImageData, data_config: DataConfig, outputs: int):
        self.images = ImagePreparation(recipe, data, data_config)
        self.train, self.validation, self.test = data.train, data.validation, data.test
        self.outputs = outputs
        self.shape = {**data.shape, "num_classes": outputs}

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        return self.images(batch[0], generator), batch[1]

    def inputs(self, batch: Batch) -> Tensor:
        return batch[0]

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """What the model says of each image of a prepared batch, float32 (B, outputs)."""
        return model(batch[0]).float()

    def example(self) -> Batch:
        height, width = self.shape["image_size"]
        images = torch.zeros(1, self.shape["channels"], height, width, device="meta")
        return images, torch.zeros(1, *self.target_shape, dtype=self.target_dtype, device="meta")

    def count_targets(self, batch: Batch) -> Tensor:
        return torch.full((1,), len(batch[0]), device=batch[0].device)


def refuse_mixing(recipe: RecipeConfig, task: str) -> None:
    """Raise UserError where a recipe mixes images, which is for one class each, or weighs classes or smooths them."""
    keys = ("mixup", "cutmix", "label_smoothing", "class_weights")
    if used := [f"recipe.{key}={vars(recipe)[key]}" for key in keys if vars(recipe)[key]]:
        raise UserError([f"{setting}: is for images of one class each, not for task={task}" for setting in used])


class Classification(ImageTask):
    """One label per image: cross-entropy, accuracy; in detail top-5, calibration, confusion."""

    target_dtype = torch.int64

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        if not data.classes:
            raise UserError(f"data={data.name}: has no classes; give task={data_config.task}")
        if data.train.targets is not None:
            raise UserError(f"data={data.name}: has several labels for an image; give task=multilabel")
        super().__init__(recipe, data, data_config, len(data.classes))
        self.classes = self.strata = data.classes
        self.label_smoothing, self.class_weights = recipe.label_smoothing, recipe.class_weights
        self.mixing = Mixing(recipe, self.outputs)
        self.train_on(np.arange(len(data.train)))

    def train_on(self, indices: np.ndarray) -> None:
        super().train_on(indices)
        counts = np.bincount(self.train.labels[indices], minlength=self.outputs)
        # (classes,): items / (classes * items of the class); their mean over the items is 1
        self.balanced_weights = torch.from_numpy(counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1))).float()

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        """Normalised images, and labels (B,), or (B, classes) of shares where the recipe mixed them."""
        images, labels = super().prepare(batch, generator)
        return (images, labels) if generator is None else self.mixing(images, labels, generator)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        weight = None if self.class_weights is None else self.balanced_weights.to(images.device)
        options = {"weight": weight, "label_smoothing": self.label_smoothing, "reduction": "sum"}
        return F.cross_entropy(model(images), labels, **options)[None]

    def metrics(self, detailed: bool = False) -> "MetricCollection":
        """accuracy and loss; `detailed` adds what `build_class_metrics` says."""
        return collect(build_class_metrics(self.outputs, detailed))

    def update(self, metrics: "MetricCollection", model: nn.Module, batch: Batch) -> None:
        update_class_metrics(metrics, self.logits(model, batch), batch[1])


class Multilabel(ImageTask):
    """Several labels per image: binary cross-entropy, mean average precision over the labels."""

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        if not data.classes or data.train.targets is None:
            raise UserError(f"data={data.name}: has no images with several labels; give task={data_config.task}")
        refuse_mixing(recipe, config.name)
        super().__init__(recipe, data, data_config, len(data.classes))
        self.classes, self.target_shape = data.classes, (self.outputs,)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over the labels, summed over the images (1,)."""
        return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1], reduction="sum")[None] / self.outputs

    def metrics(self, detailed: bool = False) -> "MetricCollection":
        return collect(build_item_metrics(LABELS, self.outputs, detailed))

    def update(self, metrics: "MetricCollection", model: nn.Module, batch: Batch) -> None:
        logits, targets = self.logits(model, batch), batch[1]
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)
        update_item_metrics(metrics, losses, logits, targets.long())


class Regression(ImageTask):
    """A number per image: mean squared error of standardised targets; metrics are in the targets' own unit."""

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        if data.train.targets is None or data.train.targets.ndim != 1:
            raise UserError(f"data={data.name}: has no number for each image; give task={data_config.task}")
        if np.ptp(data.train.targets) == 0:
            raise UserError(f"data={data.name}: all training targets are {data.train.targets[0]:g}: nothing to learn")
        refuse_mixing(recipe, config.name)
        super().__init__(recipe, data, data_config, 1)
        self.objective = Numbers(MEASURES, data.train.targets)

    @property
    def scale(self) -> tuple[float, float]:
        return self.objective.scale

    def train_on(self, indices: np.ndarray) -> None:
        super().train_on(indices)
        self.objective.standardise_by(self.train.targets[indices])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.objective.loss(model(batch[0]), batch[1])[None]

    def metrics(self, detailed: bool = False) -> "MetricCollection":
        return collect(self.objective.metrics(detailed))

    def update(self, metrics: "MetricCollection", model: nn.Module, batch: Batch) -> None:
        self.objective.update(metrics, self.logits(model, batch), batch[1])


class Numbers:
    """A number each: mean squared error of standardised targets.

    The model gives (target - mean) / std, with `scale` that of the run's own training targets, so that a recipe's rate
    fits any unit; always to say their mean has the loss 1 on them. `of` is MEASURES, or NUMBERS, which are measured as
    standardised.
    """

    outputs = 1
    dtype = torch.float32

    def __init__(self, of: str, targets: np.ndarray):
        self.of = of
        self.standardise_by(targets)

    def standardise_by(self, targets: np.ndarray) -> None:
        """Take the mean and the deviation of `targets` (N,). Raises UserError where all are the same number."""
        self.scale = float(targets.mean(dtype=np.float64)), float(targets.std(dtype=np.float64))
        if not self.scale[1]:
            raise UserError(f"train_size={len(targets)}: the targets of these are all {targets[0]:g}; give more")

    def standardise(self, targets: Tensor) -> Tensor:
        """float32; computed in float64, for numbers far from 0."""
        return ((targets.double() - self.scale[0]) / self.scale[1]).float()

    def restore(self, numbers: Tensor) -> Tensor:
        """Standardised numbers in the unit of the targets."""
        return numbers * self.scale[1] + self.scale[0]

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(M, 1), (M,) -> the sum."""
        return F.mse_loss(logits[:, 0].float(), self.standardise(targets), reduction="sum")

    def metrics(self, detailed: bool) -> "dict[str, Metric]":
        return build_item_metrics(self.of, self.outputs, detailed)

    def update(self, metrics: "MetricCollection", logits: Tensor, targets: Tensor) -> None:
        predicted = logits[:, 0]
        losses = F.mse_loss(predicted, self.standardise(targets), reduction="none")
        update_item_metrics(metrics, losses, self.restore(predicted) if self.of == MEASURES else predicted, targets)


def build_item_metrics(of: str, outputs: int, detailed: bool) -> "dict[str, Metric]":
    """The loss and the metrics of `vitlab.tasks.metrics` of a kind; `detailed` adds outcomes (see `ItemOutcomes`)."""
    from vitlab.tasks.measures import ItemOutcomes, Mean

    metrics = {**dict(build_metrics(of, outputs, detailed)), "loss": Mean()}
    return metrics | ({"outcomes": ItemOutcomes()} if detailed else {})


def update_item_metrics(metrics: "MetricCollection", losses: Tensor, predicted: Tensor, targets: Tensor) -> None:
    """Add the loss of each item (B,) to loss and outcomes, what is predicted and the targets to the others."""
    for name, metric in metrics.items():
        metric.update(*((losses,) if name in ("loss", "outcomes") else (predicted, targets)))


def build_class_metrics(outputs: int, detailed: bool = False, of: str = IMAGES) -> "dict[str, Metric]":
    """`build_item_metrics` of a choice among as many classes as there are outputs.

    `detailed` adds reliability (see `Reliability`), outcomes (which items are right) and, up to MOST_CONFUSED classes
    that mean the same in every item, confusion_matrix (C, C), a row per true class.
    """
    metrics = build_item_metrics(of, outputs, detailed)
    if detailed:
        from vitlab.tasks.measures import Confusion, Reliability

        metrics["reliability"] = Reliability(outputs, n_bins=BINS, validate_args=False)
        if of != CHOICES and outputs <= MOST_CONFUSED:
            metrics["confusion_matrix"] = Confusion(outputs)
    return metrics


def update_class_metrics(
    metrics: "MetricCollection", logits: Tensor, labels: Tensor, counted: Tensor | None = None
) -> None:
    """Add logits (B, classes) and labels (B,) to metrics of classes.

    With bool `counted` of the shape of the labels, which may then be (B, N), only these count.
    """
    if "outcomes" in metrics:
        metrics["outcomes"].update(logits.argmax(dim=-1) == labels, counted if labels.ndim > 1 else None)
    if counted is not None:
        logits, labels = logits[counted], labels[counted]
    for name, metric in metrics.items():
        if name == "loss":
            # a mean takes one value per example, so that a short last batch weighs what it should
            metric.update(F.cross_entropy(logits, labels, reduction="none"))
        elif name in ("calibration_error", "reliability"):
            metric.update(logits.softmax(dim=1), labels)  # it would take logits in 0..1 for probabilities
        elif name != "outcomes":
            metric.update(logits, labels)


def build(config: TaskConfig, **parts: Any) -> ImageTask:
    kinds = {"classification": Classification, "multilabel": Multilabel, "regression": Regression}
    return kinds[config.kind](config, **parts)
