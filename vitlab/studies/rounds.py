"""Plan more runs of a study in rounds, from its finished runs: until means are sure, or until a time is spent.

`--until`: add seeds to a cell, variant x size, while it has few, or the 95% interval of its mean over seeds, on this
test set, is wider than asked for, even if a comparison is significant: stopping at significance would find differences
that are not there. A round depends only on the results before it, so a command repeats its rounds.

`--spend`: add a seed of every size at a time, until a question is decided or the time is over. Such a study stops when
satisfied, so it makes its claims at the looks of a group sequential test (O'Brien and Fleming, 1979).
"""

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

from vitlab.config import UserError, choices_text
from vitlab.files import write_json
from vitlab.formatting import duration, plural, whole
from vitlab.statistics.crossover import describe_crossover
from vitlab.statistics.stats import CONFIDENCE, quantile
from vitlab.studies.grid import TRIAL, name_run, name_trial
from vitlab.studies.results import LEAD, LEVEL, Results, load_results
from vitlab.studies.status import pack
from vitlab.studies.store import RunKey, StudyFiles

MOST_SEEDS = 1000  # of a cell
FEWEST_SEEDS = 6  # of a cell that gets no more: the spread of fewer too often looks small by luck


@dataclass(frozen=True)
class Target:
    """The precision to reach. points: an interval's largest half-width (some in percent). max_runs: of all runs."""

    points: float
    max_runs: int | None = None

    def describe(self) -> str:
        """Describe the rounds that follow a plan's runs."""
        most = "" if self.max_runs is None else f", up to {plural(self.max_runs, 'run')} in all"
        return f"then more seeds, in rounds, until every mean is within ± {self.points:g}{most} (not counted above)"


class WideCell(NamedTuple):
    """A cell whose interval is too wide, and the runs that would narrow it enough."""

    name: str
    half_width: float  # of the 95% interval, in `Metric.compared`; infinite with one seed and no spread to borrow
    line: str
    runs: list[RunKey]


def plan_round(
    rows: Sequence[dict[str, Any]], target: Target, stopped: Collection[tuple[str, int]] = ()
) -> tuple[list[RunKey], str]:
    """Plan the runs of the next round, [] to stop; return them and a text.

    stopped: cells, (variant, size), that get no more seeds. A cell without a result gets none, and is named. Other
    cells get FEWEST_SEEDS, and those that suffice if their spread, moderated by all cells, stays the same; at most as
    many again as they have, because the spread is a guess.
    """
    # over seeds alone, on this test set: more seeds reduce neither the items' share nor the overlap of test sets
    results = Results([{**row, "holdout": None} for row in rows], outcomes={})
    metric, wide = results.metric, {}
    until = target.points * metric.point
    cells = {(variant, size): cell for variant, of in results.by_model.items() for size, cell in of.items()}
    trained: dict[tuple[str, int], set[int]] = {cell: set() for cell in sorted(stopped)}  # also seeds without a result
    trials: dict[str, dict[str, None]] = {}  # names of a variant's trials, or its own name
    for row in rows:
        trials.setdefault(row["model"], {})[name_trial(row["model"], row.get("trial"))] = None
        trained.setdefault((row["model"], row["train_size"]), set()).add(row["seed"])
    for (variant, size), cell in cells.items():
        seeds, count = trained[variant, size], len(cell.rows)
        width, missing, text = math.inf, 0, "one seed"
        if spread := results.floor_spread(results.spreads.get((variant, size)), cell.rows):
            more = range(max(2 - count, count))
            widths = [quantile(spread.degrees + n) * spread.std / math.sqrt(count + n) for n in more]
            width, missing = widths[0], next((n for n in more if widths[n] <= until), len(more))
            text = f"± {metric.width(width)} over {plural(count, 'seed')}"
        missing = max(missing, FEWEST_SEEDS - count)
        if missing:  # take the smallest missing seeds, so that runs of several models pair up
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
        head = f"{plural(len(added), 'run')} more: the 95% interval over seeds is wider than {aim}, "
        head += f"or of fewer than {FEWEST_SEEDS} seeds, at"
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
    # add the uncertainty of an accuracy from the test set itself
    tested = [(metric.value(row), row.get("test_items") or 0) for row in rows if metric.percent]
    tested = [(value, items) for value, items in tested if value is not None and items > 1]
    if tested:
        widest = max(quantile(items - 1) * math.sqrt(max(value * (1 - value), 0) / items) for value, items in tested)
        items = whole(max(items for _, items in tested))
        text += f" Other test sets of {items} items would move a result by up to ± {metric.gap(widest)}, "
        text += "however many seeds there are."
    return [], f"No more seeds: {text}"


# ---- a time to spend

FIFTH = 0.2  # share of the time between looks at the question, and of one round
NOW = 2 / 3  # share of the remaining error that one `--spend` may use; later ones use the rest
OF_LOOKS = 1.05  # times the bound of one look: five looks need this much more, by O'Brien and Fleming
FINISH = 5.0  # seconds for the report
TWICE = math.log(2)  # the widest interval of a decided crossover, in its logarithm
KINDS = ("crossover", "leader@N")


@dataclass(frozen=True)
class Question:
    """A question to answer in `seconds`: where two models cross or, with a size, which model leads there."""

    size: int | None = None
    seconds: float = math.inf

    @classmethod
    def parse(cls, text: str, seconds: float) -> "Question":
        """Parse `crossover` or `leader@4000`. Raises UserError."""
        size = text.removeprefix("leader@")
        if text != "crossover" and not (size != text and size.isdecimal() and int(size)):
            raise UserError(f"--find {text}: {choices_text(text, KINDS)}; N is a training-set size")
        return cls(None if text == "crossover" else int(size), seconds)

    def __str__(self) -> str:
        return "crossover" if self.size is None else f"leader@{self.size}"

    def describe(self) -> str:
        """Describe the rounds that follow the first runs."""
        return f"then a seed at a time until {self} is decided, for {duration(self.seconds)} in all at most"


class Answer(NamedTuple):
    """The finished runs' answer: a sentence, whether it decides the question, the models that need no more runs."""

    text: str
    decided: bool = False
    done: Collection[str] = ()


def charge_looks(share: float, stage: int = 0) -> float:
    """Compute the factor by which claims leave out less after a share of the time, in the first, second, ... `--spend`.

    Each `--spend` may use two thirds of the error that earlier ones left. After a share t a claim needs z / sqrt(t).
    """
    left_out = (1 - CONFIDENCE) * NOW * (1 - NOW) ** stage
    bound = OF_LOOKS * NormalDist().inv_cdf(1 - left_out / 2) / math.sqrt(max(share, 0.01))
    return (1 - CONFIDENCE) / max(2 * NormalDist().cdf(-bound), 1e-12)


def judge(results: Results, question: Question) -> Answer:
    """Answer a question from the finished runs."""
    metric, size = results.metric, question.size
    if size is None:
        fits = results.fits
        if not fits.between:
            return Answer("too few runs to tell")
        names, found = fits.between
        narrow = found.claim == "sure" and found.high and math.log(found.high / found.low) <= TWICE
        apart = found.size is None and found.below is None
        apart = apart and (found.p_none or 0.0) > 1 - (1 - CONFIDENCE) * results.alpha
        # the gaps of one seed are over test items alone
        decided = (narrow or apart) and all(fit.runs.repeated for fit in fits.compared)
        return Answer(describe_crossover(found, *names, fits.unit), bool(decided))
    cells = {model: of[size] for model, of in results.by_model.items() if size in of}
    if len(cells) < 2:
        return Answer("too few runs to tell")
    best, *others = sorted(cells, key=lambda model: metric.lead(cells[model].mean, 0.0), reverse=True)
    gaps, texts = {model: results.gap(best, model, size) for model in others}, list[str]()
    for model, gap in gaps.items():
        relation = {LEAD: "leads", LEVEL: "is level with"}.get(gap.verdict, "is not clearly ahead of")
        ends = " to ".join(metric.width(end) for end in (gap.estimate.low, gap.estimate.high))
        known = "" if gap.estimate.error is None else f" ({ends})"
        texts.append(f"{relation} {model} by {metric.width(gap.estimate.mean)}{known}")
    # an interval of one seed is over test items alone
    repeated = all(len(cell.rows) > 1 for cell in cells.values())
    done = [model for model in others if repeated and gaps[model].verdict in (LEAD, LEVEL)]
    return Answer(f"{best} at {whole(size)} {', '.join(texts)}", done == others, done)


def estimate_seconds(
    rows: Iterable[Mapping[str, Any]], steps: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], float]:
    """Estimate the seconds of a run of each (trial, size) with so many steps.

    Use the pace of the model's finished runs of the nearest size; a model without any gets 0 seconds.
    """
    paces: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        of_size = paces.setdefault(row["model"], {}).setdefault(row["train_size"], [])
        of_size.append((row.get("wall_s") or 0.0) / (row.get("steps") or 1))
    found = dict.fromkeys(steps, 0.0)
    for (name, size), count in steps.items():
        if known := paces.get(name.partition(TRIAL)[0]):
            found[name, size] = count * fmean(known[min(known, key=lambda one: abs(one - size))])
    return found


def plan_seeds(
    seconds: Mapping[tuple[str, int], float],
    seeds: Iterable[int],
    asked: Set[RunKey],
    until_look: float,
    left: float,
    jobs: int = 1,
) -> list[RunKey]:
    """Plan the next runs of every (trial, size): a seed of every size at a time, until the next look.

    Give cheaper small sizes more seeds: the next seed goes where it lowers the variance of a mean most per second, if
    all sizes spread alike. Use the study's own seeds first. Leave out a size whose runs would not end in the seconds
    left.
    """
    seeds, runs, sizes = [*dict.fromkeys([*seeds, *range(MOST_SEEDS)])], list[RunKey](), {size for _, size in seconds}
    cost = {size: sum(one for (_, of), one in seconds.items() if of == size) for size in sorted(sizes)}
    numbers = range(MOST_SEEDS if any(cost.values()) else 1)
    for number, size in sorted(product(numbers, cost), key=lambda of: of[0] * (of[0] + 1) * cost[of[1]]):
        more = [(*of, seeds[number]) for of in seconds if of[1] == size and (*of, seeds[number]) not in asked]
        times = [seconds[name, of] for name, of, _ in (*runs, *more)]
        if more and pack(times, [0.0] * jobs) <= left:
            runs += more
            if sum(times) >= jobs * until_look:
                break
    return runs


def describe_runs(runs: Sequence[RunKey], seconds: Mapping[tuple[str, int], float]) -> str:
    """Describe runs that are next: `12 runs at 500 to 8,000, seeds 2 and 3 (3 min)`."""
    sizes, seeds = (sorted({run[place] for run in runs}) for place in (1, 2))
    at, of = (" to ".join(dict.fromkeys(map(whole, (one[0], one[-1])))) for one in (sizes, seeds))
    took = sum(seconds[name, size] for name, size, _ in runs)
    return f"{plural(len(runs), 'run')} at {at}, seed {of}{f' ({duration(took)} of one worker)' if took else ''}"


class Spending:
    """The time of a `--spend` and its rounds, kept in the study's folder so that a killed command can go on.

    After a `--spend` has ended, a further one adds its time.
    """

    def __init__(self, files: StudyFiles, question: Question, began: float):
        self.files, self.question, self.began, self.stages = files, question, began, files.spent()
        if not self.stages or self.stages[-1]["end"]:
            self.stages.append({"spent": 0.0, "looked": 0, "looks": 1.0, "rounds": [], "end": ""})
        self.stage = self.stages[-1]
        self.stage |= {"find": str(question), "seconds": question.seconds}
        self.before, self.overhead, self.expected = self.stage["spent"], 0.0, math.inf
        if self.stage["rounds"]:  # a killed round took at least until its last result
            paths = [files.run(name_run(*run)).result_path for run in self.stage["rounds"][-1]["runs"]]
            ends = [path.stat().st_mtime - files.spent_path.stat().st_mtime for path in paths if path.exists()]
            self.before += max([0.0, *ends])

    def look(self, share: float) -> tuple[Results, Answer]:
        """Judge the finished runs after a share of the time, at the price of a look."""
        self.stage["looks"] = charge_looks(share, len(self.stages) - 1)
        results = load_results(self.files.folder, alpha=1 / self.stage["looks"])
        return results, judge(results, self.question)

    def plan(
        self,
        steps: Mapping[tuple[str, int], int],
        seeds: Sequence[int],
        jobs: int,
        stopped: Collection[tuple[str, int]] = (),
    ) -> tuple[list[RunKey], str]:
        """Plan the next round, [] once the question is decided or the time is spent; return its runs and a text.

        steps: of a run of each (trial, size), the smallest sizes first. stopped: cells, (model, size), without more
        seeds. A model whose comparison is decided gets no more seeds either.
        """
        stage, total, now = self.stage, self.stage["seconds"], self.before + time.perf_counter() - self.began
        self.overhead = max(self.overhead, now - stage["spent"] - self.expected)  # of starting workers, and the like
        earlier, looked = sum(one["spent"] for one in self.stages[:-1]), int(now / total / FIFTH)
        results, answer = self.look(min((earlier + now) / (earlier + total), 1.0))
        models = {of: of[0].partition(TRIAL)[0] for of in steps}
        open_ones = [of for of in steps if models[of] not in answer.done and (models[of], of[1]) not in stopped]
        seconds = estimate_seconds(results.all_rows, {of: steps[of] for of in open_ones})
        asked, until_look = {*self.files.run_keys()}, (looked + 1) * FIFTH * total - now
        plan = partial(plan_seeds, seconds, seeds, asked, until_look, jobs=jobs)
        runs, rest = plan(total - now - FINISH - self.overhead), duration(max(total - now, 0.0))
        is_due, stage["looked"], stage["spent"] = looked > stage["looked"], looked, now
        if runs and not (is_due and answer.decided):
            times, following = [seconds[run[:2]] for run in runs], describe_runs(runs, seconds)
            self.expected = pack(times, [0.0] * jobs) if all(times) else math.inf
            stage["rounds"].append({"at": now, "answer": answer.text, "next": following, "runs": runs})
            write_json(self.files.spent_path, self.stages)
            return runs, f"{rest} of {duration(total)} left. {answer.text}\n  next: {following}"
        if not runs:
            _, answer = self.look(1.0)
        unspent = f", with {rest} of {duration(total)} left unspent" if runs else ""
        stage["end"] = f"{'Decided' if answer.decided else 'Not decided'}{unspent}: {answer.text}."
        if not answer.decided and (later := plan(math.inf)):
            stage["end"] += f" With more time: {describe_runs(later, seconds)}."
        write_json(self.files.spent_path, self.stages)
        return [], stage["end"]
