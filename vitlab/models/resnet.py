"""A basic-block ResNet of any size for small images (He et al., 2016, section 4.2)."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.config.schema.models import ResNetConfig
from vitlab.models.base import Model


class StridedPointwise(nn.Conv2d):
    """A 1x1 convolution with a stride, which picks the pixels before it convolves them.

    oneDNN's own backward pass for this case writes past its workspace when images are channels_last and have fewer than
    16 channels (uxlfoundation/oneDNN issue 6035): a segmentation fault on CPUs with AVX-512.
    """

    def forward(self, images: Tensor) -> Tensor:
        picked = F.avg_pool2d(
            images, 1, self.stride
        )  # a slice's gradient would not be channels_last: 1.15 times the step
        return F.conv2d(picked, self.weight, self.bias)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (He et al., 2016, figure 2), in timm's names; timm takes 7 s to import."""

    def __init__(self, before: int, width: int, stride: int, shortcut: nn.Module | None):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.act2 = nn.ReLU(inplace=True)
        self.downsample = shortcut

    def forward(self, images: Tensor) -> Tensor:
        """Run the block: (B, before, Y, X) -> (B, width, Y / stride, X / stride)."""
        added = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(images)))))
        added += images if self.downsample is None else self.downsample(images)
        return self.act2(added)


class ResNet(Model):
    """Images (B, C, Y, X) -> logits (B, classes), or features (B, D) with `num_classes=0`.

    A 3x3 stem of stride 1, stages that halve the image, mean pooling, a linear head.
    """

    def __init__(self, *, channels: int, num_classes: int, layers: list[int], widths: list[int]):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)
        )
        self.stages = nn.Sequential()
        before = widths[0]
        for index, (blocks, width) in enumerate(zip(layers, widths, strict=True)):
            stage = nn.Sequential()
            for block in range(blocks):
                stride = 2 if index and not block else 1
                shortcut = None
                if stride != 1 or before != width:
                    shortcut = nn.Sequential(
                        StridedPointwise(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)
                    )
                stage.append(BasicBlock(before, width, stride, shortcut))
                before = width
            self.stages.append(stage)
        self.head = nn.Linear(before, num_classes) if num_classes else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BasicBlock):
                nn.init.zeros_(module.bn2.weight)  # a block begins as its shortcut

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {"stem": r"^stem", "blocks": r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.(\d+)"}

    def features(self, images: Tensor) -> Tensor:
        """Compute the input of the head: (B, C, Y, X) -> (B, D)."""
        return self.stages(self.stem(images)).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


def build(config: ResNetConfig, *, num_classes: int, image_size: tuple[int, int], channels: int) -> ResNet:
    if not config.layers or len(config.layers) != len(config.widths):
        raise ValueError(f"model.layers={config.layers} and model.widths={config.widths}: give one of each per stage")
    return ResNet(channels=channels, num_classes=num_classes, layers=list(config.layers), widths=list(config.widths))
