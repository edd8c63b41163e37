"""Write the answer of `vitlab advise` in sentences, as JSON and as a page."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vitlab.advice.compare import FARTHEST, FOLDS, LEVEL, REPEATS, Advice, Curve, Mistakes, Range, Standing
from vitlab.data.images.decode import read
from vitlab.files import write_text
from vitlab.formatting import plural, whole
from vitlab.reports import encode_picture
from vitlab.reports.figures import Figure, pack_for_page, save_figure
from vitlab.reports.figures.metric import draw_laws
from vitlab.reports.pages import render

MORE = 1000  # further labels: the answer states their gain
MANY_SUSPECTS, MOSTLY = 0.03, 0.3  # shares of tested pictures and of mistakes, from which labels seem wrong
SHOWN, OF_CLASS, THUMBNAIL = 36, 6, (96, 96)  # mistakes on the page, mistakes per class, pixels


def describe_advice(advice: Advice, mistakes: Mistakes, target: float | None) -> list[str]:
    """Describe the answer in sentences, the most important one first."""
    chosen, floor = advice.chosen, advice.floor
    with_labels = f"with {plural(advice.labels, 'label')}"
    if not advice.beats_chance:
        share = f"{100 * advice.largest_class:.1f}%"
        return [f"Undecided: no model beats always choosing the largest class, {share} {with_labels}."]
    first = f"Take {chosen.name}: {format_range(chosen.now)} accuracy {with_labels}"
    if not chosen.is_floor:
        first += f", {format_points(chosen.lead)} points ahead of {floor.name}"
    sentences = [f"{first}."]
    ahead = [one for one in advice.standings if one.is_floor and one.now.value > chosen.now.value]
    if chosen is floor and ahead:
        leads = " and ".join(f"{one.name} ({100 * one.now.value:.1f}%)" for one in ahead)
        sentences.append(f"The lead of {leads} may be chance: of equals the one that gains most from labels is named.")
    if chosen.is_floor and len(advice.standings) > sum(one.is_floor for one in advice.standings):
        hope = advice.hopeful
        more = f"; {hope.name} may be, by {format_points(hope.lead)} points" if hope else ""
        sentences.append(f"No network is better than {floor.name} yet{more}.")
    sentences += [
        f"{one.name} is undertrained: more steps should help more than more labels."
        for one in advice.standings
        if one.network and one.network.undertrained
    ]
    curves = [one for one in advice.standings if one.curve]
    curve = chosen.curve or (curves[0].curve if curves else None)
    if chosen.now.value == 1:
        sentences.append("It makes no mistake on these pictures, so what more labels bring cannot be seen.")
        curve = None
    elif chosen.curve is None:
        why = "it was trained with one size" if chosen.network else "there are too few pictures for a curve"
        others = f"; of {curves[0].name}:" if curves else ""
        sentences.append(f"What more labels bring {chosen.name} is not known, {why}{others}.")
    if curve is not None:
        later = (chosen if chosen.curve else curves[0]).later
        sentences.append(f"With twice the labels, {whole(2 * advice.labels)}: {format_range(later)}.")
        gain = curve.gain(advice.labels, MORE)
        sentences.append(f"{whole(MORE)} more labels: {format_points(gain)} points.")
    if target is not None:
        sentences.append(describe_target(advice, target))
    if (repeats := min((one.outcome.repeats for one in advice.standings if one.outcome), default=REPEATS)) < REPEATS:
        made = f"{plural(round(repeats * FOLDS), 'split')} of {FOLDS * REPEATS}"
        sentences.append(f"Time was enough for {made} into training and test: give more --hours for all.")
    share = len(mistakes.suspects) / mistakes.tested
    if mistakes.suspects.size and share >= max(MANY_SUSPECTS, MOSTLY * len(mistakes.rows) / mistakes.tested):
        sentences.append(
            f"{share:.0%} of the pictures are decided against their label with as much confidence as right ones: "
            "labels seem to be wrong. Look at them before you add more."
        )
    return sentences


def find_target(advice: Advice, target: float) -> tuple[Range, Standing] | None:
    """Find the fewest labels that reach the accuracy `target`, and the model that reaches `target` with them."""
    found = [(needed, one) for one in advice.standings if one.curve and (needed := one.curve.labels_for(target))]
    return min(found, key=lambda pair: pair[0].value, default=None)


def describe_target(advice: Advice, target: float) -> str:
    text = f"{100 * target:g}%"
    if (advice.chosen.now.value if advice.chosen.curve else 0) >= target:
        return f"{text} is reached by {advice.chosen.name} with these labels."
    found = find_target(advice, target)
    if found is None:
        return f"{text} is not reached by any model seen here with up to {FARTHEST:g} times these labels."
    needed, one = found
    most = FARTHEST * one.curve.size
    value, low, high = (
        f"{whole(float(f'{number:.2g}'))}" if number <= most else f"more than {whole(most)}"
        for number in (needed.value, needed.low, needed.high)
    )
    within = f"{low} to {high}" if needed.value <= most else f"at least {low}"
    steeper = "" if one is advice.chosen else ", whose error falls faster"
    return f"{text} takes {value} ({within}) labels with {one.name}{steeper}."


def format_range(some: Range | None) -> str:
    """Format a share with its interval: `91.2% (88.0 to 94.4)`."""
    if some is None:
        return "not known"
    value, low, high = (100 * min(1.0, max(0.0, number)) for number in (some.value, some.low, some.high))
    return f"{value:.1f}% ({low:.1f} to {high:.1f})"


def format_points(some: Range) -> str:
    """Format a difference in points with its interval: `+1.8 (+0.4 to +3.1)`."""
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * value for value in (some.value, some.low, some.high)))


def summarize_advice(
    advice: Advice, sentences: Sequence[str], mistakes: Mistakes, target: float | None, paths: Sequence[str]
) -> dict[str, Any]:
    """Make the content of advice.json: shares from 0 to 1, each interval of 90%."""
    curve: Curve | None = advice.chosen.curve
    needed = find_target(advice, target) if target is not None else None
    return {
        "verdict": [*sentences],
        "labels": advice.labels,
        "chosen": advice.chosen.name,
        "now": asdict(advice.chosen.now),
        "at_twice": asdict(advice.chosen.later) if advice.chosen.later else None,
        "more_labels": {"labels": MORE, **asdict(curve.gain(advice.labels, MORE))} if curve else None,
        "target": None if target is None else {"accuracy": target, "labels": needed and asdict(needed[0])},
        "target_model": needed and needed[1].name,
        "level": LEVEL,
        "models": [
            {
                "name": one.name,
                "needs_network": not one.is_floor,
                "now": asdict(one.now),
                "at_twice": asdict(one.later) if one.later else None,
                "lead": asdict(one.lead) if one.lead else None,
                "undertrained": bool(one.network and one.network.undertrained),
            }
            for one in advice.standings
        ],
        "mistakes": len(mistakes.rows),
        "suspects": [paths[row] for row in mistakes.suspects],
    }


def write_advice_page(
    out: Path, pictures: Any, advice: Advice, sentences: Sequence[str], mistakes: Mistakes, costs: str
) -> Path:
    """Write OUT/advice.html; `pictures` has their root, paths, labels and classes."""
    figure, labels, classes = draw_curves(advice), pictures.labels, pictures.classes
    if figure is not None:
        save_figure(figure, out / "figures")
    shown = []
    # the most confident mistakes, some of each class
    for place, row in pd.Series(mistakes.rows).groupby(labels[mistakes.rows]).head(OF_CLASS)[:SHOWN].items():
        path, sure = pictures.paths[row], mistakes.confidence[place]
        taken = f"{classes[labels[row]]}, taken for {classes[mistakes.predicted[place]]} ({100 * sure:.0f}%)"
        taken += "; is the label right?" if sure >= mistakes.sure else ""
        shown.append(([(encode_picture(read(pictures.root / path, THUMBNAIL, 3)), path)], [taken, path]))
    trained = any(one.network for one in advice.standings)
    rows = []
    for one in advice.standings:
        lead, training = one.lead and format_points(one.lead), [one.network.trained if one.network else ""]
        rows.append([one.name, format_range(one.now), format_range(one.later), lead or "", *(training * trained)])
    text = render(
        "advice.html.j2",
        styles=["looks.css"],
        scripts=["vega", "charts.js", "report.js"] if figure else [],
        script_data={"charts": [pack_for_page(figure)] if figure else []},
        title=f"{pictures.root.name}: which model",
        name=pictures.root.name,
        about=["which model"],
        heading=sentences[0],
        sentences=sentences[1:],
        figure=figure,
        candidates=rows,
        chosen=advice.standings.index(advice.chosen),
        mistakes=shown,
        mistaken=whole(len(mistakes.rows)),
        tested=whole(mistakes.tested),
        trained=trained,
        costs=costs,
    )
    write_text(out / "advice.html", text)
    return out / "advice.html"


def draw_curves(advice: Advice) -> Figure | None:
    """Draw the error of each model with a learning curve, forecast up to twice the labels; None without a curve."""
    curves = [one for one in advice.standings if one.curve and one.outcome]
    if not curves:
        return None
    parts = []
    for one in curves:
        measured = {"label": one.name, "x": one.outcome.sizes, "y": 1 - np.nanmean(one.outcome.hits, axis=1)}
        parts += [pd.DataFrame({**measured, "kind": kind}) for kind in ("law", "fitted")]
        grid = np.geomspace(one.curve.size, 2 * advice.labels, 12)
        ahead = [(1 - some.value, 1 - some.high, 1 - some.low) for some in map(one.curve.at, grid)]
        expected = pd.DataFrame(ahead, columns=["y", "low", "high"])
        parts.append(expected.assign(label=one.name, kind="law beyond", x=grid))
    frame = pd.concat(parts).assign(panel="")
    frame[["y", "low", "high"]] = frame[["y", "low", "high"]].clip(lower=max(1e-4, frame.y.min() / 4))
    chart = draw_laws([frame], "labels", "error on pictures that were not seen", percent=True, whole=True)
    caption = "Means over repeated splits of the pictures. Dashed: expected from the largest part on, with 90% bands."
    return Figure("labels", "Error against labels", chart, caption, "Error of each model against the number of labels")
