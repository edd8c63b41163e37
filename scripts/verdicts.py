"""How often the sentences of a study are right, on simulated ones: tables of docs/rules.md.

    python scripts/verdicts.py several --first 50000 --trials 500
    python scripts/verdicts.py leads equal crossovers compute gaps means rounds until own_sizes multipliers
    python scripts/verdicts.py best_of null_trials rare halves --trials 500    # of docs/tuning.md
    python scripts/verdicts.py halves --trials 200 --study runs/trials    # of a study of 16 recipes that was trained
    python scripts/verdicts.py spent spent_null --trials 500    # of docs/spend.md; --study LCDB.tar.gz: its curves
    python scripts/verdicts.py advised --trials 30 --study runs/advice-photos    # of the pictures of `vitlab advise`

Each trial draws new test items and seeds: item i is right in a run with `skill + seed + item + rest > 0`, all but the
skill normal. Truth is the error over all items and seeds. Of laws it draws errors with normal noise in their logs.
"""

import argparse
import math
import tarfile
import zlib
from bisect import bisect_left
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from joblib import parallel_config
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri

from vitlab.advice import compare as advice
from vitlab.advice.backbones import scale_pixels
from vitlab.data.cache import read_kept
from vitlab.reports.words import LEAD, MOST_SEEDS, compare_sizes, find_leads, prepare_sight
from vitlab.statistics import fit, stats
from vitlab.statistics.crossover import crossover as find_crossover
from vitlab.statistics.crossover import data_multiplier
from vitlab.statistics.fit import fit_points, fit_scaling_law
from vitlab.statistics.stats import compare_costs, estimate_mean, moderated_spreads, quantile
from vitlab.studies import laws
from vitlab.studies.results import Results, load_results
from vitlab.studies.rounds import FIFTH, Question, Target, charge_looks, judge, plan_round, plan_seeds

STUDY = ""  # the folder of --study; worker processes are forked
SEED_SPREAD, REST = 0.05, 0.5  # standard deviations, of items 1; an error of 10% then varies by 0.8 points over seeds


def true_error(skill, spread=SEED_SPREAD):
    return ndtr(-skill / math.sqrt(1 + spread**2 + REST**2))


def simulate(skills, sizes, seeds, items, rng, spread=SEED_SPREAD, last=(), recipes=None):
    """A study of models (name -> skill at a size) that kept its test items; `last` are seeds at the last size.

    `recipes` are by name what each trial's recipe takes from the skill.
    """
    rows, outcomes = [], {}
    ease = rng.standard_normal(items)
    for size, seed in product(sizes, range(seeds)):
        for name, skill in skills.items():
            if size == sizes[-1] and seed >= dict(last).get(name, seeds):
                continue
            shared = spread * rng.standard_normal() if recipes else 0.0  # as of the training subset
            for trial, loss in enumerate(recipes[name] if recipes else [0.0], 1):
                level = skill(size) - loss + shared + spread * rng.standard_normal()
                right = (level + ease + REST * rng.standard_normal(items) > 0).astype(np.float32)
                run = f"{name}-n{size}-s{seed}" + (f"-t{trial}" if recipes else "")
                outcomes[run] = right
                row = {"run": run, "model": name, "family": name, "train_size": size, "seed": seed, "test_items": items}
                row |= {"trial": trial, "validation_accuracy": 1 - true_error(level, 0)} if recipes else {}
                rows.append({**row, "accuracy": float(right.mean()), "error": float(1 - right.mean())})
    return Results(rows, {"tune": {"trials": 0} if recipes else {}}, outcomes=outcomes)


def draw_recipes(count, rng):
    """What recipes take from a skill that is best at one rate and one decay: up to 0.8, 11 points of 80%."""
    return 1.2 * ((rng.random((count, 2)) - [0.6, 0.3]) ** 2).sum(axis=1)


def curve(gain, start=0.4):
    """A skill that grows by `gain` with each doubling."""
    return lambda size: start + gain * math.log2(size / 1000)


def lead(sizes, seeds, rng):
    """Whether two equal models have a leader somewhere in the headline."""
    results = simulate({"a": curve(0.2), "b": curve(0.2)}, [1000 * 2**k for k in range(sizes)], seeds, 2000, rng)
    contenders = {model: dict.fromkeys(of, model) for model, of in results.by_model.items()}
    return bool(find_leads(list(compare_sizes(results, contenders).values())))


def several(models, seeds, kind, rng):
    """Equal models: a leader, any lead; one better by 4 spreads: named, any wrong lead, the interval of its row true.

    kind: by what factor spreads differ, or items (2,000 shared), tails (a run in ten at chance), uneven (2 to 5 seeds),
    sizes (four, spreads fall from 2 to .5), families (two, their best on validation), pairs (seeds correlate by .5),
    digits (two, spread .4).
    """
    names, found, start = [f"m{number}" for number in range(models)], [], int(rng.integers(2**31))
    for better in (0, 4):
        rng, rows, true = np.random.default_rng(start), [], {name: better * (name == names[-1]) for name in names}
        sizes = {1000 * 2**k: 2 * 4 ** (-k / 3) for k in range(4)} if kind == "sizes" else {1000: 1.0}
        sizes = {1000: 0.4} if kind == "digits" else sizes
        spreads = float(kind) ** (rng.random(models) - 0.5) if kind.isdigit() else np.ones(models)
        counts = rng.integers(2, 6, models) if kind == "uneven" else [seeds] * models
        for size, common in sizes.items():
            together = rng.standard_normal(5) * (0.5**0.5 if kind == "pairs" else 0)
            for name, count, spread in zip(names, counts, spreads, strict=True):
                for seed in range(count):
                    luck = together[seed] + rng.standard_normal() * (0.5**0.5 if kind == "pairs" else 1)
                    value = 0.7 + 0.01 * common * (true[name] + spread * luck)
                    value = 0.1 if kind == "tails" and rng.random() < 0.1 else value
                    value = round(value, 2) if kind == "digits" else value
                    family = int(name[1:]) % 2 if kind == "families" else name
                    row = {"run": f"{name}-{size}-{seed}", "model": name, "family": family, "train_size": size}
                    row |= {"validation_accuracy": value + 0.01 * rng.standard_normal()} if kind == "families" else {}
                    rows.append({**row, "seed": seed, "accuracy": value})
        results = Results(rows, outcomes={})
        if kind == "items":  # runs differ by .054 of a skill
            skills = {name: (lambda _, lead=lead: 0.6 + 0.054 * lead) for name, lead in true.items()}
            results = simulate(skills, [1000], seeds, 2000, rng)
        leads = [gap for gap in results.gaps.itertuples() if gap.verdict == "lead"]
        wrong = any(true[gap.best] <= true[gap.other] for gap in leads)
        *_, last = compare_sizes(results, results.contenders).values()
        lead, gap = find_leads([last]).values(), last.gap
        truth = 0.01 * (true[gap.best] - true[gap.other]) * common
        within = gap.estimate.low <= truth <= gap.estimate.high
        found += [bool(lead) if not better else [*lead] == [results.families[names[-1]]], wrong]
    return [*found, within if kind != "items" else math.nan]


def seen(models, seeds, kind, sizes, rng):
    """Is the lead that a study of equal models names called: in the next, with twice the seeds, with twice the items?

    Is the difference that it plans to settle, where looked at once; do equal models have a leader there? kind: items
    (2,000) or none (normal, 1 point apart).
    """
    names, places = [f"m{number}" for number in range(models)], [1000 * 2**k for k in range(sizes)]

    def look(lead, count, items=1):
        if kind == "none":
            rows = []
            for name, size, seed in product(names, places, range(count)):
                value = 0.7 + lead * ((name, size) == (names[-1], places[-1])) + 0.01 * rng.standard_normal()
                row = {"run": f"{name}-{size}-{seed}", "model": name, "family": name, "train_size": size}
                rows.append({**row, "seed": seed, "accuracy": value})
            results = Results(rows, outcomes={})
        else:
            level = -ndtri(true_error(0.6) - lead) * math.sqrt(1 + SEED_SPREAD**2 + REST**2)
            skills = dict.fromkeys(names, lambda _: 0.6)
            skills[names[-1]] = lambda size: level if size == places[-1] else 0.6
            results = simulate(skills, places, count, 2000 * items, rng)
        return results, [*compare_sizes(results, results.contenders).values()]

    def is_called(lead, **more):
        if not 0 < lead < (math.inf if kind == "none" else 0.2):
            return math.nan
        *_, last = look(lead, **{"count": seeds, **more})[1]
        return last.verdict == LEAD and last.best == names[-1]

    results, comparisons = look(0, seeds)
    find, gap, tried = prepare_sight(results, comparisons), comparisons[-1].gap.estimate, range(seeds + 1, MOST_SEEDS)
    found = [is_called(find()) if seeds > 2 else math.nan, is_called(find(seeds=2 * seeds), count=2 * seeds)]
    found += [is_called(find(items=2), items=2) if kind == "items" else math.nan, math.nan, math.nan]
    place = bisect_left(tried, True, key=lambda count: find(seeds=count) <= abs(gap.mean))
    if kind == "none" and comparisons[-1].verdict != LEAD and place < len(tried):
        _, (*_, last) = look(0, tried[place])
        found[3:] = is_called(abs(gap.mean), count=tried[place]), last.verdict == LEAD
    return found


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


def gap(spread, first, second, rng):
    """Whether the 95% interval of a gap at the last of 4 sizes holds the true one; 3 or more seeds at the others."""
    skills, last = {"a": curve(0.2, 0.95), "b": curve(0.2, 0.8)}, {"a": first, "b": second}
    sizes, seeds = [1000, 2000, 4000, 8000], max(3, first, second)
    found = simulate(skills, sizes, seeds, 2000, rng, spread, last).gap("a", "b", 8000)
    truth = true_error(skills["b"](8000), spread) - true_error(skills["a"](8000), spread)
    return found.estimate.low <= (truth if found.best == "a" else -truth) <= found.estimate.high


def mean(ratio, seeds, rng):
    """Whether the 95% interval of a mean at the first of 4 sizes holds the truth; spreads fall by a ratio."""
    values = {size: rng.standard_normal(seeds) * ratio ** (k / -3) for k, size in enumerate((1, 2, 4, 8))}
    found = estimate_mean(values[1], moderated_spreads(values)[1])
    return found.low <= 0 <= found.high


def rounds(points, rng):
    """Measure the share of six means' intervals that hold the truth after the rounds of `--until`, from 3 seeds on."""
    spreads = dict(zip(product("ab", (250, 1000, 4000)), (0.03, 0.011, 0.004, 0.01, 0.0055, 0.003), strict=True))
    added, rows = [(*cell, seed) for cell in spreads for seed in range(3)], []
    while added:
        for model, size, seed in added:
            row = {"model": model, "train_size": size, "seed": seed, "test_items": 2000}
            rows.append({**row, "accuracy": 0.7 + spreads[model, size] * rng.standard_normal()})
        added, _ = plan_round(rows, Target(points))
    found = Results(rows, outcomes={}).by_model
    return np.mean([(of := found[model][size].interval).low <= 0.7 <= of.high for model, size in spreads])


def until(better, sizes, seeds, rng):
    """After the rounds of `--until 1.0`, models 1.8 points apart over seeds: any lead; means, gaps in intervals; runs.

    One model is better by so many points, at each size.
    """
    means = {"a": 0.7 + better / 100, "b": 0.7}
    added, rows = [*product("ab", [1000 * 2**k for k in range(sizes)], range(seeds))], []
    while added:
        for model, size, seed in added:
            value = means[model] + 0.018 * rng.standard_normal()
            rows.append({"model": model, "train_size": size, "seed": seed, "accuracy": value})
        added, _ = plan_round(rows, Target(1.0))
    found = Results(rows, {"until": 1.0}, outcomes={})
    within = [
        abs(cell.mean - means[m]) <= cell.interval.half_width
        for m, of in found.by_model.items()
        for cell in of.values()
    ]
    gaps = [gap.low <= means[gap.best] - means[gap.other] <= gap.high for gap in found.gaps.itertuples()]
    return [(found.gaps.verdict == "lead").any(), np.mean(within), np.mean(gaps), len(rows)]


def draw_laws(rng):
    """Draw two laws that cross once, between 600 and 20,000, the place and a noise."""
    place, steep, flat = np.exp(rng.uniform(np.log(600), np.log(20_000))), rng.uniform(0.4, 0.6), rng.uniform(0.2, 0.3)
    level, noise = 0.2 / (place / 2000) ** -steep, rng.uniform(0.02, 0.1)
    times = 0.2 / (0.2 + (place / 2000) ** -flat)
    laws = lambda x: level * (x / 2000) ** -steep, lambda x: times * (0.2 + (x / 2000) ** -flat)
    return laws, place, noise


def draw_pair(seeds, rng):
    """Two laws that cross once, between 600 and 20,000, and their fits, of 5 to 8 sizes of their own each."""
    (laws, place, noise), fits = draw_laws(rng), []
    for one in laws:
        x = np.geomspace(250 * rng.uniform(0.5, 2), 32_000 * rng.uniform(0.5, 2), rng.integers(5, 9)).round()
        x = np.repeat(x, seeds)
        fits.append(fit_scaling_law(x, one(x) * np.exp(noise * rng.standard_normal(len(x)))))
    return laws, place, fits


def own_sizes(seeds, rng):
    """Whether the interval of a sure crossover of curves with sizes of their own holds the true one."""
    _, place, fits = draw_pair(seeds, rng)
    found = find_crossover(*fits)
    return found.low <= place <= (found.high or math.inf) if found.claim == "sure" else None


def multiplier(seeds, beyond, rng):
    """Whether the 90% interval of a data multiplier holds the truth, inside the data or at twice the second's."""
    laws, _, fits = draw_pair(seeds, rng)
    size = 2 * fits[1].largest
    found = data_multiplier(*fits, **({"size": size} if beyond else {}))
    if found.ratio is None:
        return None
    error = laws[1](size) if beyond else found.error
    first, second = (brentq(lambda x, law=law: law(x) - error, 1e-3, 1e12) for law in laws)
    return (found.low or 0) <= first / second <= (found.high or math.inf)


def draw_fall(width, sizes, seeds, rng):
    """Two curves that cross where one falls within `width` doublings, at any place after the second of `sizes`."""
    sizes, scale, level = 500.0 * 2 ** np.arange(sizes), width / (2 * math.log(9)), 0.3
    while True:
        middle = rng.uniform(math.log2(sizes[1]), math.log2(min(sizes[-1], 8 * sizes[1])))
        drop, flat, steep, share = (rng.uniform(*ends) for ends in ((0.7, 2), (0.03, 0.17), (0.14, 0.35), (0.2, 0.8)))
        first = lambda x, steep=steep, middle=middle: math.log(level) - steep * (np.log2(x) - middle)  # noqa: E731
        second = lambda x, of=(middle, drop, flat, share): (  # noqa: E731
            math.log(level) + of[3] * of[1] - of[2] * (np.log2(x) - of[0]) - of[1] * expit((np.log2(x) - of[0]) / scale)
        )
        path = np.geomspace(sizes[0] / 2, sizes[-1] * 2, 20_000)
        turns = np.flatnonzero(np.diff(first(path) > second(path)))
        if len(turns) == 1:
            break
    noise, x = rng.uniform(0.02, 0.1), np.repeat(sizes, seeds)
    fits = [fit_scaling_law(x, np.exp(one(x) + noise * rng.standard_normal(len(x)))) for one in (first, second)]
    return path[turns[0]], fits


def fall(sizes, width, seeds, rng):
    """Whether the interval of a sure crossover holds the true one where a curve falls within so many doublings."""
    place, fits = draw_fall(width, sizes, seeds, rng)
    found = find_crossover(*fits)
    return found.low <= place <= (found.high or math.inf) if found.claim == "sure" else None


# ---- a time that is spent

GRID = [500 * 2**k for k in range(6)]  # planted; 3 seeds of each size
ANCHORS = 8, 14  # of LCDB, sizes 16 sqrt(2)^k, every other one a grid's


@cache
def read_lcdb():
    """Read LCDB's data sets: test items, and errors (25 splits,) by learner and size; those with many sizes."""
    with tarfile.open(STUDY) as archive:
        database = next(one for one in archive if one.name.endswith("lcdb/database-accuracy.csv"))
        runs = pd.read_csv(archive.extractfile(database)).query("size_test >= @FEWEST_TESTED")
    runs["error"] = np.maximum(1 - runs.score_test, 0.5 / runs.size_test).clip(upper=0.99)
    found = {}
    for (*data, learner), curve in runs.groupby(["openmlid", "size_test", "learner"]):
        by_size = {size: of.to_numpy() for size, of in curve.groupby("size_train").error if len(of) == 25}
        sizes = sorted(by_size)[2 : 2 + ANCHORS[1]]
        if len(sizes) > ANCHORS[0]:
            found.setdefault(tuple(data), {})[learner] = {size: by_size[size] for size in sizes}
    return [(items, curves) for (_, items), curves in found.items() if len(curves) > 1]


class World:
    """Two models, their errors in any run and their true curves; one model under two names if `null`."""

    def __init__(self, null, rng):
        self.start, self.items, self.place = int(rng.integers(2**31)), None, None
        if STUDY:
            self.items, curves = read_lcdb()[rng.integers(len(read_lcdb()))]
            names = rng.choice(sorted(curves), 2, replace=False)
            names = names[[0, 0]] if null else names
            sizes = sorted(set(curves[names[0]]) & set(curves[names[1]]))
            self.sizes, self.grid = sizes, sizes[::2]
            pools = {name: curves[of] for name, of in zip("ab", names, strict=True)}
            # a null's two models draw other splits
            order = (
                rng.permuted(np.tile(np.arange(25), (2, 1)), axis=1) if null else np.tile(rng.permutation(25), (2, 1))
            )
            self.draw = lambda m, n, k: pools[m][n][order["ab".index(m), k % 25]]
            self.truth = lambda m, n: pools[m][n].mean()
        else:
            laws, self.place, noise = draw_laws(rng)
            laws = dict(zip("ab", laws[:1] * 2 if null else laws, strict=True))
            self.grid = GRID
            self.sizes = sorted({*GRID, *(round(math.sqrt(2) * n) for n in GRID[:-1])})
            wave = lambda m, n, k: np.random.default_rng([self.start, ord(m), n, k]).standard_normal()  # noqa: E731
            self.draw = lambda m, n, k: min(laws[m](n) * math.exp(noise * wave(m, n, k)), 0.99)
            self.truth = lambda m, n: laws[m](n) * math.exp(noise**2 / 2)
        lead = np.sign([self.truth("a", n) - self.truth("b", n) for n in self.sizes])
        turns = np.flatnonzero(np.diff(lead))
        self.between = [self.sizes[i : i + 2] for i in turns]  # the true crossovers lie there

    def row(self, model, size, seed):
        error = self.draw(model, size, seed)
        row = {"run": f"{model}-{size}-{seed}", "model": model, "family": model, "train_size": size, "seed": seed}
        return {**row, "accuracy": 1 - error, "error": error, "test_items": self.items}


def spend(world, question, cost, time):
    """Spend a time; return the results, the answer and the time that was spent."""
    cells = {(m, n): cost(n) for n in ([question.size] if question.size else world.grid) for m in "ab"}
    rows, asked, spent, looked = [], set(), 0.0, 0
    while True:
        now = int(spent / time / FIFTH)
        runs = plan_seeds(cells, range(3), asked, (now + 1) * FIFTH * time - spent, time - spent)
        results = Results(rows, outcomes={}, alpha=1 / charge_looks(spent / time if runs else 1.0))
        answer = judge(results, question)
        if not runs or (now > looked and answer.decided):
            return results, answer, spent
        looked = now
        rows += [world.row(*run) for run in runs]
        asked |= {*runs}
        spent += sum(cells[run[:2]] for run in runs)


def find_claim(results, question):
    """Find the interval of a claim: of a crossover's log size, or of the lead of `a` in points; None without one."""
    if question.size is None:
        found = results.fits.between[1] if results.fits.between else None
        return (math.log(found.low), math.log(found.high or math.inf)) if found and found.claim == "sure" else None
    gap = results.gap("a", "b", question.size)
    ends = gap.estimate.low, gap.estimate.high
    return None if gap.verdict != "lead" else ends if gap.best == "a" else (-ends[1], -ends[0])


def make_spending(kind, costs, null, rng):
    world = World(null, rng)
    while STUDY and kind == "crossover" and not null and len(world.between) != 1:
        world = World(null, rng)
    cost = (lambda size: size / 1000) if costs == "by size" else (lambda size: 1.0)
    return world, Question(world.grid[-2] if kind == "leader" else None), cost, 6 * sum(map(cost, world.grid))


def is_true(world, question, low, high):
    """Whether the interval of a claim holds the truth."""
    if question.size:
        return low <= world.truth("b", question.size) - world.truth("a", question.size) <= high
    if world.place:
        return low <= math.log(world.place) <= high
    return any(low <= math.log(b) and high >= math.log(a) for a, b in world.between)


def public(crosses, seeds, rng):
    """Sure crossovers of public curves (--study); their intervals true; 90% intervals of differences at a size true."""
    world = World(False, rng)
    while len(world.between) != crosses:
        world = World(False, rng)
    points = [(n, world.draw(m, n, k), k) for m in "ab" for n in world.sizes for k in range(seeds)]
    fits = [fit_points(*half.T) for half in np.split(np.array(points), 2)]
    found, at = find_crossover(*fits), np.log(world.sizes)
    low, high = fit.ends(fits[0].read_means(at)[1:] - fits[1].read_means(at, role=1)[1:])
    true = np.log([world.truth("a", n) / world.truth("b", n) for n in world.sizes])
    sure = found.claim == "sure"
    held = is_true(world, Question(None), math.log(found.low), math.log(found.high or math.inf)) if sure else math.nan
    return [sure, held, np.mean((low <= true) & (true <= high))]


def spent(kind, costs, rng):
    """Runs and part of a grid's cost at the stop; decided; the claim's interval true."""
    world, question, cost, time = make_spending(kind, costs, False, rng)
    results, answer, taken = spend(world, question, cost, time)
    claim = find_claim(results, question)
    true = is_true(world, question, *claim) if claim else math.nan
    return [len(results.all_rows), taken / time, answer.decided, true]


def spent_null(kind, costs, rng):
    """Whether one model under two names has a sure crossover, or a leader, when the time is spent."""
    world, question, cost, time = make_spending(kind, costs, True, rng)
    return find_claim(spend(world, question, cost, time)[0], question) is not None


@cache
def true_best(trials, best_of):
    """The accuracy of the best of so many recipes, where validation shows each run's skill."""
    rng = np.random.default_rng(0)
    levels = 0.6 - draw_recipes(100_000 * best_of, rng) + SEED_SPREAD * rng.standard_normal(100_000 * best_of)
    best = levels.reshape(-1, best_of).max(axis=1) + SEED_SPREAD * rng.standard_normal(100_000)
    return np.mean(1 - true_error(best, 0))


def expected_best(trials, best_of, lost, rng):
    """Whether the 90% interval of the expected best of k trials holds the truth; some trials are `lost`."""
    results = simulate({"a": curve(0.2, 0.6)}, [1000], 3, 2000, rng, recipes={"a": draw_recipes(trials, rng)})
    for row in [row for row in results.all_rows if rng.random() < lost]:
        row["accuracy"] = None  # it diverged
    found = (
        Results(results.all_rows, results.config, outcomes=results.outcomes).expect_best(best_of).by_model["a"][1000]
    )
    width = quantile(found.interval.degrees, 0.9) * found.interval.error
    return abs(found.mean - true_best(trials, best_of)) <= width


def null_trials(crosses, sizes, seeds, rng):
    """Whether one model under two names, with 8 recipes each, has a leader in the headline, or a sure crossover."""
    skills, recipes = dict.fromkeys("ab", curve(0.2)), {name: draw_recipes(8, rng) for name in "ab"}
    results = simulate(skills, [1000 * 2**k for k in range(sizes)], seeds, 2000, rng, recipes=recipes)
    if crosses:
        return results.fits.between[1].claim == "sure"
    contenders = {model: dict.fromkeys(of, model) for model, of in results.by_model.items()}
    return bool(find_leads(list(compare_sizes(results, contenders).values())))


def rare(good, trials, ahead, rng):
    """Whether a model, `ahead` in its skill, leads where recipes are good with this chance, else worth 0.6 less."""
    skills = {"a": curve(0.2), "b": curve(0.2, 0.4 + ahead)}
    recipes = {name: np.where(rng.random(trials) < good, 0.0, 0.6) for name in skills}
    results = simulate(skills, [1000, 2000], 3, 1000, rng, recipes=recipes)
    return any(gap.verdict == "lead" for gap in results.gaps.itertuples())


def halves(luck, rng):
    """Whether the interval that knows half of the recipes holds the crossover by the other half; with trials' luck?"""
    if STUDY:
        whole = load_results(STUDY)
    else:
        skills = {"a": curve(0.15, 0.8), "b": curve(0.55, 0.2)}
        recipes = {name: draw_recipes(16, rng) / 2 for name in skills}
        whole = simulate(skills, [1000 * 2**k for k in range(4)], 3, 2000, rng, recipes=recipes)
    order = rng.permutation(max(row["trial"] for row in whole.all_rows)) + 1
    found = []
    for half in np.array_split(order, 2):
        numbers = {trial: place for place, trial in enumerate(half.tolist(), 1)}
        rows = [{**row, "trial": numbers[row["trial"]]} for row in whole.all_rows if row["trial"] in numbers]
        given = whole.config, whole.files, whole.run_files, whole.outcomes
        results = Results(rows, *given, luck=None if luck else {})
        found.append(results.fits.between[1])
    one, other = found
    if one.claim != "sure" or other.size is None:
        return None
    return one.low <= other.size <= (one.high or math.inf)


@cache
def read_advice():
    """Read the labels, groups and features that `vitlab advise` kept in its folder."""
    table, features = pd.read_csv(Path(STUDY, "pictures.csv"), dtype=str, keep_default_na=False), {}
    for path in Path(STUDY, "features").glob("*.safetensors"):
        kept = read_kept(path)
        features[path.stem] = np.stack([kept[digest] for digest in table["digest"]])
    features[advice.PIXELS] = scale_pixels(features.pop(advice.PICTURES.key))
    return *(pd.factorize(table[key])[0] for key in ("label", "group")), features


def advised(count, rng):
    """Whether intervals of what advise names on a draw hold its accuracy on the rest; fair: with the rest's luck."""
    labels, groups, features = read_advice()
    order = rng.permutation(len(labels))
    taken = next((taken for taken in (2 * count, count) if len(order) - taken >= FEWEST_TESTED), 0)
    if not taken:
        return None
    drawn, rest = order[:count], order[taken:]
    rest = rest[~np.isin(groups[rest], groups[order[:taken]])]  # no copies
    of_drawn = labels[drawn], groups[drawn], None
    with parallel_config("sequential"), patch.object(advice, "FLOOR", ("SVM (RBF)",)):
        rows = {name: x[drawn] for name, x in features.items()}
        splits = advice.make_splits(*of_drawn)[: advice.FOLDS]
        outcomes = advice.compare_candidates(rows, labels[drawn], splits)
        chosen = advice.judge(outcomes, [], *of_drawn).chosen
    one, found = chosen.outcome.candidate, [not chosen.is_floor]
    for size, said in ((count, chosen.now), (2 * count, chosen.later)):
        if size > taken:
            found += 3 * [np.nan]
            continue
        scores = advice.fit_scores(one.kind, features[one.features], labels, order[:size], rest)
        truth = np.mean(scores.argmax(axis=1) == labels[rest])
        miss, side = abs(truth - said.value), (said.high if truth > said.value else said.low) - said.value
        luck = ndtri(0.95) ** 2 * truth * (1 - truth) / len(rest)
        found += [(said.high - said.low) / 2, miss <= abs(side), miss**2 <= side**2 + luck]
    return found


FEWEST_TESTED = 100  # pictures
UNEVEN = [(1, 1), (2, 2), (3, 3), (5, 5), (3, 2), (3, 1), (5, 3)]
KINDS = ("2", "4", "items", "tails", "uneven", "sizes", "families", "pairs")
SEVERAL = [*product((2, 4, 8), (2, 3, 5), ("1",)), *product((2, 4, 8), (3,), KINDS), (21, 3, "1"), (21, 3, "4")]
SEVERAL += [(2, 2, "digits"), (2, 3, "digits"), (4, 2, "digits")]
SEEN = [(*case, "none", 1) for case in ((2, 2), (2, 3), (2, 5), (4, 3), (8, 3), (8, 5))]
SEEN += [(2, 3, "none", 4), (4, 2, "none", 4), (2, 3, "items", 1), (4, 3, "items", 1)]
QUESTIONS = {
    "leads": (lead, "sizes, seeds", [(2, 2), (2, 5), (4, 3), (8, 2), (8, 3), (8, 5)]),
    "several": (several, "models, seeds, spreads", SEVERAL),
    "seen": (seen, "models, seeds, kind, sizes", SEEN),
    "equal": (equal_crossover, "sizes, seeds", [(3, 3), (4, 3), (8, 2), (8, 5)]),
    "crossovers": (crossover, "test items, seeds", [(300, 3), (2000, 3), (2000, 5)]),
    "compute": (compute, "spread over seeds, seeds", [(0.003, 3), (0.003, 5), (0.01, 3), (0.01, 5)]),
    "gaps": (gap, "spread, seeds of both", [(spread, *seeds) for spread in (0.05, 0.2) for seeds in UNEVEN]),
    "means": (mean, "spreads fall by, seeds", [*product((1, 3, 10), (2, 3, 5))]),
    "rounds": (rounds, "points", [(1.0,)]),
    "until": (until, "points better, sizes, seeds", [*product((0, 2), (1, 4), (2, 3))]),
    "falls": (fall, "sizes, doublings, seeds", [*product((4, 6), (0.05, 0.15, 0.3), (3,))]),
    "own_sizes": (own_sizes, "seeds", [(2,), (3,), (5,)]),
    "best_of": (
        expected_best,
        "trials, best of, lost",
        [(8, 1, 0.0), (8, 4, 0.0), (8, 8, 0.0), (16, 1, 0.0), (16, 4, 0.0), (16, 16, 0.0), (16, 4, 0.2)],
    ),
    "null_trials": (null_trials, "crossover, sizes, seeds", [*product((False, True), (4,), (2, 3))]),
    "halves": (halves, "luck of the recipes", [(True,), (False,)]),
    "advised": (advised, "pictures", [(150,), (300,), (500,), (1000,)]),
    "multipliers": (multiplier, "seeds, beyond", [*product((2, 3, 5), (False, True))]),
}
QUESTIONS |= {
    "spent": (spent, "question, costs", [*product(("crossover", "leader"), ("by size", "by steps"))]),
    "spent_null": (spent_null, "question, costs", [*product(("crossover", "leader"), ("by size", "by steps"))]),
}
QUESTIONS |= {"rare": (rare, "good, trials, ahead", [*product((0.5, 0.25, 0.125), (8, 16), (0.0, 0.5))])}
QUESTIONS |= {"public": (public, "crosses, seeds", [*product((1, 0), (1, 3))])}
COLUMNS = {
    "several": "equal: a leader | any lead | one better by 4: named | a wrong lead | interval true",
    "seen": "in the next | twice the seeds | the items | as planned | equal, as planned",
    "public": "sure | its interval true | differences true",
    "until": "a lead | means true | gaps true | runs",
    "spent": "runs | cost at the stop | decided | true",
    "advised": "a network | now ± | inside | fair | with twice the labels ± | inside | fair",
}


def ask(name, case, trials):
    for module in (fit, laws, stats):  # of this worker process
        module.DRAWS = 600  # a quarter of the time
    question = QUESTIONS[name][0]
    return [
        question(
            *case,
            np.random.default_rng(
                [trial, *(zlib.crc32(one.encode()) if isinstance(one, str) else hash(one) for one in case)]
            ),
        )
        for trial in trials
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+", choices=QUESTIONS)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial, which draws what it draws")
    parser.add_argument("--study", default="", help="a study of 16 trials, for halves")
    args = parser.parse_args()
    global STUDY
    STUDY = args.study
    with ProcessPoolExecutor(2) as pool:
        for name in args.questions:
            what, of, cases = QUESTIONS[name]
            columns = COLUMNS.get(name, "yes")
            print(f"\n{what.__doc__}\n\n| {of} | {columns} | of |\n|---|{'---:|' * (columns.count('|') + 2)}")
            for case in cases:
                trials = range(args.first, args.first + args.trials)
                halves = [pool.submit(ask, name, case, trials[start::2]) for start in (0, 1)]
                answers = [answer for half in halves for answer in half.result() if answer is not None]
                shares = np.atleast_1d(np.nanmean(answers, axis=0)) if answers else []
                cells = [", ".join(map(str, case)), *(f"{share:.1%}" for share in shares), str(len(answers))]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
