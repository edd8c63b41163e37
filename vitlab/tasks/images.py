"""Tasks of images: predict one label, several labels or a number for each.

Shapes: B batch, C channels, Y x X pixels.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch
from torch import Generator, Tensor, nn

from vitlab.config.errors import raise_all
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.augment import Mixing, list_augmentations, normalize
from vitlab.data.base import ImageData, Split, take_items
from vitlab.tasks.base import TargetTask
from vitlab.tasks.metrics import LABELS, MEASURES

Batch = tuple[Tensor, Tensor]  # images (B, C, Y, X); labels (B,) or (B, classes), or targets float (B, labels) or (B,)


class ImagePreparation:
    """Normalises images uint8 (B, C, Y, X), in the same shape; augments them if called with a generator."""

    def __init__(self, recipe: RecipeConfig, data_config: DataConfig):
        self.recipe, self.config = recipe, data_config.augment
        self.mean, self.std = list(data_config.mean), list(data_config.std)

    def __call__(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        if generator is not None:
            for augmentation in list_augmentations():
                images = augmentation.apply(images, self.config, self.recipe, generator)
        return normalize(images, self.mean, self.std)


class ImageTask(TargetTask):
    """Predicts a target for each image, in batches of images (B, C, Y, X) and targets (B, ...)."""

    item = "image"

    def __init__(self, recipe: RecipeConfig, data: ImageData, data_config: DataConfig, of: str, outputs: int):
        self.images, self.mixing = ImagePreparation(recipe, data_config), Mixing(recipe, outputs)
        self.shape = {**data.shape, "num_classes": outputs}
        super().__init__(of, outputs, recipe, data, data.train, data.validation, data.test)

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        """Normalise images; return them with targets, or shares of classes (B, classes) if the recipe mixes them."""
        images = self.images(batch[0], generator)
        return (images, batch[1]) if generator is None else self.mixing(images, batch[1], generator)

    def inputs(self, batch: Batch) -> Tensor:
        return batch[0]

    def answer(self, model: nn.Module, batch: Batch) -> Batch:
        return model(batch[0]).float(), batch[1]

    def example(self) -> Batch:
        images = torch.zeros(1, self.shape["channels"], *self.shape["image_size"], device="meta")
        several = (self.outputs,) if self.of == LABELS else ()
        return images, torch.zeros(1, *several, dtype=self.dtype, device="meta")

    def count_targets(self, batch: Batch) -> Tensor:
        return torch.full((1,), len(batch[0]), device=batch[0].device)


class HeadTask(ImageTask):
    """Trains the module `head` of a model on features; the first read computes the features of all images."""

    def __init__(self, task: ImageTask, head: str, compute: Callable[[Split], np.ndarray]):
        vars(self).update(vars(task))
        self.head = head
        for part in ("train", "validation", "test"):
            split = vars(task)[part]
            rows = np.unique(task.training_indices) if part == "train" else np.arange(len(split))
            features = cache(partial(compute, take_items(split, rows)))
            vars(self)[part] = replace(split, read=partial(self.read, features, rows))

    @staticmethod
    def read(features: Callable[[], np.ndarray], rows: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return features()[np.searchsorted(rows, indices)]

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        return batch

    def answer(self, model: nn.Module, batch: Batch) -> Batch:
        return super().answer(model.get_submodule(self.head), batch)


def list_problems(kind: str, data: ImageData, data_config: DataConfig) -> Iterator[str]:
    """Yield a line for each reason why a data set does not fit a task."""
    targets, instead = data.train.targets, f"give task={data_config.task}"
    if kind == "classification":
        if not data.classes:
            yield f"data={data.name}: has no classes; {instead}"
        elif targets is not None:
            yield f"data={data.name}: has several labels for an image; give task=multilabel"
        return
    if kind == "multilabel" and (not data.classes or targets is None):
        yield f"data={data.name}: has no images with several labels; {instead}"
    if kind == "regression" and (targets is None or targets.ndim != 1):
        yield f"data={data.name}: has no number for each image; {instead}"


def build(config: TaskConfig, *, recipe: RecipeConfig, data: ImageData, data_config: DataConfig) -> ImageTask:
    raise_all(list_problems(config.kind, data, data_config))
    return ImageTask(recipe, data, data_config, of := config.of[0], 1 if of == MEASURES else len(data.classes))
