"""What measured errors scatter by from run to run, and draws of it.

Draws of two models whose runs have the same sizes and seeds are the same ones, for these runs share subsets and test
images: what moved both errors moves both in a draw.
"""

import zlib
from dataclasses import dataclass

import numpy as np

from vitlab.studies.stats import moderated_spreads

DRAWS = 600


@dataclass(frozen=True)
class Runs:
    """log errors of a model's runs, by size and then by seed, in one order for all models of a study."""

    log_sizes: np.ndarray  # (N), ascending
    counts: np.ndarray  # (N) runs of each size
    log_errors: np.ndarray  # (runs)
    keys: tuple[tuple[float, int], ...]  # size and seed of each run

    @property
    def place(self) -> np.ndarray:
        """The index of each run's size."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def means(self) -> np.ndarray:
        return np.bincount(self.place, self.log_errors) / self.counts

    @property
    def mean_errors(self) -> np.ndarray:
        return np.bincount(self.place, np.exp(self.log_errors)) / self.counts

    def generator(self, purpose: int) -> np.random.Generator:
        """Random numbers that are the same for all models with runs of these sizes and seeds."""
        return np.random.default_rng([zlib.crc32(repr(self.keys).encode()), purpose])

    def own_generator(self) -> np.random.Generator:
        """Random numbers that no other model has, whatever its sizes and seeds."""
        return np.random.default_rng([zlib.crc32(repr(self.keys).encode()), zlib.crc32(self.log_errors.tobytes())])

    @property
    def repeated(self) -> bool:
        """Whether the scatter between seeds tells the noise: else only the distance from a fitted law can."""
        return int((self.counts - 1).sum()) >= max(2, len(self.counts) // 2)


@dataclass(frozen=True)
class Noise:
    """Of log errors: standard deviation by size (N), standardised residuals (runs), degrees of freedom."""

    runs: Runs
    deviations: np.ndarray
    residuals: np.ndarray
    freedom: float

    def draw_means(self) -> np.ndarray:
        """What the mean log error of each size is off by, (DRAWS, N).

        Residuals are resampled with replacement, as many as a size has runs. Each draw is scaled by the root of
        freedom / chi-squared, so that draws scatter as Student's t: the deviation was itself estimated.
        """
        generator = self.runs.generator(0)
        chosen = self.residuals[generator.integers(len(self.residuals), size=(DRAWS // 2, len(self.residuals)))]
        chosen = np.concatenate([chosen, -chosen])  # no draw without its mirror image: fewer draws do
        sums = np.add.reduceat(chosen, np.concatenate([[0], np.cumsum(self.runs.counts)[:-1]]), axis=1)
        return np.tile(self.inflate(generator, DRAWS // 2), 2)[:, None] * self.deviations * sums / self.runs.counts

    def draw_run(self, places: np.ndarray) -> np.ndarray:
        """What one new run is off by, at each place (the index of the size whose noise it has), (DRAWS, places)."""
        generator = self.runs.generator(1)
        chosen = self.residuals[generator.integers(len(self.residuals), size=(DRAWS, len(places)))]
        return self.inflate(generator, DRAWS)[:, None] * self.deviations[places] * chosen

    def inflate(self, generator: np.random.Generator, number: int) -> np.ndarray:
        return np.sqrt(self.freedom / generator.chisquare(self.freedom, number))


def noise_between_seeds(runs: Runs) -> Noise:
    """By the scatter of seeds within sizes, n / (n - 1) times their mean square, pooled as far as sizes agree.

    The standardised residuals of all sizes are resampled together: three seeds show too little of their distribution.
    """
    sizes = np.exp(runs.log_sizes)
    spreads = moderated_spreads(dict(zip(sizes, np.split(runs.log_errors, np.cumsum(runs.counts)[:-1]), strict=True)))
    deviations = np.array([spreads[size].std if spreads else 0.0 for size in sizes])
    freedom = min((spread.degrees for spread in spreads.values()), default=1.0)
    several = (runs.counts > 1)[runs.place]
    residuals = runs.log_errors - runs.means[runs.place]
    residuals = np.divide(residuals, deviations[runs.place], out=np.zeros_like(residuals), where=spreads != {})
    scaled = residuals * np.sqrt(runs.counts / np.maximum(runs.counts - 1, 1))[runs.place]
    return Noise(runs, deviations, unit(np.resize(scaled[several], len(scaled))), freedom)


def noise_about_law(runs: Runs, predicted: np.ndarray, parameters: int) -> Noise:
    """By the distance from a fitted law's log errors (N), where there are too few seeds to tell."""
    residuals = runs.log_errors - predicted[runs.place]
    freedom = max(1, len(residuals) - parameters)
    deviation = np.sqrt((residuals**2).sum() / freedom)
    return Noise(runs, np.full(len(runs.counts), deviation), unit(residuals), float(freedom))


def unknown_noise(runs: Runs) -> Noise:
    """Where neither seeds nor a law tell: all draws are NaN, and nothing is clear."""
    return Noise(runs, np.full(len(runs.counts), np.nan), np.zeros(len(runs.log_errors)), 1.0)


def unit(residuals: np.ndarray) -> np.ndarray:
    """The residuals with mean 0 and mean square 1; zeros stay zeros."""
    centred = residuals - residuals.mean()
    size = np.sqrt((centred**2).mean())
    return centred / size if size > 1e-12 else centred * 0
