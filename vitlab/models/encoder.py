"""The transformer encoder on which every transformer of this project is built.

It does not know the meaning of its tokens. Parts are given to the constructor, masks and context to `forward`.

Shapes: B batch, N tokens, M context tokens, D model width.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from vitlab.models.layers import DropPath, GatedMlp, LayerScale, Mlp, QuickGELU

LayerNorm = partial(nn.LayerNorm, eps=1e-6)
ACTIVATIONS = {
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "quick_gelu": QuickGELU,
    "relu": nn.ReLU,
}
GATED = {"swiglu": nn.SiLU, "geglu": ACTIVATIONS["gelu"], "geglu_tanh": ACTIVATIONS["gelu_tanh"]}


class TokenBatchNorm(nn.BatchNorm1d):
    """BatchNorm (Ioffe and Szegedy, 2015) of each feature over all tokens of all sequences, less padding.

    Training normalises with the batch's own statistics, so a token's output depends on all other tokens of the batch;
    evaluation uses running means.
    """

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Normalise x (..., D); valid bool (...) is False at padding, which training leaves out and sets to 0."""
        if valid is None or not self.training:
            return super().forward(x.flatten(0, -2)).view_as(x)
        normalised = super().forward(x[valid])
        return normalised.new_zeros(x.shape).masked_scatter(valid[..., None], normalised)


NORMS = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm, "batchnorm": TokenBatchNorm}


class Block(nn.Module):
    """A mixer, optional cross-attention and an MLP, each with a residual connection.

    `norm_first` normalises the input of each part (pre-norm), else the sum after it (post-norm, as in Vaswani et al.,
    2017). `layer_scale` is the first value of the learned factors of each part's output (LayerScale, Touvron et al.,
    2021); None: no such factors.
    """

    def __init__(
        self,
        width: int,
        mixer: nn.Module,
        mlp: nn.Module,
        *,
        cross: nn.Module | None = None,
        norm: Callable[[int], nn.Module] = LayerNorm,
        norm_first: bool = True,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
    ):
        super().__init__()

        def scale() -> nn.Module:
            return nn.Identity() if layer_scale is None else LayerScale(width, layer_scale)

        self.norm_first = norm_first
        self.norm1 = norm(width)
        self.mixer = mixer
        self.ls1 = scale()
        self.norm_cross = norm(width) if cross is not None else None
        self.cross = cross
        self.ls_cross = scale() if cross is not None else None
        self.norm2 = norm(width)
        self.mlp = mlp
        self.ls2 = scale()
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        valid: Tensor | None = None,
        cache: Any = None,
        **mixing: Any,
    ) -> Tensor:
        """Run the parts. `cache` is for both attentions, `mixing` for the mixer: `mask`, `causal`, `rotary`."""
        cached = {} if cache is None else {"cache": cache}  # a mixer without attention takes none

        def residual(x: Tensor, norm: nn.Module, scale: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
            if self.norm_first:
                return x + self.drop_path(scale(part(normalise(norm, x, valid))))
            return normalise(norm, x + self.drop_path(scale(part(x))), valid)

        x = residual(x, self.norm1, self.ls1, lambda y: self.mixer(y, **mixing, **cached))
        if self.cross is not None:
            given = {"mask": context_mask, "context": context, **cached}
            x = residual(x, self.norm_cross, self.ls_cross, lambda y: self.cross(y, **given))
        return residual(x, self.norm2, self.ls2, self.mlp)


class TransformerEncoder(nn.Module):
    """`depth` blocks and a last norm: tokens (B, N, D) -> (B, N, D).

    `mixer`, `mlp` and `cross` are called once per layer and return that layer's module. `drop_path` is the rate of the
    last block; it grows linearly from 0 (Huang et al., 2016). `norm_last` adds a norm after the last block, which
    pre-norm needs. `Block` takes the other arguments.
    """

    def __init__(
        self,
        width: int,
        depth: int,
        *,
        mixer: Callable[[], nn.Module],
        mlp: Callable[[], nn.Module],
        cross: Callable[[], nn.Module] | None = None,
        norm: Callable[[int], nn.Module] = LayerNorm,
        norm_first: bool = True,
        norm_last: bool = True,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
    ):
        super().__init__()
        rates = [drop_path * layer / max(depth - 1, 1) for layer in range(depth)]
        self.blocks = nn.ModuleList(
            Block(
                width,
                mixer(),
                mlp(),
                cross=cross() if cross else None,
                norm=norm,
                norm_first=norm_first,
                drop_path=rate,
                layer_scale=layer_scale,
            )
            for rate in rates
        )
        self.norm = norm(width) if norm_last else nn.Identity()

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        rotary: Tensor | None = None,
        caches: Sequence[Any] | None = None,
        valid: Tensor | None = None,
    ) -> Tensor:
        """Run all blocks: x (B, N, D), context (B, M, D) -> (B, N, D).

        mask is broadcastable to (B, heads, N, N): bool, True where a query may attend, or added to the scores, then
        without `causal`, which hides later tokens. context_mask likewise, (B, heads, N, M). `rotary` (2, N, head
        width) are rotary positions. `caches`, one per block, hold the keys and values of the tokens before x and of
        the context. A mixer without such an argument raises TypeError. `valid` bool (B, N) is False at padding, which
        norms over tokens leave out.
        """
        mixing = {"mask": mask, "causal": causal or None, "rotary": rotary}
        mixing = {name: value for name, value in mixing.items() if value is not None}
        for layer, block in enumerate(self.blocks):
            cache = None if caches is None else caches[layer]
            x = block(x, context=context, context_mask=context_mask, valid=valid, cache=cache, **mixing)
        return normalise(self.norm, x, valid)


def make_norms(name: str, eps: float) -> tuple[Callable[[int], nn.Module], Callable[[int], nn.Module]]:
    """Make the norm of the encoder's tokens, and the norm of other vectors: queries and keys, and in heads.

    Both are the same, except that BatchNorm is for tokens alone: its statistics would mix tokens with the other
    vectors, which get LayerNorm.
    """
    elsewhere = "layernorm" if name == "batchnorm" else name
    return partial(NORMS[name], eps=eps), partial(NORMS[elsewhere], eps=eps)


def normalise(norm: nn.Module, x: Tensor, valid: Tensor | None) -> Tensor:
    """Apply a norm to x (B, N, D); a norm over tokens leaves out those that are not `valid` (B, N)."""
    return norm(x, valid) if isinstance(norm, TokenBatchNorm) else norm(x)


def feed_forward(
    width: int, hidden: int, dropout: float = 0.0, kind: str = "gelu", bias: bool = True, drop_hidden: bool = True
) -> nn.Module:
    """Build a block's MLP: width -> hidden -> width, dropout after both layers or (not `drop_hidden`) after the last.

    `kind` is a key of ACTIVATIONS, or of GATED (Shazeer, 2020), which have a gate as a third layer.
    """
    options = {"bias": bias, "dropout": dropout, "drop_hidden": drop_hidden}
    if kind in GATED:
        return GatedMlp(width, hidden, act=GATED[kind], **options)
    return Mlp(width, hidden, act=ACTIVATIONS[kind], **options)
