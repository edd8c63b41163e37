"""The verdict of `vitlab advise` as one page: what to take, the curve, the candidates, the pictures that go wrong."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitlab.files import write_text
from vitlab.formatting import count, duration
from vitlab.reports.advice import Advice, describe_range
from vitlab.reports.figures.study import metric as metric_figure
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.pages.render import data_address, render, source
from vitlab.reports.words import make_size_table
from vitlab.studies.results import Results
from vitlab.training.mistakes import Examined

SHOWN, OF_CLASS = 36, 6  # mistakes, and of a class


def write_advice_page(
    out: Path, results: Results, advice: Advice, sentences: Sequence[str], examined: Examined
) -> Path:
    """Write OUT/advice.html beside the study's own folder OUT/study; return its path."""
    path = out / "advice.html"
    figure = next(iter(metric_figure.draw(results)))
    drawn = (results.files.figures / f"{figure.name}.svg").read_bytes()
    write_text(
        path,
        render(
            "advice.html.j2",
            styles=["report.css", "advice.css"],
            scripts=[source("theme_button.js")],
            script_data={},
            name=results.name,
            headline=sentences[0],
            sentences=sentences[1:],
            figure=figure,
            picture=data_address(drawn, "image/svg+xml"),
            table=make_size_table(results),
            looks=looks(families(results.rows)),
            candidates=[list_candidate(advice, place) for place in range(len(advice.standings))],
            metric=advice.metric,
            examined=examined,
            mistakes=[(draw(one.picture), one) for one in choose_mistakes(examined)],
        ),
    )
    return path


def list_candidate(advice: Advice, place: int) -> dict[str, Any]:
    one, metric = advice.standings[place], advice.metric
    return {
        "model": one.model,
        "chosen": one is advice.chosen,
        "now": describe_range(one.now, metric),
        "later": describe_range(one.later, metric) if one.later else "no law",
        "time": duration(one.seconds),
        "params": count(one.params),
    }


def choose_mistakes(examined: Examined) -> list[Any]:
    """The surest mistakes, some of each class."""
    counts: dict[str, int] = {}
    chosen = []
    for one in examined.mistakes:
        counts[one.label] = counts.get(one.label, 0) + 1
        if counts[one.label] <= OF_CLASS:
            chosen.append(one)
    return chosen[:SHOWN]


def draw(picture: np.ndarray) -> str:
    """The data address of uint8 (C, Y, X)."""
    file = io.BytesIO()
    Image.fromarray(picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0)).save(file, "PNG")
    return data_address(file.getvalue(), "image/png")
