"""From images to tokens.

Shapes: B batch, C channels, Y x X pixels, N patches, D width.
"""

from functools import partial

from torch import Tensor, nn


class PatchEmbed(nn.Module):
    """Non-overlapping patches through one linear layer: (B, C, Y, X) -> (B, N, D), row by row.

    With a `backbone`, patches of its feature map, which is `stride` times smaller than the image and has `channels`
    channels (the hybrid of Dosovitskiy et al., 2021, section 3.1); `patch_size` is still in pixels of the image.
    Raises ValueError for sizes that do not divide each other.
    """

    def __init__(
        self,
        image_size: tuple[int, int],
        patch_size: tuple[int, int],
        channels: int,
        width: int,
        *,
        bias: bool = True,
        backbone: nn.Module | None = None,
        stride: int = 1,
    ):
        super().__init__()
        if any(pixels % patch for pixels, patch in zip(image_size, patch_size, strict=True)):
            raise ValueError(f"patch_size={patch_size} does not divide image_size={image_size}")
        if any(patch % stride for patch in patch_size):
            raise ValueError(f"patch_size={patch_size} is not a multiple of {stride}, the stride of the stem")
        self.image_size = image_size
        self.patch_size = patch_size
        self.grid_size = (image_size[0] // patch_size[0], image_size[1] // patch_size[1])
        self.backbone = nn.Identity() if backbone is None else backbone
        kernel = (patch_size[0] // stride, patch_size[1] // stride)
        self.proj = nn.Conv2d(channels, width, kernel_size=kernel, stride=kernel, bias=bias)

    def reset_parameters(self) -> None:
        """LeCun normal over the patch's pixels and zero bias, as in the paper's code."""
        nn.init.trunc_normal_(self.proj.weight, std=self.proj.weight[0].numel() ** -0.5)
        if self.proj.bias is not None:
            nn.init.zeros_(self.proj.bias)

    def forward(self, images: Tensor) -> Tensor:
        if tuple(images.shape[-2:]) != self.image_size:
            raise ValueError(f"image size {tuple(images.shape[-2:])}, the model takes {self.image_size}")
        return self.proj(self.backbone(images)).flatten(2).transpose(1, 2)


def hybrid_embed(
    image_size: tuple[int, int], patch_size: tuple[int, int], channels: int, width: int, layers: tuple[int, ...]
) -> PatchEmbed:
    """Patches of the feature map of a BiT ResNet with `layers` blocks per stage: (3, 4, 9), stride 16, in R50+B/16."""
    from timm.layers import StdConv2dSame
    from timm.models.resnetv2 import ResNetV2

    backbone = ResNetV2(
        layers=layers,
        num_classes=0,
        global_pool="",
        in_chans=channels,
        preact=False,
        stem_type="same",
        conv_layer=partial(StdConv2dSame, eps=1e-8),
    )
    stride = 4 * 2 ** (len(layers) - 1)
    return PatchEmbed(image_size, patch_size, backbone.num_features, width, backbone=backbone, stride=stride)
