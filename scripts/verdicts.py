"""How often the sentences of a study are right, on simulated ones: tables of docs/rules.md, "How often this is right".

    python scripts/verdicts.py leads best equal crossovers compute [--trials 2000]

Each trial draws new test items and seeds: item i is right in a run with `skill + seed + item + rest > 0`, all but the
skill normal. Truth is the error over all items and seeds.
"""

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from vitlab.reports.words import compare_sizes, find_leads
from vitlab.studies.results import Results
from vitlab.studies.stats import compare_costs

SEED_SPREAD, REST = 0.05, 0.5  # standard deviations, of items 1; an error of 10% then varies by 0.8 points over seeds


def true_error(skill):
    return ndtr(-skill / math.sqrt(1 + SEED_SPREAD**2 + REST**2))


def simulate(skills, sizes, seeds, items, rng):
    """A study of models (name -> skill at a size) whose runs kept their test items."""
    rows, outcomes = [], {}
    ease = rng.standard_normal(items)
    for size, seed in product(sizes, range(seeds)):
        for name, skill in skills.items():
            noise = SEED_SPREAD * rng.standard_normal() + REST * rng.standard_normal(items)
            right = (skill(size) + ease + noise > 0).astype(np.float32)
            run = f"{name}-n{size}-s{seed}"
            outcomes[run] = right
            row = {"run": run, "model": name, "family": name, "train_size": size, "seed": seed, "test_items": items}
            rows.append({**row, "accuracy": float(right.mean()), "error": float(1 - right.mean())})
    return Results(rows, outcomes=outcomes)


def curve(gain, start=0.4):
    """A skill that grows by `gain` with each doubling."""
    return lambda size: start + gain * math.log2(size / 1000)


def lead(sizes, seeds, rng):
    """Whether two equal models have a leader somewhere in the headline."""
    results = simulate({"a": curve(0.2), "b": curve(0.2)}, [1000 * 2**k for k in range(sizes)], seeds, 2000, rng)
    contenders = {model: dict.fromkeys(of, model) for model, of in results.by_model.items()}
    return bool(find_leads(list(compare_sizes(results, contenders).values())))


def best(models, seeds, rng):
    """Whether one of several equal models is named the best at one size."""
    results = simulate(dict.fromkeys("abcdefgh"[:models], curve(0.2)), [1000], seeds, 2000, rng)
    (one,) = compare_sizes(results, {model: {1000: model} for model in results.by_model}).values()
    return one.verdict == "lead"


def equal_crossover(sizes, seeds, rng):
    """Whether a crossover of two equal models is claimed as sure."""
    results = simulate({"a": curve(0.2), "b": curve(0.2)}, [1000 * 2**k for k in range(sizes)], seeds, 2000, rng)
    return results.fits.between[1].claim == "sure"


def crossover(items, seeds, rng):
    """Whether the interval of a sure crossover inside the data holds the true one; None where none is sure."""
    skills = {"a": curve(0.15, 0.6), "b": curve(0.35, 0.2)}
    results = simulate(skills, [1000 * 2**k for k in range(5)], seeds, items, rng)
    found = results.fits.between[1]
    truth = brentq(lambda size: skills["a"](size) - skills["b"](size), 100, 1e6)
    return found.low <= truth <= (found.high or math.inf) if found.claim == "sure" else None


def compute(spread, seeds, rng):
    """Whether the interval of a compute ratio holds the planted one."""

    def family(times):
        accuracy = {cost: 0.5 + 0.13 * math.log2(cost) - 0.012 * math.log2(cost) ** 2 for cost in (1, 2, 4, 8)}
        return [(cost * times, list(mean + spread * rng.standard_normal(seeds))) for cost, mean in accuracy.items()]

    found = compare_costs(family(1), family(2))
    return found and found[2] <= 0.5 <= found[3]


QUESTIONS = {
    "leads": (lead, "sizes, seeds", [(2, 2), (2, 5), (4, 3), (8, 2), (8, 3), (8, 5)]),
    "best": (best, "models, seeds", [(2, 3), (4, 2), (4, 3), (4, 5), (8, 3)]),
    "equal": (equal_crossover, "sizes, seeds", [(3, 3), (4, 3), (8, 2), (8, 5)]),
    "crossovers": (crossover, "test items, seeds", [(300, 3), (2000, 3), (2000, 5)]),
    "compute": (compute, "spread over seeds, seeds", [(0.003, 3), (0.003, 5), (0.01, 3), (0.01, 5)]),
}


def ask(name, case, trials, start):
    question = QUESTIONS[name][0]
    return [question(*case, np.random.default_rng([trial, *map(hash, case)])) for trial in range(start, trials, 2)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+", choices=QUESTIONS)
    parser.add_argument("--trials", type=int, default=2000)
    args = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        for name in args.questions:
            what, of, cases = QUESTIONS[name]
            print(f"\n{what.__doc__}\n\n| {of} | yes | of |\n|---|---:|---:|")
            for case in cases:
                halves = [pool.submit(ask, name, case, args.trials, start) for start in (0, 1)]
                answers = [answer for half in halves for answer in half.result() if answer is not None]
                share = sum(answers) / max(len(answers), 1)
                print(f"| {', '.join(map(str, case))} | {share:.1%} | {len(answers)} |", flush=True)


if __name__ == "__main__":
    main()
