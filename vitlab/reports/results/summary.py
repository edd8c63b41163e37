"""What a study found, as one sentence and as a table of text."""

from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from vitlab.formatting import DASH, plural, whole
from vitlab.reports.figures.theme import families, family_name
from vitlab.reports.results.aggregate import Cell, aggregate
from vitlab.studies.metrics import Metric, main_metric
from vitlab.studies.paired import paired_difference

Rows = list[dict[str, Any]]
Contenders = dict[str, dict[int, Cell]]
MOST_CLAIMS = 4  # of a sentence; more changes of the order are counted


@dataclass(frozen=True)
class Comparison:
    """The contenders at one training-set size."""

    size: int
    ranking: tuple[str, ...]  # best mean first
    gap: float  # from the best to the next, in the metric
    tied: tuple[str, ...]  # the best and those that it is not clearly ahead of; empty where it leads
    by_spread: bool  # tied within the interval; else the numbers are equal

    @property
    def claim(self) -> str:
        """`A leads`, `A and B are equal`, or `A and B are level within the 95% interval`."""
        if not self.tied:
            return f"{self.ranking[0]} leads"
        level = "level within the 95% interval" if self.by_spread else "equal"
        return f"{join_names(sorted(self.tied))} are {level}"


def sentence(rows: Rows) -> str:
    """One sentence that holds for the finished runs, and says no more than they do.

    Families are compared by the best model of each at each size, by its mean over seeds; within one family, its
    models are compared. With seeds the differences between runs of the same seed decide whether one leads; with one
    seed it is the plain difference.
    """
    if not rows:
        return "No run has finished yet."
    metric = main_metric(rows)
    contenders = {name: by_size for name, by_size in best_of_families(rows, metric).items() if by_size}
    if not contenders:
        return "No finished run has a result on the held-out data."
    if len(contenders) == 1:
        return describe_one(*contenders.items(), metric)
    sizes = sorted({size for by_size in contenders.values() for size in by_size})
    comparisons = [found for size in sizes if (found := compare(size, contenders, metric))]
    if not comparisons:
        return f"{join_names(list(contenders))} have no training-set size in common yet, so nothing can be compared."
    text = describe_order(comparisons, sizes, metric)
    if metric.key != "accuracy":
        text = f"in {metric.name}, {text}"
    return f"{text[0].upper()}{text[1:]}." if text.startswith(("in ", "the ")) else f"{text}."


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


def compare(size: int, contenders: Contenders, metric: Metric) -> Comparison | None:
    """None when fewer than two contenders have a run of this size."""
    here = {name: by_size[size] for name, by_size in contenders.items() if size in by_size}
    if len(here) < 2:
        return None
    ranking = sorted(here, key=lambda name: metric.lead(here[name].mean, 0.0), reverse=True)
    best, others = ranking[0], ranking[1:]
    gaps = {name: metric.lead(here[best].mean, here[name].mean) for name in others}
    equal = [name for name in others if metric.number(gaps[name]) == metric.number(0.0)]
    unclear = [name for name in others if name not in equal and not leads(here[best], here[name], metric)]
    tied = (best, *equal, *unclear) if equal or unclear else ()
    return Comparison(size, tuple(ranking), gaps[others[0]], tied, bool(unclear))


def leads(best: Cell, other: Cell, metric: Metric) -> bool:
    """Whether the better mean is a lead: the 95% interval of the difference leaves out 0.

    Where nothing tells how sure the difference is (one seed without outcomes per item), it is the plain difference.
    """
    values = [{row["seed"]: metric.value(row) for row in cell.rows} for cell in (best, other)]
    difference = paired_difference(*values)
    if difference is None or difference.half_width is None:
        return metric.lead(best.mean, other.mean) > 0
    return difference.clear and metric.lead(difference.mean, 0.0) > 0


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
    by = "" if last.tied else f" by {metric.gap(last.gap)}"
    if len(comparisons) == 1:
        return f"{last.claim}{by} at {plural(last.size, f'training {metric.sized_by}')}"
    spans = [list(span) for _, span in groupby(comparisons, key=lambda one: one.claim)]
    if len(spans) == 1:
        compared = "" if len(comparisons) == sizes.index(last.size) + 1 else " compared,"
        change = "" if last.tied else f"; {describe_gaps(comparisons, metric)}"
        return f"{last.claim} at every size{compared} up to {whole(last.size)}{change}"
    if len(spans) > MOST_CLAIMS:
        changes = f"the order changes {len(spans) - 1} times over {len(comparisons)} sizes"
        return f"{changes}; {last.claim}{by} at {whole(last.size)}"
    claims = [f"{span[-1].claim} {place(span, comparisons)}" for span in spans[:-1]]
    end = f",{by} at {whole(last.size)}" if by and len(spans[-1]) > 1 else f",{by}" if by else ""
    return "; ".join([*claims, f"{last.claim} {place(spans[-1], comparisons)}{end}"])


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
    gaps = [one.gap for one in comparisons]
    if metric.number(min(gaps)) == metric.number(max(gaps)):
        return f"{name} stays at {metric.gap(gaps[-1])}"
    slack = 0.05 * (max(gaps) - min(gaps))  # a step of so little against the trend does not break it
    steps = [after - before for before, after in pairwise(gaps)]
    for verb, against in (("shrinks", max(steps)), ("grows", -min(steps))):
        if against <= slack:
            return f"{name} {verb} from {metric.number(gaps[0])} to {metric.gap(gaps[-1])}"
    return f"{name} varies between {metric.number(min(gaps))} and {metric.gap(max(gaps))}"


def join_names(names: list[str]) -> str:
    """`A, B and C`"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def size_table(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """(header, body): a row per training-set size, a column per model; `84.2 ± 0.6%`, the spread from two seeds on."""
    metric = main_metric(rows)
    by_model = aggregate(rows, metric)
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
