"""How similar and how far apart position embeddings are (Dosovitskiy et al., 2021, figure 7, centre).

Shapes: N positions, P patches on a grid of gy x gx, D width.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.analysis.capture import find_patches
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import as_model

UNIT = "cosine similarity"
NEEDS = "position embeddings that are added to a grid of patches"


def position_similarities(table: Tensor) -> Tensor:
    """Cosine similarities between position embeddings (N, D): float64 (N, N) in -1..1, 0 for a row of zeros."""
    rows = F.normalize(table.detach().double(), dim=1)
    return (rows @ rows.T).clamp(-1, 1)


def position_distances(table: Tensor) -> Tensor:
    """Euclidean distances between position embeddings (N, D): float64 (N, N)."""
    rows = table.detach().double()
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def patch_positions(model: nn.Module) -> Tensor:
    """The position embeddings (P, D) of a model's patches, row by row, learned or fixed.

    Raises UserError for a model that adds none, such as one with rotary positions.
    """
    rows, columns = find_patches(model).grid_size
    table = as_model(model).position_table
    if table is None or table.ndim != 3 or table.shape[1] < rows * columns:
        raise UserError(f"{type(model).__name__} does not add position embeddings to its patches")
    return table[0, -rows * columns :]  # those of the prefix tokens come first


def applies(model: nn.Module) -> bool:
    """Whether the model adds position embeddings to a grid of patches."""
    try:
        return bool(len(patch_positions(model)))
    except UserError:
        return False


def run(model: nn.Module, images: Tensor, config: AnalysisConfig) -> dict[str, np.ndarray]:
    """{"similarity": float32 (gy, gx, gy, gx)}: [r, c] is the picture of the patch in row r, column c.

    Does not use the images. Raises UserError as `patch_positions` does.
    """
    grid_size = find_patches(model).grid_size
    similarity = position_similarities(patch_positions(model)).float()
    return {"similarity": similarity.reshape(*grid_size, *grid_size).cpu().numpy()}
