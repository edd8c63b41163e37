"""A linear classifier of an image's color histogram, which shows how much the colors alone say. A baseline, no network.

Swain and Ballard, "Color indexing" (1991), with soft bins, so that a gradient is not needed below the linear layer.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.config.schema.models import ColorHistogramConfig
from vitlab.models.base import Model

SIDE = 16  # pixels of an image that are looked at, in each direction: evenly spaced ones
REACH = 2.2  # the outer bins, in standard deviations of all pixels


class ColorHistogram(Model):
    """Images (B, C, Y, X), normalised -> logits (B, classes), or the histograms (B, bins ** C) with `num_classes=0`.

    Each pixel is shared by the bins near it in every channel; the head reads the histogram's square root
    (the Hellinger kernel).
    """

    def __init__(self, *, channels: int, num_classes: int, bins: int):
        super().__init__()
        self.bins = bins
        self.register_buffer("centers", torch.linspace(-REACH, REACH, bins), persistent=False)
        self.head = nn.Linear(bins**channels, num_classes) if num_classes else nn.Identity()

    def features(self, images: Tensor) -> Tensor:
        """Compute the square root of the color histogram: (B, C, Y, X) -> (B, bins ** C)."""
        sides = [min(SIDE, side) for side in images.shape[-2:]]
        pixels_BCP = F.interpolate(images.float(), sides, mode="nearest").flatten(2)
        distances = (pixels_BCP[..., None] - self.centers) / (self.centers[1] - self.centers[0])
        shares_BCPK = (-4 * distances**2).softmax(dim=-1)
        joint_BPK = shares_BCPK[:, 0]
        for channel in range(1, images.shape[1]):
            joint_BPK = (joint_BPK[..., None] * shares_BCPK[:, channel, :, None]).flatten(2)
        return (joint_BPK.mean(dim=1) + 1e-6).sqrt()

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


def build(
    config: ColorHistogramConfig, *, num_classes: int, image_size: tuple[int, int], channels: int
) -> ColorHistogram:
    if config.bins**channels > 2**15:
        raise ValueError(f"model.bins={config.bins}: {config.bins}^{channels} bins of {channels} channels; give fewer")
    return ColorHistogram(channels=channels, num_classes=num_classes, bins=config.bins)
