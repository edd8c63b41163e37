"""What a study found, as one sentence."""

from itertools import groupby, pairwise
from typing import Any

from vitlab.formatting import plural, whole
from vitlab.reports.figures.theme import families, family_name
from vitlab.reports.results.aggregate import CellAverage, aggregate
from vitlab.reports.results.comparison import (
    MARGIN,
    NO_OUTCOMES,
    Comparison,
    Outcomes,
    beats_chance,
    compare_sizes,
    describe_seeds,
    find_chance,
    format_difference,
    format_gap,
)
from vitlab.reports.results.study_results import StudyResults
from vitlab.studies.metrics import main_metric
from vitlab.tasks.metrics import Metric

Rows = list[dict[str, Any]]
Contenders = dict[str, dict[int, CellAverage]]
MOST_CLAIMS = 4  # of a sentence; more changes of the order are counted


def headline(results: StudyResults) -> str:
    """What the study found, and of two models where one passes the other, or that none does."""
    return sentence(results.rows, results.outcomes, results.fits.describe_headline(), results.margin)


def sentence(rows: Rows, outcomes: Outcomes = NO_OUTCOMES, crossover: str = "", margin: float = MARGIN) -> str:
    """One sentence that holds for the finished runs, and says no more than they do.

    Families are compared by the best model of each at each size, by its mean over seeds; within one family, its
    models are compared. The 95% interval of the difference decides whether one leads: over seeds, and over the test
    items where `outcomes` has them by the run's name. Models are level where that interval lies within the `margin`. A
    sentence on the `crossover` follows where models are compared.
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
    comparisons = list(compare_sizes(contenders, metric, outcomes, margin).values())
    if not comparisons:
        return f"{join_names(list(contenders))} have no training-set size in common yet, so nothing can be compared."
    text = describe_order(comparisons, sizes, metric, margin) + limit_to_seeds(comparisons)
    if metric.key != "accuracy":
        text = f"in {metric.name}, {text}"
    text = f"{text[0].upper()}{text[1:]}" if text.startswith(("in ", "the ", "no ", "undecided")) else text
    return f"{text}. {crossover}".rstrip()


def limit_to_seeds(comparisons: list[Comparison]) -> str:
    """What a headline of one seed must say: that its intervals do not cover others, or that there are none."""
    if any(comparison.gap.seeds > 1 for comparison in comparisons):
        return ""
    has_interval = any(comparison.gap.half_width is not None for comparison in comparisons)
    return " (one seed: the interval does not cover others)" if has_interval else " (one seed, no interval)"


def best_of_families(rows: Rows, metric: Metric) -> Contenders:
    """Name -> size -> CellAverage: the best model of each family, or each model when there is one family."""
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


def describe_one(contender: tuple[str, dict[int, CellAverage]], metric: Metric) -> str:
    """What one model reaches with its largest training set, and with its smallest."""
    name, by_size = contender
    first, last = min(by_size), max(by_size)
    size = plural(last, f"training {metric.sized_by}")
    text = f"{name} reaches {metric.text(by_size[last].mean)} {metric.name} with {size}"
    return f"{text}, {metric.text(by_size[first].mean)} with {whole(first)}." if first != last else f"{text}."


def describe_order(comparisons: list[Comparison], sizes: list[int], metric: Metric, margin: float) -> str:
    """Who leads where: a claim per span of neighbouring sizes; at the end the gap to the next best."""
    last = comparisons[-1]
    if len(comparisons) == 1:
        where = f"at {plural(last.size, f'training {metric.sized_by}')}"
        if last.undecided:
            return f"undecided: {last.ranking[0]} ahead{describe_gap(last, metric)} {where}"
        return f"{claim(last, metric, margin)}{describe_gap(last, metric)} {where}"
    spans = [list(span) for _, span in groupby(comparisons, key=lambda one: claim(one, metric, margin))]
    if len(spans) == 1:
        compared = "" if len(comparisons) == sizes.index(last.size) + 1 else " compared,"
        where = f"at every size{compared} up to {whole(last.size)}"
        if last.leader:
            return f"{claim(last, metric, margin)} {where}; {describe_gaps(comparisons, metric)}"
        return describe_span(f"{claim(last, metric, margin)} {where}", last, metric)
    if len(spans) > MOST_CLAIMS:
        changes = f"the order changes {len(spans) - 1} times over {len(comparisons)} sizes"
        if last.leader:
            return f"{changes}; {claim(last, metric, margin)}{describe_gap(last, metric)} at {whole(last.size)}"
        return f"{changes}; {describe_span(f'{claim(last, metric, margin)} at {whole(last.size)}', last, metric)}"
    claims = [f"{claim(span[-1], metric, margin)} {place(span, comparisons)}" for span in spans]
    earlier = [
        f"{text} (undecided)" if span[-1].undecided else text for text, span in zip(claims[:-1], spans, strict=False)
    ]
    at = f" at {whole(last.size)}" if len(spans[-1]) > 1 else ""
    final = f"{claims[-1]},{describe_gap(last, metric)}{at}" if last.leader else describe_span(claims[-1], last, metric)
    return "; ".join([*earlier, final])


def describe_span(text: str, last: Comparison, metric: Metric) -> str:
    """A claim that is no lead, with the difference at its largest size: `A ahead (undecided: 2 ± 4 points at 500)`."""
    if last.undecided:
        where = f"{format_gap(last.gap, metric)} at {whole(last.size)}"
        return f"{text} (undecided: {', '.join(filter(None, [where, describe_seeds(last)]))})"
    gap = describe_gap(last, metric).strip()
    return f"{text} ({gap})" if gap else text


def claim(one: Comparison, metric: Metric, margin: float) -> str:
    """`A leads`, `A ahead` where undecided, `A and B are level within 1 point`, `no model beats chance (10.0%)`."""
    if one.chance is not None:
        return f"no model beats chance ({metric.text(one.chance)})"
    if one.leader:
        return f"{one.leader} leads"
    if one.gap.half_width is None:
        return f"{join_names(sorted(one.tied))} are equal"
    if one.level:
        return f"{join_names(sorted(one.tied))} are level within {metric.describe_margin(margin)}"
    return f"{one.ranking[0]} ahead"


def describe_gap(one: Comparison, metric: Metric) -> str:
    """` by 2.0 ± 0.6 points` of a lead, with its seeds if undecided; ` difference 0.3 ± 0.4 points` if level."""
    if one.chance is not None or (one.tied and one.gap.half_width is None):
        return ""
    if one.undecided:
        return f" by {format_gap(one.gap, metric, describe_seeds(one))}"
    return f" {'by' if one.leader else 'difference'} {format_gap(one.gap, metric)}"


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
    name = "the gap" if all(len(comparison.ranking) == 2 for comparison in comparisons) else "the gap to the next best"
    gaps, last = [comparison.gap.mean for comparison in comparisons], format_gap(comparisons[-1].gap, metric)
    first, lowest, highest = (format_difference(gap, metric) for gap in (gaps[0], min(gaps), max(gaps)))
    if lowest == highest:
        return f"{name} stays at {last}"
    slack = 0.05 * (max(gaps) - min(gaps))  # a step of so little against the trend does not break it
    steps = [after - before for before, after in pairwise(gaps)]
    for verb, against in (("shrinks", max(steps)), ("grows", -min(steps))):
        if against <= slack:
            return f"{name} {verb} from {first} to {last}"
    return f"{name} varies between {lowest} and {highest}" + ("" if metric.relative else f" {metric.gap_unit}")


def join_names(names: list[str]) -> str:
    """`A, B and C`"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
