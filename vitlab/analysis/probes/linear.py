"""A linear probe: multinomial logistic regression on frozen, standardised features, by L-BFGS."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from vitlab.analysis.probes.features import Features, Progress
from vitlab.config.schema.fields import Choice
from vitlab.data.split import subset

HELD_OUT = 0.2  # of the training images, to choose the regularisation on


def run(train: Features, test: Features, config: Choice, progress: Progress | None = None) -> dict[str, float | None]:
    """`linear_probe`: test accuracy, fitted to all training images with the best of `config.strengths`.

    That is the inverse of the regularisation (scikit-learn's C) with the highest accuracy, of equal ones the lowest
    loss, on the part of the training images that was held out. None with fewer than two classes. It draws
    no random number.
    """
    x, labels = train.x.numpy(), train.labels.numpy()
    classes = np.unique(labels)
    if len(classes) < 2:
        return {"linear_probe": None}
    chosen = config.strengths[len(config.strengths) // 2]
    fitted = np.zeros(len(labels), dtype=bool)
    fitted[subset(labels, max(len(classes), round((1 - HELD_OUT) * len(labels))), seed=0)] = True
    if not fitted.all():
        scores = []
        for done, strength in enumerate(config.strengths):
            model = fit(x[fitted], labels[fitted], strength, config.steps)
            loss = log_loss(labels[~fitted], model.predict_proba(x[~fitted]), labels=classes)
            scores.append((model.score(x[~fitted], labels[~fitted]), -loss))
            if progress:
                progress("linear probe", done + 1, len(config.strengths) + 1)
        chosen = config.strengths[scores.index(max(scores))]
    accuracy = fit(x, labels, chosen, config.steps).score(test.x.numpy(), test.labels.numpy())
    if progress:
        progress("linear probe", len(config.strengths) + 1, len(config.strengths) + 1)
    return {"linear_probe": float(accuracy)}


def fit(x: np.ndarray, labels: np.ndarray, strength: float, steps: int) -> Pipeline:
    """Standardisation and regression, both of these features (N, D)."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=steps))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `steps` is a limit that the YAML states
        return model.fit(x, labels)
