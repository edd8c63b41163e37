"""Figure 1: the study's metric on held-out data against the training-set size, training compute and time.

Against compute and time it has the best for each cost, as Dosovitskiy et al., 2021, figure 5, and Zhai et al., 2022,
figure 2.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from statistics import fmean
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from vitlab.config import UserError
from vitlab.formatting import LONG, amount, duration, finite, folder_link, plural, with_prefix
from vitlab.reports import group_look, looks
from vitlab.reports.figures import (
    COLOURS,
    DASHED,
    DOTTED,
    RING,
    SOLID,
    Figure,
    axis,
    by_look,
    find_domain,
    mark_band,
    of_field,
    panels,
    with_legend,
)
from vitlab.reports.figures.images import draw_cells
from vitlab.reports.words import describe_model
from vitlab.statistics.crossover import describe_crossover, rounded
from vitlab.statistics.fit import Fit
from vitlab.statistics.surfaces import BestSize, find_best_sizes, fit_surface
from vitlab.studies.laws import StudyFits
from vitlab.studies.results import Results, family_name

PLACE = 1
BEYOND = 2.0  # times the largest size: how far laws are drawn
LAW_POINTS, FIT_POINTS = 24, 60  # of a law's line in a study, and for `vitlab fit`
MOST_RUNS, ALL_RUNS = 30, 600  # of a model at a size that have a ring each, and of all together
FILES = [("results.csv", "results.csv")]
TIME_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
STAIRS = (
    " Along a line the training set grows. Stairs: best mean {} reached with at most this {}; wide: per family, dotted:"
    " all models."
)
Row = Mapping[str, Any]


def draw(results: Results) -> Iterator[Figure]:
    """Draw the error on log-log axes where the metric is a share, the metric, then the metric against each known cost.

    Costs are training compute (the operations of all forward and backward passes) and wall-clock time of training;
    none with fixed steps, which make one cost of a model, unless there are many models.
    """
    metric = results.metric
    if not results.sizes:
        return
    if metric.percent and metric.higher_is_better:
        yield draw_sizes(results, "error", f"error (1 - {metric.name})", lambda value: 1 - value)
    yield draw_sizes(results, metric.name, metric.name, lambda value: value)
    if results.efforts:
        yield draw_efforts(results)
    yield from draw_budgets(results)
    yield from draw_model_sizes(results)
    spent = {(row["model"], row["family"], flops) for row in results.rows if (flops := finite(row.get("train_flops")))}
    models, families, costs = len({one[0] for one in spent}), len({one[1] for one in spent}), {one[1:] for one in spent}
    if 0 < len(spent) == models and len(costs) <= 2 * families:
        return
    longest = max(finite(row.get("wall_s")) or 0.0 for row in results.rows)
    unit, short = max((unit for unit in TIME_UNITS if longest >= 5 * unit[0]), default=TIME_UNITS[0])
    for choice, key, title, by, text in (
        ("compute", "train_flops", "training compute (FLOPs)", 1.0, partial(with_prefix, unit="FLOP")),
        ("time", "wall_s", f"time to train and evaluate ({short})", unit, lambda time: duration(time * unit)),
    ):
        cost = lambda row, key=key, by=by: (finite(row.get(key)) or 0.0) / by  # noqa: E731
        rows = [row for row in results.rows if cost(row) > 0]  # 0 has no place on a log axis
        priced = results if len(rows) == len(results.rows) else Results(rows, outcomes={})
        if priced.sizes:
            yield draw_costs(results, priced, choice, title, cost, text)


# ---- points, against whatever


def find_points(
    results: Results,
    y: Callable[[float], float],
    *,
    log: bool,
    x: Callable[[Row], float] = lambda row: row["train_size"],
    price: Callable[[float], str] = lambda x: "",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Find the points of cells and of their shown runs: x, y, a text and a link; NaN where a log axis lacks y."""
    metric, cells = results.metric, results.cells
    height = lambda value: math.nan if log and y(value) <= 0 else y(value)  # noqa: E731
    describe = lambda *lines: "\n".join(filter(None, lines))  # noqa: E731
    several, most = set(cells.model[cells.n > 1]), max(3, min(MOST_RUNS, ALL_RUNS // len(cells)))
    places, texts, links, rings = [], [], [], []
    for cell in cells.itertuples():
        rows = results.by_model[cell.model][cell.train_size].rows
        places.append(fmean(map(x, rows)))
        spread = f" ± {metric.number(cell.std)} over {cell.n} seeds" if cell.n > 1 else ""
        facts = f"{metric.text(cell.mean)}{spread}", price(places[-1]), cell.undertrained and "undertrained"
        texts.append(describe(f"{cell.model}, {amount(cell.train_size)} {metric.sizes}", *facts))
        links.append(folder_link(rows[0]["run"]) if cell.n == 1 else "")
        ordered = sorted(rows, key=metric.value) if cell.model in several else []
        # of many runs some in even steps of their order, with the lowest and the highest
        for place in sorted({round(place) for place in np.linspace(0, len(ordered) - 1, most)} if ordered else ()):
            row, value = ordered[place], metric.value(ordered[place])
            text = describe(row["run"], metric.text(value), price(x(row)))
            rings.append((cell.model, cell.train_size, x(row), height(value), text, folder_link(row["run"])))
    found = cells.assign(x=places, y=[height(mean) for mean in cells["mean"]], text=texts, link=links)
    return found, pd.DataFrame(rings, columns=["model", "train_size", "x", "y", "text", "link"]).dropna(subset="y")


def layer_points(cells: pd.DataFrame, runs: pd.DataFrame, **encoding: Any) -> list[alt.Chart]:
    """Draw a ring per run and a point per mean, hollow where the cell is undertrained."""
    points = cells[["model", "x", "y", "text", "link"]]
    hollow = {"filled": False, "fill": COLOURS["paper"], "size": 60, "strokeWidth": 2}
    layers = [
        alt.Chart(runs, name="runs").mark_point(**RING),
        alt.Chart(points[cells.undertrained], name="undertrained").mark_point(**hollow),
        alt.Chart(points[~cells.undertrained], name="means").mark_point(),
    ]
    return [layer.encode(tooltip="text:N", **encoding) for layer in layers]


def layer_texts(texts: pd.DataFrame, **encoding: Any) -> list[alt.Chart]:
    """Draw texts to the right of their points, a little above or below."""
    sides = (("above", texts[texts.above], -9), ("below", texts[~texts.above], 11))
    return [
        alt.Chart(some[["model", "x", "y", "text"]], name=name)
        .mark_text(dy=dy, dx=8, align="left")
        .encode(text="text:N", **encoding)
        for name, some, dy in sides
        if len(some)
    ]


def describe_points(results: Results, cells: pd.DataFrame) -> str:
    """Describe the markers."""
    text = "Open markers: single runs." if cells.n.max() > 1 else "Each marker is one run."
    if cells.n.max() > (most := max(3, min(MOST_RUNS, ALL_RUNS // len(cells)))):
        text = f"{text[:-1]}; of more than {most} at a size, {most} from the lowest to the highest."
    text += " Hollow: undertrained." * bool(cells.undertrained.any())
    return text + ("" if results.metric.higher_is_better else " Lower is better.")


# ---- against size


def draw_sizes(results: Results, choice: str, label: str, y: Callable[[float], float]) -> Figure:
    """Draw a line per model through its means, with the band of their 95% intervals, and beyond the data its law."""
    metric, found, as_error = results.metric, results.fits, choice == "error"
    log = as_error or not metric.percent
    cells, runs = find_points(results, y, log=log)
    sizes = sorted(set(results.runs.train_size))
    ends = np.sort(np.stack([y(cells.low), y(cells.high)]), axis=0)  # of the intervals of means, where something tells
    means = cells[["model", "x", "y", "text"]].assign(beyond=False, low=ends[0], high=ends[1])
    lines = pd.concat([means, *find_laws(found, as_error, metric.percent, sizes[-1])])
    crossings, ends = find_crossovers(found, sizes[-1]), find_ends(results, y)
    crossings = crossings if log else crossings[:0]  # straight lines of errors' logs cross there, shares do not
    domain = find_domain([*cells.y, *runs.y, *lines.y], [*lines.low, *lines.high], log=log, percent=metric.percent)
    lines[["low", "high"]] = lines[["low", "high"]].clip(*domain)  # an interval may reach beyond what an axis has
    reach = find_domain([*sizes, *lines.x, *crossings.low, *crossings.high], log=True, percent=False)
    across = axis(
        alt.X, "x", metric.sizes, reach, log=True, ticks=sizes if len(sizes) < 25 else (), short=sizes[-1] >= LONG
    )
    up = axis(alt.Y, "y", f"held-out {label}", domain, log=log, percent=metric.percent)
    look = by_look("model", style := looks(results.families))
    dash = alt.StrokeDash("beyond:N", scale=alt.Scale(domain=[False, True], range=[SOLID, DASHED]), legend=None)
    thin = alt.condition("datum.beyond", alt.value(1), alt.value(2))
    banded = alt.Chart(lines.dropna(subset="low")[["model", "x", "low", "high"]])
    of_model = [
        mark_band(banded, up, len(style)).encode(x=across, color=look["color"]),
        alt.Chart(lines[["model", "beyond", "x", "y", "text"]], name="lines")
        .mark_line(point="transparent")
        .encode(x=across, y=up, color=look["color"], strokeDash=dash, strokeWidth=thin, tooltip="text:N"),
        *layer_points(cells, runs, x=across, y=up, **look),
        *layer_texts(ends[(ends.y > 0) | (not log)], x=across, y=up),
    ]
    name = "error" if as_error else metric.key
    return Figure(
        name=f"{name}_against_size",
        title=f"Held-out {choice} against {metric.size_name or 'training-set size'}",
        chart=alt.layer(
            *layer_crossovers(crossings, across, numbers=len(found.crossovers) == 1),
            *with_legend("model", style, of_model),
        ),
        caption=f"{describe_lines(found, lines, crossings)} {describe_points(results, cells)}".strip(),
        alt=" ".join(describe_model(m, by_size, metric) for m, by_size in results.by_model.items() if by_size),
        files=[*FILES, *([("laws.csv", "figures/laws.csv")] if found.by_model else [])],
        choice=choice,
    )


def find_laws(found: StudyFits, as_error: bool, percent: bool, largest: float) -> Iterator[pd.DataFrame]:
    """Yield the law of each model whose law holds, beyond the sizes of its fit."""
    for model, fit in found.by_model.items():
        if not fit.holds:
            continue
        sizes = np.geomspace(fit.largest, max(BEYOND * fit.largest, largest), LAW_POINTS)
        heights = fit.predict(sizes) if as_error else found.to_metric(fit.predict(sizes))
        if percent:
            heights = np.clip(heights, 1e-6 if as_error else 0.0, 1.0)
        text = f"{model}: {found.describe_law(model)}"
        yield pd.DataFrame({"model": model, "beyond": True, "x": sizes, "y": heights, "text": text})


def find_crossovers(found: StudyFits, largest: float) -> pd.DataFrame:
    """List each crossover near the data with the ends of its interval, as far as laws are drawn."""
    rows = [
        (
            one.size,
            one.low,
            min(one.high or np.inf, max(BEYOND * one.largest, largest)),
            describe_crossover(one, *pair, found.unit),
            f"crossover {rounded(one.size)} ({rounded(one.low)} {f'to {rounded(one.high)}' if one.high else 'up'})",
        )
        for pair, one in found.crossovers.items()
        if one.size is not None and one.factor <= BEYOND
    ]
    return pd.DataFrame(rows, columns=["x", "low", "high", "text", "numbers"])


def layer_crossovers(crossings: pd.DataFrame, x: alt.X, *, numbers: bool) -> list[alt.Chart]:
    """Draw the strip of each interval, a line across it, and with `numbers` its numbers above."""
    base = alt.Chart(crossings).encode(x=x, tooltip="text:N")
    strip = base.mark_rect(color=COLOURS["muted"], opacity=1, fillOpacity=0.15)
    layers = [
        strip.encode(x=of_field(x, "low"), x2="high:Q").properties(name="strips"),
        base.mark_rule(strokeDash=DOTTED).properties(name="crossovers"),
        base.mark_text(dy=-8).encode(y=alt.value(0), text="numbers:N").properties(name="numbers"),
    ]
    return layers[: 2 + numbers] if len(crossings) else []


def find_ends(results: Results, y: Callable[[float], float]) -> pd.DataFrame:
    """Find the two best contenders' means at the largest size, which the headline compares: one above, one below."""
    metric, size = results.metric, max(row["train_size"] for row in results.rows)
    cells = [results.by_model[by_size[size]][size] for by_size in results.contenders.values() if size in by_size]
    best = sorted(cells, key=lambda cell: metric.lead(cell.mean, 0.0), reverse=True)[:2]
    best.sort(key=lambda cell: y(cell.mean), reverse=True)
    sides = zip(best, (True, False), strict=False)
    ends = [(cell.rows[0]["model"], size, y(cell.mean), metric.text(y(cell.mean)), above) for cell, above in sides]
    return pd.DataFrame(ends, columns=["model", "x", "y", "text", "above"]).astype({"above": bool})


def describe_lines(found: StudyFits, lines: pd.DataFrame, crossings: pd.DataFrame) -> str:
    """Describe the lines, bands and the upright line of the figure."""
    texts = [f"Lines: mean over seeds{'; bands: 95% interval' if lines.low.notna().any() else ''}."]
    if lines.beyond.any():
        fitted = " (without undertrained points)" if found.left_out else ""
        texts.append(f"Dashed: forecast{fitted}.")
    if len(crossings):
        texts.append("Gray strip: where the curves cross (90%).")
    return " ".join(texts)


# ---- against cost


def draw_costs(
    results: Results,
    known: Results,
    choice: str,
    title: str,
    cost: Callable[[Row], float],
    price: Callable[[float], str],
) -> Figure:
    """Draw a line per model through the means over seeds of both, from its smallest training set to its largest.

    Behind them the frontier of each family and of all. `known` are the runs whose cost is known.
    """
    metric = results.metric
    log = not metric.percent
    cells, runs = find_points(known, lambda value: value, log=log, x=cost, price=price)
    reach = find_domain([*cells.x, *runs.x], log=True, percent=False)
    across = axis(alt.X, "x", title, reach, log=True, short=True)
    up = axis(alt.Y, "y", f"held-out {metric.name}", log=log, percent=metric.percent)
    # the smallest and the largest training set of the first model, above its line's higher end and below the lower
    line = cells[cells.model == cells.model.iloc[0]].iloc[[0, -1]].drop_duplicates("train_size")
    rises = line.y.iloc[0] <= line.y.iloc[-1]
    line = line.assign(text=[f"{size:,}" for size in line.train_size], above=[not rises, rises][-len(line) :])
    look = by_look("model", style := looks(results.families))
    of_model = [
        alt.Chart(cells[["model", "train_size", "x", "y"]], name="lines")
        .mark_line()
        .encode(x=across, y=up, color=look["color"], order="train_size:Q"),
        *layer_points(cells, runs, x=across, y=up, **look),
        *layer_texts(line, x=across, y=up),
    ]
    frontiers = find_frontiers(cells, metric.lead) if len(style) > 1 else {}
    stairs = []
    for label, frontier in frontiers.items():
        steps = pd.concat([frontier, frontier.tail(1).assign(x=cells.x.max())])[["x", "y", "text"]]
        steps = alt.Chart(steps.assign(text=f"{label}: " + steps.text), name=label)
        mark = {"strokeWidth": 7, "strokeOpacity": 0.25, "color": COLOURS[style[frontier.model.iloc[0]].colour]}
        if label == "best of all":
            mark = {"strokeWidth": 1.4, "strokeDash": DOTTED, "color": COLOURS["ink"]}
        stairs.append(steps.mark_line(interpolate="step-after", **mark).encode(x=across, y=up, tooltip="text:N"))
    caption = describe_points(results, cells) + (STAIRS.format(metric.name, choice) if frontiers else "")
    if choice == "time":
        caption += " Wall-clock time from the first step to the last, including evaluations and checkpoints."
        environments = [run.result.get("environment") or {} for run in results.run_files.values()]
        if len({tuple(one.get(key) for key in ("device", "cpu", "cores")) for one in environments}) > 1:
            caption += " The runs were on different machines, so their times are not comparable."
    return Figure(
        name=f"{metric.key}_against_{choice}",
        title=f"Held-out {metric.name} against training {choice}",
        chart=alt.layer(*stairs, *with_legend("model", style, of_model)),
        caption=caption,
        alt=describe_costs(results, cells, frontiers, price),
        files=FILES,
        choice=choice,
    )


def find_frontiers(cells: pd.DataFrame, lead: Callable[[float, float], float]) -> dict[str, pd.DataFrame]:
    """Find the Pareto frontier of each family, and of all: cells better than every cell of no more cost, by cost."""
    groups = {f"best of {family_name(family)}": some for family, some in cells.groupby("family", sort=False)}
    if len(groups) > 1:
        groups["best of all"] = cells
    found = {}
    for label, some in groups.items():
        ordered = some.assign(lead=lead(some["mean"], 0.0)).sort_values(["x", "lead"], ascending=[True, False])
        found[label] = ordered[ordered.lead > ordered.lead.cummax().shift(fill_value=-math.inf)]
    return found


def describe_costs(
    results: Results, cells: pd.DataFrame, frontiers: Mapping[str, pd.DataFrame], price: Callable[[float], str]
) -> str:
    """Describe the largest and the smallest training set of each model, and each frontier."""
    texts = []
    ends = {model: line.iloc[[-1, 0][: len(line)]] for model, line in cells.groupby("model", sort=False)}
    for label, points in (ends | frontiers).items():
        priced = [f"{results.metric.text(one.mean)} for {price(one.x)}" for one in points.itertuples()]
        if label in ends:
            priced = [
                f"{p} with {amount(size)} {results.metric.sizes}"
                for p, size in zip(priced, points.train_size, strict=True)
            ]
        texts.append(f"{label}: {', '.join(priced)}.")
    return " ".join(texts)


# ---- against size and budget


def draw_budgets(results: Results) -> Iterator[Figure]:
    """Draw the means of each model as a cell per training-set size and budget, where budgets are an axis of the study.

    The caption says what the last step in data and the last one in budget bring from the cell before both.
    """
    metric, sizes, tables = results.metric, results.sizes, dict[str, dict[tuple[str, float], dict[int, float]]]()
    for model, by_size in results.by_model.items():
        unit, _, value = str(next((cell.rows[0].get("budget") for cell in by_size.values()), "")).partition("=")
        name = re.sub(rf" {unit}=\S+", "", model)
        if name != model:
            row = tables.setdefault(name, {}).setdefault((unit, float(value)), {})
            row.update({size: cell.mean for size, cell in by_size.items()})
    tables = {name: dict(sorted(table.items())) for name, table in tables.items() if len(table) > 1}
    if not tables or len(sizes) < 2:
        return
    means = [mean for table in tables.values() for row in table.values() for mean in row.values()]
    ends, charts, texts = (min(means), max(means) + 1e-9), [], []
    for place, (name, table) in enumerate(tables.items()):
        budgets = [f"{value:,.6g}" for _, value in table]
        values = [[row.get(size) for size in sizes] for row in table.values()]
        shown = [["" if mean is None else metric.number(mean) for mean in row] for row in values]
        unit, scale = next(iter(table))[0], metric.name if place == len(tables) - 1 else ""
        columns = [f"{size:,}" for size in sizes]
        across = {"x": metric.sizes, "y": unit, "scale": scale, "ends": ends, "texts": shown}
        charts.append(draw_cells(values, budgets, columns, **across).properties(title=name))
        here, data, budget = values[-2][-2], values[-2][-1], values[-1][-2]
        if None not in (here, data, budget):
            more, longer = (metric.gap(metric.lead(value, here)) for value in (data, budget))
            start = f"{name} with {columns[-2]} {metric.sized_by}s and {budgets[-2]} {unit}"
            texts.append(f"From {start}, {columns[-1]} {metric.sized_by}s bring {more}, {budgets[-1]} {unit} {longer}.")
    yield Figure(
        name=f"{metric.key}_against_budget",
        title=f"Held-out {metric.name} over training-set size and budget",
        chart=alt.hconcat(*charts),
        caption=" ".join(["A cell is a mean over seeds.", *texts]),
        alt=" ".join(texts),
        files=FILES,
        choice="budget",
    )


# ---- against the model's size


def draw_model_sizes(results: Results) -> Iterator[Figure]:
    """Draw the error against the parameters where `model.size` varies, with a line and its minimum per budget.

    The budgets are of FLOPs; without these a line is L(N, D) for an amount of data. The caption says both.
    """
    metric, fits, rows, texts, parts = results.metric, results.fits, [], [], []
    for model, cells in results.by_model.items() if fits.error_name else ():
        learned = {size: cell for size, cell in cells.items() if cell.beats_chance and " size=" in model}
        rows += [{**row, "error": error} for row, error, _ in fits.list_errors(results, learned) if row.get("budget")]
    if not rows:
        return
    runs = pd.DataFrame(rows)
    runs[["unit", "budget"]] = runs.budget.str.split("=", expand=True)
    runs["budget"] = runs.budget.astype(float)

    def add(panel: str, label: str, here: pd.DataFrame, law: Any, best: BestSize | None = None) -> None:
        means, of_line = here.groupby("params").error.mean(), {"panel": panel, "label": label}
        span = np.exp(best.ends) if best is not None else means.index[[0, -1]]
        parts.extend(list_parts(of_line, {"fitted": (means.index, means)}, span, law))
        if best is not None and best.inside:
            ends = dict(zip(("x", "left", "right"), np.exp(best.best), strict=True))
            parts.append(pd.DataFrame({**of_line, "kind": "best", **ends, "y": law(ends["x"])}, [0]))

    names = runs.model.str.replace(r" (size|steps|epochs|examples|flops)=\S+", "", regex=True)
    for name, here in runs.groupby(names, sort=False):
        for size, of_size in here[here.unit == "flops"].groupby("train_size"):
            found = find_best_sizes(*of_size[["budget", "params", "error"]].to_numpy().T)
            panel = f"{name}, {size:,} training {metric.sized_by}s"
            texts += [f"{panel}: lowest {'; '.join(one.describe() for one in found)}."] * bool(found)
            for one in found:
                add(panel, with_prefix(one.budget, "FLOP"), of_size[of_size.budget == one.budget], one.predict, one)
        if longer := here.budget.nunique() > 1:
            here = here[here.train_size == here.train_size.max()]
        key, what = ("examples_seen", "examples seen") if longer else ("train_size", "training-set size")
        with suppress(UserError):  # too few runs
            law = fit_surface(*here[["params", key, "error"]].to_numpy(float).T)
            texts.append(f"{name}, N parameters, D {what}: {law.describe()}.")
            for number, some in here.groupby(key) if law.holds and "flops" not in {*here.unit} else ():
                add(name, f"{what} {number:,}", some, partial(law.predict, data=number))
    if parts:
        yield Figure(
            name=f"{fits.error_name}_against_params",
            title=f"Held-out {fits.error_name} against the model's size",
            chart=draw_laws(parts, "parameters", fits.error_name, percent=metric.percent),
            caption=" ".join(["A point is a mean over seeds, a diamond the lowest point of a parabola.", *texts]),
            alt=" ".join(texts),
            files=FILES,
            choice="model size",
        )


# ---- against trials


def draw_efforts(results: Results) -> Figure:
    """Draw what the best of 1, 2, ... trials is expected to reach, a panel per training-set size."""
    metric, cells = results.metric, results.best_of
    frame = cells.assign(panel=[plural(size, metric.sized_by) for size in cells.train_size]).dropna(subset="mean")
    style, kind = looks(results.families), {"log": not metric.percent, "percent": metric.percent}
    across = axis(alt.X, "trials", "trials of each model", ticks=[*results.efforts])
    domain = find_domain(frame["mean"], [*frame.low, *frame.high], **kind)
    frame[["low", "high"]] = frame[["low", "high"]].clip(*domain)
    up = axis(alt.Y, "mean", f"held-out {metric.name}", domain, **kind)
    base = alt.Chart().encode(x=across, y=up, color=by_look("model", style)["color"])
    layers = [mark_band(base, up, len(style)), base.mark_line(point=True).encode(tooltip=["model", "trials", "mean"])]
    shown = frame[["model", "trials", "mean", "low", "high", "panel"]]
    ends = frame[(frame.train_size == frame.train_size.max()) & frame.trials.isin(results.efforts)]
    return Figure(
        name=f"{metric.key}_against_trials",
        title=f"Held-out {metric.name} of the best of 1, 2, ... trials",
        chart=panels(alt.layer(*with_legend("model", style, layers), data=shown), "panel", [*shown.panel.unique()]),
        caption="Means over all choices of as many trials, of which the best on validation items counts. Bands: 95% "
        "intervals over seeds, held-out examples and trials.",
        alt=" ".join(f"{e.model}: {metric.text(e.mean)} with {plural(e.trials, 'trial')}." for e in ends.itertuples()),
        files=FILES,
        choice="trials",
    )


# ---- for `vitlab fit --out` and `vitlab advise`


def plot_fitted_curves(fits: Mapping[tuple[str, ...], Fit], x: str, y: str) -> Figure:
    """Plot a curve per value of the groups' last column, a panel per value of the others; open points are held back."""
    parts = []
    for name, fit in fits.items():
        law = lambda at, fit=fit: [fit.predict(at), *fit.interval(at)]  # noqa: E731
        sizes, errors = np.exp(fit.runs.log_sizes[fit.runs.size_index]), np.exp(fit.runs.log_errors)
        points = {"fitted": (sizes, errors), "held back": fit.held_back}
        ends = (sizes[0], fit.largest, max([2 * fit.largest, *fit.held_back[0]])) if fit.holds else ()
        parts += list_parts({"panel": ", ".join(name[:-1]), "label": name[-1]}, points, ends, law)
    return Figure("fits", f"{y} against {x}, with fitted laws", draw_laws(parts, x, y))


def list_parts(
    of_line: Row, points: Mapping[str, Any], ends: Sequence[float], law: Callable[[Any], Any]
) -> list[pd.DataFrame]:
    """List the parts of one line for `draw_laws`: points by kind; a law's y, low and high between and beyond ends."""
    parts = [pd.DataFrame({**of_line, "kind": kind, "x": x, "y": y}) for kind, (x, y) in points.items()]
    for begin, end, kind in zip(ends, ends[1:], ("law", "law beyond"), strict=False):
        grid = np.geomspace(begin, end, FIT_POINTS)
        values = dict(zip(("y", "low", "high"), np.atleast_2d(law(grid)), strict=False))
        parts.append(pd.DataFrame({**of_line, "kind": kind, "x": grid, **values}))
    return parts


def draw_laws(
    parts: Sequence[pd.DataFrame], x: str, y: str, *, percent: bool = False, whole: bool = False
) -> alt.TopLevelMixin:
    """Draw lines with bands, from `low` to `high`, of kinds "law" and "law beyond"; points "fitted" and "held back".

    A diamond of kind "best" has an interval from `left` to `right`. whole: no band is cut by the axis.
    """
    frame = pd.concat(parts)
    frame = frame.reindex(columns=[*dict.fromkeys(["panel", "label", "kind", "x", "y", "low", "high", *frame])])
    bands = [*frame.low, *frame.high]
    domain = find_domain([*frame.y, *(bands if whole else [])], bands, log=True, percent=percent)
    frame[["low", "high"]] = frame[["low", "high"]].clip(*domain)
    look = by_look("label", {label: group_look(place) for place, label in enumerate(dict.fromkeys(frame.label))})
    dash = alt.StrokeDash("kind:N", scale=alt.Scale(domain=["law", "law beyond"], range=[SOLID, DASHED]), legend=None)
    across = axis(alt.X, "x", x, find_domain(frame.x, log=True, percent=False), log=True, short=True)
    up = axis(alt.Y, "y", y, domain, log=True, percent=percent)
    base, law = alt.Chart().encode(x=across, y=up), "indexof(datum.kind, 'law') === 0"
    layers = [
        mark_band(base, up).encode(color=look["color"], detail="kind:N").transform_filter(law),
        base.mark_line().transform_filter(law).encode(color=look["color"], strokeDash=dash),
        base.mark_point(**RING).transform_filter("datum.kind === 'held back'").encode(**look),
        base.mark_point().transform_filter("datum.kind === 'fitted'").encode(**look),
    ]
    if "left" in frame:
        best = base.transform_filter("datum.kind === 'best'").encode(color=look["color"])
        reach = best.mark_rule(strokeWidth=2).encode(x=of_field(across, "left"), x2="right:Q")
        layers += [reach, best.mark_point(shape="diamond", size=140, filled=True, opacity=1)]
    return panels(alt.layer(*layers, data=frame), "panel", [*dict.fromkeys(frame.panel)])
