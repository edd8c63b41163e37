"""Say a study's findings in sentences and tables, shared by terminal, page, Markdown, LaTeX, advice and dashboards."""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from vitlab.formatting import DASH, amount, finite, plural, whole, with_prefix
from vitlab.statistics.fit import SCATTER
from vitlab.statistics.stats import Estimate, find_visible
from vitlab.studies.results import CHANCE, LEAD, LEVEL, UNDECIDED, Cell, Gap, Results, family_name
from vitlab.tasks.metrics import Metric

WIDTH = 120  # characters of the first sentence
NAME_WIDTH = 20  # characters of a model's name if the first sentence is too long
MOST_SEEDS = 500  # of each model; a plan names no more
MOST_SIZES = 30  # rows of the table of sizes
AGAINST = "best vs. runner-up"
TABLES = ("tables/results.md", "tables/results.tex")
LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    DASH: "--",
}
MARKDOWN = {character: f"\\{character}" for character in "\\`*_[]<>|~&$"}  # characters with a meaning inside a line


@dataclass(frozen=True)
class Comparison:
    """Compare the contenders, by name, at one training-set size.

    `best` leads on validation items if there are three or more contenders and all have validation results, else on
    test items. `next` is the first contender that `best` does not clearly beat, or else the runner-up on test items;
    `gap` is their difference.
    """

    size: int
    best: str
    next: str
    tied: tuple[str, ...]  # `best` and contenders that `best` does not clearly beat; empty if `best` leads
    gap: Gap
    verdict: str
    chance: float | None  # the accuracy of always choosing the largest class
    metric: Metric

    @property
    def order(self) -> tuple[str, str]:
        """Return `best` and `next`, ordered by their test items, the better first."""
        return (self.best, self.next) if self.gap.estimate.mean >= 0 else (self.next, self.best)

    @property
    def difference(self) -> str:
        return format_gap(replace(self.gap.estimate, mean=abs(self.gap.estimate.mean)), self.metric)

    @property
    def lead(self) -> str:
        """Say who leads: `A by 2.0 points (1.4 to 2.6)`, `undecided: A ahead by 0.3 points (-1.6 to 2.2)`, ..."""
        ahead, behind = self.order
        of = f" of {behind}" if len(self.tied) > 2 or ahead != self.best else ""
        one = "" if self.gap.estimate.half_width is not None else " (one seed)"
        who = f"{ahead} ahead{of} by" if self.gap.estimate.mean else "even,"
        return {
            CHANCE: "none beats chance",
            LEAD: f"{self.best} by {self.difference}",
            LEVEL: f"level: {self.difference}",
            UNDECIDED: f"undecided{one}: {who} {self.difference}",
        }[self.verdict]


def compare_sizes(results: Results, contenders: Mapping[str, Mapping[int, str]]) -> dict[int, Comparison]:
    """Compare contenders (name -> size -> model) at each size with two or more results, in ascending order."""
    compared, metric = {}, results.metric
    for size in results.sizes:
        cells = {name: results.by_model[of[size]][size] for name, of in contenders.items() if size in of}
        if len(cells) < 2:
            continue
        by_test = sorted(cells, key=lambda name: metric.lead(cells[name].mean, 0.0), reverse=True)
        kept = {name: cell.validation for name, cell in cells.items() if cell.validation is not None}
        best = by_test[0]
        if len(kept) == len(cells) > 2:
            best = max(kept, key=lambda name: metric.lead(kept[name], 0.0))
        gaps = {}
        for name in [name for name in by_test if name != best]:
            gap = results.gap(contenders[best][size], contenders[name][size], size)
            if gap.best != contenders[best][size]:  # the other model is better on test items
                gap = gap._replace(estimate=replace(gap.estimate, mean=-gap.estimate.mean))
            gaps[name] = gap
        unclear = [name for name, gap in gaps.items() if gap.verdict != LEAD or gap.estimate.mean < 0]
        verdicts = {UNDECIDED if gaps[name].verdict == LEAD else gaps[name].verdict for name in unclear} or {LEAD}
        rival = (unclear or [*gaps])[0]
        compared[size] = Comparison(
            size=size,
            best=best,
            next=rival,
            tied=(best, *unclear) if unclear else (),
            gap=gaps[rival],
            verdict=verdicts.pop() if len(verdicts) == 1 else UNDECIDED,
            chance=max((cell.chance for cell in cells.values() if cell.chance is not None), default=None),
            metric=metric,
        )
    return compared


# ---- sentences


@lru_cache(1)  # page, terminal and W&B ask for the same study
def headline(results: Results) -> tuple[str, str, str]:
    """Return the main finding, `shorten`ed, the rest (numbers, crossover, limits), what was visible."""
    first, *rest = [*say_result(results), describe_compute(results), describe_undertrained(results)]
    return first, " ".join(filter(None, rest)), describe_sight(results)


def describe_sight(results: Results) -> str:
    """Say `4 of 5 such studies call at 4,000 a difference of 2.1 points, ...` and what more buys; "" if unknown."""
    comparisons = [*compare_sizes(results, results.contenders).values()]
    last, fewer = (comparisons[-1], min(comparisons[-1].gap.seeds)) if comparisons else (None, 0)
    if not last or not (gap := last.gap.estimate).error or last.verdict == CHANCE or (gap.over_seeds and fewer == 1):
        return ""
    find, asked = prepare_sight(results, comparisons), {"": {}}
    asked |= {f" with {2 * fewer} seeds each": {"seeds": 2 * fewer}} if gap.over_seeds else {}
    asked |= {" with twice the held-out examples": {"items": 2}} if gap.over_items else {}
    if fewer == 2 and gap.over_seeds:  # what two seeds see hangs on how alike they happen to be
        asked = {f" with {seeds} seeds each": {"seeds": seeds} for seeds in (4, 6)}
    leads = {what: find(**of) for what, of in asked.items()}
    if not all(map(math.isfinite, leads.values())):
        return ""
    write = lambda mean: format_gap(replace(gap, mean=abs(mean), error=None), results.metric)  # noqa: E731
    said = f"4 of 5 such studies call at {whole(last.size)} a difference of "
    said += ", ".join(f"{write(lead)}{what}" for what, lead in leads.items()) + "."
    if last.verdict != UNDECIDED or not gap.over_seeds or not gap.mean:
        return said
    tried = range(fewer + 1, MOST_SEEDS)
    place = bisect_left(tried, True, key=lambda seeds: find(seeds=seeds) <= abs(gap.mean))
    do = f"plan {tried[place]} seeds each and look once" if place < len(tried) else f"{MOST_SEEDS} seeds are too few"
    return f"{said} To settle {write(gap.mean)} {do}."


def prepare_sight(results: Results, comparisons: Sequence[Comparison]) -> Callable[..., float]:
    """Return `find_visible` for the gap at the largest size: one of so many models, at so many undecided sizes."""
    last, undecided = comparisons[-1], sum(one.verdict != LEAD for one in comparisons[:-1]) + 1
    models = [last.size in of for of in results.by_model.values()].count(True)
    gap = replace(last.gap.estimate, comparisons=models / 2 * undecided / results.alpha)
    return partial(find_visible, gap, 2 / sum(1 / count for count in last.gap.seeds), models)


def describe_compute(results: Results) -> str:
    """Compare compute: `At 90% accuracy ViT needs 1.8 (1.3 to 2.6) times the compute of ResNet.`; "" if unknown."""
    if results.compute is None:
        return ""
    ours, other, level, ratio, low, high = results.compute
    ends = f"{low:.2g} to {high:.2g}" if math.isfinite(high) else f"at least {low:.2g}"
    times = f"at most {high:.2g}" if not low else ends if math.isnan(ratio) else f"{ratio:.2g} ({ends})"
    who, whom = results.name_of(ours), results.name_of(other)
    return f"At {results.metric.text(level)} {who} needs {times} times the training compute of {whom}."


def say_result(results: Results) -> list[str]:
    """List sentences about the finished runs, by docs/rules.md, the first `shorten`ed."""
    if not results.rows:
        return ["No run has finished yet."]
    metric = results.metric
    contenders = {results.name_of(name): found for name, found in results.contenders.items()}
    if not contenders:
        return ["No finished run has a result on the held-out data."]
    cells = [results.by_model[model][size] for by_size in contenders.values() for size, model in by_size.items()]
    if not any(cell.beats_chance for cell in cells):
        best, chance = (metric.text(max(getattr(cell, key) for cell in cells)) for key in ("mean", "chance"))
        return [f"No model beats chance: {best} {metric.name} at best; guessing the largest class gives {chance}."]
    names = list(contenders)
    if len(contenders) == 1:
        ((name, by_size),) = contenders.items()
        of_sizes = {size: results.by_model[model][size] for size, model in by_size.items()}
        return shorten([describe_model(name, of_sizes, metric, " reaches")], names)
    comparisons = list(compare_sizes(results, contenders).values())
    if not comparisons:
        text = f"{join_names(names)} have no training-set size in common yet, so nothing can be compared."
        return shorten([results.fits.describe_headline() or text], names)
    unknown = all(one.gap.estimate.half_width is None for one in comparisons)
    if unknown and (found := results.fits.describe_sure()):  # of one seed each, by curves
        first = f"In {metric.name}, {found[0]}" if metric.key != "accuracy" else found[0]
        return shorten([first, *found[1:]], names)
    crossing, *more = results.fits.describe_headline(), describe_end(results, comparisons), describe_leads(comparisons)
    sure = results.fits.between is not None and results.fits.between[1].claim == "sure"
    written = [crossing, *more] if sure else [*more, crossing]
    if effort := describe_effort(results, contenders):
        written = [effort, *(text for text in written if text is not crossing or not sure)]
    if len({*results.trials_of.values()}) > 1:
        of_each = join_names([f"{count} of {model}" for model, count in results.trials_of.items()])
        written[0] = f"With unequal trials, {of_each}: {written[0]}"
    first = written[0]
    if metric.key != "accuracy":
        lower = first.startswith(("Undecided", "No model", "With "))
        first = f"In {metric.name}, {first[0].lower() if lower else first[0]}{first[1:]}"
    said = shorten([first, *filter(None, written[1:])], names)
    if single := [one for one in comparisons if min(one.gap.seeds) == 1]:
        sizes = join_names([amount(one.size) for one in single])
        where = f"One seed with {sizes}: its interval borrows the spread of other sizes."
        if len(single) == len(comparisons):
            has_interval = any(one.gap.estimate.half_width is not None for one in single)
            where = f"One seed each: {'the interval covers test examples alone' if has_interval else 'no interval'}."
        said = [*said, where]
    if results.by_family and len(results.contenders) < len(results.by_model):
        items = "test items, which flatters a family of several" if results.chosen_on_test else "validation"
        said = [*said, f"Each family is shown by its best model on {items}."]
    return said


def describe_effort(results: Results, contenders: Mapping[str, Mapping[int, str]]) -> str:
    """Describe how the number of trials changes the result: `With 4 trials each or more, A passes B at 2,000.`

    If the leader changes with more trials, names both leaders. Returns "" unless two contenders have a sure result.
    """
    if not results.efforts or len(contenders) != 2:
        return ""
    found = {count: results.expect_best(count) for count in results.efforts}
    few, *_, all_trials = [find_leads([*compare_sizes(one, contenders).values()]) for one in found.values()]
    for size, ahead in reversed(few.items()):
        if (later := all_trials.get(size, ahead)) != ahead:
            orders = {
                k: compare_sizes(results.expect_best(k), contenders)[size].order for k in range(1, results.trials)
            }
            few = plural(max(count for count, order in orders.items() if order[0] == ahead), "trial")
            start = f"Who leads at {amount(size)} depends on the tuning"
            return f"{start}: {ahead} with up to {few} each, {later} with more."
    crossings = {count: one.fits.between[1] for count, one in found.items() if one.fits.between}
    last = crossings.get(results.trials)
    if last is None or last.claim != "sure":
        return ""
    sure = [count for count, one in crossings.items() if (one.claim, one.ahead) == ("sure", last.ahead)]
    alike = [count for count in sure if last.low <= crossings[count].size <= (last.high or math.inf)]
    *_, since = takewhile(alike.__contains__, reversed(results.efforts))
    which = f"With {plural(since, 'trial')} each{' or more' if since < results.trials else ''}"
    which = "With any number of trials" if since == results.efforts[0] else which
    text = results.fits.describe_headline()
    return f"{which}, {text[0].lower() + text[1:] if text.startswith('With ') else text}"


def find_leads(comparisons: Sequence[Comparison]) -> dict[int, str]:
    """Return the leader by size."""
    return {one.size: one.best for one in comparisons if one.verdict == LEAD}


def describe_end(results: Results, comparisons: Sequence[Comparison]) -> str:
    """Describe the largest size: `A leads at every size from 500 to 8,000, by 2.0 points (1.4 to 2.6) there.`"""
    last, leads, first = comparisons[-1], find_leads(comparisons), comparisons[0]
    metric, at = last.metric, f"with {last.metric.sized(last.size)}"
    everywhere = f"at every size from {amount(first.size)} to {amount(last.size)}" if first is not last else at
    if last.verdict == CHANCE:
        return f"No model beats chance ({metric.text(last.chance)}) {at}."
    if last.size in leads:
        where = everywhere if {*leads.values()} == {last.best} and len(leads) == len(comparisons) else at
        there = " there" if where is everywhere and first is not last else ""
        return f"{last.best} leads {where}, by {last.difference}{there}."
    if last.verdict == LEVEL:
        margin = metric.describe_margin(results.margin)
        where = everywhere if all(one.verdict == LEVEL for one in comparisons) else at
        return f"{join_names(sorted(last.tied))} are level within {margin} {where}."
    one = "" if last.gap.estimate.half_width is not None else " (one seed)"
    who = " ahead of {} by" if last.gap.estimate.mean else " and {} even,"
    return f"Undecided{one}: {last.order[0]}{who.format(last.order[1])} {last.difference} {at}."


def describe_leads(comparisons: Sequence[Comparison]) -> str:
    """Describe leads that `describe_end` omits: `ResNet leads at 500 and 2,000 examples; ViT leads from 8,000 on.`"""
    leads, sizes, unit = find_leads(comparisons), [one.size for one in comparisons], comparisons[-1].metric.sized_by
    if not leads or ({*leads.values()} == {leads.get(sizes[-1])} and len(leads) in (1, len(sizes))):
        return ""
    by_name: dict[str, list[float]] = {}
    for size, name in leads.items():
        by_name.setdefault(name, []).append(size)
    texts = [f"{name} leads {name_sizes(of, sizes, unit)}" for name, of in by_name.items() if of != sizes[-1:]]
    return "; ".join(texts) + "."


def shorten(sentences: list[str], names: list[str]) -> list[str]:
    """Shorten a first sentence that is too long: its long names, then its brackets; repeat it in full after it."""
    first = sentences[0]
    for name in sorted(names, key=len, reverse=True):
        if len(first) > WIDTH and len(name) > NAME_WIDTH:
            first = first.replace(name, f"{name[: NAME_WIDTH // 2]}…{name[1 - NAME_WIDTH // 2 :]}")
    first = re.sub(r" \([^()]*\)", "", first) if len(first) > WIDTH else first  # what is still too long stays whole
    return sentences if first == sentences[0] else [first, *sentences]


def describe_undertrained(results: Results) -> str:
    """Describe undertrained cells: `ResNet at 4,000 is undertrained: try budget.steps=1200.`; "" if there are none."""
    places: dict[str, list[str]] = {}
    budgets: set[str] = set()
    for model, cells in results.by_model.items():
        if here := [size for size, cell in cells.items() if cell.undertrained]:
            places.setdefault(name_sizes(here, [*cells]), []).append(family_name(model))
            budgets |= {str(row.get("budget") or "") for size in here for row in cells[size].rows}
    if not places:
        return ""
    count = sum(map(len, places.values()))
    who = join_names([f"{join_names(models)} {where}" for where, models in places.items()])
    unit, _, value = budgets.pop().partition("=")
    advice = f": try budget.{unit}={2 * float(value):.10g}" if value and not budgets else ""
    return f"{who} {'is' if count == 1 else 'are'} undertrained{advice}."


def name_sizes(some: list[float], every: list[float], unit: str = "") -> str:
    """Name some of all sizes: `from 4,000 examples on`, `at 250 examples`, `at every size`; without a unit `at 250`."""
    unit = unit and f" {unit}s"
    if some == every and len(every) > 1:
        return "at every size"
    if len(some) > 1 and some == every[-len(some) :]:
        return f"from {amount(some[0])}{unit} on"
    return f"at {join_names([amount(size) for size in some])}{unit}"


def describe_model(model: str, by_size: Mapping[int, Cell], metric: Metric, verb: str = ":") -> str:
    """Describe a model: `vit_nano: 97.3% accuracy with 32,000 training examples, 73.6% with 250.`"""
    first, last = min(by_size), max(by_size)
    size = f"{amount(last)} {metric.sizes}"
    text = f"{model}{verb} {metric.text(by_size[last].mean)} {metric.name} with {size}"
    return text + (f", {metric.text(by_size[first].mean)} with {amount(first)}." if first != last else ".")


def join_names(names: list[str]) -> str:
    """Join names: `A, B and C`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def format_gap(gap: Estimate, metric: Metric) -> str:
    """Format a difference with its 95% interval: `8.1 points (6.8 to 9.4)`."""
    text, ends = format_difference(gap.mean, metric), ""
    if gap.half_width is not None:
        low, high = (max(-1.0, min(1.0, end)) if metric.percent else end for end in (gap.low, gap.high))
        ends = f"{format_difference(low, metric)} to {format_difference(high, metric)}"
        ends = "too few seeds for an interval" if metric.percent and gap.half_width >= 1 else ends
    return f"{text} {'' if metric.relative else metric.gap_unit}".rstrip() + (f" ({ends})" if ends else "")


def format_difference(value: float, metric: Metric) -> str:
    """Format a difference. For a relative metric: percent by which the better value is below the other."""
    return f"{-100 * math.expm1(-value):.1f}%" if metric.relative else metric.number(value)


# ---- tables


class SizeTable(NamedTuple):
    """A table with one row of `body` per training-set size; `note` explains the cells and gives chance."""

    header: list[str]
    body: list[list[str]]
    note: str


@lru_cache(1)
def make_size_table(results: Results) -> SizeTable:
    """Make a column per model, with `84.2 ± 0.6% (more steps)` if undertrained; the last column says who leads."""
    metric, rows, by_model = results.metric, results.rows, results.by_model
    if len(results.sizes) > MOST_SIZES and {fit.measured_by for fit in results.fits.by_model.values()} == {SCATTER}:
        return read_curves(results)
    sizes = sorted({row["train_size"] for row in rows})
    compared = compare_sizes(results, {model: dict.fromkeys(by_size, model) for model, by_size in by_model.items()})
    cells = [cell for by_size in by_model.values() for cell in by_size.values()]
    several = len({len(cell.rows) for cell in cells}) > 1
    fewer = {count: results.expect_best(count).by_model for count in results.efforts[:-1]}
    body = [
        [amount(size)]
        + [metric.text(cell and cell.mean) for of in fewer.values() for m in by_model for cell in [of[m].get(size)]]
        + [cell_text(of.get(size), metric, several) for of in by_model.values()]
        + [compared[size].lead if size in compared else DASH] * bool(compared)
        for size in sizes
    ]
    if {*results.trials_of.values()} - {"1"}:
        flops, hours = (lambda value: with_prefix(value, "")), "{:.2g}".format
        for name, text in (("trials", str), ("steps", whole), ("FLOPs", flops), ("hours", hours)):
            spent = [text(results.effort.loc[model, name]) for model in by_model]
            body.append([name, *[DASH] * (len(fewer) * len(by_model)), *spent, *[DASH] * bool(compared)])
    note = describe_numbers(results, list(compared.values()))
    if any(cell.undertrained for cell in cells):
        note += " (more steps): undertrained."
    expected = [f"{model} {plural(count, 'trial')}" for count in fewer for model in by_model]
    return SizeTable([metric.sizes, *expected, *by_model, *[AGAINST] * bool(compared)], body, note)


def read_curves(results: Results) -> SizeTable:
    """Read each model's curve at round sizes, where a study has too many sizes for a row each."""
    fits, metric, body = results.fits.by_model, results.metric, []
    start, end = (choose(of(results.by_model[model]) for model in fits) for choose, of in ((min, min), (max, max)))
    rungs = [rung * 10.0**decade for decade in range(math.ceil(math.log10(end)) + 1) for rung in (1, 2, 5)]
    marks = [mark for mark in rungs if start <= mark <= end]
    left_out = 0.025 * results.alpha / (len(marks) * max(1, len(fits) / 2))  # two neighbours: docs/rules.md
    for mark in marks:
        drawn = {}
        for role, (model, fit) in enumerate(fits.items()):
            if min(results.by_model[model]) <= mark <= max(results.by_model[model]):
                values = results.fits.to_metric(np.exp(fit.read_means(np.log([mark]), role)[:, 0]))
                drawn[model] = np.vectorize(metric.compared)(values)
        who, ranked = DASH, sorted(drawn, key=lambda model: metric.lead(drawn[model][0], 0.0), reverse=True)
        if len(ranked) > 1:
            best, *others = ranked
            mean, *gaps = metric.lead(drawn[best], drawn[others[0]])
            low, high = np.quantile(gaps, [left_out, 1 - left_out])
            known = not (fits[best].scatter[2] or fits[others[0]].scatter[2])
            gap = f"{format_difference(mean, metric)} {'' if metric.relative else metric.gap_unit}".rstrip()
            gap += f" ({format_difference(low, metric)} to {format_difference(high, metric)})" if known else ""
            clear = known and low > 0
            who = f"{best} by {gap}" if clear else f"undecided: {best} ahead of {others[0]} by {gap}"
        values = {model: values[0] for model, values in drawn.items()}
        shown = [
            metric.text(np.exp(values[m]) if metric.relative else values[m]) if m in values else DASH for m in fits
        ]
        body.append([amount(mark), *shown, who])
    note = f"Read off the curves. Last column: 95% interval at all these sizes, {results.fits.measured_by}."
    return SizeTable([metric.sizes, *fits, AGAINST], body, note)


def cell_text(cell: Cell | None, metric: Metric, with_count: bool) -> str:
    if cell is None:
        return DASH
    spread = "" if cell.std is None else f" ± {metric.number(cell.std)}"
    more = ", ".join([*[f"n={len(cell.rows)}"] * with_count, *["more steps"] * cell.undertrained])
    return f"{metric.number(cell.mean)}{spread}{'%' if metric.percent else ''}{f' ({more})' if more else ''}"


def describe_numbers(results: Results, compared: list[Comparison], what: str = "Last column: difference") -> str:
    """Explain how means and differences (`what`) were computed, the chance level, the number of held-out examples."""
    metric, rows = results.metric, results.rows
    cells = [cell for by_size in results.by_model.values() for cell in by_size.values()]
    fewest, most = (choose((len(cell.rows) for cell in cells), default=1) for choose in (min, max))
    seeds = plural(most, "seed") if fewest == most else f"{fewest} to {most} seeds (n)"
    counts = " or ".join(dict.fromkeys(results.trials_of.values()))
    of_trials = f"Of each seed the best of {counts} trials on validation items; of fewer trials the expectation."
    texts = [of_trials] if results.efforts else []
    texts += ["One seed." if most == 1 else f"Mean ± standard deviation over {seeds}."]
    gaps = [one.gap.estimate for one in compared if one.gap.estimate.half_width is not None]
    of_other_data = "@" in metric.key  # `fewshot_5@digits` tests items of other data
    items = 0 if of_other_data else max((int(finite(row.get("test_items")) or 0) for row in rows), default=0)
    if gaps:
        over_items = any(gap.items for gap in gaps)
        over_seeds = any(gap.seeds > 1 for gap in gaps) or not over_items  # a lone seed has the spread of other cells
        over = [*["seeds"] * over_seeds, *["held-out examples"] * over_items, *["trials"] * bool(results.luck)]
        how = f"equal seeds paired by their correlation, {results.correlation:.2f}"
        how = how if results.correlation else "seeds not paired"
        alone = f"; {how if over_seeds else 'other seeds are not covered'}"
        most = max(sum(size in of for of in results.by_model.values()) for size in results.sizes)
        at = [*[f"{most} models"] * (most > 2), *[f"{len(compared)} sizes"] * (len(compared) > 1)]
        at_once = f", for {join_names(at)} at once" if at else ""
        at_once += ", at all looks of a study that stops when satisfied" if results.alpha < 1 else ""
        of = f"in percent of the higher {metric.name} " if metric.relative else ""
        texts.append(f"{what} {of}(95% interval over {join_names(over)}{at_once}{alone}).")
    if (chance := max((cell.chance for cell in cells if cell.chance is not None), default=None)) is not None:
        share = metric.text(chance)
        always = f"Always choosing the largest class gives {share} on {items:,} held-out examples."
        texts.append(always if items else f"Guessing gives {share}.")
    elif items:
        texts.append(f"{plural(items, 'held-out item')}.")
    return " ".join(texts)


def format_markdown(results: Results) -> str:
    """Format the table in GitHub's Markdown, with a line that explains its numbers."""
    (header, *body), caption = build_table(results, MARKDOWN)
    lines = "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---:"] * len(header), *body))
    return f"{lines}\n\n{caption}\n"


def format_latex(results: Results) -> str:
    """Format the table as a LaTeX table environment with the package booktabs."""
    import pandas as pd

    (header, *body), caption = build_table(results, LATEX)
    text = pd.DataFrame(body, columns=header).to_latex(index=False, column_format="r" * len(header), caption=caption)
    return "% needs \\usepackage{booktabs}\n" + text.replace(r"\caption", "\\centering\n\\caption")


def build_table(results: Results, characters: Mapping[str, str]) -> tuple[list[list[str]], str]:
    """Build the table, (header and a row per size, caption), with all texts escaped."""
    table = make_size_table(results)
    data = ", ".join(sorted({str(row["data"]) for row in results.rows}))
    lines, note = [table.header, *table.body], table.note
    if results.config.get("plain_tables"):
        models = len(table.header) - (table.header[-1] == AGAINST)
        lines[1:] = [[re.sub(r" \(.*\)", "", cell) for cell in line] for line in table.body]
        lines = [line[:models] for line in lines]
        note = re.sub(r" \(n\)| Last column:.*?\.(?= |$)| \(more steps\): undertrained\.", "", note)
    lines = [[escape(cell, characters) for cell in line] for line in lines]
    return lines, escape(f"Held-out {results.metric.name} on {data}. {note}", characters)


def escape(text: str, characters: Mapping[str, str]) -> str:
    return "".join(characters.get(character, character) for character in " ".join(text.split()))
