"""What a study found: a short first sentence, and what else is to be said."""

import textwrap
from itertools import groupby, pairwise
from typing import Any

from vitlab.formatting import plural, whole, with_prefix
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
from vitlab.studies.limits import list_limits, predict_gain
from vitlab.studies.metrics import main_metric
from vitlab.tasks.metrics import Metric

Rows = list[dict[str, Any]]
Contenders = dict[str, dict[int, CellAverage]]
WIDTH = 90  # characters of the first sentence
NAME_WIDTH = 20  # of a model there, if it is too long
MOST_CLAIMS = 4  # of a sentence; more changes of the order are counted


def headline(results: StudyResults) -> tuple[str, str]:
    """What the study found in at most WIDTH characters, then the rest: numbers, crossover, what limits the cells."""
    first, *rest = say_result(results.rows, results.outcomes, results.margin)
    return first, " ".join(filter(None, [*rest, results.fits.describe_headline(), describe_limits(results.rows)]))


def say_result(rows: Rows, outcomes: Outcomes = NO_OUTCOMES, margin: float = MARGIN) -> list[str]:
    """Sentences that hold for the finished runs, and say no more than they do; the first has at most WIDTH characters.

    Families are compared by the best model of each at each size, by its mean over seeds; within one family, its
    models are compared. The 95% interval of the difference decides whether one leads: over seeds, and over the test
    items where `outcomes` has them by the run's name. Models are level where that interval lies within the `margin`.
    """
    if not rows:
        return ["No run has finished yet."]
    metric = main_metric(rows)
    contenders = {name: by_size for name, by_size in best_of_families(rows, metric).items() if by_size}
    if not contenders:
        return ["No finished run has a result on the held-out data."]
    cells = [cell for by_size in contenders.values() for cell in by_size.values()]
    if not any(beats_chance(cell, metric, outcomes) for cell in cells):
        best, chance = (metric.text(value) for value in (max(cell.mean for cell in cells), find_chance(cells, metric)))
        return [f"No model beats chance: {best} {metric.name} at best; guessing the largest class has {chance}."]
    names = list(contenders)
    if len(contenders) == 1:
        return shorten([describe_one(*contenders.items(), metric)], names)
    sizes = sorted({size for by_size in contenders.values() for size in by_size})
    comparisons = list(compare_sizes(contenders, metric, outcomes, margin).values())
    if not comparisons:
        text = f"{join_names(names)} have no training-set size in common yet, so nothing can be compared."
        return shorten([text], names)
    whole_order, last = (describe_order(some, sizes, metric, margin) for some in (comparisons, comparisons[-1:]))
    claims = "; ".join(describe_claims(comparisons, metric, margin))
    choices = [[whole_order], [claims, last], [last, claims] if len(comparisons) > 1 else [last]]
    written = [[write_sentence(text, metric) for text in some] for some in choices]
    said = next((some for some in written if len(some[0]) <= WIDTH), None) or shorten(written[-1], names)
    return [*said, *limit_to_seeds(comparisons)]


def write_sentence(text: str, metric: Metric) -> str:
    if metric.key != "accuracy":
        text = f"in {metric.name}, {text}"
    return f"{text[0].upper()}{text[1:]}." if text.startswith(("in ", "the ", "no ", "undecided")) else f"{text}."


def shorten(sentences: list[str], names: list[str]) -> list[str]:
    """Long names lose their middle, where the first sentence is too long; then the full one follows."""
    first = sentences[0]
    for name in sorted(names, key=len, reverse=True):
        if len(first) > WIDTH and len(name) > NAME_WIDTH:
            first = first.replace(name, f"{name[: NAME_WIDTH // 2]}…{name[1 - NAME_WIDTH // 2 :]}")
    first = textwrap.shorten(first, WIDTH, placeholder=" …")
    return sentences if first == sentences[0] else [first, *(sentences[1:] or sentences)]


def limit_to_seeds(comparisons: list[Comparison]) -> list[str]:
    """What one seed must say: that its intervals do not cover others, or that there are none."""
    if any(comparison.gap.seeds > 1 for comparison in comparisons):
        return []
    has_interval = any(comparison.gap.half_width is not None for comparison in comparisons)
    return ["One seed: the interval does not cover others." if has_interval else "One seed, no interval."]


def describe_limits(rows: Rows) -> str:
    """`From 4,000 examples on both models are limited by 600 steps, not by the data; ...`; empty if none is."""
    limits = list_limits(rows)
    limited = [row for row in rows if limits.get((row["model"], row["train_size"])) == "budget"]
    if not limited:
        return ""
    sizes = {model: sorted({row["train_size"] for row in rows if row["model"] == model}) for model in families(rows)}
    places: dict[str, list[str]] = {}
    for model, every in sizes.items():
        here = [size for size in every if limits.get((model, size)) == "budget"]
        if here:
            places.setdefault(name_sizes(here, every, main_metric(rows).sized_by), []).append(model)
    if len(places) == 1:
        ((where, models),) = places.items()
        every = {1: models[0], 2: "both models"}.get(len(sizes), f"all {len(sizes)} models")
        who = every if len(models) == len(sizes) else join_names(models)
        text = f"{where[0].upper()}{where[1:]} {who} {'is' if len(models) == 1 else 'are'}"
    else:
        text = f"{join_names([f'{join_names(models)} {where}' for where, models in places.items()])} are"
    budgets = {str(row.get("budget") or "") for row in limited}
    unit, _, value = budgets.pop().partition("=")
    if budgets or not value:
        return f"{text} limited by the budget, not by the data."
    amount = with_prefix(float(value), "FLOP") if unit == "flops" else f"{float(value):,.10g} {unit}"
    text = f"{text} limited by {amount}, not by the data"
    if (gain := predict_gain(limited)) is not None:
        text += f"; budget.{unit}={2 * float(value):.10g} is expected to bring about {gain:.2g} points"
    return f"{text}."


def name_sizes(some: list[float], every: list[float], unit: str) -> str:
    """`from 4,000 examples on`, `at 250 and 1,000 examples`, `at every size`."""
    if some == every and len(every) > 1:
        return "at every size"
    if len(some) > 1 and some == every[-len(some) :]:
        return f"from {whole(some[0])} {unit}s on"
    return f"at {join_names([whole(size) for size in some])} {unit}s"


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
    spans = find_spans(comparisons, metric, margin)
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
    earlier = describe_claims(comparisons, metric, margin)[:-1]
    final = f"{claim(last, metric, margin)} {place(spans[-1], comparisons)}"
    at = f" at {whole(last.size)}" if len(spans[-1]) > 1 else ""
    final = f"{final},{describe_gap(last, metric)}{at}" if last.leader else describe_span(final, last, metric)
    return "; ".join([*earlier, final])


def find_spans(comparisons: list[Comparison], metric: Metric, margin: float) -> list[list[Comparison]]:
    """Neighbouring sizes with the same claim."""
    return [list(span) for _, span in groupby(comparisons, key=lambda one: claim(one, metric, margin))]


def describe_claims(comparisons: list[Comparison], metric: Metric, margin: float) -> list[str]:
    """A claim per span without its numbers: `A leads up to 2,000`, `B ahead from 8,000 (undecided)`."""
    return [
        f"{claim(span[-1], metric, margin)} {place(span, comparisons)}{' (undecided)' if span[-1].undecided else ''}"
        for span in find_spans(comparisons, metric, margin)
    ]


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
        return f"{'at every size ' if last is comparisons[-1] else ''}up to {whole(last.size)}"
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
