"""A study's results as pandas tables, read once: the source of every table, sentence, figure, page and dashboard.

`runs`, a row per finished run; `cells`, a row per model and training-set size; `gaps`, a row per pair of models at a
size. Statistics: vitlab/statistics, their rules: docs/rules.md.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vitlab.config.checks import TRIALS
from vitlab.formatting import finite
from vitlab.statistics.stats import (
    Estimate,
    Spread,
    add_variance,
    adjust_p_values,
    compare_costs,
    correlate,
    draw_luck,
    estimate_mean,
    moderated_spreads,
    subtract,
    summarize,
    weigh_ranks,
)
from vitlab.studies.laws import StudyFits
from vitlab.studies.outcomes import (
    Rows,
    RunResults,
    choose_trials,
    count_trials,
    group_trials,
    rank_trials,
)
from vitlab.studies.status import StatusReader, StudyStatus
from vitlab.studies.store import StudyFiles
from vitlab.tasks.metrics import LEAST, Metric, main_metric
from vitlab.training.files import RunFiles

if TYPE_CHECKING:
    import pandas as pd

FEW_DEGREES = 2  # of freedom: a spread known with fewer may be small by chance
MARGIN = 1.0  # points (percent of a relative metric): models that surely differ by less are level
SPELLINGS = ("ViT", "ResNet", "Mixer", "FNet", "BiT", "LSTM", "GPT", "BERT", "Transformer", "RNN")
FAMILY_NAMES = {name.lower(): name for name in SPELLINGS} | {"histogram": "Color histogram"}

COMPUTE = ("train_flops", "finetune_flops")  # columns
EFFORTS = (1, 4, 16)  # trials of a model
OF_UNTIL = 2.5  # looks that `--until` is charged for: docs/rules.md
LEAD, LEVEL, UNDECIDED, CHANCE = "lead", "level", "undecided", "chance"  # verdicts


class Cell(NamedTuple):
    """The runs of a model at a size. std: over seeds, None below two. interval: 95% interval of the mean.

    The interval covers other seeds and, if all seeds share test items, other items; its unit is `Metric.compared`.
    """

    mean: float
    std: float | None
    rows: tuple[dict[str, Any], ...]
    interval: Estimate
    chance: float | None  # the accuracy of always choosing the largest class
    beats_chance: bool  # True where chance is not known
    validation: float | None  # the mean metric on validation items
    undertrained: bool  # the median of its runs
    spread: Spread | None  # over seeds, in `Metric.compared`, moderated by the model's other sizes


class Gap(NamedTuple):
    """The lead of `best` over `other` at a size, in `Metric.compared`, with a 95% interval."""

    best: str
    other: str
    estimate: Estimate
    verdict: str
    seeds: tuple[int, int]


class Results:
    """A study: its tables, its configuration and the files of each run (`run_files`, by the run's name).

    rows: the runs to compare, of each model, size and seed the best trial or the run; all_rows: every run.
    luck: by model and size, the effect of other trials from the same ranges, in `Metric.compared` (DRAWS,).
    alpha: multiplies the share that intervals leave out, because the study was looked at several times.
    """

    def __init__(
        self,
        rows: Rows,
        config: Mapping[str, Any] | None = None,
        files: StudyFiles | None = None,
        run_files: Mapping[str, RunResults] | None = None,
        outcomes: Mapping[str, np.ndarray] | None = None,
        alpha: float | None = None,
        trials_of: Mapping[str, str] | None = None,
        luck: dict[tuple[str, int], np.ndarray] | None = None,
    ):
        self.all_rows, self.rows = rows, choose_trials(rows)
        self.config, self.files, self.run_files = dict(config or {}), files, dict(run_files or {})
        self.alpha = alpha or (1 / OF_UNTIL if self.config.get("until") else 1.0)
        self.trials_of = trials_of or count_trials(rows)
        self.is_foreign = "read_as" in self.config
        self.gap, self.expect_best = map(cache, (self.gap, self.expect_best))
        if outcomes is not None:
            self.outcomes = dict(outcomes)
        if luck is not None:
            self.luck = luck

    @cached_property
    def runs(self) -> "pd.DataFrame":
        """The table with a row per finished run and the columns of results.csv."""
        return frame(self.all_rows)

    @cached_property
    def cells(self) -> "pd.DataFrame":
        """The table `model, family, train_size, mean, std, low, high, n, undertrained, chance, beats_chance, ...`.

        low and high are the 95% interval of the mean, NaN if unknown. The last column is `validation`, the
        mean on validation items.
        """
        rows = []
        for model, by_size in self.by_model.items():
            for size, cell in by_size.items():
                of_runs = cell.mean, cell.std, *self.find_ends(cell), len(cell.rows), cell.undertrained
                rows.append(
                    (model, self.families[model], size, *of_runs, cell.chance, cell.beats_chance, cell.validation)
                )
        columns = ["model", "family", "train_size", "mean", "std", "low", "high", "n", "undertrained"]
        found = frame(rows, columns=[*columns, "chance", "beats_chance", "validation"])
        return found.astype(dict.fromkeys(("std", "chance", "validation"), float))

    @cached_property
    def gaps(self) -> "pd.DataFrame":
        """The table `train_size, best, other, difference, low, high, verdict, seeds`: each pair of models at each size.

        The difference and its 95% interval are in `Metric.compared` (a share for accuracy, a logarithm for
        perplexity); verdict is lead, level (within the study's margin), undecided or chance.
        """
        rows = []
        for size in self.sizes:
            here = [model for model, cells in self.by_model.items() if size in cells]
            for best, other, found, verdict, _ in (self.gap(*pair, size) for pair in combinations(here, 2)):
                rows.append((size, best, other, found.mean, found.low, found.high, verdict, found.seeds))
        found = frame(rows, columns=["train_size", "best", "other", "difference", "low", "high", "verdict", "seeds"])
        return found.replace({"low": -math.inf, "high": math.inf}, math.nan)

    @cached_property
    def effort(self) -> "pd.DataFrame":
        """The table `steps, FLOPs, hours, trials` by model: totals of its runs, without steps shared with others."""
        runs = self.runs.reindex(columns=["model", "steps", "train_flops", "wall_s", "shared_steps"])
        own = 1 - (runs.pop("shared_steps") / runs.steps).fillna(0)
        runs = runs.assign(steps=runs.steps * own, train_flops=runs.train_flops * own).groupby("model").sum()
        runs.columns = ["steps", "FLOPs", "hours"]
        return runs.assign(hours=runs.hours / 3600, trials=self.trials_of)

    @property
    def trials(self) -> int:
        return min((int(count.split()[0]) for count in self.trials_of.values()), default=1)

    @property
    def efforts(self) -> list[int]:
        """The numbers of trials that tables and sentences name: 1, 4, 16 and all; [] in a study that does not tune."""
        return [*(count for count in EFFORTS if count < self.trials), self.trials] if self.trials > 1 else []

    @cached_property
    def best_of(self) -> "pd.DataFrame":
        """The table `trials` and the columns of `cells`: expected results of the best of 1, 2, ... trials."""
        found = {count: self.expect_best(count).cells.to_dict("records") for count in range(1, self.trials + 1)}
        return frame([{"trials": count, **cell} for count, cells in found.items() for cell in cells])

    # ---- one home of every comparison

    @cached_property
    def laws(self) -> "pd.DataFrame":
        """The table `model, law, holds, on_budget, rmse_holdout, size, value, low, high`: a new run's error at a size.

        The size is twice the largest size that was fitted for the model; low and high are a 90% interval.
        """
        rows = []
        for model, fit in self.fits.by_model.items():
            at_size = map(float, (fit.predict(fit.shown), *fit.prediction_interval(fit.shown)))
            rows.append((model, fit.law, fit.holds, model in self.fits.on_budget, fit.miss, fit.shown, *at_size))
        columns = ["model", "law", "holds", "on_budget", "rmse_holdout", "size", "value", "low", "high"]
        return frame(rows, columns=columns)

    @cached_property
    def metric(self) -> Metric:
        """The metric that the runs are compared by."""
        return main_metric(self.rows)

    @cached_property
    def compute(self) -> tuple[str, str, float, float, float, float] | None:
        """Two families, and `compare_costs` of their compute for training and fine-tuning.

        None unless the metric is a share and two families have several costs.
        """
        costs: dict[str, list[tuple[float, list[float]]]] = {}
        for model, by_size in self.by_model.items():
            for cell in by_size.values():
                spent = [sum(finite(row.get(key)) or 0.0 for key in COMPUTE) for row in cell.rows]
                values = [self.metric.value(row) for row in cell.rows]
                costs.setdefault(self.families[model], []).append((float(np.mean(spent)), values))
        several = {family: points for family, points in costs.items() if len({cost for cost, _ in points}) > 1}
        if len(several) != 2 or not (self.metric.percent and self.metric.higher_is_better):
            return None
        found = compare_costs(*several.values())
        return found and (*several, *found)

    @property
    def margin(self) -> float:
        """The points within which models are level."""
        return float(self.config.get("margin", MARGIN))

    @cached_property
    def sizes(self) -> list[int]:
        """The training-set sizes with a result, ascending."""
        return sorted({size for by_size in self.by_model.values() for size in by_size})

    @cached_property
    def outcomes(self) -> dict[str, np.ndarray]:
        """The metric on each test item (n,), by the name of the runs that kept it; see `Outcomes.of_metric`."""
        if any(row.get("holdout") == "repeated" for row in self.rows):
            return {}  # no two seeds have the same test items
        found = {}
        for row in self.all_rows:
            kept, value = self.run_files[row["run"]].outcomes, self.metric.value(row)
            items = kept.of_metric(self.metric, value) if kept and value is not None else None
            if items is not None:
                found[row["run"]] = items
        return found

    def expect_best(self, count: int) -> "Results":
        """Compute the expected results of the best of `count` trials: each row is the mean over all such choices."""
        rows, outcomes, metric = [], {}, self.metric
        for trials in group_trials(self.all_rows).values():
            ranked = rank_trials(trials, metric)
            if not ranked:
                continue
            weights = weigh_ranks(len(ranked), len(trials), min(count, len(trials)))
            keys = (metric.key, metric.on_validation)
            values = {key: np.array([row.get(key) for row in ranked], dtype=float) for key in keys}
            rows.append(ranked[0] | {key: float(weights @ of_trials) for key, of_trials in values.items()})
            items = [self.outcomes.get(row["run"]) for row in ranked]
            if all(one is not None for one in items):
                outcomes[ranked[0]["run"]] = weights @ np.stack(items)
        luck = self.draw_luck(count)
        return Results(rows, self.config, self.files, self.run_files, outcomes, self.alpha, self.trials_of, luck)

    @property
    def tables(self) -> "dict[str, pd.DataFrame]":
        """The tables by name; `best_of` of a study with several trials, `history` of one that spends a time."""
        more = [*["best_of"] * bool(self.efforts), *["history"] * bool(len(self.history))]
        return {name: getattr(self, name) for name in ("cells", "gaps", "laws", *more)}

    @property
    def history(self) -> "pd.DataFrame":
        """The table `spend, find, seconds, answer, next` of a study that spends a time: a row per round."""
        rows = []
        for number, one in enumerate(self.files.spent() if self.files else (), 1):
            steps = [(of["at"], of["answer"], of["next"]) for of in one["rounds"]]
            steps += [(one["spent"], one["end"], "")] if one["end"] else []
            rows += [(number, one["find"], *step) for step in steps]
        return frame(rows, columns=["spend", "find", "seconds", "answer", "next"])

    @cached_property
    def luck(self) -> dict[tuple[str, int], np.ndarray]:
        return self.draw_luck(self.trials)

    def draw_luck(self, count: int) -> dict[tuple[str, int], np.ndarray]:
        tune = self.config.get("tune") or ()  # the values of a grid are given
        if self.trials < 2 or TRIALS not in tune:
            return {}
        counts, ranked = dict[str, int](), {}
        for (model, size, seed), trials in group_trials(self.all_rows).items():
            counts[model] = max([counts.get(model, 0), *(row["trial"] for row in trials)])
            if found := rank_trials(trials, self.metric):
                numbers = [row["trial"] for row in found]
                ranked[model, size, seed] = [*zip(numbers, self.compared(found), strict=True)]
        return draw_luck(ranked, counts, count)

    @cached_property
    def by_model(self) -> dict[str, dict[int, Cell]]:
        """The cell of a model's runs with a finite metric: model -> training-set size, ascending -> cell."""
        grouped: dict[str, dict[int, Rows]] = {row["model"]: {} for row in self.rows}
        for row in sorted(self.rows, key=lambda row: row["train_size"]):
            if self.metric.value(row) is not None:
                grouped[row["model"]].setdefault(row["train_size"], []).append(row)
        cells = {}
        for model, by_size in grouped.items():
            spreads = moderated_spreads({size: self.compared(rows) for size, rows in by_size.items()})
            cells[model] = {n: self.make_cell(rows, self.round_up(spreads.get(n), rows)) for n, rows in by_size.items()}
        return cells

    def make_cell(self, rows: Rows, spread: Spread | None) -> Cell:
        metric, values = self.metric, [self.metric.value(row) for row in rows]
        mean, std = float(np.mean(values)), float(np.std(values, ddof=1)) if values[1:] else None
        items = [*self.values_of(rows).values()]
        whole = len({np.shape(value) for value in items}) > 1 or np.ndim(items[0]) == 0
        table = np.array(self.compared(rows) if whole else items)
        known = self.floor_spread(spread, rows) if whole else spread  # kept items tell more than a binomial
        interval = estimate_mean(table, known, self.overlap(rows), self.floor(rows))
        luck = self.luck.get((rows[0]["model"], rows[0]["train_size"]), np.zeros(1))
        interval = add_variance(interval, float(luck.var()), self.trials - 1)
        chance = max(filter(None, (finite(row.get("chance")) for row in rows)), default=None)
        chance = chance if metric.key == "accuracy" else None
        seen = [value for row in rows if (value := finite(row.get(metric.on_validation))) is not None]
        beats = chance is None or (mean if interval.half_width is None else interval.low) > chance
        validation = float(np.mean(seen)) if seen else None
        undertrained = median_low([row.get("undertrained") or False for row in rows])
        return Cell(mean, std, tuple(rows), interval, chance, beats, validation, undertrained, spread)

    def find_ends(self, cell: Cell) -> tuple[float, float]:
        """Find the ends of the 95% interval of a cell's mean, in the metric's unit; NaN where nothing tells them."""
        width, metric = cell.interval.half_width, self.metric
        if width is None:
            return math.nan, math.nan
        if metric.relative:
            return cell.mean * math.exp(-width), cell.mean * math.exp(width)
        low, high = cell.mean - width, cell.mean + width
        return (max(low, 0.0), min(high, 1.0)) if metric.percent else (low, high)

    def gap(self, first: str, second: str, size: int) -> Gap:
        """Judge the gap between two models that both have a result at the size."""
        best, other = (first, second) if (first, second, size) in self.estimates else (second, first)
        cells, verdict = [self.by_model[model][size] for model in (best, other)], UNDECIDED
        gap = self.estimates[best, other, size]
        gap = replace(gap, comparisons=gap.comparisons / self.alpha)
        if not any(cell.beats_chance for cell in cells):
            verdict = CHANCE
        elif gap.low > 0:
            verdict = LEAD
        elif max(-gap.low, gap.high) <= self.margin * self.metric.point:
            verdict = LEVEL
        return Gap(best, other, gap, verdict, (len(cells[0].rows), len(cells[1].rows)))

    @cached_property
    def correlation(self) -> float:
        """The correlation of two models' runs of one seed, from all sizes, shrunk to none by its own error."""
        found = pairs = 0.0
        for size in self.sizes:
            cells = [of[size] for of in self.by_model.values() if size in of and (of[size].spread or (0,))[0]]
            values = [
                dict(zip((row["seed"] for row in cell.rows), self.compared(cell.rows), strict=True)) for cell in cells
            ]
            product, degrees = correlate(values, [cell.spread.std for cell in cells])
            found, pairs = found + product, pairs + degrees
        return float(np.clip(found / pairs - 2 / found, -1, 1)) if found**2 > 2 * pairs else 0.0

    @cached_property
    def spreads(self) -> dict[tuple[str, int], Spread]:
        """The spread over seeds of each model and size, moderated by all others."""
        cells = {(model, size): cell.rows for model, of in self.by_model.items() for size, cell in of.items()}
        return moderated_spreads({cell: self.compared(rows) for cell, rows in cells.items()}, itemgetter(1))

    @cached_property
    def estimates(self) -> dict[tuple[str, str, int], Estimate]:
        """The lead of each model over each worse one at each size, (better, worse, size), so that all hold at once.

        Step down, at a size from the farthest two of its M models on: a pair that is k places apart in their order
        counts for k M / 2 questions, and none is surer than one that encloses it (Ryan, 1960). Then each pair steps
        down over its sizes (Holm, 1979).
        """
        found, questions, lead = {}, dict[tuple[str, ...], dict[int, float]](), self.metric.lead
        for size in self.sizes:
            cells = {model: of[size] for model, of in self.by_model.items() if size in of}
            ranked = sorted(cells, key=lambda model: lead(cells[model].mean, 0.0), reverse=True)
            spreads = [self.round_up(self.spreads.get((model, size)), cells[model].rows) for model in ranked]
            runs = [summarize(self.values_of(cells[m].rows), of) for m, of in zip(ranked, spreads, strict=True)]
            known = [(self.overlap(cells[model].rows), self.floor(cells[model].rows)) for model in ranked]
            luck = [float(self.luck[m, size].var()) if (m, size) in self.luck else 0.0 for m in ranked]
            p, apart = np.zeros((len(ranked),) * 2), np.arange(len(ranked))
            for one, two in combinations(apart, 2):
                fewer = min(one, two, key=lambda place: len(runs[place].seeds))
                pair = (one, two) if self.metric.higher_is_better else (two, one)
                gap = subtract(*(runs[place] for place in pair), self.correlation, *known[fewer])
                gap = add_variance(gap, luck[one] + luck[two], self.trials - 1)
                found[ranked[one], ranked[two], size], p[one, two] = gap, max(gap.p, 1e-300)
            adjusted = p * np.maximum((apart - apart[:, None]) * len(ranked) / 2, 1)
            adjusted = np.maximum.accumulate(np.maximum.accumulate(adjusted)[:, ::-1], axis=1)[:, ::-1]
            for one, two in combinations(apart, 2):
                pair = tuple(sorted((ranked[one], ranked[two])))
                questions.setdefault(pair, {})[size] = adjusted[one, two]
        for pair, by_size in questions.items():
            for size, value in zip(by_size, adjust_p_values([*by_size.values()]), strict=True):
                key = (*pair, size) if (*pair, size) in found else (*pair[::-1], size)
                found[key] = replace(found[key], comparisons=max(value / max(found[key].p, 1e-300), 1.0))
        return found

    def compared(self, rows: Iterable[Mapping[str, Any]]) -> list[float]:
        return [self.metric.compared(self.metric.value(row)) for row in rows]

    def values_of(self, rows: Iterable[Mapping[str, Any]]) -> dict[int, float | np.ndarray]:
        """Return by seed the metric in `Metric.compared`: on each test item if the run kept them, to first order."""
        values, compared = {}, self.metric.compared
        for row in rows:
            items = self.outcomes.get(row.get("run"))
            if items is not None and self.metric.relative:
                mean = float(np.mean(items))
                items = compared(mean) + (items - mean) / max(mean, LEAST)
            values[row["seed"]] = compared(self.metric.value(row)) if items is None else items
        return values

    def overlap(self, rows: Sequence[Mapping[str, Any]]) -> float:
        """Compute the correction for resampled test sets: test / train size; 0 where all seeds share one test set.

        Nadeau and Bengio, "Inference for the generalization error", 2003, equation 9. The largest training set stands
        for all untested items.
        """
        if rows[0].get("holdout") is None:
            return 0.0
        return rows[0]["test_items"] / max(row["train_items"] for row in self.rows)

    @cached_property
    def digit(self) -> float:
        """The place of the last digit of logged values, 0.01 of 0.93; 0 below a millionth, and of counted items."""
        logged = np.unique([self.metric.value(row) or 0 for row in self.all_rows if not row.get("test_items")])
        digits = [10.0**-k for k in range(7) if np.abs(logged * 10**k - np.round(logged * 10**k)).max(initial=0) < 1e-6]
        return digits[0] if digits and len(logged) > 1 else 0.0

    def round_up(self, spread: Spread | None, rows: Sequence[Mapping[str, Any]]) -> Spread | None:
        """Raise a spread to at least what the last digit hides: seeds may agree by rounding."""
        if spread is None and len(rows) > 1:
            spread = Spread(float(np.std(self.compared(rows), ddof=1)), len(rows) - 1)
        least = self.digit / math.sqrt(12) / (max(self.metric.value(rows[0]), LEAST) if self.metric.relative else 1)
        return spread and spread._replace(std=max(spread.std, least))

    def floor_spread(self, spread: Spread | None, rows: Sequence[Mapping[str, Any]]) -> Spread | None:
        """Raise a spread of few runs to at least the test items' binomial spread: seeds may agree by rounding."""
        tested = smallest_tested(rows)
        if not spread or spread.degrees >= FEW_DEGREES or not self.metric.percent or not tested:
            return spread
        share = (tested * float(np.mean(self.compared(rows))) + 0.5) / (tested + 1)
        return Spread(max(spread.std, math.sqrt(share * (1 - share) / tested)), spread.degrees)

    def floor(self, rows: Sequence[Mapping[str, Any]]) -> float:
        """Compute an interval's least half-width: n items without a mistake leave 3 / n open (the rule of three)."""
        tested = smallest_tested(rows)
        if not self.metric.percent or not tested:
            return 0.0
        if overlap := self.overlap(rows):  # how many different items the seeds have tested
            everything = tested + tested / overlap
            tested = everything * (1 - (1 - tested / everything) ** len(rows))
        return 3 / tested

    @cached_property
    def contenders(self) -> dict[str, dict[int, str]]:
        """Name -> training-set size -> model: the best model of each family, or each model if there is one family.

        Choose the best on validation items, so that its test result is not the luckiest of several. If the runs kept no
        validation results, choose on test items; `chosen_on_test` says so.
        """
        family_of = self.families
        if not self.by_family:
            return {model: dict.fromkeys(by_size, model) for model, by_size in self.by_model.items() if by_size}
        best: dict[str, dict[int, str]] = {}
        for size in self.sizes:
            for family in dict.fromkeys(family_of.values()):
                here = [m for m in family_of if family_of[m] == family and size in self.by_model[m]]
                cells = {m: self.by_model[m][size] for m in here}
                by_validation = all(cell.validation is not None for cell in cells.values())
                values = {m: cell.validation if by_validation else cell.mean for m, cell in cells.items()}
                if values:
                    best.setdefault(family, {})[size] = max(values, key=lambda m: self.metric.lead(values[m], 0.0))
        return best

    @cached_property
    def families(self) -> dict[str, str]:
        """The family of each model, in the order of the rows; a model without a family is its own."""
        return {row["model"]: row.get("family") or row["model"] for row in self.rows}

    def name_of(self, contender: str) -> str:
        """Name a contender: a family of several models by its usual spelling, a model by its name."""
        if not self.by_family:
            return contender
        models = [model for model, family in self.families.items() if family == contender]
        return family_name(models[0] if len(models) == 1 else contender)

    @property
    def by_family(self) -> bool:
        """Whether families are compared, not models."""
        return len(set(self.families.values())) > 1

    @property
    def chosen_on_test(self) -> bool:
        """Whether some contender is the best of several by its test result."""
        shown = {model for by_size in self.contenders.values() for model in by_size.values()}
        return len(self.contenders) < len(self.by_model) and any(
            cell.validation is None for model in shown for cell in self.by_model[model].values()
        )

    @cached_property
    def fits(self) -> StudyFits:
        """The scaling laws of the study's models and where they cross."""
        return StudyFits(self)

    # ---- what the folder says beside the runs

    @property
    def name(self) -> str:
        return str(self.config.get("name") or self.files.folder.resolve().name)

    @cached_property
    def status(self) -> StudyStatus:
        """The state of every run that was asked for."""
        return StatusReader(self.files).read()

    @property
    def unfinished(self) -> list[str]:
        """The names of the runs that were asked for and have neither finished nor failed."""
        return [run.run for run in self.status.of_state("running", "waiting") if run.run not in self.run_files]

    @property
    def failures(self) -> list[dict[str, str]]:
        """A dict `{"run", "error"}` for each run that failed."""
        return [{"run": run.run, "error": run.error} for run in self.status.of_state("failed")]

    def list_generated(self, count: int) -> list[dict[str, Any]]:
        """List `{"source", "reference", "by"}` of some test items, evenly spread over them.

        by: each model's text, from its first seed on most data. Return [] if no model generates texts.
        """
        largest = max((row["train_size"] for row in self.rows), default=0)
        first: dict[str, str] = {}
        for row in self.rows:
            if row["train_size"] == largest:
                first.setdefault(row["model"], row["run"])
        texts = {model: some for model, run in first.items() if (some := self.run_files[run].generated)}
        items = next(iter(texts.values()), [])
        places = sorted({int(place) for place in np.linspace(0, len(items) - 1, count)}) if items else []
        return [
            {**items[place], "by": {model: texts[model][place]["generated"] for model in texts}} for place in places
        ]


def frame(rows: Sequence[Any], columns: Sequence[str] | None = None) -> "pd.DataFrame":
    import pandas as pd  # 0.5 s: not for a command that prints sentences alone

    return pd.DataFrame(rows, columns=columns)


def family_name(family: str) -> str:
    """Return a family's usual spelling, `ViT` for `vit`, or the family."""
    return FAMILY_NAMES.get(family, family)


def smallest_tested(rows: Iterable[Mapping[str, Any]]) -> float | None:
    return min(filter(None, (finite(row.get("test_items")) for row in rows)), default=None)


def load_results(folder: str | Path, alpha: float | None = None) -> Results:
    """Read a study's results and write nothing; the default alpha is that of its last look.

    Read the runs' folders, not results.csv. Warns of damaged results; raises UserError for a folder
    that is not a study.
    """
    files = StudyFiles(folder)
    config, rows, spent = files.config(), files.finished_rows(), files.spent()
    alpha = alpha or (1 / spent[-1]["looks"] if spent else None)
    for damage in filter(None, files.damaged.values()):
        warnings.warn(damage, stacklevel=2)
    run_files = {row["run"]: RunResults(files.run(row["run"])) for row in rows}
    return Results(rows, config, files, run_files, alpha=alpha)


def load_runs(folder: str | Path) -> Results:
    """Load a study, or the runs of `vitlab train` in a folder as a study without files. Raises UserError."""
    folder = Path(folder)
    runs = [folder] if (folder / "result.json").is_file() else sorted(p.parent for p in folder.glob("*/result.json"))
    if StudyFiles(folder).config_path.exists() or not runs:
        return load_results(folder)
    return Results([], run_files={run.resolve().name: RunResults(RunFiles(run)) for run in runs})
