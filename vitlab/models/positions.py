"""Positions of tokens: fixed embeddings, added to the tokens, rotary ones, that turn queries and keys, and relative
ones, added to the scores of attention.

Shapes: B batch, N patches or tokens, D width, H heads, K head width.
"""

import math

import torch
from torch import Tensor, nn


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
    """A learned number for each head and distance of a key from its query (T5; Raffel et al., 2020, section 2.1).

    Half of the `buckets` are for one distance each, the rest for ranges that grow up to `furthest`, beyond which all
    are the same. Keys before and after the query have half of them each, unless `causal`, which hides later keys.
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
