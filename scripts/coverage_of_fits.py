"""How often the 90% intervals of fits hold what was planted: the table in docs/rules.md.

    python scripts/coverage_of_fits.py --trials 300

Each trial draws errors with log-normal noise about known laws at K sizes from 250 to 32,000, fits them, and looks
whether the law's parameters, its error at 64,000 and the error of one new run there lie in their intervals, with the
law that was planted and with `auto`, whose intervals are so many times as wide; for a pair of laws with half of the
noise in common, what is claimed of a crossover, and whether the size at which they cross is in the interval. Last,
pairs of laws measured at other sizes each: crossovers, and how many times the data the first needs.
"""

import argparse
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from scipy.optimize import brentq

from vitlab.studies.crossover import crossover, data_multiplier
from vitlab.studies.fit import Fit, fit_scaling_law

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


def scale(law: Law, times: float) -> Law:
    return lambda x: times * law(x)


def draw_law(rng: np.random.Generator) -> Law:
    """M1, M2 or M4, each with other parameters."""
    slope, limit, start = rng.uniform(0.2, 0.6), rng.choice([0, 0.03, 0.06]), rng.uniform(0.1, 0.3)
    if rng.random() < 0.7:
        return lambda x: limit + start * (x / 2_000) ** -slope
    times = rng.uniform(0.3, 3)
    return lambda x: m4(times * x)


def draw_pair(rng: np.random.Generator, kind: str) -> tuple[tuple[Law, Law], float]:
    """Two laws that cross once, and where, from 600 to 20,000; or that are 10 to 50% apart, or equal, everywhere."""
    while True:
        first, second = draw_law(rng), draw_law(rng)
        size = float(np.exp(rng.uniform(np.log(600), np.log(20_000))))
        if kind != "cross":
            times = 1.0 if kind == "equal" else float(np.exp(rng.choice([-1, 1]) * rng.uniform(0.1, 0.4)))
            return (first, scale(first, times)), size
        second = scale(second, float(first(np.array(size)) / second(np.array(size))))
        x = np.geomspace(100, 640_000, 50)
        gaps = np.log(first(x) / second(x))
        if np.abs(np.diff(np.sign(gaps))).sum() == 2 and np.abs(gaps[[0, -1]]).min() > 0.2:
            return (first, second), size


def cover_unequal(kind: str, seeds: int, trials: int) -> str:
    """What is claimed of pairs with other sizes each, and how often the intervals of sure claims hold the truth."""
    claims, hits = [], []
    needs: dict[str, list[bool]] = {"inside the data": [], "at twice the second's": []}
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        laws, size = draw_pair(rng, kind)
        noise = rng.uniform(0.02, 0.1)
        fits = []
        for law in laws:
            x = np.geomspace(250 * rng.uniform(0.5, 2), 32_000 * rng.uniform(0.5, 2), int(rng.integers(5, 9)))
            x = np.repeat(x.round(), seeds)
            fits.append(fit_scaling_law(x, law(x) * np.exp(noise * rng.normal(size=len(x)))))
        found = crossover(*fits)
        claims.append(found.claim)
        if found.claim == "sure":
            hits.append(holds((found.low, found.high or np.inf), size))
        x = np.geomspace(1, 1e7, 5_000)
        for held, asked in zip(needs.values(), ({}, {"size": 2 * fits[1].largest}), strict=True):
            many = data_multiplier(*fits, **asked)
            if many.ratio is not None:
                error = float(laws[1](np.array(asked["size"]))) if asked else many.error
                here, there = (np.exp(np.interp(-error, -law(x), np.log(x))) for law in laws)
                held.append(holds((many.low or 0, many.high or np.inf), here / there))
    shares = ", ".join(f"{claim} {claims.count(claim) / trials:.1%}" for claim in ("sure", "likely", "none"))
    right = f"; right {np.mean(hits):.0%}" if kind == "cross" else ""
    known = "; ".join(f"{label} {np.mean(held):.0%} of {len(held)}" for label, held in needs.items())
    return f"{shares}{right}; multiplier {known}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument(
        "--parts", nargs="+", choices=("laws", "pairs", "unequal"), default=["laws", "pairs", "unequal"]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[2, 3, 5], help="of curves with other sizes each")
    args = parser.parse_args()
    print("| planted | sizes x seeds, noise | share of trials |\n|---|---|---|")
    for part, about, names in (("laws", cover_law, LAWS), ("pairs", cover_pair, PAIRS)):
        for name, design in product(names, DESIGNS) if part in args.parts else ():
            label = name.upper() if about is cover_law else name
            shares = about(name, design, args.trials)
            print(f"| {label} | {design[0]} x {design[1]}, {design[2]} | {shares} |", flush=True)
    for kind, seeds in product(("cross", "apart", "equal"), args.seeds) if "unequal" in args.parts else ():
        shares = cover_unequal(kind, seeds, args.trials)
        print(f"| other sizes, {kind} | 5 to 8 x {seeds}, .02 to .1 | {shares} |", flush=True)


if __name__ == "__main__":
    main()
