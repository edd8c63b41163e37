"""Images as points in the plane, near where the model's features of them are: t-SNE (van der Maaten and Hinton, 2008).

Shapes: B images, D width of what the model's head reads.
"""

import numpy as np
import torch
from sklearn.manifold import TSNE
from torch import Tensor, nn

from vitlab.analysis.capture import CHUNK, Progress, takes_images, track_progress
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import before_head, evaluating

UNIT = ""  # neither the axes nor the distances between clusters mean anything
NEEDS = "images, and features before its head"
LEAST = 5


def embedding(features: np.ndarray, perplexity: float = 30.0, seed: int = 0) -> np.ndarray:
    """Points float32 (B, 2) of features (B, D), from their first two principal components on.

    `perplexity` is about how many neighbours each has; of few images at most a third of the others. Raises UserError
    for fewer than 5 images and for features that are not finite.
    """
    if len(features) < LEAST:
        raise UserError(f"images={len(features)}: t-SNE needs at least {LEAST}")
    if not np.isfinite(features).all():
        raise UserError("the model's features of these images are not finite")
    tsne = TSNE(2, perplexity=min(perplexity, (len(features) - 1) / 3), init="pca", random_state=seed)
    return tsne.fit_transform(features).astype(np.float32)


def applies(model: nn.Module) -> bool:
    """Whether the model takes images and says what its head reads."""
    try:
        return takes_images(model) and callable(before_head(model))
    except UserError:
        return False


@torch.no_grad()
def run(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: Progress | None = None
) -> dict[str, np.ndarray]:
    """{"points": float32 (B, 2)} in the order of the images; `config.perplexity`, `config.seed`.

    Raises UserError as `embedding` does, and for a model that does not say what its head reads.
    """
    features = before_head(model)
    with evaluating(model):
        # t-SNE is a part more
        chunks = track_progress(images.split(CHUNK), progress and (lambda done, parts: progress(done, parts + 1)))
        hidden = torch.cat([features(chunk).flatten(1).float().cpu() for chunk in chunks])
    return {"points": embedding(hidden.numpy(), config.perplexity, config.seed)}
