"""Vision transformer (Dosovitskiy et al., 2021, arXiv 2010.11929): patch embedding, encoder, linear head.

Shapes: B batch, C channels, Y x X pixels, N patches, D width.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.config import extent
from vitlab.config.schema.models import ViTConfig
from vitlab.models import mixers
from vitlab.models.base import Model, Patches
from vitlab.models.encoder import TransformerEncoder, feed_forward, make_norms
from vitlab.models.layers import PatchEmbed, hybrid_embed, rotary2d, sincos1d, sincos2d
from vitlab.models.mixers import MixerSpec, refuse_lacking
from vitlab.models.resnet import ResNet


class ViT(Model):
    """Images (B, C, Y, X) -> logits (B, classes); with `num_classes=0` -> features (B, D), as in timm.

    `encoder` maps tokens to tokens. `pool` is "token" (the class token's output), "mean" (over the patches) or "none"
    (logits for each patch, (B, N, classes)). The prefix tokens are the class token, the distillation token (DeiT,
    Touvron et al., 2021) and the registers (Darcet et al., 2024); `prefix_positions` gives them learned positions too.
    `rotary` (2, tokens, head width) are rotary positions. `norm_pre` normalises the tokens before the first block
    (CLIP, Radford et al., 2021), `fc_norm` the pooled output in place of the encoder's last norm. `pre_logits` is the
    hidden tanh layer of the paper's pre-training head. With a distillation token, logits are the mean of two heads.
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
        class_token: bool = True,
        distillation: bool = False,
        registers: int = 0,
        prefix_positions: bool = True,
        rotary: Tensor | None = None,
        pre_logits: bool = False,
        norm_pre: nn.Module | None = None,
        fc_norm: nn.Module | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if pool == "token" and not class_token:
            raise ValueError("model.pool=token needs a class token; give model.class_token=true or model.pool=mean")
        if distillation and pool != "token":
            raise ValueError(f"model.distillation=true needs model.pool=token, not {pool}")
        self.width = width
        self.patch_embed = patch_embed
        self.pool = pool
        self.num_prefix_tokens = class_token + distillation + registers
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.dist_token = nn.Parameter(torch.zeros(1, 1, width)) if distillation else None
        self.reg_token = nn.Parameter(torch.zeros(1, registers, width)) if registers else None
        grid_size = patch_embed.grid_size
        patches = grid_size[0] * grid_size[1]
        # prefix tokens that `pos_embed` has positions for
        self.prefix_positions = self.num_prefix_tokens if prefix_positions and positions == "learned" else 0
        if positions == "learned":
            self.pos_embed = nn.Parameter(torch.zeros(1, self.prefix_positions + patches, width))
        elif positions in ("sincos1d", "sincos2d"):
            table = sincos1d(patches, width) if positions == "sincos1d" else sincos2d(grid_size, width)
            self.register_buffer("pos_embed", table.unsqueeze(0), persistent=False)
        else:
            self.pos_embed = None
        self.register_buffer("rotary", rotary, persistent=False)
        self.pos_drop = nn.Dropout(dropout)
        self.norm_pre = nn.Identity() if norm_pre is None else norm_pre
        self.encoder = encoder
        self.fc_norm = nn.Identity() if fc_norm is None else fc_norm
        self.pre_logits = nn.Sequential(nn.Linear(width, width), nn.Tanh()) if pre_logits else nn.Identity()
        self.head = nn.Linear(width, num_classes) if num_classes else nn.Identity()
        self.head_dist = nn.Linear(width, num_classes) if num_classes and distillation else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set linear layers and positions to a truncated normal of std 0.02, prefix tokens to 1e-6, biases to zero."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.patch_embed.reset_parameters()
        if isinstance(self.pos_embed, nn.Parameter):
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for token in self.prefix():
            nn.init.normal_(token, std=1e-6)
        if self.dist_token is not None:
            nn.init.trunc_normal_(self.dist_token, std=0.02)

    @property
    def patches(self) -> Patches:
        return Patches(self.patch_embed.grid_size, self.patch_embed.patch_size, self.num_prefix_tokens)

    @property
    def position_table(self) -> Tensor | None:
        return self.pos_embed

    @property
    def reads_class_token(self) -> bool:
        return self.pool == "token"

    @property
    def classifies(self) -> bool:
        return not isinstance(self.head, nn.Identity)

    def prefix(self) -> Iterator[Tensor]:
        """Yield the prefix tokens, (1, n, D) each, in their order."""
        return (token for token in (self.cls_token, self.dist_token, self.reg_token) if token is not None)

    def no_weight_decay(self) -> set[str]:
        return {"pos_embed", "cls_token", "dist_token", "reg_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        stem = r"^(?:patch_embed\.(?!backbone\.1\.)|cls_token|reg_token|dist_token|pos_embed|norm_pre)"
        stages = r"^patch_embed\.backbone\.1\.(\d+)\.(\d+)"
        return {
            "stem": stem,
            "stages": stages,
            "blocks": [(r"^encoder\.blocks\.(\d+)", None), (r"^encoder\.norm", (99999,))],
        }

    def embed(self, images: Tensor) -> Tensor:
        """Compute the encoder's input: (B, C, Y, X) -> (B, prefix + N, D)."""
        # autocast's convolution gives bfloat16; the residual stream has the weights' type
        x = self.patch_embed(images).to(self.patch_embed.proj.weight.dtype)
        prefix = [token.expand(x.shape[0], -1, -1) for token in self.prefix()]
        if self.pos_embed is None:
            x = torch.cat([*prefix, x], dim=1)
        elif self.prefix_positions:
            x = torch.cat([*prefix, x], dim=1) + self.pos_embed
        else:
            x = torch.cat([*prefix, x + self.pos_embed], dim=1)
        return self.norm_pre(self.pos_drop(x))

    def tokens(self, images: Tensor) -> Tensor:
        """Compute the encoder's output: (B, C, Y, X) -> (B, prefix + N, D)."""
        return self.encoder(self.embed(images), rotary=self.rotary)

    def features(self, images: Tensor) -> Tensor:
        """Compute the input of the head: (B, C, Y, X) -> (B, D), or (B, N, D) with pool="none".

        With a distillation token, it is the mean of the inputs of the two heads.
        """
        x = self.tokens(images)
        if self.dist_token is not None:
            return (self.hidden(x[:, 0]) + self.hidden(x[:, 1])) / 2
        x = x[:, 0] if self.pool == "token" else x[:, self.num_prefix_tokens :]
        return self.hidden(x.mean(dim=1) if self.pool == "mean" else x)

    def hidden(self, x: Tensor) -> Tensor:
        return self.pre_logits(self.fc_norm(x))

    def forward(self, images: Tensor) -> Tensor:
        if self.head_dist is None:
            return self.head(self.features(images))
        x = self.tokens(images)
        return (self.head(self.hidden(x[:, 0])) + self.head_dist(self.hidden(x[:, 1]))) / 2

    def part_of(self, name: str) -> str:
        """Name the part of the model that a parameter belongs to, for counting; a mixer's part is its class name."""
        path = name.split(".")
        if "mixer" in path and not path[-2].endswith("norm"):
            return type(self.encoder.blocks[0].mixer).__name__.lower()
        for mark, part in (
            ("mlp", "mlp"), ("head", "head"), ("head_dist", "head"), ("pre_logits", "head"), ("pos_embed", "positions"),
        ):  # fmt: skip
            if mark in path:
                return part
        if any(part.startswith("ls") for part in path):
            return "layer_scale"
        return "norms" if path[0] in ("encoder", "norm_pre", "fc_norm") else "embedding"


def build(config: ViTConfig, *, num_classes: int, image_size: tuple[int, int], channels: int) -> ViT:
    width, patch_size = config.width, extent(config.patch_size)
    if config.stem_widths:
        layers, widths = list(config.stem), list(config.stem_widths)
        if len(layers) != len(widths):
            raise ValueError(f"model.stem={layers} and model.stem_widths={widths}: give one of each per stage")
        resnet = ResNet(channels=channels, num_classes=0, layers=layers, widths=widths)
        stride = 2 ** (len(widths) - 1)
        patch_embed = PatchEmbed(
            image_size, patch_size, widths[-1], width, backbone=nn.Sequential(resnet.stem, resnet.stages), stride=stride
        )
    elif config.stem:
        patch_embed = hybrid_embed(image_size, patch_size, channels, width, tuple(config.stem))
    else:
        patch_embed = PatchEmbed(image_size, patch_size, channels, width, bias=not config.norm_pre)
    class_token = config.pool == "token" if config.class_token is None else config.class_token
    head_width = config.head_width or width // config.heads
    norm, norm_elsewhere = make_norms(config.norm, config.norm_eps)
    spec = MixerSpec(
        width=width,
        heads=config.heads,
        head_width=head_width,
        grid_size=patch_embed.grid_size,
        prefix_tokens=class_token + config.distillation + config.registers,
        dropout=config.dropout,
        norm=norm_elsewhere,
        attention_dropout=config.attention_dropout,
    )
    rotary = None
    if config.positions == "rotary":
        rotary = rotary2d(patch_embed.grid_size, head_width, spec.prefix_tokens)
    encoder = TransformerEncoder(
        width,
        config.depth,
        mixer=partial(mixers.build, config.mixer, spec),
        mlp=partial(feed_forward, width, config.mlp_width or 4 * width, config.dropout, config.mlp),
        norm=norm,
        norm_first=config.norm_first,
        norm_last=config.norm_first and not config.fc_norm,
        drop_path=config.drop_path,
        layer_scale=config.layer_scale,
    )
    mixer = encoder.blocks[0].mixer
    refuse_lacking(
        config.mixer.name,
        mixer,
        attends={f"model.attention_dropout={config.attention_dropout:g}": config.attention_dropout > 0},
        takes_rotary={"model.positions=rotary": rotary is not None},
    )
    return ViT(
        patch_embed,
        encoder,
        width=width,
        num_classes=num_classes,
        positions=config.positions,
        pool=config.pool,
        class_token=class_token,
        distillation=config.distillation,
        registers=config.registers,
        prefix_positions=config.prefix_positions,
        rotary=rotary,
        pre_logits=config.pre_logits,
        norm_pre=norm(width) if config.norm_pre else None,
        fc_norm=norm(width) if config.fc_norm else None,
        dropout=config.dropout,
    )
