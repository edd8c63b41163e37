"""Principal components of the filters that read the pixels (Dosovitskiy et al., 2021, figure 7, left).

Shapes: D filters, C channels, p x q pixels, n components.
"""

import numpy as np
from sklearn.decomposition import PCA
from torch import Tensor, nn

from vitlab.analysis.capture import find_first_convolution, takes_images
from vitlab.config.schema import AnalysisConfig

UNIT = "weight"
NEEDS = "a convolution that reads the pixels"
applies = takes_images


def rgb_filters(weight: Tensor, components: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """The first principal components float32 (n, C, p, q) of filters (D, C, p, q), each of length 1, largest first.

    And the share of the filters' variance that each explains (n,). n is at most the number of filters and of their
    weights. The sign of a component means nothing; it is fixed so that the same filters give the same.
    """
    rows = weight.detach().double().flatten(1).cpu().numpy()
    pca = PCA(min(components, *rows.shape), svd_solver="full").fit(rows)
    return pca.components_.reshape(-1, *weight.shape[1:]).astype(np.float32), pca.explained_variance_ratio_


def run(model: nn.Module, images: Tensor, config: AnalysisConfig) -> dict[str, np.ndarray]:
    """{"filters": float32 (n, C, p, q), "explained": (n,)} with `config.components` the most of them.

    It looks at no image. Raises UserError for a model without a convolution.
    """
    filters, explained = rgb_filters(find_first_convolution(model).weight, config.components)
    return {"filters": filters, "explained": explained}
