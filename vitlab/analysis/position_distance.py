"""How far apart a model's position embeddings are. Shapes: N positions, D width."""

import torch
import torch.nn.functional as F
from torch import Tensor


def position_distances(table: Tensor) -> Tensor:
    """Euclidean distances between the rows of a table (N, D): float64 (N, N). Raises ValueError for another shape."""
    rows = checked(table)
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def position_similarities(table: Tensor) -> Tensor:
    """Cosine similarities between the rows of a table (N, D): float64 (N, N) in -1..1, 0 for a row of zeros.

    Dosovitskiy et al., 2021, figure 7, draw these of a ViT. Raises ValueError for another shape.
    """
    rows = F.normalize(checked(table), dim=1)
    return (rows @ rows.T).clamp(-1, 1)


def checked(table: Tensor) -> Tensor:
    if table.ndim != 2 or not table.numel():
        raise ValueError(f"a table of positions is (N, D), not {tuple(table.shape)}")
    return table.detach().double()
