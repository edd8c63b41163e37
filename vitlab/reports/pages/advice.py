"""The verdict of `vitlab advise` as one page: what to take, the curve, the candidates, the pictures that go wrong."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vitlab.files import write_text
from vitlab.formatting import count, duration
from vitlab.reports.advice import Advice, describe_range
from vitlab.reports.figures.study import metric as metric_figure
from vitlab.reports.pages.render import data_address, draw_picture, render, source
from vitlab.reports.words import make_size_table
from vitlab.studies.results import Results
from vitlab.training.mistakes import Examined, Mistake

SHOWN, OF_CLASS = 36, 6  # mistakes, and of a class


def write_advice_page(
    out: Path, results: Results, advice: Advice, sentences: Sequence[str], examined: Examined
) -> Path:
    """Write OUT/advice.html beside the study's own folder OUT/study; return its path."""
    path, metric = out / "advice.html", advice.metric
    figure = next(iter(metric_figure.draw(results)))
    drawn = (results.files.figures / f"{figure.name}.svg").read_bytes()
    text = render(
        "advice.html.j2",
        styles=["looks.css"],
        scripts=[source("theme_button.js")],
        script_data={},
        title=f"{results.name}: which model",
        name=results.name,
        about=["which model"],
        heading=sentences[0],
        sentences=sentences[1:],
        figure=figure,
        picture=data_address(drawn, "image/svg+xml"),
        sizes=make_size_table(results),
        candidates=[
            [
                one.model,
                describe_range(one.now, metric),
                describe_range(one.later, metric) if one.later else "no law",
                duration(one.seconds),
                count(one.params),
            ]
            for one in advice.standings
        ],
        chosen=advice.standings.index(advice.chosen),
        metric=metric,
        examined=examined,
        mistakes=[([(draw_picture(one.picture), one.name)], describe(one)) for one in choose_mistakes(examined)],
    )
    write_text(path, text)
    return path


def describe(one: Mistake) -> list[str]:
    return [f"{one.label}, taken for {one.predicted} ({100 * one.confidence:.0f}%)", one.name]


def choose_mistakes(examined: Examined) -> list[Mistake]:
    """The surest mistakes, some of each class."""
    counts: Counter[str] = Counter()
    chosen = []
    for one in examined.mistakes:
        counts[one.label] += 1
        if counts[one.label] <= OF_CLASS:
            chosen.append(one)
    return chosen[:SHOWN]
