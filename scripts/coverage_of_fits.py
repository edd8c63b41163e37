"""How often the 90% intervals of fits hold what was planted: the table in docs/rules.md.

    python scripts/coverage_of_fits.py --trials 300

Each trial draws errors with log-normal noise about known laws at K sizes from 250 to 32,000, fits them, and looks
whether the law's parameters, its error at 64,000 and the error of one new run there lie in their intervals, with the
law that was planted and with `auto`, whose intervals are so many times as wide; for a pair of laws with half of the
noise in common, what is claimed of a crossover, and whether the size at which they cross is in the interval.
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import brentq

from vitlab.studies.laws.crossover import crossover
from vitlab.studies.laws.fit import Fit, fit_scaling_law

FAR = 64_000.0
DESIGNS = ((5, 3, 0.05), (8, 3, 0.1), (11, 1, 0.05))  # sizes, seeds, noise of log errors
Law = Callable[[np.ndarray], np.ndarray]


def m4(sizes: np.ndarray) -> np.ndarray:
    """An M4 with the parameters e_inf .03, e_0 .9, a 1.5, b 200, c -.9."""
    sizes = np.asarray(sizes, float)

    def gap(error: float, size: float) -> float:
        return np.log(error - 0.03) - 1.5 * np.log(0.9 - error) - np.log(200) + 0.9 * np.log(size)

    errors = [brentq(gap, 0.03 + 1e-12, 0.9 - 1e-12, args=(size,)) for size in sizes.ravel()]
    return np.reshape(errors, sizes.shape)


LAWS: dict[str, tuple[Law, dict[str, float], float | None]] = {
    "m1": (lambda x: 3 * x**-0.35, {"b": 3, "c": -0.35}, None),
    "m2": (lambda x: 0.05 + 3 * x**-0.5, {"e_inf": 0.05, "b": 3, "c": -0.5}, None),
    "m4": (m4, {}, 0.9),
}


def crossing(size: float) -> tuple[Law, Law]:
    return lambda x: 6 * x**-0.45, lambda x: 6 * size**-0.2 * x**-0.25


PAIRS: dict[str, tuple[tuple[Law, Law], float | None]] = {
    "M1, cross at 6,000": (crossing(6_000), 6_000),
    "M1, cross at 51,200": (crossing(51_200), 51_200),
    "M2, cross at 6,400": ((lambda x: 0.03 + 8 * x**-0.5, lambda x: 0.08 + 4 * x**-0.5), 6_400),
    "M1, 10% apart": ((lambda x: 6 * x**-0.4, lambda x: 6.6 * x**-0.4), None),
    "M1, equal": ((lambda x: 6 * x**-0.4, lambda x: 6 * x**-0.4), None),
}


def measure(law: Law, design: tuple[int, int, float], noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sizes, seeds, deviation = design
    x = np.repeat(np.geomspace(250, 32_000, sizes), seeds)
    return x, law(x) * np.exp(deviation * noise)


def holds(interval: Sequence[float], value: float) -> bool:
    return bool(interval[0] <= value <= interval[1])


def cover_law(name: str, design: tuple[int, int, float], trials: int) -> str:
    """The share of the trials in which each interval holds the truth."""
    law, params, chance = LAWS[name]
    hits: dict[str, list[bool]] = {}
    widths = []
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        data = measure(law, design, rng.normal(size=design[0] * design[1]))
        truth = float(law(np.array(FAR)))
        run = truth * np.exp(design[2] * rng.normal())
        fits = {fitted: fit_scaling_law(*data, fitted, chance) for fitted in (name, "auto")}
        intervals = fits[name].param_intervals()
        inside = {key: holds(intervals[key], value) for key, value in params.items()}
        for fitted, fit in fits.items():
            inside[f"{fitted}: curve at 64,000"] = holds(fit.interval(FAR), truth)
            inside[f"{fitted}: new run"] = holds(fit.prediction_interval(FAR), run)
        for key, hit in inside.items():
            hits.setdefault(key, []).append(hit)
        widths.append(np.divide(*(np.diff(np.log(fits[fitted].interval(FAR))) for fitted in ("auto", name))))
    shares = ", ".join(f"{key} {np.mean(values):.0%}" for key, values in hits.items())
    return f"{shares}; width of auto's {np.median(widths):.1f}x"


def cover_pair(name: str, design: tuple[int, int, float], trials: int) -> str:
    """The share of trials with each claim, by the planted law and by `auto`, and how often a claimed size is right."""
    laws, size = PAIRS[name]
    texts = []
    for fitted in (name[:2].lower(), "auto"):
        claims, hits = [], []
        for trial in range(trials):
            rng = np.random.default_rng(trial)
            first, second, shared = rng.normal(size=(3, design[0] * design[1]))
            fits: list[Fit] = [
                fit_scaling_law(*measure(law, design, (own + shared) / np.sqrt(2)), fitted)
                for law, own in zip(laws, (first, second), strict=True)
            ]
            crossing = crossover(*fits)
            claims.append(crossing.claim)
            if crossing.claim == "sure" and size is not None:
                hits.append(holds((crossing.low, crossing.high or np.inf), size))
        shares = ", ".join(f"{claim} {claims.count(claim) / trials:.0%}" for claim in ("sure", "likely", "none"))
        right = f" (right {np.mean(hits):.0%})" if hits else ""
        texts.append(f"{fitted}: {shares}{right}")
    return "; ".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=300)
    trials = parser.parse_args().trials
    print("| planted | sizes x seeds, noise | share of trials |\n|---|---|---|")
    for about, names in ((cover_law, LAWS), (cover_pair, PAIRS)):
        for name in names:
            for design in DESIGNS:
                label = name.upper() if about is cover_law else name
                shares = about(name, design, trials)
                print(f"| {label} | {design[0]} x {design[1]}, {design[2]} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
