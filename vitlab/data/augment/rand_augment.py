"""RandAugment (Cubuk et al., 2020, arXiv 1909.13719) by `recipe.rand_augment`, which a published recipe brings with it.

The operations, their magnitudes from 0 to 10 and the grey that comes in at the edges are timm's of
`rand-mM-mstdS-incI-pP` (timm/data/auto_augment.py, after TensorFlow's): `increasing` is its `inc`, `std` its `mstd`.
With `increasing=False` and `probability=1` they are big_vision's `randaug(2,10)` too, but for its Cutout.
Different from both: images that drew the same operation and sign are transformed together, bilinearly, and have one
magnitude where `std` is above 0.

Shapes: B batch, C channels, Y x X pixels.
"""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Generator, Tensor

ORDER = 30
GREY = 128
BILINEAR = 2  # as Pillow numbers it, which torchvision takes too
Operation = Callable[[Tensor, float, bool], Tensor]  # images, level from 0 to 1 with its sign, increasing


def apply(images: Tensor, config: Any, recipe: Any, generator: Generator) -> Tensor:
    return rand_augment(images, recipe.rand_augment, generator) if recipe.rand_augment.layers else images


@cache
def v2() -> ModuleType:
    from torchvision.transforms.v2 import functional  # 2 s

    return functional


def affine(images: Tensor, **changed: list[float]) -> Tensor:
    """Shift images by whole pixels, or shear them about the upper left corner."""
    options = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0], **changed}
    return v2().affine(images, **options, interpolation=BILINEAR, fill=[GREY], center=[0, 0])


def shear(images: Tensor, x: float, y: float) -> Tensor:
    """Shear images by shares of the other side: torchvision wants the angles."""
    angles = torch.atan(torch.tensor([x, y])).rad2deg().tolist()
    return affine(images, shear=angles)


def translate(images: Tensor, x: float, y: float) -> Tensor:
    """Shift images by shares of the sides."""
    return affine(images, translate=[round(x * images.shape[3]), round(y * images.shape[2])])


def strength(level: float, increasing: bool) -> float:
    """Compute the factor of an enhancement; 1 changes nothing."""
    return max(0.1, 1 + 0.9 * level) if increasing else 0.1 + 1.8 * abs(level)


def posterize(images: Tensor, level: float, increasing: bool) -> Tensor:
    """Keep the 4 - 4 * level highest bits, else 4 * level of them; at least one, which is the least Pillow takes."""
    bits = int(4 * level)
    return v2().posterize(images, max(1, 4 - bits if increasing else bits))


def solarize(images: Tensor, level: float, increasing: bool) -> Tensor:
    """Invert the pixels from a threshold up."""
    threshold = min(256, int(256 * level))
    threshold = 256 - threshold if increasing else threshold
    return v2().solarize(images, threshold) if threshold < 256 else images


def solarize_add(images: Tensor, level: float, increasing: bool) -> Tensor:
    """Brighten the darker half of the pixels."""
    added = (images.int() + min(128, int(110 * level))).clamp_(max=255).to(images.dtype)
    return torch.where(images < 128, added, images)


UNSIGNED: dict[str, Operation] = {
    "auto_contrast": lambda images, level, increasing: v2().autocontrast(images),
    "equalize": lambda images, level, increasing: v2().equalize(images),
    "invert": lambda images, level, increasing: v2().invert(images),
    "posterize": posterize,
    "solarize": solarize,
    "solarize_add": solarize_add,
}
SIGNED: dict[str, Operation] = {
    "rotate": lambda images, level, increasing: v2().rotate(images, 30 * level, BILINEAR, fill=[GREY]),
    "color": lambda images, level, increasing: v2().adjust_saturation(images, strength(level, increasing)),
    "contrast": lambda images, level, increasing: v2().adjust_contrast(images, strength(level, increasing)),
    "brightness": lambda images, level, increasing: v2().adjust_brightness(images, strength(level, increasing)),
    "sharpness": lambda images, level, increasing: v2().adjust_sharpness(images, strength(level, increasing)),
    "shear_x": lambda images, level, increasing: shear(images, 0.3 * level, 0),
    "shear_y": lambda images, level, increasing: shear(images, 0, 0.3 * level),
    "translate_x": lambda images, level, increasing: translate(images, 0.45 * level, 0),
    "translate_y": lambda images, level, increasing: translate(images, 0, 0.45 * level),
}
OPERATIONS = {**UNSIGNED, **SIGNED}
NAMES = tuple(OPERATIONS)


def rand_augment(images: Tensor, config: Any, generator: Generator) -> Tensor:
    """Apply RandAugment to uint8 (B, C, Y, X) with 1 or 3 channels; return a changed copy.

    In each layer every image draws one operation, its sign, and whether it is applied.
    """
    where = {"generator": generator, "device": generator.device}
    size = (config.layers, len(images))
    drawn = torch.randint(0, len(NAMES), size, **where)
    signs = torch.randint(0, 2, size, **where)
    skipped = torch.rand(size, **where) >= config.probability
    # of each operation and sign; an operation without a sign uses the first
    levels = (
        config.magnitude + config.std * torch.randn((config.layers, len(NAMES), 2), dtype=torch.float64, **where)
    ).clamp(0, 10) / 10
    signs = torch.where(drawn < len(UNSIGNED), 0, signs)
    keys = torch.where(skipped, -1, 2 * drawn + signs)
    images = images.clone()
    for layer, choices in enumerate(keys.cpu()):
        table = levels[layer].tolist()
        for key in choices.unique().tolist():
            if key >= 0:
                rows = (choices == key).nonzero().flatten().to(images.device)
                name, negative = NAMES[key // 2], key % 2
                level = -table[key // 2][1] if negative else table[key // 2][0]
                images[rows] = OPERATIONS[name](images[rows], level, config.increasing)
    return images
