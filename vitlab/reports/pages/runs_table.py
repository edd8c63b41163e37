"""The table of runs: its columns, and each run's cells as text and as the value to sort by."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.formatting import duration, finite, folder_link, link, significant, whole, with_prefix
from vitlab.reports.figures.theme import Look, looks
from vitlab.studies.results import Results
from vitlab.tasks.metrics import list_metrics, main_metric

Rows = list[dict[str, Any]]
FILES = (
    ("config", "config.yaml"),
    ("metrics", "metrics.jsonl"),
    ("result", "result.json"),
    ("attention", "analysis/attention_distance.json"),
    ("log", "log.txt"),
)
MOST_LINKED = 200  # runs up to which their files are linked one by one; a run's name links its folder
CHOICES = {"model": "model", "train_size": "examples", "seed": "seed"}


@dataclass(frozen=True)
class Column:
    key: str
    label: str
    text: Callable[[Any], str]


@dataclass(frozen=True)
class RunRow:
    name: str
    href: str  # the run's folder, relative to the study's
    exists: bool  # False for a folder that was deleted since
    look: Look
    chosen_by: dict[str, Any]  # key of a choice -> this run's value
    cells: list[tuple[str, str]]  # text, value to sort by; one per column
    files: list[tuple[str, str]]  # label, address


def columns(rows: Rows) -> list[Column]:
    """The main metric first, then every other metric that some run has."""
    main = main_metric(rows)
    measured = [
        m
        for m in list_metrics()
        if m.key == main.key or (m.key != "loss" and m.is_compared and any(m.value(row) is not None for row in rows))
    ]
    measured.sort(key=lambda metric: metric.key != main.key)
    shown = [Column("train_size", f"{main.sized_by}s", whole), Column("seed", "seed", whole)]
    shown += [Column(m.key, m.name, lambda v, m=m: m.text(finite(v))) for m in measured]
    if main.key != "loss":
        shown.append(Column("loss", "held-out loss", significant))
    return [
        *shown,
        Column("train_loss", "train loss", significant),
        Column("train_flops", "FLOPs", lambda value: with_prefix(value, "")),
        Column("images_per_s", "examples/s", whole),
        Column("wall_s", "time", duration),
    ]


def run_rows(results: Results, shown: list[Column], page_folder: Path) -> list[RunRow]:
    """A row per run, with its addresses as a page in that folder has them."""
    style, rows = looks(results.families), []
    for row in results.rows:
        folder = results.run_files[row["run"]].files.folder
        path = os.path.relpath(folder, page_folder)
        rows.append(
            RunRow(
                name=row["run"],
                href=folder_link(path),
                exists=folder.is_dir(),
                look=style[row["model"]],
                chosen_by={key: row[key] for key in CHOICES},
                cells=[(column.text(row.get(column.key)), sort_value(row.get(column.key))) for column in shown],
                files=[(label, link(path, file)) for label, file in FILES if (folder / file).is_file()]
                if len(results.rows) <= MOST_LINKED
                else [],
            )
        )
    return rows


def choices(rows: Rows) -> list[tuple[str, str, list[tuple[Any, str]]]]:
    """(key, label, values with their texts) of what the table can be narrowed down to; one value is no choice."""
    labels = {**CHOICES, "train_size": f"{main_metric(rows).sized_by}s"}
    lists = []
    for key, label in labels.items():
        values = list(dict.fromkeys(row[key] for row in rows if row[key] is not None))
        values = values if key == "model" else sorted(values)
        if len(values) > 1:
            lists.append((key, label, [(value, value if key == "model" else whole(value)) for value in values]))
    return lists


def sort_value(value: Any) -> str:
    """Empty for what has no place in an order: it stays at the end."""
    number = finite(value)
    return "" if number is None else f"{number:.6g}"
