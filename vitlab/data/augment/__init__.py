"""Augmentation, normalisation and mixing of whole batches of images, on the device that holds them.

The augmentations of uint8 images are the modules of this folder, found by listing. A module has `apply(images, config,
recipe, generator)`, uint8 (B, C, H, W) -> uint8 (B, C, H, W), where `config` is `data.augment` and `recipe` the recipe;
all chance is drawn from `generator`. `ORDER` is its place in the sequence (geometry 10, rand_augment 30); its keys are
fields of `AugmentConfig` (vitlab.config.schema.data). An augmentation that is off returns the very tensor and draws
nothing, so the draws of all further ones stay. The generator may be on the CPU where the images are not.
"""

import random
from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Generator, Tensor

from vitlab.registry import list_modules

IN_CACHE = 2**20  # values that are normalised together on a CPU


@cache
def list_augmentations() -> tuple[ModuleType, ...]:
    """List the modules in the order in which they are applied."""
    modules = [import_module(f"{__name__}.{name}") for name in list_modules(__name__)]
    return tuple(sorted((m for m in modules if getattr(m, "apply", None)), key=lambda module: module.ORDER))


def normalize(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Turn uint8 (B, C, H, W) into float32 (B, C, H, W): (x / 255 - mean) / std, of 1 or C means and deviations."""
    factor, offset = normalization(tuple(mean), tuple(std), images.device)
    out = torch.empty(images.shape, device=images.device)
    together = IN_CACHE // images.shape[1:].numel() if images.device.type == "cpu" else len(images)
    for part, into in zip(images.split(max(1, together)), out.split(max(1, together)), strict=True):
        # bytes times floats would be converted in small pieces, twice as slowly
        into.copy_(part).mul_(factor).sub_(offset)
    return out


@lru_cache(maxsize=16)  # making them takes as long as a small batch, and on a GPU waits for it
def normalization(mean: Sequence[float], std: Sequence[float], device: Any) -> tuple[Tensor, Tensor]:
    """Compute the factor and the offset that `normalize` multiplies by and subtracts: each (1, C or 1, 1, 1)."""
    with torch.inference_mode(False):  # else those of an evaluation could not be used in training
        mean, std = (torch.tensor(v, dtype=torch.float32, device=device).view(1, -1, 1, 1) for v in (mean, std))
        return 1 / (255 * std), mean / std


class Mixing:
    """The mixing of a normalised batch by a recipe: erase a part of some images, mix each with its neighbour.

    Erasing: with probability `random_erasing` a rectangle of 2% to a third of the image becomes normal noise (Zhong et
    al., 2020; timm's `pixel` mode). Mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019): if both are on, each
    batch has either of them, as in DeiT; the whole batch has one drawn share.
    """

    def __init__(self, recipe: Any, classes: int):
        self.recipe, self.classes = recipe, classes

    @cached_property
    def erase(self) -> Any:
        from timm.data.random_erasing import RandomErasing  # 7 s, which an evaluation does without

        return RandomErasing(self.recipe.random_erasing, mode="pixel", device="cpu")

    @cached_property
    def mix(self) -> Any:
        from torchvision.transforms import v2  # 5 s

        choices = ((v2.CutMix, self.recipe.cutmix), (v2.MixUp, self.recipe.mixup))
        on = [transform(alpha=alpha, num_classes=self.classes) for transform, alpha in choices if alpha]
        return on[0] if len(on) == 1 else v2.RandomChoice(on)

    def __call__(self, images: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Mix images (B, C, Y, X), perhaps in place, and labels (B,) -> images (B, C, Y, X) and labels (B,), or
        (B, classes) of shares that sum to 1 if a batch is mixed; the very tensors if nothing is on.
        """
        erases, mixes = self.recipe.random_erasing > 0, self.recipe.mixup > 0 or self.recipe.cutmix > 0
        if not (erases or mixes):
            return images, labels
        # these transforms draw from the global generators, and a batch is to be a function of the step's own alone
        seed = int(torch.randint(0, 2**62, (), generator=generator, device=generator.device))
        state = random.getstate()
        with torch.random.fork_rng([images.device] if images.is_cuda else []):
            torch.manual_seed(seed)
            random.seed(seed)
            try:
                if erases:
                    self.erase.device = images.device
                    self.erase(images)
                return self.mix(images, labels) if mixes else (images, labels)
            finally:
                random.setstate(state)
