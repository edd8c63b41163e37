"""Probabilities that are right as often as they say: one temperature for all logits, fitted on validation data.

Guo et al., "On calibration of modern neural networks" (2017), section 4.2.
"""

import numpy as np

HOTTEST = 100.0  # and 1 / HOTTEST the coldest temperature that is tried


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature T for which softmax(logits / T), logits (N, C), gives the labels (N,) the highest likelihood.

    1 where all answers are right, for no temperature is too low there.
    """
    if (logits.argmax(axis=1) == labels).all():
        return 1.0
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return float(-np.log(np.maximum(soften(logits, np.exp(log_temperature))[rows, labels], 1e-30)).mean())

    rows, reach = np.arange(len(labels)), np.log(HOTTEST)
    return float(np.exp(minimize_scalar(loss, bounds=(-reach, reach), method="bounded").x))


def soften(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Probabilities (N, C)."""
    scaled = logits.astype(np.float64) / temperature
    raised = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)
