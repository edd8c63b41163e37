"""What a study found, in words and as a table: the same for terminal, page, Markdown, LaTeX, advice and dashboards."""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from vitlab.files import write_text
from vitlab.formatting import DASH, finite, plural, whole
from vitlab.studies.results import CHANCE, LEAD, LEVEL, UNDECIDED, Cell, Gap, Results, family_name
from vitlab.studies.stats import Estimate
from vitlab.studies.store import LIMITS
from vitlab.tasks.metrics import Metric

WIDTH = 90  # characters of the first sentence
NAME_WIDTH = 20  # of a model there, if it is too long
MOST_CLAIMS = 4  # of a sentence; more changes of the order are counted
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
MARKDOWN = {character: f"\\{character}" for character in "\\`*_[]<>|~&$"}  # what means something inside a line


@dataclass(frozen=True)
class Comparison:
    """The contenders at one training-set size, by their names.

    `gap` is from the best to the next, or to the first that the best is not clearly ahead of.
    """

    size: int
    ranking: tuple[str, ...]  # best mean first
    gap: Gap
    tied: tuple[str, ...]  # the best and those that it is not clearly ahead of; empty where it leads
    verdict: str  # of the tied; `LEAD` where there are none
    chance: float | None  # the accuracy of always choosing the largest class
    metric: Metric
    margin: float  # in points, within which models are level

    @property
    def leader(self) -> str | None:
        return self.ranking[0] if self.verdict == LEAD else None

    @property
    def claim(self) -> str:
        """`A leads`, `A ahead` where undecided, `A and B are level within 1 point`, `no model beats chance (10.0%)`."""
        if self.verdict == CHANCE:
            return f"no model beats chance ({self.metric.text(self.chance)})"
        if self.is_tie:
            return f"{join_names(sorted(self.tied[:2]))} are even"
        if self.verdict in (LEAD, UNDECIDED):
            return f"{self.ranking[0]} {'leads' if self.leader else 'ahead'}"
        return f"{join_names(sorted(self.tied))} are level within {self.metric.describe_margin(self.margin)}"

    @property
    def is_tie(self) -> bool:
        """Whether it is undecided and nobody is ahead: two models may both have a BLEU of 0."""
        return self.verdict == UNDECIDED and self.gap.estimate.mean == 0

    @property
    def difference(self) -> str:
        return format_gap(self.gap.estimate, self.metric)

    @property
    def seeds(self) -> str:
        """`3 seeds`, `4 and 2 seeds`; of one seed each with an interval nothing, the end of a headline speaks of it."""
        counts = dict.fromkeys(self.gap.seeds)
        one = "one seed" if self.gap.estimate.half_width is None else ""
        return one if [*counts] == [1] else f"{' and '.join(map(str, counts))} seeds"

    @property
    def rival(self) -> str:
        """The model that an undecided best one is not clearly ahead of, if that is not the runner-up; else empty."""
        return self.tied[1] if self.verdict == UNDECIDED and self.tied[1] != self.ranking[1] else ""

    @property
    def by(self) -> str:
        """` by 2.0 ± 0.6 points` of a lead, with its seeds if undecided; `, difference 0.3 ± 0.4 points` if level."""
        if self.verdict == UNDECIDED:
            of = ", difference" if self.is_tie else f" of {self.rival} by" if self.rival else " by"
            return f"{of} {format_gap(self.gap.estimate, self.metric, self.seeds)}"
        return {LEAD: f" by {self.difference}", LEVEL: f", difference {self.difference}"}.get(self.verdict, "")

    @property
    def lead(self) -> str:
        """`A by 2.0 ± 0.6 points`, `undecided: A ahead by 0.3 ± 1.9 points`, `level: 0.3 ± 0.4 points`."""
        of = f" of {self.rival}" if self.rival else ""
        alone = "" if self.gap.estimate.half_width is not None else self.seeds
        ahead = "even," if self.is_tie else f"{self.ranking[0]} ahead{of} by"
        return {
            CHANCE: "none beats chance",
            LEAD: f"{self.ranking[0]} by {self.difference}",
            LEVEL: f"level: {self.difference}",
            UNDECIDED: f"undecided: {ahead} {format_gap(self.gap.estimate, self.metric, alone)}",
        }[self.verdict]


def compare_sizes(results: Results, contenders: Mapping[str, Mapping[int, str]]) -> dict[int, Comparison]:
    """Each size at which two contenders (name -> size -> model) or more have a result, the smallest size first."""
    compared, metric = {}, results.metric
    for size in results.sizes:
        here = {name: by_size[size] for name, by_size in contenders.items() if size in by_size}
        if len(here) < 2:
            continue
        cells = {name: results.by_model[model][size] for name, model in here.items()}
        best, *others = sorted(here, key=lambda name: metric.lead(cells[name].mean, 0.0), reverse=True)
        gaps = {name: results.gap(here[best], here[name], size) for name in others}
        unclear = [name for name in others if gaps[name].verdict != LEAD]
        verdicts = {gaps[name].verdict for name in unclear} or {LEAD}
        verdict = verdicts.pop() if len(verdicts) == 1 and verdicts <= {LEAD, LEVEL} else UNDECIDED
        if not any(cell.beats_chance for cell in cells.values()):
            verdict = CHANCE
        chance = max((cell.chance for cell in cells.values() if cell.chance is not None), default=None)
        tied = (best, *unclear) if unclear else ()
        ranking, gap = (best, *others), gaps[(unclear or others)[0]]
        compared[size] = Comparison(size, ranking, gap, tied, verdict, chance, metric, results.margin)
    return compared


# ---- sentences


def headline(results: Results) -> tuple[str, str]:
    """What the study found in at most WIDTH characters, then the rest: numbers, crossover, what limits the cells."""
    first, *rest = say_result(results)
    more = results.fits.describe_headline(), describe_compute(results), describe_limits(results)
    return first, " ".join(filter(None, [*rest, *more]))


def describe_compute(results: Results) -> str:
    """`At 90% accuracy ViT needs 1.8 (1.3 to 2.6) times the compute of ResNet.`; empty without a frontier of each."""
    if results.compute is None:
        return ""
    ours, other, level, (ratio, low, high) = results.compute
    ends = f"{low:.2g} to {high:.2g}" if math.isfinite(high) else f"at least {low:.2g}"
    times = f"at most {high:.2g}" if not low else ends if math.isnan(ratio) else f"{ratio:.2g} ({ends})"
    who, whom = family_name(ours), family_name(other)
    return f"At {results.metric.text(level)} {who} needs {times} times the training compute of {whom}."


def say_result(results: Results) -> list[str]:
    """Sentences that hold for the finished runs (docs/rules.md says when); the first has at most WIDTH characters."""
    if not results.rows:
        return ["No run has finished yet."]
    metric = results.metric
    contenders = {results.name_of(name): found for name, found in results.contenders.items()}
    if not contenders:
        return ["No finished run has a result on the held-out data."]
    cells = [results.by_model[model][size] for by_size in contenders.values() for size, model in by_size.items()]
    if not any(cell.beats_chance for cell in cells):
        best, chance = (metric.text(max(getattr(cell, key) for cell in cells)) for key in ("mean", "chance"))
        return [f"No model beats chance: {best} {metric.name} at best; guessing the largest class has {chance}."]
    names = list(contenders)
    if len(contenders) == 1:
        ((name, by_size),) = contenders.items()
        of_sizes = {size: results.by_model[model][size] for size, model in by_size.items()}
        return shorten([describe_model(name, of_sizes, metric, " reaches")], names)
    comparisons = list(compare_sizes(results, contenders).values())
    if not comparisons:
        text = f"{join_names(names)} have no training-set size in common yet, so nothing can be compared."
        return shorten([text], names)
    whole_order, last = (describe_order(some, results.sizes) for some in (comparisons, comparisons[-1:]))
    claims = "; ".join(describe_claims(comparisons))
    choices = [[whole_order], [claims, last], [last, claims] if len(comparisons) > 1 else [last]]
    prefix = "" if metric.key == "accuracy" else f"in {metric.name}, "
    written = [[f"{prefix}{first}.", *(f"{text}." for text in rest)] for first, *rest in choices]
    starts = ("in ", "the ", "no ", "nobody ", "undecided")  # a name keeps its letters
    written = [[f"{t[0].upper()}{t[1:]}" if t.startswith(starts) else t for t in some] for some in written]
    said = next((some for some in written if len(some[0]) <= WIDTH), None) or shorten(written[-1], names)
    if single := [one for one in comparisons if min(one.gap.seeds) == 1]:
        where = f"One seed at {join_names([whole(one.size) for one in single])}: its spread is that of other sizes."
        if len(single) == len(comparisons):
            has_interval = any(one.gap.estimate.half_width is not None for one in single)
            where = "One seed: the interval does not cover others." if has_interval else "One seed, no interval."
        said = [*said, where]
    if results.by_family and len(results.contenders) < len(results.by_model):
        items = "test items, which flatters a family of several" if results.chosen_on_test else "validation items"
        said = [*said, f"The best model of a family is the best on {items}."]
    return said


def shorten(sentences: list[str], names: list[str]) -> list[str]:
    """Long names lose their middle, where the first sentence is too long; then the full one follows."""
    first = sentences[0]
    for name in sorted(names, key=len, reverse=True):
        if len(first) > WIDTH and len(name) > NAME_WIDTH:
            first = first.replace(name, f"{name[: NAME_WIDTH // 2]}…{name[1 - NAME_WIDTH // 2 :]}")
    first = textwrap.shorten(first, WIDTH, placeholder=" …")
    return sentences if first == sentences[0] else [first, *(sentences[1:] or sentences)]


def describe_limits(results: Results) -> str:
    """`From 4,000 examples on both models should gain more from more steps than from more data.`; empty if none should.

    With accuracy, what twice the budget brought on Fashion-MNIST (docs/rules.md).
    """
    places: dict[str, list[str]] = {}
    budgets: set[str] = set()
    for model, cells in results.by_model.items():
        if here := [size for size, cell in cells.items() if cell.limit == "budget"]:
            places.setdefault(name_sizes(here, [*cells], results.metric.sized_by), []).append(model)
            budgets |= {str(row.get("budget") or "") for size in here for row in cells[size].rows}
    if not places:
        return ""
    if len(places) == 1:
        ((where, models),) = places.items()
        count = len(results.by_model)
        every = "both models" if count == 2 else f"all {count} models"
        who = every if 1 < len(models) == count else join_names(models)
        text = f"{where[0].upper()}{where[1:]} {who}"
    else:
        text = join_names([f"{join_names(models)} {where}" for where, models in places.items()])
    text += " should gain more from more steps than from more data"
    unit, _, value = budgets.pop().partition("=")
    if not budgets and value and results.metric.key == "accuracy":
        text += f"; budget.{unit}={2 * float(value):.10g} may lower the error by about a fifth, as on Fashion-MNIST"
    return f"{text}."


def name_sizes(some: list[float], every: list[float], unit: str) -> str:
    """`from 4,000 examples on`, `at 250 and 1,000 examples`, `at every size`."""
    if some == every and len(every) > 1:
        return "at every size"
    if len(some) > 1 and some == every[-len(some) :]:
        return f"from {whole(some[0])} {unit}s on"
    return f"at {join_names([whole(size) for size in some])} {unit}s"


def describe_model(model: str, by_size: Mapping[int, Cell], metric: Metric, verb: str = ":") -> str:
    """`vit_nano: 97.3% accuracy with 32,000 training examples, 73.6% with 250.`"""
    first, last = min(by_size), max(by_size)
    size = plural(last, f"training {metric.sized_by}")
    text = f"{model}{verb} {metric.text(by_size[last].mean)} {metric.name} with {size}"
    return text + (f", {metric.text(by_size[first].mean)} with {whole(first)}." if first != last else ".")


def describe_order(comparisons: list[Comparison], sizes: list[int]) -> str:
    """Who leads where: a claim per span of neighbouring sizes; at the end the gap to the next best."""
    last = comparisons[-1]
    if len(comparisons) == 1:
        where = f"at {plural(last.size, f'training {last.metric.sized_by}')}"
        return f"{'undecided: ' if last.verdict == UNDECIDED else ''}{last.claim}{last.by} {where}"
    spans, claims = find_spans(comparisons), describe_claims(comparisons)
    if len(spans) == 1:
        compared = "" if len(comparisons) == sizes.index(last.size) + 1 else " compared,"
        text = f"{last.claim} at every size{compared} up to {whole(last.size)}"
        return f"{text}; {describe_gaps(comparisons)}" if last.leader else describe_span(text, last)
    at = f" at {whole(last.size)}"
    if len(spans) > MOST_CLAIMS:
        final = f"{last.claim}{last.by}{at}" if last.leader else describe_span(f"{last.claim}{at}", last)
        return f"{claims[0]}; {final}"
    final = f"{last.claim} {place(spans[-1], comparisons)}"
    final += f",{last.by}{at if len(spans[-1]) > 1 else ''}" if last.leader else describe_span("", last)
    return "; ".join([*claims[:-1], final])


def find_spans(comparisons: list[Comparison]) -> list[list[Comparison]]:
    """Neighbouring sizes with the same claim."""
    return [list(span) for _, span in groupby(comparisons, key=lambda one: one.claim)]


def describe_claims(comparisons: list[Comparison]) -> list[str]:
    """A claim per span without its numbers: `A leads up to 2,000`, `B ahead from 8,000 (undecided)`; of many one."""
    spans = find_spans(comparisons)
    if len(spans) > MOST_CLAIMS:
        leaders = [leader for leader, _ in groupby(one.leader for one in comparisons if one.leader)]
        if len(leaders) > 1:
            return [f"the lead changes {plural(len(leaders) - 1, 'time')} over {len(comparisons)} sizes"]
        who, where = (leaders[0], "some") if leaders else ("nobody", "any")
        return [f"{who} leads at {where} of {len(comparisons)} sizes"]
    doubts = [" (undecided)" if span[-1].verdict == UNDECIDED else "" for span in spans]
    return [f"{span[-1].claim} {place(span, comparisons)}{doubt}" for span, doubt in zip(spans, doubts, strict=True)]


def describe_span(text: str, last: Comparison) -> str:
    """A claim that is no lead, with the difference at its largest size: `A ahead (undecided: 2 ± 4 points at 500)`."""
    if last.verdict == UNDECIDED:
        over = f" over {last.rival}" if last.rival else ""
        where = f"{last.difference}{over} at {whole(last.size)}"
        return f"{text} (undecided: {', '.join(filter(None, [where, last.seeds]))})"
    return f"{text} ({last.by.lstrip(', ')})" if last.by else text


def place(span: list[Comparison], comparisons: list[Comparison]) -> str:
    """Where a span lies among all sizes compared: `at 500`, `up to 2,000`, `from 8,000`."""
    first, last = span[0], span[-1]
    if first is last:
        return f"at {whole(first.size)}"
    if first is comparisons[0]:
        return f"{'at every size ' if last is comparisons[-1] else ''}up to {whole(last.size)}"
    return f"from {whole(first.size)}" + ("" if last is comparisons[-1] else f" to {whole(last.size)}")


def describe_gaps(comparisons: list[Comparison]) -> str:
    """How the leader's distance to the next best moves with the size: `the gap shrinks from 38.2 to 8.1 points`."""
    name = "the gap" if all(len(comparison.ranking) == 2 for comparison in comparisons) else "the gap to the next best"
    metric, last = comparisons[-1].metric, comparisons[-1].difference
    gaps = [comparison.gap.estimate.mean for comparison in comparisons]
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


def format_gap(gap: Estimate, metric: Metric, seeds: str = "") -> str:
    """`8.1 ± 1.3 points`: a difference, and how far its 95% interval reaches; behind it the `seeds`, if given.

    One that would reach beyond 100 points, and one of ratios, whose ends are not equally far: `30 points (-5 to 100)`.
    """
    unit = "" if metric.relative else metric.gap_unit
    text, ends = format_difference(gap.mean, metric), ""
    if gap.half_width is not None and (metric.relative or (metric.percent and max(gap.high, -gap.low) > 1)):
        low, high = (max(-1.0, min(1.0, end)) if metric.percent else end for end in (gap.low, gap.high))
        ends = f"{format_difference(low, metric)} to {format_difference(high, metric)}"
    elif gap.half_width is not None:
        text += f" ± {metric.number(gap.half_width)}"
    behind = "; ".join(filter(None, [ends, seeds]))
    return f"{text} {unit}".rstrip() + (f" ({behind})" if behind else "")


def format_difference(value: float, metric: Metric) -> str:
    """Of a relative metric by how many percent the better value is below the other one."""
    return f"{-100 * math.expm1(-value):.1f}%" if metric.relative else metric.number(value)


# ---- tables


class SizeTable(NamedTuple):
    """`body` has a row per training-set size; `note` says what stands in the cells, and what chance is."""

    header: list[str]
    body: list[list[str]]
    note: str


def make_size_table(results: Results) -> SizeTable:
    """A column per model, `84.2 ± 0.6% (more data)`, in brackets what would help; last the best model's lead."""
    metric, rows, by_model = results.metric, results.rows, results.by_model
    sizes = sorted({row["train_size"] for row in rows})
    compared = compare_sizes(results, {model: dict.fromkeys(by_size, model) for model, by_size in by_model.items()})
    cells = [cell for by_size in by_model.values() for cell in by_size.values()]
    several = len({len(cell.rows) for cell in cells}) > 1
    body = [
        [whole(size)]
        + [cell_text(of.get(size), metric, several) for of in by_model.values()]
        + [compared[size].lead if size in compared else DASH] * bool(compared)
        for size in sizes
    ]
    note = describe_numbers(results, list(compared.values()))
    if any(cell.limit for cell in cells):
        note += f" ({LIMITS['data']}), ({LIMITS['budget']}): what would help more; ({LIMITS['undecided']}): not known."
    return SizeTable([f"training {metric.sized_by}s", *by_model, *[AGAINST] * bool(compared)], body, note)


def cell_text(cell: Cell | None, metric: Metric, with_count: bool) -> str:
    if cell is None:
        return DASH
    spread = "" if cell.std is None else f" ± {metric.number(cell.std)}"
    more = ", ".join(filter(None, [f"n={len(cell.rows)}" if with_count else "", LIMITS.get(cell.limit, "")]))
    return f"{metric.number(cell.mean)}{spread}{'%' if metric.percent else ''}{f' ({more})' if more else ''}"


def describe_numbers(results: Results, compared: list[Comparison]) -> str:
    """What ± is after a mean and after a difference, chance, and the number of held-out examples."""
    metric, rows = results.metric, results.rows
    cells = [cell for by_size in results.by_model.values() for cell in by_size.values()]
    fewest, most = (choose((len(cell.rows) for cell in cells), default=1) for choose in (min, max))
    seeds = plural(most, "seed") if fewest == most else f"{fewest} to {most} seeds (n)"
    texts = ["One seed." if most == 1 else f"Mean ± standard deviation over {seeds}."]
    gaps = [one.gap.estimate for one in compared if one.gap.estimate.half_width is not None]
    of_other_data = "@" in metric.key  # `fewshot_5@digits`: the items of the study's own data are not tested
    items = 0 if of_other_data else max((int(finite(row.get("test_items")) or 0) for row in rows), default=0)
    if gaps:
        over_seeds, over_items = any(gap.seeds > 1 for gap in gaps), any(gap.items for gap in gaps)
        over = " and ".join(["seeds"] * over_seeds + ["held-out examples"] * over_items)
        alone = "" if over_seeds else "; other seeds are not covered"
        interval = f"95% interval over {over}{alone}"
        of = f"percent of the higher {metric.name} ({interval})" if metric.relative else f"± half of the {interval}"
        texts.append(f"Differences: {of}.")
    if (chance := max((cell.chance for cell in cells if cell.chance is not None), default=None)) is not None:
        share = metric.text(chance)
        texts.append(f"Chance, always choosing the largest class: {share} of {items:,} held-out examples.")
    elif items:
        texts.append(f"{plural(items, 'held-out item')}.")
    return " ".join(texts)


def write_tables(results: Results) -> None:
    """Write tables/results.md and tables/results.tex of a study; nothing without a run. Raises UserError."""
    if results.rows:
        for name, text in zip(TABLES, (format_markdown, format_latex), strict=True):
            write_text(results.files.folder / name, text(results))


def format_markdown(results: Results) -> str:
    """A table of GitHub's Markdown, with a line that says what its numbers are."""
    (header, *body), caption = build_table(results, MARKDOWN)
    lines = "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---:"] * len(header), *body))
    return f"{lines}\n\n{caption}\n"


def format_latex(results: Results) -> str:
    """A table environment for LaTeX with the package booktabs."""
    import pandas as pd

    (header, *body), caption = build_table(results, LATEX)
    text = pd.DataFrame(body, columns=header).to_latex(index=False, column_format="r" * len(header), caption=caption)
    return "% needs \\usepackage{booktabs}\n" + text.replace(r"\caption", "\\centering\n\\caption")


def build_table(results: Results, characters: Mapping[str, str]) -> tuple[list[list[str]], str]:
    """The header and a row per size; caption. All escaped."""
    table = make_size_table(results)
    data = ", ".join(sorted({str(row["data"]) for row in results.rows}))
    lines = [[escape(cell, characters) for cell in line] for line in (table.header, *table.body)]
    return lines, escape(f"Held-out {results.metric.name} on {data}. {table.note}", characters)


def escape(text: str, characters: Mapping[str, str]) -> str:
    return "".join(characters.get(character, character) for character in " ".join(text.split()))
