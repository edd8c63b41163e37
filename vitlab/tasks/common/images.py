"""What the image tasks share.

Shapes: B batch, C channels, Y x X pixels.
"""

from torch import Generator, Tensor

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.augment import list_augmentations
from vitlab.data.base import ImageData
from vitlab.data.normalize import normalize
from vitlab.registry import find_function


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
