"""Describe the laws of a study's models, or of a file's groups, in tables and sentences; where each pair crosses."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from vitlab.formatting import DASH, amount, finite, plural, round_numbers, significant
from vitlab.statistics.crossover import Crossover, crossover, data_multiplier, describe_crossover, describe_multiplier
from vitlab.statistics.fit import DRAWS, FEWEST, FEWEST_AVERAGED, LARGEST_MISS, MEAN, Fit, ends, fit_points
from vitlab.tasks.metrics import Metric

MOST_PAIRS = 10  # pairs that sentences name
ITEMS = 4096  # test items to draw at a time
BUDGETS = {"steps": "steps", "epochs": "epochs", "examples": "examples", "flops": "FLOPs"}  # as sentences name them

# ---- laws of groups of runs


def make_law_table(
    fits: Mapping[str, Fit], error: str, on_budget: Collection[str] = (), sign: str = ""
) -> list[list[str]]:
    """Make a table of each group's law and the gain from more data, with a header; `error` names the fitted error.

    `on_budget` are the groups whose laws rest on undertrained cells; `sign` is % for shares.
    """
    size = max(fit.shown for fit in fits.values())
    doubling = f"each doubling of the data lowers the {error} by (90%)"
    rows = [["", "law", doubling, "hold-out", f"{error} at {amount(size)} (90%, one run)"]]
    for name, fit in fits.items():
        at = f" at {amount(fit.shown)}" if fit.shown != size else ""
        laws = ", ".join(law.name.upper() for law in fit.laws) or DASH
        slopes = describe_slopes(fit) if fit.holds else DASH
        miss = DASH if fit.miss is None else f"{np.exp(fit.miss):.2f}x"
        if fit.runs.trend > 0:
            prediction = f"none: the {error} rises with the data"
        elif not fit.laws:
            prediction = f"none: {len(fit.runs.counts)} sizes of {FEWEST_AVERAGED} needed"
        elif not fit.holds:
            prediction = f"none: off by more than {np.exp(LARGEST_MISS):g}x on measured sizes"
        else:
            three = fit.predict(fit.shown), *fit.prediction_interval(fit.shown)
            value, low, high = (float(one) * (100 if sign else 1) for one in three)
            prediction = f"{significant(value)}{sign} ({significant(low)} to {significant(high)})"
        law = f"mean of {laws}" if fit.law == MEAN else laws
        rows.append([name, law, f"{'undertrained: ' if name in on_budget else ''}{slopes}", miss, prediction + at])
    return rows


def describe_slopes(fit: Fit, unit: str = "", by: str = "") -> str:
    """Describe the effect of twice the smallest and largest size: `31% (24 to 38) at 1,000, 4% (0 to 9) at 32,000`."""
    texts = []
    for log_size in fit.runs.log_sizes[[0, -1]]:
        step = np.array([log_size, log_size + np.log(2)])
        high, low = ends(np.diff(fit.draw_log_errors(step))[:, 0])
        changes = -np.expm1([np.diff(fit.log_errors(step))[0], low, high])
        value, low, high = (f"{round(100 * change):.0f}" for change in changes)
        texts.append(f"{value}% ({low} to {high}) at {amount(np.exp(log_size))}{unit if not texts else ''}")
    return f",{by} ".join(texts)


def list_params(fits: Mapping[str, Fit]) -> Iterator[list[Any]]:
    """Yield a header, then a row for each parameter of each law, with its 90% interval."""
    yield ["model", "law", "parameter", "value", "low", "high"]
    for name, fit in fits.items():
        for law, thetas in zip(fit.laws, fit.theta_draws, strict=True):
            for parameter, drawn in law.name_params(thetas).items():
                yield [name, law.name, parameter, law.params[parameter], *map(float, ends(drawn))]


# ---- a study


class Measured(Protocol):
    """The part of a study's `Results` that laws read. `Results` imports this module, so this one cannot import it."""

    metric: Metric
    alpha: float
    by_family: bool
    families: dict[str, str]
    contenders: dict[str, dict[int, str]]
    by_model: Mapping[str, Mapping[int, Any]]  # the cells
    outcomes: dict[str, np.ndarray]
    luck: dict[tuple[str, int], np.ndarray]

    def gap(self, first: str, second: str, size: int) -> Any: ...
    def floor(self, rows: Sequence[Mapping[str, Any]]) -> float: ...
    def name_of(self, contender: str) -> str: ...


def find_clear_leads(results: Measured, one: Mapping[int, str], other: Mapping[int, str]) -> dict[float, bool]:
    """Tell by size whether one of two contenders (size -> model) leads clearly.

    Leave out sizes whose gap has no interval, of one seed: the curves' scatter tells of these.
    """
    gaps = {size: results.gap(one[size], other[size], size).estimate for size in sorted(one.keys() & other.keys())}
    return {size: gap.clear for size, gap in gaps.items() if gap.error is not None}


def describe_budget(rows: Iterable[Mapping[str, Any]]) -> str:
    """Describe how long each run trains, as the beginning of a sentence: `with 600 steps each, `."""
    unit, _, value = (budgets := {str(row.get("budget") or "") for row in rows}).pop().partition("=")
    return f"with {amount(float(value))} {BUDGETS[unit]} each, " if value and not budgets else "with these budgets, "


class StudyFits:
    """Fit the laws of a study's models that have enough sizes (`by_model`), and find where each pair crosses.

    error_name: the fitted error; no laws if the metric is neither an accuracy nor a loss. `to_error` turns the metric
    into it, `to_metric` turns it back (arrays, too). An error of 0 counts as half an error over the test items, if
    their number is known. Clear leads follow the gaps behind the headline and the table.
    left_out: some model has FEWEST_AVERAGED sizes without its undertrained cells, and is fitted without them.
    on_budget: models whose laws rest on undertrained cells.
    between: the crossover of two contenders, by their names: two models or two families. A family is at every size its
    best model on validation items, chosen again in each draw.
    """

    def __init__(self, results: Measured):
        metric = results.metric
        self.unit, self.sign, self.left_out = metric.sizes, "%" if metric.percent else "", False
        self.by_model: dict[str, Fit] = {}
        self.crossovers: dict[tuple[str, str], Crossover] = {}
        self.between: tuple[tuple[str, str], Crossover] | None = None
        self.compared: tuple[Fit, ...] = ()  # the two of `between`
        self.on_budget: set[str] = set()
        self.budget = ""
        self.error_name = ""
        if metric.percent:
            self.error_name, self.to_error, self.to_metric = "error", metric.to_error, lambda error: 1 - error
        elif metric.key == "perplexity":
            self.error_name, self.to_error, self.to_metric = "loss", math.log, np.exp
        elif metric.is_error:
            self.error_name, self.to_error, self.to_metric = metric.name, float, lambda error: error
        else:
            return
        self._of_items = self._draw_items(results)
        for (model, size), luck in results.luck.items():  # luck of the tuned recipes: other trials would find others
            mean = results.by_model[model][size].mean
            values = mean * np.exp(luck) if metric.relative else mean + luck
            noise = np.vectorize(self._log_error)(values) - self._log_error(mean)
            self._of_items[model, size] = self._of_items.get((model, size), 0.0) + noise.clip(-2, 2)
        for model, cells in results.by_model.items():
            self._fit(results, model, cells)
        for first, second in combinations(self.by_model, 2):
            leads = find_clear_leads(results, *(dict.fromkeys(results.by_model[m], m) for m in (first, second)))
            fits = self.by_model[first], self.by_model[second]
            self.crossovers[first, second] = crossover(*fits, leads=leads, alpha=results.alpha)
        if len(self.by_model) == 2:
            ((pair, found),) = self.crossovers.items()
            self.compared = tuple(self.by_model.values())
            self.between = tuple(results.name_of(results.families[m] if results.by_family else m) for m in pair), found
        elif results.by_family and len(results.contenders) == 2:
            fits = {name: self._fit_family(results, by_size) for name, by_size in results.contenders.items()}
            if all(fits.values()):
                leads = find_clear_leads(results, *results.contenders.values())
                self.compared = tuple(fits.values())
                found = crossover(*self.compared, leads=leads, alpha=results.alpha)
                self.between = tuple(map(results.name_of, fits)), found

    def list_errors(self, results: Measured, cells: Mapping[int, Any]) -> list[tuple[dict[str, Any], float, bool]]:
        """List each run with an error above 0: its row, its error, and whether its cell is undertrained.

        A loss may be negative; leave such runs out.
        """
        kept = []
        for row, undertrained in ((row, cell.undertrained) for cell in cells.values() for row in cell.rows):
            error = self.to_error(results.metric.value(row))
            error = round_numbers({self.error_name: error})[self.error_name]  # as in results.csv, for `vitlab fit`
            error = error or 0.5 / (finite(row.get("test_items")) or math.inf)  # of few test items
            if error > 0:
                kept.append((row, error, undertrained))
        return kept

    def _fit(self, results: Measured, model: str, cells: Mapping[int, Any]) -> None:
        kept = self.list_errors(results, cells)
        chances = [finite(row.get("chance")) for row, *_ in kept] if results.metric.key == "accuracy" else []
        points = np.array([(row["train_size"], error, row["seed"]) for row, error, _ in kept]).reshape(-1, 3).T
        trained = points[:, [not undertrained for *_, undertrained in kept]]
        fewer, enough = trained.size < points.size, len(set(trained[0])) >= FEWEST_AVERAGED
        if enough or len(set(points[0])) >= FEWEST:
            guessed = [1 - chance for chance in chances if chance is not None][-1:]
            points = trained if enough else points
            noise = [self._of_items.get((model, int(size)), np.zeros(DRAWS)) for size in np.unique(points[0])]
            floor = results.floor([row for row, *_ in kept])
            fit = fit_points(*points, *guessed)
            self.by_model[model] = replace(fit, of_items=np.stack(noise, axis=1), floor=floor)
        self.left_out |= fewer and enough
        if fewer and not enough:
            self.on_budget.add(model)
            self.budget = describe_budget(
                row for cells in results.by_model.values() for one in cells.values() for row in one.rows
            )

    def _draw_items(self, results: Measured) -> dict[tuple[str, int], np.ndarray]:
        """Draw how other test items would change the log error of each cell, (DRAWS,), to first order.

        In a draw an item has the same weight in all cells, which share the items. Return {} if runs kept no items.
        """
        cells = {(model, size): cell for model, of in results.by_model.items() for size, cell in of.items()}
        kept = {key: [results.outcomes.get(row.get("run")) for row in cell.rows] for key, cell in cells.items()}
        if len(shapes := {np.shape(items) for of in kept.values() for items in of}) != 1 or () in shapes:
            return {}
        means = np.stack([np.mean(items, axis=0) for items in kept.values()])
        values = means.mean(axis=1, keepdims=True)
        step = 1e-4 * np.maximum(np.abs(values), 1e-2)
        above, below = (np.vectorize(self._log_error)(values + sign * step) for sign in (1, -1))
        influences = (means - values) * np.clip((above - below) / (2 * step), -1e3, 1e3)
        random, drawn = np.random.default_rng(0), 0.0
        for start in range(0, means.shape[1], ITEMS):
            some = influences[:, start : start + ITEMS].astype(np.float32)
            drawn = drawn + some @ random.standard_normal((some.shape[1], DRAWS // 2), dtype=np.float32)
        drawn = drawn / means.shape[1]
        return dict(zip(kept, np.concatenate([drawn, -drawn], axis=1).clip(-2, 2), strict=True))

    def _log_error(self, value: float) -> float:
        return math.log(max(self.to_error(value), 1e-9))

    def _fit_family(self, results: Measured, by_size: Mapping[int, str]) -> Fit | None:
        """Fit a family's best model at each size; the draws choose it by validation errors with their noise.

        None with too few sizes, or where a model of the family has no law.
        """
        family = results.families[next(iter(by_size.values()))]
        models = [model for model in results.by_model if results.families[model] == family]
        kept = self.list_errors(results, {size: results.by_model[model][size] for size, model in by_size.items()})
        sizes = sorted({row["train_size"] for row, *_ in kept})
        if len(sizes) < FEWEST or not {*models} <= self.by_model.keys():
            return None
        fit = fit_points(*np.array([(row["train_size"], error, row["seed"]) for row, error, _ in kept]).T)
        columns = []
        for size, log_mean in zip(sizes, fit.runs.log_means, strict=True):
            drawn, seen = [], []
            for model in (model for model in models if size in results.by_model[model]):
                own, cell = self.by_model[model], results.by_model[model][size]
                place = np.flatnonzero(np.isclose(own.runs.log_sizes, math.log(size)))  # none: left out of its law
                noise = own.noise_of_means[:, place[0]] if len(place) else np.zeros(DRAWS)
                drawn.append(self._log_error(cell.mean) + noise)
                seen.append(self._log_error(cell.mean if cell.validation is None else cell.validation) + noise)
            best = np.argmin(seen, axis=0)
            columns.append(np.stack(drawn)[best, np.arange(DRAWS)] - log_mean)
        return replace(fit, of_choice=np.stack(columns, axis=1))

    @property
    def law_table(self) -> list[list[str]]:
        """The header and a row per model; empty without a fit."""
        return make_law_table(self.by_model, self.error_name, self.on_budget, self.sign) if self.by_model else []

    @property
    def measured_by(self) -> str:
        """The source of the noise behind the intervals, in words."""
        return " and ".join(sorted({fit.measured_by for fit in self.by_model.values()}))

    def warn(self, text: str, *models: str) -> str:
        """Put a warning before the text if the laws of these models rest on undertrained cells."""
        return f"{self.budget if self.on_budget.intersection(models) else ''}{text}"

    def describe_law(self, model: str) -> str:
        """Describe a law: `each doubling of the data lowers the error by 31% (24 to 38) at 1,000 examples`, ..."""
        slopes = describe_slopes(self.by_model[model], f" {self.unit}", " by")
        return self.warn(f"each doubling of the data lowers the {self.error_name} by {slopes}", model)

    def describe_headline(self) -> str:
        """Describe where the curves of two contenders cross, or that no crossover is seen; "" unless there are two."""
        if self.between is None:
            return ""
        names, crossing = self.between
        sure = crossing.claim == "sure"
        text = describe_crossover(crossing, *(names if sure else ()), unit=self.unit)
        text = self.warn(text, *self.by_model)
        return f"{text if sure and not self.on_budget else text[0].upper() + text[1:]}."

    def describe_sure(self) -> list[str]:
        """Describe each sure crossover of two models in a sentence."""
        sure = {pair: one for pair, one in self.crossovers.items() if one.claim == "sure"}
        return [f"{self.warn(describe_crossover(one, *pair, self.unit), *pair)}." for pair, one in sure.items()]

    def describe_crossovers(self) -> list[str]:
        """Describe each pair of models in a sentence; of more than MOST_PAIRS only the surest crossovers."""
        order = sorted(self.crossovers, key=lambda pair: ("sure", "likely", "none").index(self.crossovers[pair].claim))
        said = [self.warn(describe_crossover(self.crossovers[p], *p, self.unit), *p) + "." for p in order[:MOST_PAIRS]]
        left = len(order) - len(said)
        return [*said, f"{plural(left, 'more pair')}: figures/crossovers.csv."] if left else said

    def describe_multipliers(self) -> list[str]:
        """Describe each pair of models with an error that both reach inside their data; [] above MOST_PAIRS pairs."""
        if len(self.crossovers) > MOST_PAIRS:
            return []
        found = {pair: data_multiplier(*(self.by_model[model] for model in pair)) for pair in self.crossovers}
        shown = {pair: one for pair, one in found.items() if one.ratio is not None}
        return [f"{describe_multiplier(one, *pair, self.error_name)}." for pair, one in shown.items()]

    def list_crossovers(self) -> Iterator[list[Any]]:
        """Yield a header, then a row for each pair of models."""
        keys = ("size", "low", "high", "inside", "p_none", "claim", "reason")
        yield ["a", "b", *keys]
        for pair, one in self.crossovers.items():
            yield [*pair, *(vars(one)[key] for key in keys)]
