"""Rounds that plan more runs of a study from its finished ones: until means are sure, or until a time is spent.

`--until`: a cell, variant x size, needs more seeds while the 95% interval of its mean over seeds, on this test set, is
wider than asked for, whether or not a comparison comes out significant: stopping at significance would find differences
that are not there. What a round adds follows from the results before it alone: a command repeats its rounds.

`--spend`: a round adds the runs that take most from the variance of an answer per second of their cost. The variance is
over draws of the cells' means and laws; a run's share is that of a linear regression on what it would show. The study
stops where it is satisfied, so claims are made at the looks of a group sequential test (O'Brien and Fleming, 1979).
"""

import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from vitlab.config import UserError, choices_text
from vitlab.files import write_json
from vitlab.formatting import duration, plural, whole
from vitlab.statistics.crossover import NEAR, describe_crossover, find_turn
from vitlab.statistics.fit import Fit
from vitlab.statistics.stats import CONFIDENCE, DRAWS, quantile
from vitlab.studies.grid import TRIAL, name_run, name_trial
from vitlab.studies.results import LEAD, LEVEL, Results, load_results
from vitlab.studies.status import pack
from vitlab.studies.store import RunKey, StudyFiles

MOST_SEEDS = 1000  # of a cell


@dataclass(frozen=True)
class Target:
    """The precision to reach: `points`, an interval's largest half-width (some in percent); `max_runs`, of all runs."""

    points: float
    max_runs: int | None = None

    def describe(self) -> str:
        """Describe the rounds that follow a plan's runs."""
        most = "" if self.max_runs is None else f", up to {plural(self.max_runs, 'run')} in all"
        return f"then more seeds, in rounds, until every mean is within ± {self.points:g}{most} (not counted above)"


class WideCell(NamedTuple):
    """A cell whose mean is less sure than asked for, and the runs that would make it so."""

    name: str
    half_width: float  # of the 95% interval, in `Metric.compared`; infinite with one seed and no spread to borrow
    line: str
    runs: list[RunKey]


def plan_round(
    rows: Sequence[dict[str, Any]], target: Target, stopped: Collection[tuple[str, int]] = ()
) -> tuple[list[RunKey], str]:
    """Plan the runs that the next round adds to the finished ones, none where it stops; return them and a text.

    `stopped` are cells, (variant, size), that get no more; a cell without a result gets none, and is named.
    A cell lacks as many seeds as would do if its spread, moderated by that of the variant's other sizes, stayed; at
    most as many again as it has, for the spread is a guess.
    """
    # over seeds alone, on this test set: neither items nor the overlap of test sets become fewer with more seeds
    results = Results([{**row, "holdout": None} for row in rows], outcomes={})
    metric, wide = results.metric, {}
    until = target.points * metric.point
    cells = {(variant, size): cell for variant, of in results.by_model.items() for size, cell in of.items()}
    trained: dict[tuple[str, int], set[int]] = {cell: set() for cell in sorted(stopped)}  # also seeds without a result
    trials: dict[str, dict[str, None]] = {}  # of a variant, or its own name
    for row in rows:
        trials.setdefault(row["model"], {})[name_trial(row["model"], row.get("trial"))] = None
        trained.setdefault((row["model"], row["train_size"]), set()).add(row["seed"])
    for (variant, size), cell in cells.items():
        seeds, count = trained[variant, size], len(cell.rows)
        width, missing, text = math.inf, 2, "one seed"  # one more would leave an interval of 12.7 standard errors
        if spread := results.floor_spread(cell.spread, cell.rows):
            more = range(max(2 - count, count))
            widths = [quantile(spread.degrees + n) * spread.std / math.sqrt(count + n) for n in more]
            width, missing = widths[0], next((n for n in more if widths[n] <= until), len(more))
            text = f"± {metric.width(width)} over {plural(count, 'seed')}"
        if missing:  # the smallest seeds that it lacks: so the runs of several models are pairs
            lacking = islice((seed for seed in range(MOST_SEEDS) if seed not in seeds), missing)
            name = f"{variant} at {whole(size)}"
            runs = [(trial, size, seed) for seed in lacking for trial in trials[variant]]
            wide[variant, size] = WideCell(name, width, f"  {name}: {text}, {missing} more", runs)
    open_cells = [one for cell, one in wide.items() if cell not in stopped]
    widest = sorted(open_cells, key=lambda one: -one.half_width)
    added = [run for one in widest for run in one.runs]
    if target.max_runs is not None:
        added = added[: max(target.max_runs - len(rows), 0)]
    aim = f"± {metric.width(until)}"
    if added:
        head = f"{plural(len(added), 'run')} more: the 95% interval over seeds is wider than {aim} at"
        sure = len(cells) - len(wide)
        rest = [f"  {plural(sure, 'other cell')} sure enough"] if sure else []
        return added, "\n".join([head, *(one.line for one in widest), *rest])
    of_wide, of_open = (", ".join(one.name for one in some) for some in (wide.values(), open_cells))
    unknown = ", ".join(f"{cell[0]} at {whole(cell[1])}" for cell in trained if cell not in cells)
    if not cells:
        text = f"no run has a result in {metric.name}."
    elif not wide:
        text = f"every mean's 95% interval over seeds, on this test set, is within {aim}."
    elif not open_cells:
        text = f"runs failed at {of_wide}, where intervals are wider than {aim}."
    elif target.max_runs is None or len(rows) < target.max_runs:
        text = f"{of_open} has {MOST_SEEDS} already, and is wider than {aim}."
    else:
        text = f"--max-runs {target.max_runs} is reached; wider than {aim} is {of_open}."
    text += f" Without a result in {metric.name}: {unknown}." if cells and unknown else ""
    # how wide the test set itself leaves an accuracy
    tested = [(metric.value(row), row.get("test_items") or 0) for row in rows if metric.percent]
    tested = [(value, items) for value, items in tested if value is not None and items > 1]
    if tested:
        widest = max(quantile(items - 1) * math.sqrt(max(value * (1 - value), 0) / items) for value, items in tested)
        items = whole(max(items for _, items in tested))
        text += f" Other test sets of {items} items would move a result by up to ± {metric.gap(widest)}, "
        text += "however many seeds there are."
    return [], f"No more seeds: {text}"


# ---- a time to spend

FIFTH = 0.2  # of the time: how often a study looks whether its question is decided, and what a round takes
NOW = 2 / 3  # of the error that is left: what one `--spend` may use; the rest is for a later one
OF_LOOKS = 1.05  # of the bound of one look: what five looks cost, by O'Brien and Fleming
FINISH = 5.0  # seconds for the report
TWICE = math.log(2)  # the widest interval of a decided crossover, in its logarithm
FIRST_TRIALS = 2  # of recipes
LEAST = 0.01  # of the variance: a run that takes less is not worth its time
MOST_PROPOSALS = 50  # of a round
TINY = 1e-12  # above 0
OUTLIERS = 0.025  # of the draws at either end, which count as the next ones
KINDS = ("crossover", "leader@N", "law@N", "best@N")


@dataclass(frozen=True)
class Question:
    """What to find out in so many seconds: where two models cross, who leads at a size, a law's or the best result."""

    kind: str = "crossover"
    size: int | None = None
    seconds: float = math.inf

    @classmethod
    def parse(cls, text: str, seconds: float) -> "Question":
        """Parse `crossover` or `leader@4000`. Raises UserError."""
        kind, at, size = text.partition("@")
        if (f"{kind}@N" if at else kind) not in KINDS or (at and not (size.isdecimal() and int(size))):
            raise UserError(f"--find {text}: {choices_text(text, KINDS)}; N is a training-set size")
        return cls(kind, int(size) if at else None, seconds)

    def __str__(self) -> str:
        return self.kind if self.size is None else f"{self.kind}@{self.size}"

    @property
    def of_cells(self) -> bool:
        """Whether the runs at its size alone tell."""
        return self.kind in ("leader", "best")

    def describe(self) -> str:
        """Describe the rounds that follow the first runs."""
        return f"then the runs that tell most about {self}, in rounds, for {duration(self.seconds)} in all"


@dataclass(frozen=True)
class Design:
    """The runs that may be asked for: the `trials` of each model, or itself, all `sizes` and `seeds`.

    The study begins with the sizes `first`. `given`: all trials of a model are trained together, as a grid's.
    """

    trials: Mapping[str, Sequence[str]]
    first: Sequence[int]
    sizes: Sequence[int]
    seeds: Sequence[int]
    given: bool = True

    @property
    def begun(self) -> dict[str, list[str]]:
        """The trials of each model that a study begins with."""
        return {model: [*names[: None if self.given else FIRST_TRIALS]] for model, names in self.trials.items()}

    @property
    def pilots(self) -> list[RunKey]:
        """The first run of each model, which tells its time."""
        return [(name, self.first[0], self.seeds[0]) for names in self.begun.values() for name in names]


class Answer(NamedTuple):
    """What the finished runs say: a sentence, whether it decides the question, and draws of it (DRAWS, Q) to narrow.

    `models` are the best at a size and those that it is not clearly ahead of.
    """

    text: str
    decided: bool
    draws: np.ndarray
    models: tuple[str, ...] = ()


UNKNOWN = Answer("too few runs to tell", False, np.zeros((DRAWS, 0)))


class Proposal(NamedTuple):
    """Runs that belong together, the seconds of each, and the share of the answer's variance that they would take."""

    name: str
    runs: list[RunKey]
    seconds: list[float]
    share: float = math.nan

    def __str__(self) -> str:
        took = [f"{self.share:.0%} of the variance"] * (self.share == self.share)
        took += [duration(sum(self.seconds))] * any(self.seconds)
        return f"{self.name} ({', '.join(took)})" if took else self.name


def charge_looks(share: float, stage: int = 0) -> float:
    """Compute by how much claims leave out less after a share of the time, in the first, second, ... `--spend`.

    Each may use two thirds of the error that those before it left. After a share t a claim asks for z / sqrt(t).
    """
    left_out = (1 - CONFIDENCE) * NOW * (1 - NOW) ** stage
    bound = OF_LOOKS * NormalDist().inv_cdf(1 - left_out / 2) / math.sqrt(max(share, 0.01))
    return (1 - CONFIDENCE) / max(2 * NormalDist().cdf(-bound), 1e-12)


def judge(results: Results, question: Question, largest: float = 0.0) -> Answer:
    """Answer a question from the finished runs; `largest` is a size that more runs could have."""
    metric, size, margin = results.metric, question.size, results.margin * results.metric.point
    if question.of_cells:
        return judge_cells(results, question, margin)
    fits = results.fits
    if question.kind == "crossover":
        if not fits.between or not all(np.isfinite(fit.noise[0]).all() for fit in fits.compared):
            return UNKNOWN
        names, found = fits.between
        narrow = found.claim == "sure" and found.high and math.log(found.high / found.low) <= TWICE
        apart = found.size is None and found.below is None
        apart = apart and (found.p_none or 0.0) > 1 - (1 - CONFIDENCE) * results.alpha
        # the gaps of one seed are over test items alone
        decided = (narrow or apart) and all(fit.runs.repeated for fit in fits.compared)
        text = describe_crossover(found, *names, fits.unit)
        largest = max(largest, *results.sizes)
        return Answer(text, bool(decided), draw_crossing(*fits.compared, largest, found.claim == "sure"))
    known = {model: fit for model, fit in fits.by_model.items() if fit.laws}
    # the errors of one seed may rise by chance; those of several have no law
    rising = {model for model, fit in fits.by_model.items() if fit.runs.trend > 0 and fit.runs.repeated}
    if not known or known.keys() | rising < results.by_model.keys():
        return UNKNOWN
    texts, widths = [], []
    for model, fit in known.items():
        low, high = fit.interval(size)
        widths.append(math.log(high / low) / 2 if metric.relative else (high - low) / 2)
        numbers = (metric.text(float(one)) for one in (fit.predict(size), low, high))
        texts.append("{}: {} {} ({} to {})".format(model, fits.error_name, *numbers))
    texts += [f"{model}: no law, its {fits.error_name} rises" for model in sorted(rising)]
    draws = [fit.draw_log_errors(np.log([size]))[:, 0] for fit in known.values()]
    return Answer(f"at {whole(size)} {', '.join(texts)}", max(widths) <= margin, np.stack(draws, axis=1))


def judge_cells(results: Results, question: Question, margin: float) -> Answer:
    """Answer from the runs at a size who leads there, or what the best model reaches."""
    metric, size, texts = results.metric, question.size, list[str]()
    cells = {model: of[size] for model, of in results.by_model.items() if size in of}
    if len(cells) < 2 - (question.kind == "best"):
        return UNKNOWN
    best, *others = sorted(cells, key=lambda model: metric.lead(cells[model].mean, 0.0), reverse=True)
    gaps = {model: results.gap(best, model, size) for model in others}
    for model, gap in gaps.items():
        relation = {LEAD: "leads", LEVEL: "is level with"}.get(gap.verdict, "is not clearly ahead of")
        ends = " to ".join(metric.width(end) for end in (gap.estimate.low, gap.estimate.high))
        known = "" if gap.estimate.error is None else f" ({ends})"
        texts.append(f"{relation} {model} by {metric.width(gap.estimate.mean)}{known}")
    text, in_doubt = ", ".join(texts), [model for model in others if gaps[model].verdict not in (LEAD, LEVEL)]
    # an interval of one seed is over test items alone
    decided = not in_doubt and all(len(cell.rows) > 1 for cell in cells.values())
    if question.kind == "best":
        width = cells[best].interval.half_width
        decided = width is not None and width <= margin and len(cells[best].rows) > 2  # two may agree by chance
        text = f"reaches {metric.text(cells[best].mean)}{'' if width is None else f' ± {metric.width(width)}'}"
    elif not in_doubt:
        in_doubt = others
    models = (best, *in_doubt)
    luck = sum(results.luck.get((model, size), np.zeros(DRAWS)) for model in models)
    return Answer(
        f"{best} at {whole(size)} {text}", decided, (draw_seeds(results, models, size)[0] + luck)[:, None], models
    )


def draw_seeds(results: Results, models: Sequence[str], size: int) -> tuple[np.ndarray, float]:
    """Draw what seeds add to the difference of models at a size, (DRAWS,), and give the spread of one more seed."""
    cells = [results.by_model[model][size] for model in models]
    spreads = np.array([max(cell.spread.std, TINY) if cell.spread else TINY for cell in cells])
    of_mean = np.linalg.norm(spreads / np.sqrt([len(cell.rows) for cell in cells]))
    return of_mean * np.random.default_rng(0).standard_normal(DRAWS), float(np.linalg.norm(spreads))


def read_beyond(fit: Fit, log_sizes: np.ndarray, role: int = 0) -> np.ndarray:
    """Read means as `Fit.read_means`, beyond the data by laws that miss it, too: what to train may rest on a guess."""
    lines, beyond = fit.read_means(log_sizes, role), log_sizes > fit.runs.log_sizes[-1]
    if beyond.any() and fit.laws and not fit.holds:
        drawn = fit.draw_log_errors(log_sizes[beyond], role)
        lines[:, beyond] = np.vstack([fit.log_errors(log_sizes[beyond]), drawn])
    return lines


def draw_crossing(first: Fit, second: Fit, largest: float, sure: bool) -> np.ndarray:
    """Draw up to which log size the model leads that leads at first, (DRAWS, Q), up to twice the largest size.

    No crossover is sure without a clear leader: until it is, also draw the clearest difference before and after it.
    """
    both = [fit.runs.log_sizes for fit in (first, second)]
    low, high = max(x[0] for x in both), min(x[-1] for x in both)
    grid = np.union1d(np.concatenate(both), np.linspace(low, math.log(NEAR * largest), 24))
    grid = grid[(grid >= low) & (grid <= (math.inf if first.laws and second.laws else high))]
    lines = read_beyond(first, grid) - read_beyond(second, grid, role=1)
    turn = find_turn(grid, lines[1:] * (np.sign(lines[0, 0]) or 1.0))
    clear = np.isin(grid, np.concatenate(both)) * np.abs(lines[0]) / (lines[1:].std(axis=0) + TINY)
    sides = [] if sure else [clear * (grid <= np.median(turn)), clear * (grid > np.median(turn))]
    places = [int(side.argmax()) for side in sides if side.any()]
    return np.stack([turn, *(lines[1:, place] / abs(lines[0, place]) for place in places)], axis=1)


Cells = dict[tuple[tuple[str, ...], int], tuple[np.ndarray, float]]  # by models and size: draws (DRAWS,), spread


def draw_cells(results: Results, question: Question, design: Design, answer: Answer) -> Cells:
    """Draw what seeds add to the cells that may have more, and give the spread of one more seed.

    Two models that are compared have the same seeds: their differences vary less, and the spread of these is known.
    """
    if question.of_cells:
        return {(answer.models, question.size): draw_seeds(results, answer.models, question.size)}
    fits, crossing, tables = results.fits, question.kind == "crossover", []
    sides = [(model, fit) for model, fit in fits.by_model.items() if fit.laws]
    if crossing:
        sides = [*zip(results.contenders.values(), fits.compared, strict=True)]
    for role, (of, fit) in enumerate(sides):
        x, spreads, of_seeds = fit.runs.log_sizes, fit.noise[0], fit.noise_of_means - fit.of_items
        tables.append({})
        for size in design.sizes:
            model = of[min(of, key=lambda one: abs(math.log(one / size)))] if crossing else of
            place = int(np.abs(x - math.log(size)).argmin())
            if np.isclose(x[place], math.log(size)):
                tables[-1][size] = model, of_seeds[:, place], float(spreads[place])
            elif fit.laws and size not in results.by_model[model]:  # else the budget limits it: no law has it
                drawn = read_beyond(fit, np.log([size]), role * crossing)[1:, 0]
                tables[-1][size] = model, drawn, float(np.interp(math.log(size), x, spreads))
    if not crossing:
        return {((model,), size): (drawn, spread) for of in tables for size, (model, drawn, spread) in of.items()}
    pairs = {size: (of, tables[1][size]) for size, of in tables[0].items() if size in tables[1]}
    return {((a, b), n): (one - two, math.hypot(s, t)) for n, ((a, one, s), (b, two, t)) in pairs.items()}


def propose(
    results: Results,
    question: Question,
    design: Design,
    answer: Answer,
    asked: Collection[RunKey],
    left: float,
    jobs: int = 1,
    stopped: Collection[tuple[str, int]] = (),
) -> list[Proposal]:
    """Propose the runs of a round that are expected to end in the seconds left, the most useful first.

    `asked` are runs that exist already, `stopped` cells, (model, size), that get no more. A study begins with the sizes
    that the design names.
    """
    timed, used, trained = results.runs, {}, defaultdict[tuple[str, int], set[int]](set)
    lines = {}  # of each model's seconds in the size
    for model, of in timed.groupby("model") if len(timed) else ():  # one that falls is no line
        points = of.train_size, of.wall_s.fillna(0)
        lines[model] = np.polyfit(*points, int(of.train_size.nunique() > 1))
        lines[model] = lines[model] if lines[model][0] > 0 else np.polyfit(*points, 0)
    for model, names in design.begun.items():
        begun = {name for name, *_ in asked}.union(names)
        used[model] = [name for name in design.trials[model] if name in begun]

    def join(name: str, runs: list[RunKey], share: float = math.nan) -> Proposal:
        models = [name.partition(TRIAL)[0] for name, *_ in runs]
        seconds = [np.polyval(lines.get(model, [0.0]), run[1]) for model, run in zip(models, runs, strict=True)]
        return Proposal(name, runs, np.maximum(seconds, 0.0).tolist(), share)

    def list_seed(models: Sequence[str], size: int) -> list[RunKey]:
        """List the runs of the smallest seed that a cell lacks: so the runs of several models are pairs."""
        has = [trained[model, size] for model in models]
        seed = next(one for one in chain(design.seeds, range(MOST_SEEDS)) if not all(one in seeds for seeds in has))
        lacking = [model for model, seeds in zip(models, has, strict=True) if seed not in seeds]
        return [(name, size, seed) for model in lacking for name in used[model]]

    def list_trial(model: str) -> list[RunKey]:
        name = next(name for name in design.trials[model] if name not in used[model])
        return [(name, size, seed) for (of, size), seeds in trained.items() if of == model for seed in sorted(seeds)]

    def add(models: Sequence[str] | str, size: int = 0, share: float = math.nan) -> Proposal:
        """Add a seed at a size, or a trial of a model."""
        runs = list_seed(models, size) if size else list_trial(models)
        name = f"{' and '.join(models)} at {whole(size)}, seed {runs[0][2]}" if size else runs[0][0]
        for run, of, seed in runs:
            model = run.partition(TRIAL)[0]
            trained[model, of].add(seed)
            used[model] += [run] * (run not in used[model])
        return join(name, runs, share)

    def read_asked() -> None:
        trained.clear()
        for name, size, seed in asked:
            trained[name.partition(TRIAL)[0], size].add(seed)

    read_asked()
    first = [(model, size) for size, model in product(design.first, used) if (model, size) not in stopped]
    count = 2 if question.of_cells else 1
    if not answer.draws.size:  # nothing tells how the cells vary
        count = max(count, 1 + min((len(trained[cell]) for cell in first), default=0))
    begin = [
        add((model,), size) for seeds in range(count) for model, size in first if len(trained[model, size]) <= seeds
    ]
    if chosen := take(begin, left, jobs):
        return chosen
    read_asked()
    cells, seconds, luck = {}, {}, {}
    for cell, of in draw_cells(results, question, design, answer).items() if answer.draws.size else ():
        of_runs = join("", list_seed(*cell)).seconds
        if not any((model, cell[1]) in stopped for model in cell[0]) and max(of_runs) <= left:
            cells[cell], seconds[cell] = of, sum(of_runs)
    for model, names in used.items():
        drawn = [of for (name, _), of in results.luck.items() if name == model]
        if drawn and not design.given and len(names) < len(design.trials[model]):
            luck[model] = np.stack(drawn, axis=1), len(names), len(design.trials[model])
            seconds[model] = sum(join("", list_trial(model)).seconds)
    ranked = rank(answer.draws, cells, luck, seconds) if cells else ()
    more = (add(key, share=share) if key in luck else add(*key, share) for key, share in ranked)
    return take(more, left, jobs, FIFTH * question.seconds)


def take(proposals: Iterable[Proposal], left: float, jobs: int, enough: float = math.inf) -> list[Proposal]:
    """Take proposals that end in the seconds left, until workers have enough to do; at least one if it fits."""
    chosen, times, limit = [], [], 0.0
    for one in islice(proposals, MOST_PROPOSALS):
        seconds = pack([*times, *one.seconds], [0.0] * jobs)
        if chosen and seconds > limit:
            break
        if seconds <= left:
            limit = limit or min(left, max(enough, seconds))
            chosen.append(one)
            times += one.seconds
    return chosen


def rank(
    draws: np.ndarray,
    cells: Cells,
    luck: Mapping[str, tuple[np.ndarray, int, int]],
    seconds: Mapping[Any, float],
) -> Iterator[tuple[Any, float]]:
    """Yield cells for another seed and models for another trial, with their shares of the variance of draws (DRAWS, Q).

    Each takes the most per second of what those before it leave. `cells` have draws of what their seeds add, and the
    spread of one more; `luck` has the draws of a model's recipes (DRAWS, sizes), the number of trials, the most.
    """
    random, keys = np.random.default_rng(0), [*cells, *luck]
    target, shown = (
        np.clip(of, *np.quantile(of, [OUTLIERS, 1 - OUTLIERS], axis=0))
        for of in (draws, np.stack([of for of, _ in cells.values()], axis=1))
    )
    target, shown = target - target.mean(axis=0), shown - shown.mean(axis=0)
    noise = np.array([spread for _, spread in cells.values()])
    counts = {model: count for model, (_, count, _) in luck.items()}
    whole_variance = target.var(axis=0).sum()
    while whole_variance > 0:
        gains = ((target.T @ shown / len(target)) ** 2).sum(axis=0) / (shown.var(axis=0) + noise**2 + TINY)
        of_luck = [columns @ np.linalg.lstsq(columns, target)[0] for columns, *_ in luck.values()]
        more = [
            (counts[model] < most) * of.var(axis=0).sum() / (counts[model] + 1)
            for (model, (*_, most)), of in zip(luck.items(), of_luck, strict=True)
        ]
        gains = np.array([*gains, *more])
        useful = gains >= LEAST * whole_variance
        if not useful.any():
            return
        best = int((useful * gains / [max(seconds[key], TINY) for key in keys]).argmax())
        yield keys[best], float(gains[best] / whole_variance)
        if best < len(cells):
            seen = shown[:, [best]] + noise[best] * random.standard_normal((len(target), 1))
            norm = (seen**2).sum() + TINY
            target, shown = (of - seen @ (seen.T @ of) / norm for of in (target, shown))
        else:
            count = counts[keys[best]]
            target = target - of_luck[best - len(cells)] * (1 - math.sqrt(count / (count + 1)))
            counts[keys[best]] += 1


class Spending:
    """The time of a `--spend`, kept with its rounds in the study's folder: a command that was killed goes on with it.

    One that has ended is followed by another, which adds its time.
    """

    def __init__(self, files: StudyFiles, question: Question, began: float):
        self.files, self.question, self.began, self.stages = files, question, began, files.spent()
        if not self.stages or self.stages[-1]["end"]:
            self.stages.append({"spent": 0.0, "looked": 0, "looks": 1.0, "rounds": [], "end": ""})
        self.stage = self.stages[-1]
        self.stage |= {"find": str(question), "seconds": question.seconds}
        self.before, self.overhead, self.expected = self.stage["spent"], 0.0, math.inf
        if self.stage["rounds"]:  # the round in which it was killed took at least until its last result
            paths = [files.run(name_run(*run)).result_path for run in self.stage["rounds"][-1]["runs"]]
            ends = [path.stat().st_mtime - files.spent_path.stat().st_mtime for path in paths if path.exists()]
            self.before += max([0.0, *ends])

    def plan(self, design: Design, jobs: int, stopped: Collection[tuple[str, int]] = ()) -> tuple[list[RunKey], str]:
        """Plan the next round, none where the question is decided or the time is spent; return its runs and a text."""
        stage, seconds, now = self.stage, self.stage["seconds"], self.before + time.perf_counter() - self.began
        self.overhead = max(self.overhead, now - stage["spent"] - self.expected)  # of starting workers, and the like
        earlier = sum(one["spent"] for one in self.stages[:-1])
        left, share = seconds - now - FINISH - self.overhead, min((earlier + now) / (earlier + seconds), 1.0)
        stage["spent"] = now

        def look(share: float, left: float) -> tuple[Answer, list[Proposal]]:
            by_width = self.question.kind in ("law", "best")  # stops where an interval is narrow, whatever it says
            stage["looks"] = 1.0 if by_width else charge_looks(share, len(self.stages) - 1)
            results = load_results(self.files.folder, alpha=1 / stage["looks"])
            answer = judge(results, self.question, design.sizes[-1])
            asked = self.files.run_keys()
            return answer, propose(results, self.question, design, answer, asked, left, jobs, stopped)

        answer, proposals = look(share, left)
        is_due = stage["looks"] == 1 or int(now / seconds / FIFTH) > stage["looked"]
        stage["looked"] = int(now / seconds / FIFTH)
        if proposals and not (is_due and answer.decided):
            runs = [run for one in proposals for run in one.runs]
            times = [of for one in proposals for of in one.seconds]
            self.expected = pack(times, [0.0] * jobs) if all(times) else math.inf
            stage["rounds"].append({"at": now, "answer": answer.text, "why": [*map(str, proposals)], "runs": runs})
            write_json(self.files.spent_path, self.stages)
            text = f"{duration(max(seconds - now, 0.0))} of {duration(seconds)} left. {answer.text}"
            return runs, f"{text}\n  next: {'; '.join(map(str, proposals))}"
        answer, later = look(share if proposals else 1.0, math.inf)
        unspent = f", with {duration(max(seconds - now, 0.0))} of {duration(seconds)} left unspent"
        stage["end"] = f"{'Decided' if answer.decided else 'Not decided'}{unspent if proposals else ''}: {answer.text}."
        if later:
            stage["end"] += f" With more time: {'; '.join(map(str, later[:3]))}."
        write_json(self.files.spent_path, self.stages)
        return [], stage["end"]
