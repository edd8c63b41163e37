"""Levenberg and Marquardt's method on many problems at once, within bounds.

scipy.optimize.least_squares solves one problem a call, 1 to 3 ms each here: a fit with its intervals needs thousands.
"""

import numpy as np

from vitlab.studies.laws.forms import Law

STEPS, TOLERANCE = 100, 1e-6  # the latter of the sum of squares, relative
FIRST, KEPT = 10, 3  # steps from all starts; how many go on


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a step too far costs infinity, and is not taken
def minimise(
    law: Law, log_sizes: np.ndarray, log_errors: np.ndarray, weights: np.ndarray, theta: np.ndarray, steps: int = STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """The theta (B, P) that `theta` leads to and its weighted sum of squares (B), of log errors (B, N) or (N).

    `weights` (N) are the number of runs of each size. A parameter on its bound that wants to leave stays there.
    """
    low, high = law.bounds
    best = np.clip(theta, low, high)
    target = np.broadcast_to(log_errors, (len(best), len(log_sizes)))
    square, normal, gradient = linearise(law, log_sizes, target, weights, best)
    costs, damping = square.copy(), np.full(len(best), 1e-2)
    open_ones = np.arange(len(best))  # problems that have not converged; what follows holds these only
    current = best.copy()
    for _ in range(steps):
        held = ((current <= low) & (gradient < 0)) | ((current >= high) & (gradient > 0))
        step = solve(normal, np.where(held, 0.0, gradient), held, damping)
        trial = np.clip(current + step, low, high)
        new_square, new_normal, new_gradient = linearise(law, log_sizes, target[open_ones], weights, trial)
        better = new_square <= square
        gain = (square - new_square) / np.maximum(square, 1e-300)
        done = (better & (gain < TOLERANCE)) | (damping > 1e9) | (square < 1e-24)
        current[better], square[better] = trial[better], new_square[better]
        normal[better], gradient[better] = new_normal[better], new_gradient[better]
        damping = np.where(better, damping * 0.2, damping * 5)
        best[open_ones], costs[open_ones] = current, square
        if done.all():
            break
        if done.any():
            keep = ~done
            open_ones, current, square, damping = open_ones[keep], current[keep], square[keep], damping[keep]
            normal, gradient = normal[keep], gradient[keep]
    return best, costs


def minimise_from_starts(
    law: Law, log_sizes: np.ndarray, log_errors: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, float]:
    """The best theta (P) that a law's starts lead to and its weighted sum of squares; the best few go to the end."""
    theta, costs = minimise(law, log_sizes, log_errors, weights, np.array(list(law.starts())), FIRST)
    theta, costs = minimise(law, log_sizes, log_errors, weights, theta[costs.argsort()[:KEPT]])
    return theta[costs.argmin()], float(costs.min())


def linearise(law: Law, log_sizes, target, weights, theta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sum of squares (B), the normal matrix J'WJ (B, P, P) and J'Wr (B, P)."""
    predicted, by_parameter = law.evaluate(theta, log_sizes)
    residuals = target - predicted
    jacobian = np.stack(by_parameter, axis=1)  # (B, P, N)
    weighted = jacobian * weights
    square = np.nan_to_num((weights * residuals**2).sum(1), nan=np.inf)
    return square, weighted @ jacobian.transpose(0, 2, 1), (weighted @ residuals[:, :, None])[:, :, 0]


def solve(normal: np.ndarray, gradient: np.ndarray, held: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """The damped step of each problem, 0 for a parameter that is held."""
    free = ~held
    matrix = normal * (free[:, :, None] & free[:, None, :])
    diagonal = np.einsum("bpp->bp", matrix)
    diagonal += np.where(held, 1.0, damping[:, None] * np.maximum(diagonal, 1e-12) + 1e-14)
    return np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0]
