"""Vision transformer (Dosovitskiy et al., 2021, arXiv 2010.11929): patch embedding, encoder, linear head.

Shapes: B batch, C channels, Y x X pixels, N patches, D width.
"""

from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.config import extent
from vitlab.models.embed import PatchEmbed, sincos2d
from vitlab.models.encoder import TransformerEncoder, dense
from vitlab.registry import implementation


class ViT(nn.Module):
    """Images (B, C, Y, X) -> logits (B, classes).

    `encoder` maps tokens to tokens. `pool` is "token", the class token's output, or "mean", over the patches; only
    "token" adds a class token.
    """

    def __init__(
        self,
        patch_embed: PatchEmbed,
        encoder: nn.Module,
        *,
        width: int,
        num_classes: int,
        positions: str = "learned",
        pool: str = "token",
        dropout: float = 0.0,
    ):
        super().__init__()
        self.patch_embed = patch_embed
        grid_size = patch_embed.grid_size
        self.pool = pool
        self.num_prefix_tokens = 1 if pool == "token" else 0
        tokens = grid_size[0] * grid_size[1] + self.num_prefix_tokens
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if self.num_prefix_tokens else None
        if positions == "learned":
            self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width))
        elif positions == "sincos2d":
            self.register_buffer("pos_embed", sincos2d(grid_size, width, self.num_prefix_tokens), persistent=False)
        else:
            self.pos_embed = None
        self.pos_drop = nn.Dropout(dropout)
        self.encoder = encoder
        self.head = nn.Linear(width, num_classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Truncated normal of std 0.02 for linear layers and positions, 1e-6 for the class token, zero biases."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.patch_embed.reset_parameters()
        if isinstance(self.pos_embed, nn.Parameter):
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if self.cls_token is not None:
            nn.init.normal_(self.cls_token, std=1e-6)

    def no_weight_decay(self) -> set[str]:
        """Parameters that are neither norm nor bias and yet are not decayed."""
        return {"pos_embed", "cls_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Which layer each parameter belongs to, as timm's layer-wise decay reads it."""
        stem = r"^(?:patch_embed|cls_token|reg_token|dist_token|pos_embed)"
        return {"stem": stem, "blocks": [(r"^encoder\.blocks\.(\d+)", None), (r"^encoder\.norm", (99999,))]}

    def features(self, images: Tensor) -> Tensor:
        """(B, C, Y, X) -> (B, D), what the head reads."""
        x = self.patch_embed(images)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        x = self.encoder(self.pos_drop(x))
        return x[:, 0] if self.pool == "token" else x.mean(dim=1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))

    def part_of(self, name: str) -> str:
        """The part of the model that a parameter belongs to, for counting; a mixer's is the name of its class."""
        path = name.split(".")
        if "mixer" in path:
            return type(self.encoder.blocks[0].mixer).__name__.lower()
        for mark, part in (("mlp", "mlp"), ("head", "head"), ("pos_embed", "positions")):
            if mark in path:
                return part
        return "norms" if "norm" in name else "embedding"


def build(config: DictConfig, *, num_classes: int, image_size: tuple[int, int], channels: int) -> ViT:
    mixers = implementation("vitlab.models.mixers", config.mixer.kind, "build")
    encoder = TransformerEncoder(
        config.width,
        config.depth,
        mixer=partial(mixers.build, config.mixer, width=config.width, heads=config.heads, dropout=config.dropout),
        mlp=partial(dense, config.width, config.mlp_width or 4 * config.width, config.dropout),
        drop_path=config.drop_path,
    )
    return ViT(
        PatchEmbed(image_size, extent(config.patch_size), channels, config.width),
        encoder,
        width=config.width,
        num_classes=num_classes,
        positions=config.positions,
        pool=config.pool,
        dropout=config.dropout,
    )
