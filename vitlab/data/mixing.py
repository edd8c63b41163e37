"""Random erasing, mixup and CutMix: what is done to a normalised batch, by timm's and torchvision's own code.

That code draws from the global generators of torch and Python. Here they are seeded by the step's own generator and
put back afterwards, so that a batch is a function of that generator alone.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from timm.data.random_erasing import RandomErasing
from torch import Generator, Tensor
from torchvision.transforms import v2

from vitlab.config.schema import RecipeConfig


@contextmanager
def global_generators(generator: Generator, device: torch.device) -> Iterator[None]:
    """torch's and Python's global generators seeded by a draw from `generator`; afterwards as they were."""
    seed = int(torch.randint(0, 2**62, (), generator=generator, device=generator.device))
    state = random.getstate()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


class Mixing:
    """What a recipe does to a normalised batch: erase a part of some images, mix each with its neighbour.

    Erasing: with probability `random_erasing` a rectangle of 2% to a third of the image becomes normal noise (Zhong et
    al., 2020; timm's `pixel` mode). Mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019): one of the two a batch
    where both are on, CutMix with probability `cutmix_share`, and one share drawn for the whole batch.
    """

    def __init__(self, recipe: RecipeConfig, classes: int):
        self.erase_probability = recipe.random_erasing
        choices = [(v2.CutMix, recipe.cutmix, recipe.cutmix_share), (v2.MixUp, recipe.mixup, 1 - recipe.cutmix_share)]
        on = [(transform(alpha=alpha, num_classes=classes), share) for transform, alpha, share in choices if alpha]
        if len(on) == 2:
            self.mix = v2.RandomChoice([transform for transform, _ in on], p=[share for _, share in on])
        else:
            self.mix = on[0][0] if on else None

    def __call__(self, images: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """images (B, C, Y, X), which may be changed in place, and labels (B,) -> images (B, C, Y, X) and labels (B,),
        or (B, classes) of shares that sum to 1 where a batch is mixed; the very tensors where nothing is on.
        """
        if not self.erase_probability and self.mix is None:
            return images, labels
        with global_generators(generator, images.device):
            if self.erase_probability:
                RandomErasing(self.erase_probability, mode="pixel", device=images.device)(images)
            return (images, labels) if self.mix is None else self.mix(images, labels)
