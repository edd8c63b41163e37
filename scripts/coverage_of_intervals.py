"""Measure how often a 95% interval holds the truth: for differences of two models, and for means pooled over sizes.

    uv run python scripts/coverage_of_intervals.py --trials 500

Outcomes are simulated, since only then is the truth known: an item is right where the sum of the model's level, the
item's ease (the same for both models), what the model makes of that item, what the seed does (half of it the same for
both models, as their subset is) and a rest is above 0, all normal. Prints the tables of docs/rules.md.
"""

import argparse
import math

import numpy as np
from scipy.special import ndtri

from vitlab.studies.results import Results
from vitlab.studies.stats import estimate_mean, moderated_spreads, quantile

EASE, OWN_EASE = 1.5, 0.5  # standard deviations, of a rest of 1
RESAMPLES = 300  # of a bootstrap
SIZES = (1_000, 2_000, 4_000, 8_000)


def simulate_pair(
    rng: np.random.Generator, seeds: int, items: int, accuracy: float, gap: float, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Right (1) or wrong (0) of two models, each (seeds, items); the first is better by `gap`, a share, in truth."""
    total = math.sqrt(1 + EASE**2 + OWN_EASE**2 + spread**2)
    ease = EASE * rng.standard_normal(items)
    shared = rng.standard_normal((seeds, 1))
    found = []
    for level in (ndtri(accuracy + gap), ndtri(accuracy)):
        of_seed = spread * math.sqrt(0.5) * (shared + rng.standard_normal((seeds, 1)))
        of_item = ease + OWN_EASE * rng.standard_normal(items)
        found.append((level * total + of_item + of_seed + rng.standard_normal((seeds, items)) > 0).astype(np.float32))
    return found[0], found[1]


def resample_both(rng: np.random.Generator, table: np.ndarray) -> tuple[float, float]:
    """The percentile interval of the pigeonhole bootstrap (Owen, 2007): seeds and items drawn anew, independently."""
    seeds, items = table.shape
    of_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    of_items = rng.poisson(1, size=(RESAMPLES, items)).astype(np.float32)
    means = (of_seeds * (of_items @ table.T / of_items.sum(axis=1, keepdims=True))).sum(axis=1)
    return tuple(np.quantile(means, [0.025, 0.975]))


def list_intervals(rng: np.random.Generator, table: np.ndarray) -> dict[str, tuple[float, float]]:
    """Each way's interval of the mean of differences (seeds, items)."""
    both, mean = estimate_mean(table), float(table.mean())
    of_items = quantile(table.shape[1] - 1) * table.mean(axis=0).std(ddof=1) / math.sqrt(table.shape[1])
    found = {"vitlab": (both.low, both.high), "items alone": (mean - of_items, mean + of_items)}
    if len(table) > 1:
        of_seeds = estimate_mean(table.mean(axis=1))
        found |= {"seeds alone": (of_seeds.low, of_seeds.high), "bootstrap": resample_both(rng, table)}
    return found


def print_differences(trials: int) -> None:
    print("| accuracy, spread over seeds (points) | items | seeds | coverage, median half-width (points) of each way |")
    print("|---|---|---|---|")
    for accuracy in (0.9, 0.6):
        for spread in (0.0, 0.05, 0.2):
            for items in (500, 2000):
                for seeds in (1, 2, 3, 5):
                    rng = np.random.default_rng(seeds)
                    held: dict[str, list[bool]] = {}
                    widths: dict[str, list[float]] = {}
                    for _ in range(trials):
                        first, second = simulate_pair(rng, seeds, items, accuracy, 0.02, spread)
                        for way, (low, high) in list_intervals(rng, first - second).items():
                            held.setdefault(way, []).append(low <= 0.02 <= high)
                            widths.setdefault(way, []).append(50 * (high - low))
                    cells = (f"{way} {100 * np.mean(held[way]):.0f}% ({np.median(widths[way]):.1f})" for way in held)
                    points = 100 * spread_of_accuracy(accuracy, spread)
                    print(f"| {accuracy:.0%}, {points:.1f} | {items} | {seeds} | {', '.join(cells)} |", flush=True)


def spread_of_accuracy(accuracy: float, spread: float) -> float:
    """The standard deviation over seeds of one model's accuracy on endless items, to first order."""
    level, rest = ndtri(accuracy), math.sqrt(1 + EASE**2 + OWN_EASE**2)
    return spread / rest * math.exp(-(level**2) / 2) / math.sqrt(2 * math.pi)


def print_verdicts(trials: int) -> None:
    """How often two models that are equal, or 2 points apart, are said to differ."""
    print("| true difference, points | seeds | said to differ, 2,000 items, accuracy 90%, spread 0 / 0.6 points |")
    print("|---|---|---|")
    for gap in (0.0, 0.02):
        for seeds in (1, 2, 3, 5):
            rng = np.random.default_rng(seeds)
            shares = []
            for spread in (0.0, 0.05):
                pairs = (simulate_pair(rng, seeds, 2000, 0.9, gap, spread) for _ in range(trials))
                shares.append(np.mean([estimate_mean(first - second).clear for first, second in pairs]))
            print(f"| {100 * gap:.0f} | {seeds} | {' / '.join(f'{share:.0%}' for share in shares)} |", flush=True)


def print_pooling(trials: int) -> None:
    """Means of 4 sizes, by their own spread and the moderated one; true spreads fall by a factor, or follow no line."""
    print("| true spreads | seeds | own: least coverage, half-width | moderated |")
    print("|---|---|---|---|")
    spreads_of = {f"fall by {ratio}": np.geomspace(ratio, 1, 4) for ratio in (1, 3, 10)}
    for name, stds in {**spreads_of, "1.5, 10, 0.5, 0.15": np.array([1.5, 10, 0.5, 0.15])}.items():
        for seeds in (2, 3, 5):
            rng = np.random.default_rng(seeds)
            held, widths = np.zeros((2, 4)), np.zeros((2, 4))
            for _ in range(trials):
                values = dict(zip(SIZES, rng.standard_normal((4, seeds)) * stds[:, None], strict=True))
                spreads = moderated_spreads(values)
                for place, (size, runs) in enumerate(values.items()):
                    for way, spread in enumerate((None, spreads[size])):
                        found = estimate_mean(np.array(runs), spread)
                        held[way, place] += found.low <= 0 <= found.high
                        widths[way, place] += found.half_width / stds[place]
            cells = [f"{100 * held[way].min() / trials:.0f}%, {widths[way].mean() / trials:.2f}" for way in (0, 1)]
            print(f"| {name} | {seeds} | {' | '.join(cells)} |", flush=True)


def print_gaps(trials: int) -> None:
    """Gaps as the tables of a study of 4 sizes show them, 2 points in truth; the last size may have fewer seeds."""
    print("| spread over seeds, points | seeds of both models at the last size | coverage there | half-width |")
    print("|---|---|---|---|")
    for spread in (0.05, 0.2):
        for last in ((1, 1), (2, 2), (3, 3), (5, 5), (3, 2), (3, 1), (5, 3)):
            rng = np.random.default_rng(sum(last))
            held, widths = [], []
            for _ in range(trials):
                rows, outcomes = [], {}
                for size in SIZES:
                    most = max(last) if size == SIZES[-1] or max(last) != 1 else 3
                    tables = simulate_pair(rng, most, 2000, 0.9, 0.02, spread)
                    for model, table, seeds in zip("ab", tables, last, strict=True):
                        for seed, right in enumerate(table[: seeds if size == SIZES[-1] else most]):
                            run = f"{model}{size}{seed}"
                            row = {"run": run, "model": model, "train_size": size, "seed": seed, "test_items": 2000}
                            rows.append({**row, "accuracy": float(right.mean())})
                            outcomes[run] = right
                gap = Results(rows, outcomes=outcomes).gap("a", "b", SIZES[-1])
                sign = 1 if gap.best == "a" else -1
                held.append(gap.estimate.low <= sign * 0.02 <= gap.estimate.high)
                widths.append(100 * gap.estimate.half_width)
            points = 100 * spread_of_accuracy(0.9, spread)
            print(
                f"| {points:.1f} | {last[0]}, {last[1]} | {np.mean(held):.0%} | {np.median(widths):.1f} |", flush=True
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    count = parser.parse_args().trials
    for show in (print_gaps, print_verdicts, print_pooling, print_differences):
        show(count)
        print()
