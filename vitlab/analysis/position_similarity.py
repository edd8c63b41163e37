"""How alike the position embeddings are (Dosovitskiy et al., 2021, figure 7, centre).

Shapes: P patches on a grid of gy x gx, D width.
"""

import numpy as np
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.analysis.capture.attention import patches
from vitlab.config import UserError

UNIT = "cosine similarity"
NEEDS = "position embeddings that are added to a grid of patches"


def position_similarity(positions: Tensor) -> Tensor:
    """Cosine similarity (P, P) of position embeddings (P, D), each with every other."""
    positions = F.normalize(positions.detach().float(), dim=-1)
    return positions @ positions.T


def patch_positions(model: nn.Module) -> Tensor:
    """The position embeddings (P, D) of a model's patches, row by row, learned or fixed.

    Raises UserError for a model that adds none, such as one with rotary positions.
    """
    rows, columns = patches(model).grid_size
    table = getattr(model, "pos_embed", None)
    if not isinstance(table, Tensor) or table.ndim != 3 or table.shape[1] < rows * columns:
        raise UserError(f"{type(model).__name__} adds no position embedding to its patches")
    return table[0, -rows * columns :]  # those of the tokens before the patches stand first


def applies(model: nn.Module) -> bool:
    """Whether the model adds position embeddings to a grid of patches."""
    try:
        return bool(len(patch_positions(model)))
    except UserError:
        return False


def run(model: nn.Module, images: Tensor, config: DictConfig) -> dict[str, np.ndarray]:
    """{"similarity": float32 (gy, gx, gy, gx)}: at [r, c] the picture of the patch in row r, column c.

    It looks at no image. Raises UserError as `patch_positions` does.
    """
    grid_size = patches(model).grid_size
    return {"similarity": position_similarity(patch_positions(model)).reshape(*grid_size, *grid_size).cpu().numpy()}
