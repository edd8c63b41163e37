"""What a study found, as one sentence and as a table of text."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vitlab.formatting import DASH, plural, whole
from vitlab.reports.figures.theme import families, family_name
from vitlab.reports.results.aggregate import Cell, cells
from vitlab.studies.metrics import Metric, main_metric

Rows = list[dict[str, Any]]
SPREAD = " within the spread over seeds"


@dataclass(frozen=True)
class Outcome:
    """Who is ahead at one size: the best contender and all that are level with it, best first."""

    size: int
    ranking: tuple[tuple[str, Cell], ...]  # every contender, best first
    level: tuple[str, ...]  # one name: it leads
    by_spread: bool  # level because of the spread over seeds, not because the numbers are the same
    gap: float  # from the best to the next


@dataclass(frozen=True)
class Span:
    """Neighbouring sizes with the same names ahead."""

    names: frozenset[str]
    outcomes: tuple[Outcome, ...]

    @property
    def leads(self) -> bool:
        return len(self.names) == 1


def sentence(rows: Rows) -> str:
    """One sentence that holds for the finished runs, and says no more than they do.

    Families are compared by the best model of each at each size, by its mean over seeds; within one family, its
    models are compared. Two are level where they differ by no more than the standard deviation, over seeds, of their
    difference.
    """
    if not rows:
        return "No run has finished yet."
    metric = main_metric(rows)
    found = {name: by_size for name, by_size in contenders(rows, metric).items() if by_size}
    if not found:
        return "No finished run has a result on the held-out data."
    if len(found) == 1:
        return alone(*found.items(), metric)
    everywhere = sorted({size for by_size in found.values() for size in by_size})
    outcomes = [o for size in everywhere if (o := outcome(size, found, metric)) is not None]
    if not outcomes:
        return f"{listed(list(found))} have no training-set size in common yet, so nothing can be compared."
    by = "" if metric.key == "accuracy" else f"In {metric.name}, "
    if len(outcomes) == 1:
        return at_one_size(outcomes[0], metric)
    where = f"at every size up to {whole(outcomes[-1].size)}"
    if [o.size for o in outcomes] != everywhere[: len(outcomes)]:
        where = f"at each of the {len(outcomes)} sizes that can be compared, up to {whole(outcomes[-1].size)}"
    return by + over_sizes(spans(outcomes), where, metric)


def contenders(rows: Rows, metric: Metric) -> dict[str, dict[int, Cell]]:
    """Name -> size -> Cell: the best model of each family, or each model when there is one family."""
    by_model, family_of = cells(rows, metric), families(rows)
    if len(set(family_of.values())) == 1:
        return by_model
    found: dict[str, dict[int, Cell]] = {}
    for model, by_size in by_model.items():
        best = found.setdefault(family_name(family_of[model]), {})
        for size, here in by_size.items():
            if size not in best or metric.lead(here.mean, best[size].mean) > 0:
                best[size] = here
    return found


def outcome(size: int, found: dict[str, dict[int, Cell]], metric: Metric) -> Outcome | None:
    """None when fewer than two contenders have a run of this size."""
    here = [(name, by_size[size]) for name, by_size in found.items() if size in by_size]
    if len(here) < 2:
        return None
    here.sort(key=lambda item: metric.lead(item[1].mean, 0.0), reverse=True)
    best = here[0][1]
    behind = {name: metric.lead(best.mean, other.mean) for name, other in here}
    same = [name for name, gap in behind.items() if metric.number(gap) == metric.number(0.0)]
    level = [name for name, other in here if name in same or behind[name] <= spread(best, other)]
    return Outcome(size, tuple(here), tuple(level), level != same, behind[here[1][0]])


def spread(a: Cell, b: Cell) -> float:
    """The standard deviation, over seeds, of the difference between two models; 0 with one seed each."""
    return math.hypot(a.std or 0.0, b.std or 0.0)


def spans(outcomes: list[Outcome]) -> list[Span]:
    found: list[Span] = []
    for one in outcomes:
        names = frozenset(one.level)
        if found and found[-1].names == names:
            found[-1] = Span(names, (*found[-1].outcomes, one))
        else:
            found.append(Span(names, (one,)))
    return found


def alone(item: tuple[str, dict[int, Cell]], metric: Metric) -> str:
    """One model: what it reaches, and from where."""
    name, by_size = item
    first, last = min(by_size), max(by_size)
    reached = f"{metric.text(by_size[last].mean)} {metric.name} with {plural(last, f'training {metric.sized_by}')}"
    if first == last:
        return f"{name} reaches {reached}."
    start = f"{metric.text(by_size[first].mean)} with {whole(first)}"
    change = by_size[last].mean - by_size[first].mean
    if metric.text(by_size[first].mean) == metric.text(by_size[last].mean):
        return f"{name} stays at {reached}, as with {whole(first)}."
    return f"{name} reaches {reached}, {'up' if change > 0 else 'down'} from {start}."


def at_one_size(one: Outcome, metric: Metric) -> str:
    texts = {name: metric.text(cell.mean) for name, cell in one.ranking}
    size = plural(one.size, f"training {metric.sized_by}")
    behind = [f"{name} ({texts[name]})" for name, _ in one.ranking if name not in one.level]
    if len(one.level) == 1:
        leader = one.level[0]
        if len(behind) == 1:
            other = one.ranking[1][0]
            return f"{leader} leads {other} at {size}: {texts[leader]} {metric.name} against {texts[other]}."
        return f"{leader} leads at {size} with {texts[leader]} {metric.name}, ahead of {listed(behind)}."
    level = listed([f"{name} ({texts[name]})" for name in one.level])
    ahead = f", ahead of {listed(behind)}" if behind else ""
    return f"{level} are level in {metric.name} at {size}{SPREAD if one.by_spread else ''}{ahead}."


def over_sizes(found: list[Span], where: str, metric: Metric) -> str:
    outcomes = [one for span in found for one in span.outcomes]
    last = outcomes[-1]
    end = f", by {metric.gap(last.gap)}" if found[-1].leads else ""
    if end and len(found[-1].outcomes) > 1:
        end += f" at {whole(last.size)}"
    if len(found) == 1:
        return f"{claim(found[0])} {where}; {gaps(outcomes, metric)}." if end else f"{claim(found[0])} {where}."
    if len(found) > 4:
        changes = f"The order changes {len(found) - 1} times over {len(outcomes)} sizes"
        return f"{changes}; at {whole(last.size)} {claim(found[-1])}{f', by {metric.gap(last.gap)}' if end else ''}."
    lines = [f"{claim(span)} {place(span, outcomes)}" for span in found]
    before, after = found[0], found[-1]
    if not (before.leads and after.leads and before.names != after.names):
        return f"{'; '.join(lines)}{end}."
    if len(found) == 2:
        (name,) = after.names
        return f"{lines[0]} and {name} {place(after, outcomes)}{end}; the curves cross in between."
    between = f"between {whole(before.outcomes[-1].size)} and {whole(after.outcomes[0].size)}"
    crossing = f"; the curves cross {between}" if len(found) == 3 and not found[1].leads else ""
    return f"{'; '.join(lines)}{end}{crossing}."


def claim(span: Span) -> str:
    """`A leads`, or `A and B are level within the spread over seeds`."""
    names = span.outcomes[-1].level
    if span.leads:
        return f"{names[0]} leads"
    return f"{listed(sorted(names))} are level{SPREAD if any(one.by_spread for one in span.outcomes) else ''}"


def place(span: Span, outcomes: list[Outcome]) -> str:
    """Where a span lies among all sizes compared: `at 500`, `up to 2,000`, `from 8,000`."""
    first, last = span.outcomes[0], span.outcomes[-1]
    if first is last:
        return f"at {whole(first.size)}"
    if first is outcomes[0]:
        return f"up to {whole(last.size)}"
    return f"from {whole(first.size)}" + ("" if last is outcomes[-1] else f" to {whole(last.size)}")


def gaps(outcomes: list[Outcome], metric: Metric) -> str:
    """How the leader's distance to the next best moves with the size."""
    of = "the gap" if max(len(one.ranking) for one in outcomes) == 2 else "the gap to the next best"
    shown = [metric.number(one.gap) for one in outcomes]
    values = [float(text.replace(",", "")) for text in shown]
    low, high = min(values), max(values)
    steps = [b - a for a, b in pairwise(values)]
    if high - low <= 0.1 * high:
        return f"{of} stays near {metric.gap(sum(one.gap for one in outcomes) / len(outcomes))}"
    slack = 0.05 * (high - low)  # a step of so little against the trend does not break it
    if all(step <= slack for step in steps) or all(step >= -slack for step in steps):
        return (
            f"{of} {'shrinks' if values[-1] < values[0] else 'grows'} from {shown[0]} to {metric.gap(outcomes[-1].gap)}"
        )
    end = f"{metric.gap(outcomes[-1].gap)} at {whole(outcomes[-1].size)}"
    return f"{of} varies between {shown[values.index(low)]} and {shown[values.index(high)]}, with {end}"


def listed(names: list[str]) -> str:
    """`A, B and C`"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def size_table(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """(header, body): a row per training-set size, a column per model; `84.2 ± 0.6%`, the spread from two seeds on."""
    metric = main_metric(rows)
    by_model = cells(rows, metric)
    header = [f"training {metric.sized_by}s", *by_model]
    body = []
    for size in sorted({row["train_size"] for row in rows}):
        body.append([whole(size), *(cell_text(by_size.get(size), metric) for by_size in by_model.values())])
    return header, body


def cell_text(cell: Cell | None, metric: Metric) -> str:
    if cell is None:
        return DASH
    spread = "" if cell.std is None else f" ± {metric.number(cell.std)}"
    return f"{metric.number(cell.mean)}{spread}{'%' if metric.percent else ''}"
