"""What the image tasks share.

Shapes: B batch, C channels, Y x X pixels.
"""

import torch
from torch import Generator, Tensor, nn

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.augment import list_augmentations, normalize
from vitlab.data.base import ImageData
from vitlab.registry import find_function
from vitlab.tasks.base import Task


class ImagePreparation:
    """Images uint8 (B, C, Y, X) -> normalised ones of the same shape, augmented when a generator is given.

    Raises UserError for operations that are not for the data's images.
    """

    def __init__(self, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        self.recipe, self.config = recipe, data_config.augment
        self.mean, self.std = list(data_config.mean), list(data_config.std)
        checks = [check for augmentation in list_augmentations() if (check := find_function(augmentation, "check"))]
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
    target_dtype = torch.int64

    def __init__(self, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        self.images = ImagePreparation(recipe, data, data_config)

    def inputs(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return batch[0]

    def logits(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """What the model says of each image of a prepared batch, float32 (B, outputs)."""
        return model(batch[0]).float()

    def example(self) -> tuple[Tensor, Tensor]:
        height, width = self.shape["image_size"]
        images = torch.zeros(1, self.shape["channels"], height, width, device="meta")
        return images, torch.zeros(1, *self.target_shape, dtype=self.target_dtype, device="meta")

    def count_targets(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return torch.full((1,), len(batch[0]), device=batch[0].device)


def refuse_mixing(recipe: RecipeConfig, task: str) -> None:
    """Raise UserError where a recipe mixes images, which is for one class each, or weighs classes or smooths them."""
    keys = ("mixup", "cutmix", "label_smoothing", "class_weights")
    if used := [f"recipe.{key}={vars(recipe)[key]}" for key in keys if vars(recipe)[key]]:
        raise UserError([f"{setting}: is for images of one class each, not for task={task}" for setting in used])
