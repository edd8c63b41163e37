"""The transformer encoder: the one that every model of this project is built on.

It knows nothing of what its tokens are. Parts are given to the constructor, masks and context to `forward`.

Shapes: B batch, N tokens, M context tokens, D model width.
"""

from collections.abc import Callable
from functools import partial

from timm.layers import DropPath, Mlp
from torch import Tensor, nn

LayerNorm = partial(nn.LayerNorm, eps=1e-6)


class Block(nn.Module):
    """A mixer, then cross-attention where the layer has it, then an MLP, each on a residual path.

    `norm_first` normalises the input of each part (pre-norm); otherwise the sum after it (post-norm, as in Vaswani et
    al., 2017).
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
    ):
        super().__init__()
        self.norm_first = norm_first
        self.norm1 = norm(width)
        self.mixer = mixer
        self.norm_cross = norm(width) if cross is not None else None
        self.cross = cross
        self.norm2 = norm(width)
        self.mlp = mlp
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def residual(self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + self.drop_path(part(norm(x)))
        return norm(x + self.drop_path(part(x)))

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        x = self.residual(x, self.norm1, lambda y: self.mixer(y, mask=mask, causal=causal))
        if self.cross is not None:
            x = self.residual(x, self.norm_cross, lambda y: self.cross(y, mask=context_mask, context=context))
        return self.residual(x, self.norm2, self.mlp)


class TransformerEncoder(nn.Module):
    """`depth` blocks and a last norm.

    `mixer`, `mlp` and `cross` are called once per layer and give that layer's part. `drop_path` is the rate of the
    last block; it grows linearly from 0 (Huang et al., 2016). `norm_last` is for pre-norm blocks, whose sum no other
    norm closes.
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
    ) -> Tensor:
        """x (B, N, D), context (B, M, D) -> (B, N, D).

        mask is bool, broadcastable to (B, heads, N, N), True where a query may look; context_mask likewise to
        (B, heads, N, M); `causal` hides the tokens that follow.
        """
        for block in self.blocks:
            x = block(x, mask=mask, causal=causal, context=context, context_mask=context_mask)
        return self.norm(x)


def dense(width: int, hidden: int, dropout: float = 0.0) -> Mlp:
    """The MLP of a block: width -> hidden -> width with the exact GELU; dropout after both layers."""
    return Mlp(width, hidden, drop=dropout)
