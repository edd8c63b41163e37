"""How well laws and crossovers foresee public learning curves: the tables of docs/rules.md, "On public curves".

    pip download lcdb --no-deps
    python scripts/public_curves.py lcdb-0.1.0.tar.gz

LCDB (Mohr et al., 2022): test errors of scikit-learn's learners at 16, 32, ... items, 5 outer x 5 inner splits. A curve
is a data set x learner with FEWEST or more sizes, drawn by a fixed seed, and cut 1, 2 and 3 doublings before its end. A
fit sees inner split 0 of outer splits 0 to 2, or of 0 alone; truth is the mean of all splits, a new run outer split 3.
"""

import random
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, combinations, product

import numpy as np
import pandas as pd

from vitlab.config import UserError
from vitlab.statistics.crossover import crossover
from vitlab.statistics.fit import fit_scaling_law

SETS, LEARNERS, FEWEST, CUTS = 40, 5, 8, (1, 2, 3)
FITS = [*product([3], ("auto", "m1", "m2", "m3", "m4")), (1, "auto")]  # seeds, law
CURVE, SAID = ["openmlid", "learner"], ["agree", "interval", "stays"]


def read_curves(path):
    """Read the curves of each drawn data set: tables by size of the errors of outer splits 0 to 3, their mean."""
    with tarfile.open(path) as archive:
        database = next(one for one in archive if one.name.endswith("lcdb/database-accuracy.csv"))
        runs = pd.read_csv(archive.extractfile(database))
    runs = runs[np.log2(runs.size_train) % 1 == 0]
    runs["error"] = np.maximum(1 - runs.score_test, 0.5 / runs.size_test)
    of_seeds = runs[runs.inner_seed == 0].pivot_table("error", [*CURVE, "size_train"], "outer_seed")[[0, 1, 2, 3]]
    table = of_seeds.assign(mean=runs.groupby([*CURVE, "size_train"]).error.mean()).dropna()
    found = {}
    for (data, _), curve in table.groupby(CURVE):
        sizes = curve.index.get_level_values("size_train")
        if len(curve) >= FEWEST and sizes[-1] == sizes[0] * 2 ** (len(curve) - 1):
            found.setdefault(data, []).append(curve.set_index(sizes))
    chance, rich = random.Random(0), sorted(data for data, curves in found.items() if len(curves) >= LEARNERS)
    return [chance.sample(found[data], LEARNERS) for data in chance.sample(rich, min(SETS, len(rich)))]


def judge(curves):
    """Compare laws of one data set's curves, and crossovers of its pairs, with the measured continuation."""
    laws, pairs, fits = [], [], {}
    for (k, curve), cut, (seeds, law) in product(enumerate(curves), CUTS, FITS):
        known, end, truth = curve.iloc[:-cut, :seeds], curve.index[-1], curve["mean"].iloc[-1]
        laws.append({"seeds": seeds, "law": law, "cut": cut, "drawn": False})
        try:
            fit = fit_scaling_law(known.index.repeat(seeds), known.to_numpy().ravel(), law)
        except UserError:  # it rises
            continue
        fits[k, cut, seeds, law], (low, high), one = fit, fit.interval(end), fit.prediction_interval(end)
        if fit.holds:
            off, carried = (abs(value / truth - 1) for value in (fit.predict(end), known.mean(axis=1).iloc[-1]))
            inside = {"curve": low <= truth <= high, "run": one[0] <= curve[3].iloc[-1] <= one[1]}
            laws[-1] |= {"drawn": True, "off": off, "carried": carried, **inside}
    for (a, b), cut in product(combinations(range(len(curves)), 2), CUTS):
        if {(a, cut, 3, "auto"), (b, cut, 3, "auto")} <= fits.keys():
            last = min(curves[k].index[-1 - cut] for k in (a, b))
            leader = (curves[b]["mean"] - curves[a]["mean"]).dropna().lt(0).astype(int)
            found = crossover(*(fits[k, cut, 3, "auto"] for k in (a, b)))
            row = {"cut": cut, "claim": f"{found.claim}{', inside' * found.inside}"}
            if found.size and found.size <= leader.index[-1]:
                row["agree"] = leader.iloc[-1] == found.ahead
                below, above = leader[leader.index < found.low][-1:], leader[leader.index > (found.high or np.inf)][:1]
                row["interval"] = (below != found.ahead).all() and (above == found.ahead).all()
            if found.p_none is not None and found.p_none >= 0.9:
                row["stays"] = leader[2 * last] == ((curves[b] - curves[a]).loc[last, [0, 1, 2]].mean() < 0)
            pairs.append(row)
    return laws, pairs


def main():
    with ProcessPoolExecutor(2) as pool:
        sets = read_curves(sys.argv[1])
        laws, pairs = (pd.DataFrame(chain(*rows)) for rows in zip(*pool.map(judge, sets), strict=True))
    print(f"{sum(map(len, sets))} curves of {len(sets)} data sets, {len(pairs)} cuts of pairs")
    summary = {"drawn": "mean", "off": "median", "carried": "median", "curve": "mean", "run": "mean"}
    print(laws.groupby(["seeds", "law", "cut"]).agg(summary).astype(float).round(3).to_csv(sep="|"))
    pairs[SAID] = pairs.reindex(columns=SAID).astype(float)
    print(pairs.groupby(["claim", "cut"])[SAID].agg(["size", "count", "mean"]).round(3).to_csv(sep="|"))


if __name__ == "__main__":
    main()
