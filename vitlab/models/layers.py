"""A patch embedding, positions, and small layers of a block with the parameters and numbers of timm's namesakes.

Importing one from timm imports all of timm's models and torchvision: 2 s, too long for just counting a model.

Shapes: B batch, C channels, Y x X pixels, N patches, D model width, H hidden width; of
positions N patches or tokens, H heads, K head width.
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """(..., D) -> H -> (..., D), dropout after both layers, or with `drop_hidden=False` after the last one alone."""

    first, activation = ("fc1",), nn.GELU

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        act: type[nn.Module] | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        drop_hidden: bool = True,
    ):
        super().__init__()
        for name in self.first:
            setattr(self, name, nn.Linear(width, hidden, bias=bias))
        self.act = (act or self.activation)()
        self.drop1 = nn.Dropout(dropout if drop_hidden else 0.0)
        self.fc2 = nn.Linear(hidden, width, bias=bias)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(self.expand(x))))

    def expand(self, x: Tensor) -> Tensor:
        return self.act(self.fc1(x))


class GatedMlp(Mlp):
    """An MLP with a gate as a third layer (Shazeer, 2020, arXiv 2002.05202); `act` activates the gate."""

    first, activation = ("fc1_g", "fc1_x"), nn.SiLU

    def expand(self, x: Tensor) -> Tensor:
        return self.act(self.fc1_g(x)) * self.fc1_x(x)


class LayerScale(nn.Module):
    """A learned factor for each feature (Touvron et al., 2021, arXiv 2103.17239): (..., D) -> (..., D)."""

    def __init__(self, width: int, first: float):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), first))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class DropPath(nn.Module):
    """Drops a share of a batch's examples while training (Huang et al., 2016): (B, ...) -> (B, ...).

    The remaining examples are scaled up, which keeps the mean.
    """

    def __init__(self, drop_prob: float):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        mask = x.new_empty(x.shape[0], *(1 for _ in x.shape[1:])).bernoulli_(1 - self.drop_prob)
        return x * (mask.div_(1 - self.drop_prob) if self.drop_prob < 1 else mask)


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x), as CLIP has it (Radford et al., 2021)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


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
        """Set weights to LeCun normal over the patch's pixels and the bias to zero, as in the paper's code."""
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
    """Embed patches of a BiT ResNet's feature map, `layers` blocks per stage: (3, 4, 9), stride 16, in R50+B/16."""
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


class LowRank(nn.Module):
    """Compute B A x for x (..., in) -> (..., out), with A (rank, in) and B (out, rank), which is zero at first.

    `attach` adds the product to the output of a linear layer (Hu et al., 2021). The paper's factor alpha / rank is left
    out: with Adam a factor acts about as the learning rate does (section 4.1).
    """

    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        like = {"bias": False, "device": layer.weight.device, "dtype": layer.weight.dtype}
        self.down, self.up = nn.Linear(layer.in_features, rank, **like), nn.Linear(rank, layer.out_features, **like)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))

    @classmethod
    def attach(cls, layer: nn.Linear, rank: int) -> None:
        """Give a layer a child `lora` of this rank, which is added to the layer's output."""
        layer.lora = cls(layer, rank)
        layer.register_forward_hook(add_product)


def add_product(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return output + layer.lora(inputs[0])


def merge_low_rank(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add each product B A in a state dict to its layer's weights; the result fits the model without products."""
    merged = {name: value for name, value in state.items() if ".lora." not in name}
    for name, down in state.items():
        if name.endswith(".lora.down.weight"):
            layer = name.removesuffix(".lora.down.weight")
            merged[f"{layer}.weight"] = merged[f"{layer}.weight"] + state[f"{layer}.lora.up.weight"] @ down
    return merged


# ---- positions: fixed ones, added to the tokens; rotary ones, that turn queries and keys; relative ones, of scores


def sincos1d(tokens: int, width: int, base: float = 10_000.0) -> Tensor:
    """Compute (N, D): the sine of pos / base^(2i/D) at 2i, its cosine at 2i + 1 (Vaswani et al., 2017, section 3.5).

    Raises ValueError for an odd width.
    """
    if width % 2:
        raise ValueError(f"sine and cosine positions need an even width, not {width}")
    angles = torch.arange(tokens).float().unsqueeze(1) * base ** -(torch.arange(0, width, 2).float() / width)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def sincos2d(grid_size: tuple[int, int], width: int, base: float = 10_000.0) -> Tensor:
    """Compute (N, D): sines and cosines of the column in one half of D, of the row in the other.

    Beyer et al., 2022 (arXiv 2205.01580). Raises ValueError unless the width is a multiple of 4.
    """
    if width % 4:
        raise ValueError(f"positions=sincos2d needs a width that is a multiple of 4, not {width}")
    rates = base ** -(torch.arange(width // 4).float() / max(width // 4 - 1, 1))
    angles = [place.unsqueeze(1) * rates for place in reversed(rows_columns(grid_size))]
    return torch.cat([wave(a) for a in angles for wave in (torch.sin, torch.cos)], dim=1)


def rotary1d(tokens: int, head_width: int, base: float = 10_000.0) -> Tensor:
    """Compute (2, N, K), sines and cosines: pair i of a query or key turns by pos / base^(2i/K).

    Su et al., 2021 (RoFormer, arXiv 2104.09864, equation 15). Raises ValueError for an odd head width.
    """
    if head_width % 2:
        raise ValueError(f"rotary positions need an even head width, not {head_width}")
    rates = base ** -(torch.arange(0, head_width, 2).float() / head_width)
    return turns(torch.arange(tokens).float().unsqueeze(1) * rates)


def rotary2d(grid_size: tuple[int, int], head_width: int, prefix_tokens: int = 0, base: float = 100.0) -> Tensor:
    """Compute (2, prefix + N, K), sines and cosines: half of K turns with the row, the second half with the column.

    Axial RoPE (Heo et al., 2024, arXiv 2403.13298, equation 8). Prefix tokens do not turn. Raises ValueError unless
    the head width is a multiple of 4.
    """
    if head_width % 4:
        raise ValueError(f"positions=rotary needs a head width that is a multiple of 4, not {head_width}")
    rates = base ** -(torch.arange(0, head_width // 2, 2).float() / (head_width // 2))
    angles = torch.cat([place.unsqueeze(1) * rates for place in rows_columns(grid_size)], dim=1)
    return turns(torch.cat([torch.zeros(prefix_tokens, head_width // 2), angles]))


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    """Turn each pair (2i, 2i + 1) of K in x (B, H, N, K) by rotary (2, N, K) of `rotary1d` or `rotary2d`."""
    if torch.compiler.is_compiling():  # also an export: real products are fused, complex ones are not
        sine, cosine = rotary.to(x.dtype)
        return x * cosine + torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2) * sine
    wide = torch.promote_types(x.dtype, torch.float32)
    sine, cosine = rotary[..., ::2].to(wide)
    # complex: one product and one gradient, on a CPU a step of vit_nano in .85 of the time
    turned = torch.view_as_complex(x.to(wide).unflatten(-1, (-1, 2))) * torch.complex(cosine, sine)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


class RelativePositions(nn.Module):
    """A learned bias for each head and distance of a key from its query (T5; Raffel et al., 2020, section 2.1).

    Half of the `buckets` hold one distance each, the rest growing ranges up to `furthest`; farther keys share the last
    bucket. Earlier and later keys have half of the buckets each; with `causal` earlier keys have all.
    """

    def __init__(self, heads: int, *, causal: bool = False, buckets: int = 32, furthest: int = 128):
        super().__init__()
        self.causal, self.furthest = causal, furthest
        self.bias = nn.Parameter(torch.zeros(buckets, heads))

    def forward(self, queries: int, keys: int, mask: Tensor | None = None) -> Tensor:
        """Compute the bias of the scores, (1 or B, H, N, M), for the last N = `queries` of M = `keys` tokens.

        mask is bool (B, M), False where a key is padding.
        """
        places = torch.arange(keys, device=self.bias.device)
        distances = places - places[keys - queries :, None]
        bias = self.bias[self.bucket(distances)].permute(2, 0, 1)[None]
        hidden = (distances > 0)[None, None] if self.causal else None
        if mask is not None:
            padding = ~mask[:, None, None, :]
            hidden = padding if hidden is None else hidden | padding
        return bias if hidden is None else bias.masked_fill(hidden, float("-inf"))

    def bucket(self, distances: Tensor) -> Tensor:
        """Compute the bucket of each key place - query place, int64, as in the paper's code (mesh_tensorflow)."""
        buckets = len(self.bias)
        if self.causal:
            first, distances = 0, (-distances).clamp(min=0)
        else:
            buckets //= 2
            first, distances = (distances > 0) * buckets, distances.abs()
        single = buckets // 2
        growing = (distances.clamp(min=1).float() / single).log() / math.log(self.furthest / single)
        far = (single + (growing * (buckets - single)).long()).clamp(max=buckets - 1)
        return first + distances.where(distances < single, far)


def turns(angles: Tensor) -> Tensor:
    """Compute sines and cosines, each twice: (N, K/2) -> (2, N, K)."""
    return torch.stack([angles.sin(), angles.cos()]).repeat_interleave(2, dim=2)


def rows_columns(grid_size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the row and the column of each patch, (N,) each, row by row."""
    rows, columns = torch.meshgrid(*(torch.arange(n).float() for n in grid_size), indexing="ij")
    return rows.flatten(), columns.flatten()
