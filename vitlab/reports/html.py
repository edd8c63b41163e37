"""A study as one page that opens with no network: `report.html`, and its figures as files."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import plotly.offline

from vitlab.config import load, names
from vitlab.files import write_text
from vitlab.reports import facts, figures, layers_by_step, reading, runs_table, static
from vitlab.reports.colours import THEMES, families, looks
from vitlab.reports.conclusion import contenders, sentence, size_table
from vitlab.reports.figure import Figure
from vitlab.reports.interactive import plotly_figure
from vitlab.reports.links import folder_link, link
from vitlab.reports.metric import main_metric
from vitlab.reports.numbers import TIMES, duration, finite, plural, with_prefix
from vitlab.reports.page import data_address, render, source
from vitlab.studies.store import StudyFiles

Rows = list[dict[str, Any]]
SCRIPTS = ("theme_button.js", "table.js", "report.js")
OF_HEADS = (  # the figures of an analysis of heads, and how each is read
    (figures.by_head_and_size, "A filled point is a head of the trained model, a ring a head of the untrained one"),
    (layers_by_step.by_size, "Each line is the mean over the heads of a layer while the model trains"),
)
WIDE, NARROW = 700, 360  # pixels: the least that a figure has on a screen, and on a phone's


def write_report(folder: str | Path) -> Path:
    """Read a study's folder, write its figures/ and report.html; gives the page's path. Raises UserError."""
    study = StudyFiles(folder)
    config, rows, failed = reading.every(
        (reading.study_config, reading.results, reading.failures), lambda read: read(study)
    )
    runs = [row["run"] for row in rows]
    results, configs, shown = reading.every(
        (
            lambda: dict(zip(runs, reading.every(runs, lambda run: reading.result(study.run(run))), strict=True)),
            lambda: dict(zip(runs, reading.every(runs, lambda run: reading.config(study.run(run))), strict=True)),
            lambda: list(drawn(study, rows)),
        ),
        lambda read: read(),
    )
    for one in shown:
        svg, _ = static.save(one["figure"], study.figures)
        one["static"] = data_address(svg.read_bytes(), "image/svg+xml")
    write_text(study.report_path, page(study, config, rows, failed, configs, results, shown))
    return study.report_path


def drawn(study: StudyFiles, rows: Rows) -> Iterator[dict[str, Any]]:
    """Each figure that the study has data for, how to read it, and the files that it was drawn from."""
    if not rows:
        return
    accuracy = figures.accuracy_against_size(rows)
    if accuracy.series:
        several = any(not all(series.links) for series in accuracy.series)
        caption = "Each point is one run."
        if several:
            caption = "Lines: mean over seeds. Bands: one standard deviation either way. Open markers: single runs."
        yield figure(accuracy, caption, [("results.csv", "results.csv")], hint="Click a point to find its run below.")
    folders = [study.run(row["run"]).analysis_folder for row in rows]
    analyses = sorted({path.stem for folder in folders for path in folder.glob("*.json")})
    asked = [(name, model, *way) for name in analyses for model in families(rows) for way in OF_HEADS]
    built = reading.every(asked, lambda one: one[2](study, one[1], one[0]))
    stems: dict[str, int] = {}
    for (name, _, _, begin), found in zip(asked, built, strict=True):
        if found is None:
            continue
        stems[found.name] = stems.get(found.name, 0) + 1
        if stems[found.name] > 1:  # two models whose names differ only in what a file name cannot hold
            found = replace(found, name=f"{found.name}-{stems[found.name]}")
        note = load("analysis", name).note if name in names("analysis") else ""
        caption = f"{begin}: {note}" if note else f"{begin}."
        files = [
            (f"{panel.title}", f"{series.links[0]}analysis/{quote(name)}.json")
            for panel in found.panels
            for series in panel.series[-1:]
            if series.links
        ]
        yield figure(found, caption, files)
    curves = figures.training_curves(study)
    if curves.series:
        caption = "Dotted: loss on the training batches. Solid with markers: loss on held-out data. One line per run."
        hint = "Drag to zoom, double-click to go back."
        yield figure(curves, caption, [("metrics.jsonl of each run", "#runs")], hint, chooser=True)


def figure(
    described: Figure, caption: str, files: list[tuple[str, str]], hint: str = "", chooser: bool = False
) -> dict[str, Any]:
    """A figure as the template takes it."""
    wide, narrow = (
        json.loads(plotly_figure(described, columns, bare=True, width=width).to_json())
        for columns, width in ((described.columns, WIDE), (min(2, described.columns), NARROW))
    )
    legend = described.legend()
    models = list(dict.fromkeys(series.model for series in described.series)) if chooser else []
    return {
        "figure": described,
        "caption": caption,
        "hint": hint,
        "files": files,
        "legend": legend if len(legend) > 1 else [],
        "models": models if len(models) > 2 else [],
        "plot": {"data": wide["data"], "wide": wide["layout"], "narrow": narrow["layout"]},
    }


def page(
    study: StudyFiles,
    config: dict[str, Any],
    rows: Rows,
    failed: list[dict[str, str]],
    configs: dict[str, dict[str, Any]],
    results: dict[str, dict[str, Any]],
    shown: list[dict[str, Any]],
) -> str:
    """The whole document."""
    columns = runs_table.columns(rows)
    samples = study.figures / "samples.png"
    unit = main_metric(rows).sized_by
    return render(
        "report.html.j2",
        styles=["report.css"],
        scripts=[*map(source, SCRIPTS), *([plotly.offline.get_plotlyjs()] if shown else [])],
        script_data={"plots": [one["plot"] for one in shown], "themes": THEMES},
        name=str(config.get("name") or study.folder.resolve().name),
        data=rows[0]["data"] if rows else None,
        date=date(study, results),
        conclusion=sentence(rows),
        caveats=caveats(config, rows, failed),
        tiles=tiles(config, rows, failed),
        figures=shown,
        texts=[(plural(one["size"], unit), one["texts"]) for one in reading.texts(study)],
        samples=data_address(samples.read_bytes(), "image/png") if samples.is_file() else None,
        manifests=[(path.name, link("subsets", path.name)) for path in sorted(study.subsets.glob("*.json"))],
        metric=main_metric(rows),
        size_table=size_table(rows),
        looks=looks(families(rows)),
        columns=columns,
        runs=runs_table.run_rows(study, rows, columns),
        failed=[failure(study, **one) for one in failed],
        held_fixed=facts.held_fixed(config, rows),
        study_facts=facts.study_facts(config),
        by_model=facts.by_model(rows, configs, results),
        commands=facts.commands(study, rows, results),
        machine=facts.machine(results),
    )


def tiles(config: dict[str, Any], rows: Rows, failed: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The four numbers: runs, best result per family, time, compute."""
    metric = main_metric(rows)
    best = {
        name: max((cell.mean for cell in by_size.values()), key=lambda mean: metric.lead(mean, 0.0))
        for name, by_size in contenders(rows, metric).items()
        if by_size
    }
    time, compute = (sum(finite(row.get(key)) or 0.0 for row in rows) for key in ("wall_s", "train_flops"))
    planned = expected(config)
    found = [
        {
            "label": "finished runs",
            "value": f"{len(rows)} of {planned}" if planned > len(rows) else f"{len(rows)}",
            "note": f" {TIMES} ".join(plural(len(config.get(f"{n}s") or []), n) for n in ("model", "size", "seed")),
        },
        {"label": f"best {metric.name}", "entries": [(metric.text(value), name) for name, value in best.items()]},
        {"label": "training time", "value": duration(time), "note": "summed over runs"},
        {"label": "training compute", "value": with_prefix(compute, "FLOP"), "note": "summed over runs"},
    ]
    return found


def expected(config: dict[str, Any]) -> int:
    """Runs in the study's grid."""
    total = 1
    for key in ("models", "sizes", "seeds"):
        total *= len(config.get(key) or [])
    return total


def caveats(config: dict[str, Any], rows: Rows, failed: list[dict[str, str]]) -> list[str]:
    """What to know before the sentence above is quoted."""
    found = []
    metric = main_metric(rows)
    if rows and len({row["seed"] for row in rows}) == 1:
        found.append("One seed per model and size, so a small difference may be chance.")
    lost = sum(metric.value(row) is None for row in rows)
    if lost and lost < len(rows):
        found.append(f"{plural(lost, 'run')} ended without a finite {metric.name}.")
    missing = expected(config) - len(rows) - len(failed)
    if failed:
        found.append(f"{plural(len(failed), 'run')} failed.")
    if missing > 0:
        found.append(f"{plural(missing, 'run')} {'has' if missing == 1 else 'have'} not finished.")
    return found


def date(study: StudyFiles, results: dict[str, dict[str, Any]]) -> str:
    """When the last run ended, else when the study was last written: `21 November 2025`."""
    ends = [text for one in results.values() if isinstance(text := one.get("finished_at"), str)]
    try:
        when = datetime.fromisoformat(max(ends))
    except ValueError:
        path = study.results_path if study.results_path.is_file() else study.config_path
        when = datetime.fromtimestamp(path.stat().st_mtime)
    return f"{when.day} {when:%B %Y}"


def failure(study: StudyFiles, run: str, error: str) -> dict[str, str | None]:
    """A failed run as the template takes it: with addresses of its folder and log where they are there."""
    there = reading.inside(study.folder, run)
    folder = study.folder / run
    return {
        "run": run,
        "error": error,
        "href": folder_link(run) if there and folder.is_dir() else None,
        "log": link(run, "log.txt") if there and (folder / "log.txt").is_file() else None,
    }
