"""What the image tasks share.

Shapes: B batch, C channels, Y x X pixels.
"""

from torch import Generator, Tensor

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import ImageData
from vitlab.data.transforms.basic import augment, crop, normalize
from vitlab.data.transforms.rand_augment import rand_augment


class ImagePreparation:
    """Images uint8 (B, C, Y, X) -> normalised ones of the same shape, augmented when a generator is given.

    Raises UserError for operations that are not for the data's images.
    """

    def __init__(self, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        self.mean, self.std = list(data_config.mean), list(data_config.std)
        self.flip, self.shift = data_config.augment.flip, data_config.augment.shift
        self.crop_scale = data_config.augment.crop_scale and list(data_config.augment.crop_scale)
        self.crop_aspect = list(data_config.augment.crop_aspect)
        self.rand_augment = recipe.rand_augment if recipe.rand_augment.layers else None
        if self.rand_augment is not None and data.channels not in (1, 3):
            raise UserError(
                f"recipe.rand_augment.layers={recipe.rand_augment.layers}: its operations take images of 1 or 3 "
                f"channels, data={data.name} has {data.channels}; give recipe.rand_augment.layers=0"
            )

    def __call__(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        if generator is not None:
            images = crop(images, self.crop_scale, generator, self.crop_aspect)
            images = augment(images, self.flip, self.shift, generator)
            images = rand_augment(images, self.rand_augment, generator)
        return normalize(images, self.mean, self.std)
