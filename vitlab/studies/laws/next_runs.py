"""Which further runs would narrow the interval of a crossover most for what they cost."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vitlab.studies.laws.crossover import Crossover
from vitlab.studies.laws.fit import Fit


@dataclass(frozen=True)
class NextRun:
    """One more seed of a model (0 the first, 1 the second) at a size.

    `gain` is the share of the variance of the crossover's log size that it takes away.
    """

    model: int
    size: int
    gain: float
    cost: float


def rank_next_runs(
    first: Fit, second: Fit, found: Crossover, costs: Mapping[tuple[int, float], float], most: int = 3
) -> list[NextRun]:
    """The `most` runs with the largest gain for their cost, by the delta method.

    How the crossover moves with the mean error of each model and size is the regression of its draws on the noise in
    them; with one more run, a variance of a mean of n runs becomes n / (n + 1) of itself. `costs` are of one run by
    (model, size), in any unit. Gives none for a crossover whose interval is not finite.
    """
    if found.high is None or found.places is None:
        return []
    crosses = np.isfinite(found.places)
    noise = np.concatenate([fit.noise_of_means for fit in (first, second)], axis=1)[crosses]
    places = found.places[crosses] - found.places[crosses].mean()
    slopes = np.linalg.lstsq(noise - noise.mean(0), places, rcond=None)[0]
    cells = [
        (model, round(float(size)), float(deviation) ** 2 / n, int(n))
        for model, fit in enumerate((first, second))
        for size, deviation, n in zip(np.exp(fit.runs.log_sizes), fit.noise.deviations, fit.runs.counts, strict=True)
    ]
    parts = np.array([slope**2 * variance for slope, (_, _, variance, _) in zip(slopes, cells, strict=True)])
    # what the seeds' noise does not explain, as the choice of a law, no further run takes away
    total = max(float(parts.sum()), float(places.var()), 1e-300)
    runs = [
        NextRun(model, size, float(part) / total / (n + 1), cost)
        for part, (model, size, _, n) in zip(parts, cells, strict=True)
        if (cost := costs.get((model, size), 0)) > 0
    ]
    return sorted(runs, key=lambda run: run.gain / run.cost, reverse=True)[:most]
