"""Few-shot linear accuracy, in closed form: as in Dosovitskiy et al., 2021, figure 4, defined by big_vision.

Of each class as many images as there are shots, whitened with their own mean and deviation, a large constant added
for the bias; ridge regression on targets of +-1; the class of the largest output.
"""

import numpy as np
import torch
from torch import Tensor

from vitlab.analysis.probes import accuracy
from vitlab.analysis.probes.features import Features, Progress
from vitlab.config.schema.fields import Choice

BIAS = 100.0  # so large that the bias is hardly regularised
LEAST_STD = 1e-5


def run(train: Features, test: Features, config: Choice, progress: Progress | None = None) -> dict[str, float | None]:
    """`fewshot_<shots>`: test accuracy, the mean over `config.seeds` draws of the training images.

    None where a class of the training set has fewer images than that.
    """
    classes, counts = train.labels.unique(return_counts=True)
    numbers: dict[str, float | None] = dict.fromkeys(f"fewshot_{shots}" for shots in config.shots)
    possible = [shots for shots in config.shots if shots <= counts.min()]
    x_MD = test.x.double()
    for done, shots in enumerate(possible):
        accuracies = []
        for seed in range(config.seeds):
            rows = draw(train.labels, classes, shots, seed)
            weights_DC, bias_C = ridge(train.x[rows].double(), targets(train.labels[rows], classes), config.l2)
            predicted = classes[(x_MD @ weights_DC + bias_C).argmax(dim=1)]
            accuracies.append(accuracy(predicted, test.labels))
        numbers[f"fewshot_{shots}"] = sum(accuracies) / len(accuracies)
        if progress:
            progress("few-shot", done + 1, len(possible))
    return numbers


def draw(labels: Tensor, classes: Tensor, shots: int, seed: int) -> Tensor:
    """Indices of `shots` images of each class, int64 (C * shots,); more shots of a seed contain the fewer."""
    generator = np.random.default_rng(seed)
    members = [generator.permutation((labels == label).nonzero()[:, 0].numpy())[:shots] for label in classes]
    return torch.from_numpy(np.concatenate(members))


def targets(labels: Tensor, classes: Tensor) -> Tensor:
    """float64 (N, C): 1 for an image's class, -1 elsewhere."""
    return (labels[:, None] == classes).double() * 2 - 1


def ridge(x_ND: Tensor, y_NC: Tensor, l2: float) -> tuple[Tensor, Tensor]:
    """Weights (D, C) and bias (C,), for features as they are, of the regression on whitened ones.

    w = (z^T z + l2)^-1 z^T y, or with fewer images than features z^T (z z^T + l2)^-1 y, which is the same.
    """
    mean, std = x_ND.mean(dim=0), x_ND.std(dim=0, correction=0) + LEAST_STD
    z = torch.cat([(x_ND - mean) / std, x_ND.new_full((len(x_ND), 1), BIAS)], dim=1)
    images, width = z.shape
    damping = l2 * torch.eye(min(images, width), dtype=z.dtype)
    if images < width:
        w = z.T @ torch.linalg.solve(z @ z.T + damping, y_NC)
    else:
        w = torch.linalg.solve(z.T @ z + damping, z.T @ y_NC)
    weights = w[:-1] / std[:, None]
    return weights, BIAS * w[-1] - mean @ weights
