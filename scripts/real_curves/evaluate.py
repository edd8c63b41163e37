"""The tables of the benchmark, as Markdown."""

import sys
import time
from collections.abc import Sequence
from itertools import combinations
from multiprocessing import Pool
from pathlib import Path

from curves import LAWS, Curve, read_curves
from laws import Prediction, Skipped, list_cuts, predict_rest, share, summarize
from pairs import Case, judge_pair

COVERAGE = "law's interval at 2x / 4x / 8x | one run's"
CROSSOVERS = {  # rows of the table: where the real crossover is
    "within the sizes kept": ("inside",),
    "beyond them, within 2x": ("near",),
    "beyond them, within 10x": ("near", "far"),
    "further away": ("beyond",),
    "none at any size": ("never",),
}


def evaluate(path: Path, jobs: int) -> None:
    """Fits every law to every cut of every curve, a task at a time, in as many processes as `jobs`."""
    tasks = read_curves(path)
    begin, results, cases, pairs, clear_pairs = time.monotonic(), [], [], 0, 0
    longest_first = sorted(tasks.values(), key=len, reverse=True)
    with Pool(jobs) as pool:
        for done, (found, of_pairs) in enumerate(pool.imap_unordered(judge_task, longest_first), 1):
            results += found
            cases += [case for of_pair in of_pairs for case in of_pair]
            pairs += len(of_pairs)
            clear_pairs += sum(map(bool, of_pairs))
            print(f"{done}/{len(tasks)} tasks: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    curves = [curve for task in tasks.values() for curve in task]
    print(f"{len(curves)} curves, {len(tasks)} tasks, {sum(len(list_cuts(curve)) for curve in curves)} cuts.\n")
    print_laws(results)
    print_tasks(results, tasks)
    print(f"{pairs} pairs, {clear_pairs} of them with a known order; at every cut:\n")
    print_pairs(cases)


def judge_task(curves: Sequence[Curve]) -> tuple[list[Prediction | Skipped], list[list[Case]]]:
    """What the laws predict of the curves of a task, and what is said of each of its pairs."""
    fits: dict[str, dict] = {curve.model: {} for curve in curves}
    results = [result for curve in curves for result in predict_rest(curve, fits[curve.model])]
    pairs = [list(judge_pair(a, b, (fits[a.model], fits[b.model]))) for a, b in combinations(curves, 2)]
    return results, pairs


def print_laws(results: Sequence[Prediction | Skipped]) -> None:
    print(f"| law | RMSE of log error | {COVERAGE} | fits refused |\n|---|---|---|---|---|")
    for law in LAWS:
        made = [one for one in results if isinstance(one, Prediction) and one.law == law]
        refused = sum(isinstance(one, Skipped) and one.law == law for one in results)
        print_row(law if law == "auto" else law.upper(), *summarize(made), str(refused))
    print()


def print_tasks(results: Sequence[Prediction | Skipped], tasks: dict[str, list[Curve]]) -> None:
    print(f"| task, by `auto` | measure | curves | RMSE of log error | {COVERAGE} |\n|---|---|---|---|---|---|")
    for task, curves in tasks.items():
        made = [one for one in results if isinstance(one, Prediction) and (one.task, one.law) == (task, "auto")]
        print_row(task, curves[0].measure, str(len(curves)), *summarize(made))
    print()


def print_pairs(cases: Sequence[Case]) -> None:
    print("| real crossover | cases | claimed | interval right | at a measured size | likely | ruled out |")
    print("|---|---|---|---|---|---|---|")
    for label, places in CROSSOVERS.items():
        part = [case for case in cases if case.where in places]
        claimed = [case for case in part if case.claimed]
        right = "-" if places == ("never",) else f"{sum(case.right for case in claimed)} of {len(claimed)}"
        measured = str(sum(case.checkable for case in claimed))
        shares = (f"{share(values)}%" for values in ([case.likely for case in part], [case.ruled_out for case in part]))
        print_row(label, str(len(part)), f"{share([case.claimed for case in part])}%", right, measured, *shares)


def print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")
