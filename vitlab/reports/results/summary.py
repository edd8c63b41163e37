"""What a study found, as one sentence."""

from itertools import groupby, pairwise
from typing import Any

from vitlab.formatting import plural, whole
from vitlab.reports.figures.theme import families, family_name
from vitlab.reports.results.aggregate import Cell, aggregate
from vitlab.reports.results.comparison import (
    NO_OUTCOMES,
    Comparison,
    Outcomes,
    beats_chance,
    compare,
    find_chance,
    format_gap,
)
from vitlab.reports.results.study_results import StudyResults
from vitlab.studies.metrics import Metric, main_metric

Rows = list[dict[str, Any]]
Contenders = dict[str, dict[int, Cell]]
MOST_CLAIMS = 4  # of a sentence; more changes of the order are counted


def headline(results: StudyResults) -> str:
    """What the study found, and of two models where one passes the other, or that none does."""
    return sentence(results.rows, results.outcomes, results.fits.describe_headline())


def sentence(rows: Rows, outcomes: Outcomes = NO_OUTCOMES, crossover: str = "") -> str:
    """One sentence that holds for the finished runs, and says no more than they do.

    Families are compared by the best model of each at each size, by its mean over seeds; within one family, its
    models are compared. The 95% interval of the difference decides whether one leads: over seeds, and over the test
    items where `outcomes` has them by the run's name. A sentence on the `crossover` follows where models are compared.
    """
    if not rows:
        return "No run has finished yet."
    metric = main_metric(rows)
    contenders = {name: by_size for name, by_size in best_of_families(rows, metric).items() if by_size}
    if not contenders:
        return "No finished run has a result on the held-out data."
    cells = [cell for by_size in contenders.values() for cell in by_size.values()]
    if not any(beats_chance(cell, metric, outcomes) for cell in cells):
        best, chance = (metric.text(value) for value in (max(cell.mean for cell in cells), find_chance(cells, metric)))
        return (
            f"No model beats chance: {best} {metric.name} at best, and always choosing the largest class has {chance}."
        )
    if len(contenders) == 1:
        return describe_one(*contenders.items(), metric)
    sizes = sorted({size for by_size in contenders.values() for size in by_size})
    comparisons = [found for size in sizes if (found := compare(size, contenders, metric, outcomes))]
    if not comparisons:
        return f"{join_names(list(contenders))} have no training-set size in common yet, so nothing can be compared."
    text = describe_order(comparisons, sizes, metric) + limit_to_seeds(comparisons)
    if metric.key != "accuracy":
        text = f"in {metric.name}, {text}"
    text = f"{text[0].upper()}{text[1:]}" if text.startswith(("in ", "the ", "no ")) else text
    return f"{text}. {crossover}".rstrip()


def limit_to_seeds(comparisons: list[Comparison]) -> str:
    """What a headline of one seed must say: that its intervals do not cover others, or that there are none."""
    if any(one.gap.seeds > 1 for one in comparisons):
        return ""
    known = any(one.gap.half_width is not None for one in comparisons)
    return " (one seed: the interval does not cover others)" if known else " (one seed, no interval)"


def best_of_families(rows: Rows, metric: Metric) -> Contenders:
    """Name -> size -> Cell: the best model of each family, or each model when there is one family."""
    by_model, family_of = aggregate(rows, metric), families(rows)
    if len(set(family_of.values())) == 1:
        return by_model
    best: Contenders = {}
    for model, by_size in by_model.items():
        of_family = best.setdefault(family_name(family_of[model]), {})
        for size, cell in by_size.items():
            if size not in of_family or metric.lead(cell.mean, of_family[size].mean) > 0:
                of_family[size] = cell
    return best


def describe_one(contender: tuple[str, dict[int, Cell]], metric: Metric) -> str:
    """What one model reaches with its largest training set, and with its smallest."""
    name, by_size = contender
    first, last = min(by_size), max(by_size)
    size = plural(last, f"training {metric.sized_by}")
    text = f"{name} reaches {metric.text(by_size[last].mean)} {metric.name} with {size}"
    return f"{text}, {metric.text(by_size[first].mean)} with {whole(first)}." if first != last else f"{text}."


def describe_order(comparisons: list[Comparison], sizes: list[int], metric: Metric) -> str:
    """Who leads where: a claim per span of neighbouring sizes; at the end the gap to the next best."""
    last = comparisons[-1]
    by = describe_gap(last, metric)
    if len(comparisons) == 1:
        return f"{claim(last, metric)}{by} at {plural(last.size, f'training {metric.sized_by}')}"
    spans = [list(span) for _, span in groupby(comparisons, key=lambda one: claim(one, metric))]
    if len(spans) == 1:
        compared = "" if len(comparisons) == sizes.index(last.size) + 1 else " compared,"
        change = f"; {describe_gaps(comparisons, metric)}" if last.leader else by
        return f"{claim(last, metric)} at every size{compared} up to {whole(last.size)}{change}"
    if len(spans) > MOST_CLAIMS:
        changes = f"the order changes {len(spans) - 1} times over {len(comparisons)} sizes"
        return f"{changes}; {claim(last, metric)}{by} at {whole(last.size)}"
    claims = [f"{claim(span[-1], metric)} {place(span, comparisons)}" for span in spans]
    at = f" at {whole(last.size)}" if last.leader and len(spans[-1]) > 1 else ""
    return "; ".join(claims) + (f",{by}{at}" if last.leader else by)


def claim(one: Comparison, metric: Metric) -> str:
    """`A leads`, `A and B are equal`, `A and B are level within the 95% interval`, `no model beats chance (10.0%)`."""
    if one.chance is not None:
        return f"no model beats chance ({metric.text(one.chance)})"
    if one.leader:
        return f"{one.leader} leads"
    level = "equal" if one.gap.half_width is None else "level within the 95% interval"
    return f"{join_names(sorted(one.tied))} are {level}"


def describe_gap(one: Comparison, metric: Metric) -> str:
    """` by 2.0 ± 0.6 points` of a lead, ` (difference 0.3 ± 0.9 points)` of two that are level."""
    if one.chance is not None or (one.tied and (len(one.tied) > 2 or one.gap.half_width is None)):
        return ""
    gap = format_gap(one.gap, metric)
    return f" by {gap}" if one.leader else f" (difference {gap})"


def place(span: list[Comparison], comparisons: list[Comparison]) -> str:
    """Where a span lies among all sizes compared: `at 500`, `up to 2,000`, `from 8,000`."""
    first, last = span[0], span[-1]
    if first is last:
        return f"at {whole(first.size)}"
    if first is comparisons[0]:
        return f"up to {whole(last.size)}"
    return f"from {whole(first.size)}" + ("" if last is comparisons[-1] else f" to {whole(last.size)}")


def describe_gaps(comparisons: list[Comparison], metric: Metric) -> str:
    """How the leader's distance to the next best moves with the size: `the gap shrinks from 38.2 to 8.1 points`."""
    name = "the gap" if all(len(one.ranking) == 2 for one in comparisons) else "the gap to the next best"
    gaps, last = [one.gap.mean for one in comparisons], format_gap(comparisons[-1].gap, metric)
    if metric.number(min(gaps)) == metric.number(max(gaps)):
        return f"{name} stays at {last}"
    slack = 0.05 * (max(gaps) - min(gaps))  # a step of so little against the trend does not break it
    steps = [after - before for before, after in pairwise(gaps)]
    for verb, against in (("shrinks", max(steps)), ("grows", -min(steps))):
        if against <= slack:
            return f"{name} {verb} from {metric.number(gaps[0])} to {last}"
    return f"{name} varies between {metric.number(min(gaps))} and {metric.gap(max(gaps))}"


def join_names(names: list[str]) -> str:
    """`A, B and C`"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
