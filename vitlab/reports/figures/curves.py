"""Draw small multiples of a study (heads by layer, training curves, recall by class) and analyses as points and lines.

Measures of heads are drawn as shares of their first reference, uniform attention, to compare models with different
grids, or in their own unit without references. The axis includes every reference, so small differences look small.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import altair as alt
import numpy as np
import pandas as pd

from vitlab.config import load, names
from vitlab.formatting import file_stem, finite, folder_link, plural, significant
from vitlab.reports import ACCENTS, MARKERS, Look, group_look, looks
from vitlab.reports.figures import (
    COLOURS,
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
from vitlab.studies.results import Results

if TYPE_CHECKING:
    from vitlab.analysis.capture import Findings
    from vitlab.config.schema import AnalysisConfig

PLACE = 3
COARSE = 0.4  # share of uniform attention: a larger neighborhood cannot tell local heads from global heads
TRAINED = "Each point is a head{} Gray: before training."
WHILE_TRAINING = "Each line is the mean over the heads of a layer while the model trains"
MOST_POINTS = 200  # per curve: a panel cannot show more
ALL_POINTS = 8_000  # of all curves of a page: with more points the page opens slowly
LEAST_POINTS = 20  # per curve, however many curves
MARKED = 25  # most points with a marker each
POINTED = 4_000  # most points of all curves with a tooltip each
LOSSES = {"training": "train/loss", "validation": "validation/loss"}
WIDE = 20  # ratio of highest to lowest loss from which the axis is logarithmic
SHOWN = "validation"  # the solid curve with markers
RATES = {"learning rate": "train/lr", "gradient norm before clipping": "train/grad_norm"}
MOST_CLASSES = 12  # panels, for the classes with the lowest recall
Z = 1.96  # standard errors of a 95% interval
KEYS = ("step", "layer", "head", "type", "value")
NO_PATTERN = ("mixed", "none")  # labels of heads without a single pattern
ATTENTION, REACH = "distance of attention", "reach"
FEW_TEXTS = 20  # least texts of a length
APART = 0.08  # layers between two heads of one layer: equal scores stay visible
OTHER = ("kind", "step", "value")

Curve = Sequence[tuple[float, float | None]]  # step, value; None where it is not finite
Point = tuple[float, float | None, float | None, float | None]  # step, mean over seeds, lowest, highest; None: a gap


def draw(results: Results) -> Iterator[Figure]:
    for drawing in (draw_measured, draw_reach, draw_training, draw_classes, draw_lengths, draw_token_reach):
        yield from drawing(results)


# ---- heads


class Measured(NamedTuple):
    """A run's analysis of heads, `{"name", "unit", "rows", "references"}`. `title` is the title of the panel."""

    analysis: dict[str, Any]
    title: str = ""
    link: str = ""
    seed: int = 0


class Heads:
    """The analyses of one figure. `frame` has a row per head, step and run, with `value` and its drawn height `y`."""

    def __init__(self, measured: Sequence[Measured]):
        first = measured[0].analysis
        self.measured = measured
        self.name, self.unit = first["name"].replace("_", " "), first["unit"]
        known = [{k: v for k, v in (one.analysis.get("references") or {}).items() if finite(v)} for one in measured]
        self.references = known[0] if all(known) else {}  # name -> value in the unit; the first is drawn as 100%
        rows = [
            {"panel": one.title, "link": one.link, **row}
            | {"y": row["value"] / (next(iter(of_run.values())) if self.references else 1)}
            for one, of_run in zip(measured, known, strict=True)
            for row in one.analysis["rows"]
            if all(finite(row[key]) is not None for key in ("value", "layer", "step"))
        ]
        frame = pd.DataFrame(rows, columns=["panel", "link", "step", "layer", "head", "value", "y"])
        self.frame = self.with_texts(frame)
        means = frame.groupby(["panel", "link", "layer", "step"])[["value", "y"]].mean()
        self.means = self.with_texts(means.reset_index())  # over the heads of each layer at each step
        self.layers = sorted(set(frame.layer))
        title = f"{self.name} ({self.unit})" if self.unit else self.name
        title = f"{self.name}, % of uniform" if self.references else title
        self.up = axis(alt.Y, "y", title, percent=bool(self.references), zero=not self.references)

    def with_texts(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add a column `text`: `15.3 pixels, 83% of uniform attention`."""
        texts = [f"{significant(value)} {self.unit}".rstrip() for value in frame["value"]]
        for uniform in [*self.references][:1]:
            texts = [f"{text}, {y:.0%} of {uniform}" for text, y in zip(texts, frame["y"], strict=True)]
        return frame.assign(text=texts)

    def figure(self, name: str, title: str, layers: Sequence[alt.Chart], data: pd.DataFrame, caption: str) -> Figure:
        """Draw a panel per run: the layers over a line for each reference, with its name at the left end."""
        lines, once = [], alt.Chart().transform_aggregate(heads="count()")
        for place, (reference, value) in enumerate(self.references.items()):
            here = once.encode(y=alt.datum(value / next(iter(self.references.values()))))
            text = f"{reference}, {significant(value)} {self.unit}".rstrip()
            label = here.mark_text(dy=-7, dx=3, align="left", fontSize=10, text=text).encode(x=alt.value(0))
            # the caption names the first reference, because heads lie on its line
            both = here.mark_rule().properties(name=reference), label.properties(name=f"{reference}, name")
            lines, caption = [*lines, *both[: 1 + place]], caption + ("" if place else f" 100%: {text}.")
        seen = ["Mean over the heads:"]
        for panel in [one.title for one in self.measured]:
            mine, ends = self.means[self.means.panel == panel], []
            for layer in dict.fromkeys((mine.layer.min(), mine.layer.max())):
                first, *_, last = [*mine.text[mine.layer == layer]] * 2
                ends.append(f"layer {layer} {f'from {first}, to {last}' if first != last else f'at {last}'}")
            seen.append(f"{f'{panel}: ' if panel else ''}{'; '.join(ends)}.")
        chart = panels(alt.layer(*lines, *layers, data=data), "panel", [one.title for one in self.measured])
        linked = [(one.title, one.link, quote(one.analysis["name"])) for one in self.measured if one.link]
        files = [(label, f"{link}analysis/{analysis}.json") for label, link, analysis in linked]
        return Figure(name, title, chart, caption, " ".join(seen), files)


def draw_heads(name: str, title: str, measured: Sequence[Measured], colour: str, caption: str = "") -> Figure:
    """Draw a panel per run: a point per head against the layer, and behind them rings for heads before training."""
    heads = Heads(measured)
    steps = heads.frame.groupby("panel").step
    first, last = steps.transform("min"), steps.transform("max")
    several = bool((first != last).any())
    trained = "trained heads" if several else "heads"
    frame = heads.frame.assign(heads=np.where(heads.frame.step < last, "untrained heads", trained))
    frame = frame[(frame.step == first) | (frame.step == last)]
    shown = {"untrained heads": Look("untrained")} if several else {}
    shown[trained] = Look(colour)
    ends = (heads.layers[0] - 0.4, heads.layers[-1] + 0.4) if heads.layers else (0.0, 1.0)
    base = alt.Chart().encode(
        x=axis(alt.X, "layer", "layer", ends, ticks=heads.layers),
        y=heads.up,
        tooltip=["heads", "layer", "head", alt.Tooltip("text", title=heads.name)],
        **by_look("heads", shown),
    )
    rings = base.transform_filter("datum.heads === 'untrained heads'").mark_point(**RING).properties(name="untrained")
    points = base.transform_filter("datum.heads !== 'untrained heads'").mark_point().properties(name="trained")
    for near, value in heads.references.items():
        share = value / next(iter(heads.references.values()))
        if near.startswith("3 x 3") and share > COARSE:
            caption += (
                " The grid of patches is too coarse to show locality: attention to a 3 x 3 neighborhood alone is"
                f" {share:.0%} of uniform attention."
            )
    layers = with_legend("heads", shown, [rings, points] if several else [points])
    return heads.figure(name, title, layers, frame[["panel", "layer", "head", "y", "heads", "text", "link"]], caption)


def draw_layers(name: str, title: str, measured: Sequence[Measured], caption: str = "") -> Figure:
    """Draw a panel per run: the mean over each layer's heads against the training step."""
    heads = Heads(measured)
    means = heads.means.assign(layer=[f"layer {layer}" for layer in heads.means.layer])
    shown = {f"layer {layer}": group_look(place) for place, layer in enumerate(heads.layers)}
    step = axis(alt.X, "step", "training step", zero=True, short=means.step.max() >= 1e4)
    base, look = alt.Chart().encode(x=step, y=heads.up), by_look("layer", shown)
    tooltip = ["layer", "step", alt.Tooltip("text", title=heads.name)]
    lines = base.mark_line().encode(color=look["color"]).properties(name="lines")
    points = base.mark_point().encode(tooltip=tooltip, **look).properties(name="points")
    layers = with_legend("layer", shown, [lines, points])
    return heads.figure(name, title, layers, means[["panel", "layer", "step", "y", "text", "link"]], caption)


def draw_measured(results: Results) -> Iterator[Figure]:
    """Draw each analysis of each model's heads: a panel per training-set size, from the first seed with results."""
    style = looks(results.families)
    stems = [file_stem(model) for model in style]
    for name in sorted({name for run in results.run_files.values() for name in run.analyses}):
        config = load("analysis", name) if name in names("analysis") else None
        title = config.title if config else name.replace("_", " ")
        title = f"{title[:1].upper()}{title[1:]}"
        note = f": {config.note}" if config and config.note else "."
        chosen: dict[str, dict[int, Measured]] = {model: {} for model in style}
        for row in results.rows:
            model, size = row["model"], row["train_size"]
            if size not in chosen[model] and (analysis := results.run_files[row["run"]].analysis(name)):
                panel = plural(size, results.metric.sized_by)
                chosen[model][size] = Measured(analysis, panel, folder_link(row["run"]), row["seed"])
        for number, (model, by_size) in enumerate(chosen.items()):
            measured = [by_size[size] for size in sorted(by_size)]
            if not measured:
                continue
            seeds = f"seed {', '.join(dict.fromkeys(str(one.seed) for one in measured))}"
            # add a number if two models' names give the same file name
            stem = file_stem(f"{name}-{model}") + (f"-{number}" if stems.count(file_stem(model)) > 1 else "")
            yield draw_heads(
                stem, f"{title} by layer, {model}, {seeds}", measured, style[model].colour, TRAINED.format(note)
            )
            if any(len({row["step"] for row in one.analysis["rows"]}) > 2 for one in measured):
                heading = f"{title} while training, {model}"
                yield draw_layers(f"{stem}-by-step", heading, measured, f"{WHILE_TRAINING}{note}")


def draw_reach(results: Results) -> Iterator[Figure]:
    """Draw attention's distance and units' reach in pixels, by depth: a panel per size, of the first seed with both."""
    frames: dict[tuple[int, str], pd.DataFrame] = {}
    for row in sorted(results.rows, key=lambda row: row["train_size"]):
        run, cell = results.run_files[row["run"]], (row["train_size"], row["model"])
        if cell in frames or (reach := run.files.analysis("receptive_field")) is None:
            continue
        distance = run.analysis("attention_distance") or {"rows": []}
        rows = [{**one, "kind": ATTENTION, "pixels": one["value"]} for one in distance["rows"]]
        rows += [{**one, "kind": REACH, "pixels": one["reach"]} for one in reach["rows"]]
        frame = pd.DataFrame(rows).assign(model=row["model"], panel=plural(row["train_size"], results.metric.sized_by))
        frames[cell] = frame[frame.step == frame.groupby("kind").step.transform("max")].assign(
            depth=frame.layer / frame.layer.max()
        )
    if not frames:
        return
    style = looks(results.families)
    frame = pd.concat(frames.values())[["panel", "model", "kind", "layer", "head", "depth", "pixels"]]
    look = by_look("model", style)
    dash = alt.StrokeDash("kind:N", title=None, scale=alt.Scale(domain=[ATTENTION, REACH], range=[DOTTED, SOLID]))
    across = axis(alt.X, "depth", "share of the model's depth", (0.0, 1.0), percent=True)
    base = alt.Chart().encode(x=across, y=axis(alt.Y, "pixels", "distance (pixels)", zero=True), color=look["color"])
    tooltip = ["model", "kind", "layer", "head", alt.Tooltip("pixels", format=".3~g")]
    lines = base.mark_line().encode(y=of_field(base.encoding.y, "pixels").aggregate("mean"), strokeDash=dash)
    points = base.mark_point().encode(shape=look["shape"], tooltip=tooltip)
    layers = with_legend("model", style, [lines.properties(name="lines"), points.properties(name="points")])
    ends = frame[frame.kind == REACH].groupby(["panel", "model"], sort=False).pixels.agg(["first", "last"])
    yield Figure(
        "reach_by_depth",
        "How far each layer sees, by depth",
        panels(alt.layer(*layers, data=frame), "panel", [*dict.fromkeys(frame.panel)]),
        "Dotted: mean distance of attention, a point per head. Solid: reach of the middle unit, the root of the mean "
        "squared distance of the pixels that it depends on, weighted by the gradient's size.",
        " ".join(
            f"{model}, {panel}: reach from {a:.1f} to {b:.1f} pixels." for (panel, model), (a, b) in ends.T.items()
        ),
        [("analyses of each run", "#runs")],
    )


# ---- training curves


def draw_training(results: Results) -> Iterator[Figure]:
    """Draw losses by size, then rates at the largest size: a line per model, a band over its seeds."""
    sizes = sorted({row["train_size"] for row in results.rows})
    titles = {size: plural(size, results.metric.sized_by) for size in sizes}
    losses = [(titles[size], size, *loss) for size in sizes for loss in LOSSES.items()]
    rates = [(name, sizes[-1], SHOWN, key) for name, key in RATES.items() if sizes]
    means = " Long curves are drawn as means of neighboring points."
    for name, title, label, curves, caption in (
        (
            "training_curves",
            "Loss while training and on validation data",
            f"loss ({results.metric.loss})",
            losses,
            f"Dotted: loss on the training batches. Solid: loss on validation data.{means}",
        ),
        (
            "rate_and_gradient",
            f"Learning rate and gradient norm, {titles[sizes[-1]] if sizes else ''}",
            "",
            rates,
            f"Of the largest training set.{means}",
        ),
    ):
        frame = collect_curves(results, curves)
        if not len(frame):
            continue
        look = by_look("model", style := looks(results.families))
        dash = alt.StrokeDash("loss:N", scale=alt.Scale(domain=[*LOSSES], range=[DOTTED, SOLID]), legend=None)
        step = axis(alt.X, "step", "training step", zero=True, short=frame.step.max() >= 1e4)
        wide = bool(curves is losses and 0 < WIDE * frame.value.min() < frame.value.max())
        reach = find_domain(frame.value, [*frame.low, *frame.high], log=True, percent=False) if wide else None
        up = axis(alt.Y, "value", label, reach, log=wide, zero=True)
        up["scale"]["nice"] = up["axis"]["tickCount"] = 5  # a label on top of each panel keeps titles level
        up["scale"]["clamp"] = wide  # a band may reach 0
        base, tooltip = alt.Chart().encode(x=step, y=up, color=look["color"]), ["model", "loss", "step", "value"]
        line = base.mark_line(point="transparent" if len(frame) <= POINTED else False)
        layers = [line.encode(strokeDash=dash, tooltip=tooltip).properties(name="lines")]
        shown = frame[frame.loss == SHOWN]
        if len(shown) and shown.groupby(["panel", "model"]).size().max() <= MARKED:
            marked = base.mark_point().transform_filter(f"datum.loss === '{SHOWN}'")
            layers.append(marked.encode(shape=look["shape"], tooltip=tooltip).properties(name="points"))
        if banded := frame.low.notna().any():
            layers.insert(0, mark_band(base, up, len(style)).encode(detail="loss:N"))
        lines = "Lines: mean over seeds. Bands: from the lowest seed to the highest." if banded else "A line per run."
        chart = panels(
            alt.layer(*with_legend("model", style, layers), data=frame), "panel", [*dict.fromkeys(frame.panel)]
        )
        yield Figure(
            name,
            title,
            chart if curves is losses else chart.resolve_scale(y="independent"),
            f"{caption} {lines}",
            f"{title} against the training step. {caption}",
            [("metrics.jsonl of each run", "#runs")],
            detail=True,
        )


def collect_curves(results: Results, curves: Sequence[tuple[str, int, str, str]]) -> pd.DataFrame:
    """Collect each model's logged points; `curves` are (panel, training-set size, name, key of metrics.jsonl)."""
    points, most = [], max(LEAST_POINTS, min(MOST_POINTS, ALL_POINTS // max(1, len(curves) * len(results.families))))
    for (panel, size, loss, key), model in product(curves, results.families):
        runs = [row["run"] for row in results.rows if (row["model"], row["train_size"]) == (model, size)]
        logged = {run: read_curve(results.run_files[run].metrics, key) for run in runs}
        logged = {run: curve for run, curve in logged.items() if any(y is not None for _, y in curve)}
        link = folder_link(*logged) if len(logged) == 1 else ""
        for step, mean, *ends in thin_curves([*logged.values()], most):
            points.append((panel, model, loss, step, mean, *(ends if len(logged) > 1 else (None, None)), link))
    return pd.DataFrame(points, columns=["panel", "model", "loss", "step", "value", "low", "high", "link"])


def read_curve(rows: Sequence[dict[str, Any]], key: str) -> Curve:
    return [(row["step"], finite(row[key])) for row in rows if key in row]


def thin_curves(curves: Sequence[Curve], most: int = MOST_POINTS) -> list[Point]:
    """Merge the curves of several seeds into at most `most` points of four digits, as many as a figure can show.

    A point covers neighboring steps: average each seed's logged values, then take mean, min and max over seeds.
    If a seed has a gap there, the point is a gap.
    """
    if len(curves) == 1 and len(curve := dict(curves[0])) <= most:  # a fast path: compare.html has thousands of curves
        values = ((step, y if y is None else float(f"{y:.4g}")) for step, y in sorted(curve.items()))
        return [(int(step), y, y, y) for step, y in values]
    by_seed = {n: {step: math.inf if y is None else y for step, y in curve} for n, curve in enumerate(curves)}
    table = pd.DataFrame(by_seed, dtype=float).sort_index()
    neighbors = np.arange(len(table)) // max(1, math.ceil(len(table) / most))
    means = table.groupby(neighbors).mean()
    ends = zip(means.mean(axis=1), means.min(axis=1), means.max(axis=1), strict=True)
    return [
        (int(step), *(float(f"{value:.4g}") if np.isfinite(of_point[0]) else None for value in of_point))
        for step, of_point in zip(table.index.to_series().groupby(neighbors).last(), ends, strict=True)
    ]


# ---- recall by class


def draw_classes(results: Results) -> Iterator[Figure]:
    """Draw the accuracy on each class (its recall): mean over seeds, with its interval over seeds and test items."""
    cells: dict[tuple[str, str, int], list[list[int]]] = {}
    for row in results.rows:
        for name, right_and_all in (results.run_files[row["run"]].result.get("by_class") or {}).items():
            cells.setdefault((name, row["model"], row["train_size"]), []).append(right_and_all)
    shares = [(*cell, *share) for cell, runs in cells.items() if (share := estimate_share(runs)) is not None]
    frame = pd.DataFrame(shares, columns=["class", "model", "size", "recall", "low", "high"])
    if frame["class"].nunique() < 2:
        return
    largest = frame[frame["size"] == frame["size"].max()].groupby("class", sort=False).recall.max().sort_values()
    shown = [*largest.index[:MOST_CLASSES]]
    sized = f"training {results.metric.sized_by}s"
    tooltip = ["class", "model", alt.Tooltip("size", title=sized, format=",")]
    tooltip += [alt.Tooltip(key, format=".1%") for key in ("recall", "low", "high")]
    across = axis(alt.X, "size", sized, log=True, ticks=sorted(set(frame["size"])))
    chart = layer_shares(results, frame[frame["class"].isin(shown)], across, "recall", "recall", tooltip)
    caption = "Accuracy on each class, hardest first. Bands: 95% intervals over seeds and test items."
    if len(largest) > len(shown):
        caption += f" The {MOST_CLASSES} classes with the lowest recall of {len(largest)}."
    yield Figure(
        name="recall_by_class",
        title="Recall of each class against training-set size",
        chart=panels(chart, "class", shown),
        caption=caption,
        alt=f"Lowest with most data: {', '.join(f'{name} {largest[name]:.0%}' for name in shown[:3])}.",
        files=[("results of each run", "results.csv")],
        detail=True,
    )


def draw_lengths(results: Results) -> Iterator[Figure]:
    """Draw exact matches by a source's number of words, at the largest size: means over seeds with intervals."""
    largest, counted = max((row["train_size"] for row in results.rows), default=0), {}
    for row in results.rows if results.metric.key == "exact_match" else ():
        if row["train_size"] == largest:
            right: dict[int, list[int]] = {}
            for text in results.run_files[row["run"]].generated:
                of_length = right.setdefault(len(text.get("source", "").split()), [0, 0])
                of_length[0] += text["generated"].strip() == text["reference"].strip()
                of_length[1] += 1
            for words, of_length in right.items():
                counted.setdefault((row["model"], words), []).append(of_length)
    shares = [(*key, *estimate_share(runs)) for key, runs in sorted(counted.items()) if runs[0][1] >= FEW_TEXTS]
    frame = pd.DataFrame(shares, columns=["model", "words", "share", "low", "high"])
    if frame.words.nunique() < 2:
        return
    across = axis(alt.X, "words", "words of the source", ticks=sorted(set(frame.words)))
    tooltip = ["model", "words", alt.Tooltip("share", format=".1%")]
    yield Figure(
        "exact_match_by_length",
        "Exact matches against the length of the source",
        layer_shares(results, frame, across, "share", "exact matches", tooltip),
        f"Of lengths with {FEW_TEXTS} or more test items, {plural(largest, results.metric.sized_by)} of training. "
        "Bands: 95% intervals over seeds and test items.",
        " ".join(
            f"{model}: {of.share.iloc[0]:.0%} to {of.share.iloc[-1]:.0%}." for model, of in frame.groupby("model")
        ),
        [("generated.json of each run", "#runs")],
    )


def draw_token_reach(results: Results) -> Iterator[Figure]:
    """Draw how far back a text's last state depends on tokens, at the largest size: mean and range over seeds."""
    largest, rows = max((row["train_size"] for row in results.rows), default=0), []
    for row in results.rows:
        measured = results.run_files[row["run"]].files.analysis("token_reach") if row["train_size"] == largest else None
        last = [one for one in measured["rows"] if one["step"] == measured["rows"][-1]["step"]] if measured else []
        beyond = np.cumsum([one["value"] for one in reversed(last)])[::-1]
        rows += [(row["model"], one["distance"], share, one["reach"]) for one, share in zip(last, beyond, strict=True)]
    if not rows:
        return
    frame = pd.DataFrame(rows, columns=["model", "tokens", "share", "reach"]).groupby(["model", "tokens"], sort=False)
    frame = frame.agg(share=("share", "mean"), low=("share", "min"), high=("share", "max"), reach=("reach", "mean"))
    frame = frame.reset_index()
    tooltip = ["model", "tokens", alt.Tooltip("share", format=".2%"), alt.Tooltip("reach", format=".3~g")]
    across = axis(alt.X, "tokens", "tokens away, at least")
    yield Figure(
        "token_reach",
        "How far back lies what the last state depends on",
        layer_shares(results, frame, across, "share", "share of it", tooltip),
        f"Shares of the gradient's size at each token, {plural(largest, results.metric.sized_by)} of training. "
        "Bands: lowest and highest of the seeds.",
        " ".join(
            f"{model} reaches {reach:.3g} tokens." for model, reach in frame.groupby("model").reach.first().items()
        ),
        [("analyses of each run", "#runs")],
    )


def layer_shares(
    results: Results, frame: pd.DataFrame, across: alt.X, field: str, title: str, tooltip: list[Any]
) -> alt.LayerChart:
    """Draw a line per model through its shares, with a band from `low` to `high`."""
    look, up = by_look("model", style := looks(results.families)), axis(alt.Y, field, title, (0.0, 1.0), percent=True)
    base = alt.Chart().encode(x=across, y=up, color=look["color"])
    points = base.mark_point().encode(shape=look["shape"], tooltip=tooltip).properties(name="points")
    layers = [mark_band(base, up, len(style)), base.mark_line().properties(name="lines"), points]
    return alt.layer(*with_legend("model", style, layers), data=frame)


def estimate_share(runs: list[list[int]]) -> tuple[float, float, float] | None:
    """Estimate the mean share of right items over runs [right, all] of the same items, with its 95% interval, or None.

    Uses Wilson's interval (1927), with an effective number of items that reproduces the variance of items and seeds.
    """
    items = runs[0][1]
    if not items:
        return None
    shares = [right / all_items for right, all_items in runs]
    mean, seeds = statistics.fmean(shares), len(shares)
    of_items = mean * (1 - mean) / items
    of_seeds = statistics.variance(shares) / seeds if seeds > 1 else 0.0
    count = items * of_items / (of_items + of_seeds) if of_items else items
    middle = (mean + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * math.sqrt(mean * (1 - mean) / count + Z**2 / (4 * count**2))
    return mean, max(0.0, middle - half), min(1.0, middle + half)


# ---- drawings of analyses


def value_axis(found: "Findings", label: str) -> alt.Y:
    """Make an axis from 0 for an analysis's values: shares in percent, other values with their unit."""
    percent = found.unit == "share"
    return axis(
        alt.Y, "value", f"{label} ({found.unit})" if found.unit and not percent else label, percent=percent, zero=True
    )


def heads(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw a point per head from rows with "step", "layer", "head", "value"; with 3 or more steps also layer lines."""
    measured = Measured(found.to_dict())
    yield draw_heads(file_stem(found.name), title, [measured], "vit")
    if len({row["step"] for row in found.rows}) > 2:
        yield draw_layers(file_stem(f"{found.name}-by-step"), f"{title} while training", [measured])


def head_types(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw a point per head against the layer, in the color and marker of its type.

    Reads the last step's rows with "layer", "head", "value", and either "type" and a score under the name of each
    type, or "label" and "scores" by pattern, where the label may be one of NO_PATTERN. A type has the same look in
    every figure, whichever types occur in a model.
    """
    last = [row for row in found.rows if row["step"] == found.rows[-1]["step"]]
    count = max((row["head"] for row in last), default=1)
    labelled = "label" in last[0]
    types = [*last[0]["scores"], *NO_PATTERN] if labelled else [key for key in last[0] if key not in KEYS]
    frame = pd.DataFrame([{**row, "type": row["label" if labelled else "type"]} for row in last])
    frame["x"] = frame.layer + min(APART, 0.6 / count) * (frame["head"] - (count + 1) / 2)
    shown = {kind: group_look(place) for place, kind in enumerate(types) if (frame.type == kind).any()}
    shown |= {kind: replace(shown[kind], colour="untrained") for kind in NO_PATTERN if kind in shown}  # 5 accents
    chart = alt.Chart(frame[["x", "value", "type", "layer", "head"]], name="heads").mark_point()
    layer = axis(alt.X, "x", "layer, its heads side by side", ticks=sorted(set(frame.layer)))
    value = value_axis(found, "best pattern" if labelled else "score of the type")
    chart = chart.encode(x=layer, y=value, **by_look("type", shown))
    title = f"{title}, all {next(iter(shown))}" if len(shown) == 1 else title  # a single type has no legend
    seen = " ".join(f"{kind}: {plural(int((frame.type == kind).sum()), 'head')}." for kind in shown)
    yield Figure(file_stem(f"{found.name}-labels" if labelled else found.name), title, chart, alt=seen)


def line(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw a figure per "kind" of rows: "value" against the number under the remaining key."""
    for kind in dict.fromkeys(row.get("kind") for row in found.rows):
        rows = [row for row in found.rows if row.get("kind") == kind]
        key = next(key for key in rows[0] if key not in OTHER)
        label = (vars(config).get("axes") or {}).get(kind, key)
        frame = pd.DataFrame({"x": [row[key] for row in rows], "value": [row["value"] for row in rows]})
        chart = alt.Chart(frame, name="line").mark_line(point=True, color=COLOURS["vit"])
        ends = [f"{significant(row['value'])} at {row[key]}" for row in (rows[0], rows[-1])]
        across = axis(alt.X, "x", label, ticks=sorted(frame.x.tolist()))
        chart = chart.encode(x=across, y=value_axis(found, config.title))
        heading = f"{title}, {kind}" if kind else title
        yield Figure(file_stem(f"{found.name}-{kind or 'curve'}"), heading, chart, alt=f"{ends[0]}, {ends[1]}.")


def scatter(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw images as points of an array (B, 2) in the look of their class; a legend of too many classes is left out."""
    places = found.array
    labels = np.zeros(len(places), dtype=int) if found.labels is None else found.labels
    present = [int(label) for label in np.unique(labels)]
    names = {label: str(found.classes[label]) if label < len(found.classes) else f"class {label}" for label in present}
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "class": [names[label] for label in labels.tolist()]})
    listed = len(present) <= len(ACCENTS) * len(MARKERS)
    looks = {names[label]: group_look(place) for place, label in enumerate(present)}
    base = {"x": axis(alt.X, "x", "first dimension (no unit)"), "y": axis(alt.Y, "y", "second dimension (no unit)")}
    chart = alt.Chart(frame, name="images").mark_point().encode(**base, **by_look("class", looks, listed=listed))
    images = plural(len(places), "image")
    seen = f"{images} of {plural(len(present), 'class', 'classes')} as points."
    yield Figure(file_stem(found.name), f"{title}, {images}", chart, alt=seen)


DRAWINGS = (heads, head_types, line, scatter)
