"""RandAugment by `recipe.rand_augment`, which a published recipe brings with it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Generator, Tensor

ORDER = 30


def apply(images: "Tensor", config: Any, recipe: Any, generator: "Generator") -> "Tensor":
    if not recipe.rand_augment.layers:
        return images
    from vitlab.data.rand_augment import rand_augment

    return rand_augment(images, recipe.rand_augment, generator)


def check(recipe: Any, data: Any) -> Iterator[str]:
    if recipe.rand_augment.layers and data.channels not in (1, 3):
        yield (
            f"recipe.rand_augment.layers={recipe.rand_augment.layers}: its operations take images of 1 or 3 "
            f"channels, data={data.name} has {data.channels}; give recipe.rand_augment.layers=0"
        )
