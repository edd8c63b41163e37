"""A linear probe: multinomial logistic regression on frozen, standardised features, by L-BFGS."""

import warnings

import numpy as np
from omegaconf import DictConfig
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from vitlab.data.subset import subset
from vitlab.models.features import Features, Progress

HELD_OUT = 0.2  # of the training images, to choose the regularisation on


def run(
    train: Features, test: Features, config: DictConfig, progress: Progress | None = None
) -> dict[str, float | None]:
    """`linear_probe`: test accuracy, fitted to all training images with the best of `config.strengths`.

    That is the inverse of the regularisation (scikit-learn's C) with the highest accuracy on the part of the
    training images that was held out meanwhile, of several the smallest. None with fewer than two classes. It
    draws no random number.
    """
    x, labels = train.x.numpy(), train.labels.numpy()
    if len(np.unique(labels)) < 2:
        return {"linear_probe": None}
    strengths = sorted(config.strengths)
    chosen = strengths[len(strengths) // 2]
    fitted = np.zeros(len(labels), dtype=bool)
    fitted[subset(labels, max(len(np.unique(labels)), round((1 - HELD_OUT) * len(labels))), seed=0)] = True
    if len(strengths) > 1 and not fitted.all():
        scores = []
        for done, strength in enumerate(strengths):
            scores.append(score(x[fitted], labels[fitted], x[~fitted], labels[~fitted], strength, config.steps))
            if progress:
                progress("linear probe", done + 1, len(strengths) + 1)
        chosen = strengths[int(np.argmax(scores))]
    found = score(x, labels, test.x.numpy(), test.labels.numpy(), chosen, config.steps)
    if progress:
        progress("linear probe", len(strengths) + 1, len(strengths) + 1)
    return {"linear_probe": found}


def score(
    x: np.ndarray, labels: np.ndarray, x_test: np.ndarray, labels_test: np.ndarray, strength: float, steps: int
) -> float:
    """Accuracy on the second pair of a regression fitted to the first."""
    mean, std = x.mean(axis=0), x.std(axis=0)
    std[std == 0] = 1
    model = LogisticRegression(C=strength, max_iter=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `steps` is a limit that the YAML states
        model.fit((x - mean) / std, labels)
    return float(model.score((x_test - mean) / std, labels_test))
