import numpy as np

from vitlab.studies.crossover import crossover, rank_next_runs
from vitlab.studies.fit import fit_scaling_law

SIZES = np.array([500.0, 2_000, 8_000, 32_000])
LAWS = (lambda x: 0.12 * (x / 5_000) ** -0.6, lambda x: 0.12 * (x / 5_000) ** -0.2)


def test_the_runs_suggested_narrow_the_crossover_most_for_their_cost():
    rng = np.random.default_rng(0)
    costs = {(model, size): 1 + size / 8_000 for model in (0, 1) for size in SIZES}
    better = []
    for _ in range(12):
        data = [[(x, s, law(x) * np.exp(0.1 * rng.normal())) for x in SIZES for s in range(3)] for law in LAWS]
        fits, found = solve(data)
        ranked = rank_next_runs(*fits, found, costs, most=8)
        assert {run.size for run in ranked[:2]} <= {2_000, 8_000}  # the sizes around the crossover
        before = spread(found)
        per_cost = []
        for run in (ranked[0], ranked[-1]):  # four more seeds of the best and of the worst
            more = [list(part) for part in data]
            law = LAWS[run.model]
            more[run.model] += [(run.size, 3 + s, law(run.size) * np.exp(0.1 * rng.normal())) for s in range(4)]
            per_cost.append((before - spread(solve(more)[1])) / run.cost)
        better.append(per_cost[0] > per_cost[1])
    assert np.mean(better) > 0.7


def test_a_gain_is_a_share_of_the_whole_variance_not_of_the_seeds_noise():
    """Laws that fit badly leave a crossover uncertain however many seeds there are."""
    rng = np.random.default_rng(0)
    bends = np.array([1.0, 1.5, 1.0, 1.5])
    data = [
        [
            (x, s, law(x) * bend * np.exp(0.002 * rng.normal()))
            for x, bend in zip(SIZES, bends, strict=True)
            for s in (0, 1)
        ]
        for law, bends in zip(LAWS, (bends, bends[::-1]), strict=True)
    ]
    fits = [
        fit_scaling_law(*list(zip(*part, strict=True))[::2], "auto", seeds=[s for _, s, _ in part]) for part in data
    ]
    found = crossover(*fits)
    costs = {(model, size): 1.0 for model in (0, 1) for size in SIZES}
    ranked = rank_next_runs(*fits, found, costs, most=8)
    assert ranked
    assert sum(3 * run.gain for run in ranked) < 0.5


def solve(data, law="m1"):
    fits = [fit_scaling_law(*list(zip(*part, strict=True))[::2], law, seeds=[s for _, s, _ in part]) for part in data]
    return fits, crossover(*fits)


def spread(found):
    return np.log(found.high / found.low)
