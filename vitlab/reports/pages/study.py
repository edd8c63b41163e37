"""A study as one page that works offline, `report.html`, and its figures and tables as files."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import plotly.offline

from vitlab.config import load, names
from vitlab.files import write_text
from vitlab.formatting import duration, finite, plural, with_prefix
from vitlab.reports.figures import heads_by_layer, layers_by_step, learning_curves, metric_by_cost, metric_by_size
from vitlab.reports.figures.backends import matplotlib_backend
from vitlab.reports.figures.backends.plotly_backend import layout, plotly_figure
from vitlab.reports.figures.spec import Figure
from vitlab.reports.figures.theme import THEMES, families, looks
from vitlab.reports.pages import runs_table
from vitlab.reports.pages.compare import write_compare_page
from vitlab.reports.pages.image_attention import Group, write_attention_pages
from vitlab.reports.pages.render import data_address, render, source
from vitlab.reports.results import provenance, tables
from vitlab.reports.results.fits import StudyFits
from vitlab.reports.results.size_table import make_size_table
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.results.summary import best_of_families, headline
from vitlab.reports.tracking.uploads import list_uploads
from vitlab.reports.urls import folder_link, link
from vitlab.studies.store import StudyFiles

Rows = list[dict[str, Any]]
MOST_MANIFESTS = 10  # that are linked one by one
GENERATED = 8  # test items for which it shows what the models write
SCRIPTS = ("theme_button.js", "table.js", "report.js")
OF_HEADS = (  # the figures of an analysis of heads, with the start of their captions
    (
        heads_by_layer.plot_heads_by_size,
        "A filled point is a head of the trained model, a ring a head of the untrained one",
    ),
    (layers_by_step.plot_layers_by_size, "Each line is the mean over the heads of a layer while the model trains"),
)
WIDE, NARROW = 700, 360  # pixels: the smallest width of a figure on a screen and on a phone


def write_report(results: StudyResults, *, running: bool = False) -> Path:
    """Write a study's figures/, tables/, report.html, compare.html and attention/; return the report's path.

    With `running` the page says so and reloads itself. Raises UserError.
    """
    figures = list(make_figures(results))
    for view in (view for figure in figures for view in figure["views"]):
        svg, _ = matplotlib_backend.save(view["figure"], results.files.figures)
        view["static"] = data_address(svg.read_bytes(), "image/svg+xml")
    tables.write_tables(results)
    attention = write_attention_pages(results)
    write_compare_page(results)
    write_text(results.files.report_path, render_page(results, figures, attention, running))
    return results.files.report_path


def make_figures(results: StudyResults) -> Iterator[dict[str, Any]]:
    """Each figure that the study has data for, with its caption and the files it was drawn from."""
    yield from make_result_figure(results)
    analyses = sorted({name for run in results.runs.values() for name in run.analyses})
    wanted = [(name, model, *way) for name in analyses for model in families(results.rows) for way in OF_HEADS]
    stems: dict[str, int] = {}
    for name, model, build, begin in wanted:
        figure = build(results, model, name)
        if figure is None:
            continue
        stems[figure.name] = stems.get(figure.name, 0) + 1
        if stems[figure.name] > 1:  # two models whose names differ only in what a file name cannot hold
            figure = replace(figure, name=f"{figure.name}-{stems[figure.name]}")
        note = load("analysis", name).note if name in names("analysis") else ""
        caption = f"{begin}: {note}" if note else f"{begin}."
        files = [
            (f"{panel.title}", f"{series.links[0]}analysis/{quote(name)}.json")
            for panel in figure.panels
            for series in panel.series[-1:]
            if series.links
        ]
        yield group_views(figure.title, [make_view(figure, caption, files)])
    losses = learning_curves.plot_training_curves(results)
    if losses.series:
        caption = "Dotted: loss on the training batches. Solid: loss on validation data. "
        banded = any(series.has_band for series in losses.series)
        caption += (
            "Lines: mean over seeds. Bands: from the lowest seed to the highest." if banded else "A line per run."
        )
        caption += " Long curves are drawn as means of neighbouring points."
        hint = "Drag to zoom, double-click to go back."
        files = [("metrics.jsonl of each run", "#runs")]
        yield group_views(losses.title, [make_view(losses, caption, files, hint)], choosers=True)


def make_result_figure(results: StudyResults) -> Iterator[dict[str, Any]]:
    """The study's metric against training-set size, compute and time in one figure with a choice of the axis."""
    rows = results.rows
    size = metric_by_size.plot_metric_by_size(rows, results.fits)
    if not size.series:
        return
    caption, band = "Each point is one run.", ""
    if any(not all(series.links) for series in size.series):
        caption = "Lines: mean over seeds. Open markers: single runs."
        most = metric_by_size.MOST_RUNS
        if max(Counter((row["model"], row["train_size"]) for row in rows).values()) > most:
            caption = f"{caption[:-1]}; of more than {most} at a size, {most} from the lowest to the highest."
        band = " Bands: one standard deviation either way."
    if not results.metric.higher_is_better:
        caption += " Lower is better."
    order = f"{caption} Along a line the training set grows. Stairs: the best mean that no more than that much bought, "
    order += "broad of a family, dotted of all models."
    time = f"{order} Wall-clock time from the first step to the last, including evaluations and checkpoints."
    if len({provenance.identify_machine(run.result) for run in results.runs.values()}) > 1:
        time += " The runs were on different machines, so their times are not comparable."
    files, hint = [("results.csv", "results.csv")], "Click a point to find its run below."
    views = [
        make_view(size, f"{caption}{band}{describe_fits(results.fits)}", files, hint, "size"),
        make_view(metric_by_cost.plot_metric_by_flops(rows), order, files, hint, "compute"),
        make_view(metric_by_cost.plot_metric_by_time(rows), time, files, hint, "time"),
    ]
    views = [view for view in views if view["figure"].series]
    title = size.title if len(views) == 1 else f"{size.title}, {' and '.join(view['choice'] for view in views[1:])}"
    yield group_views(title, views)


def describe_fits(found: StudyFits) -> str:
    """What the thin lines and the upright one of the figure are."""
    text = ""
    if any(fit.holds for fit in found.fits.values()):
        text += f" Thin lines: laws fitted to the {found.scale.name}, dashed beyond the data, with 90% bands."
    if any(crossing.size for crossing in found.crossovers.values()):
        text += " Upright dotted line: a crossover, in the strip of its 90% interval."
    return text


def make_view(
    described: Figure, caption: str, files: list[tuple[str, str]], hint: str = "", choice: str = ""
) -> dict[str, Any]:
    """One view of a figure for the template; `choice` is its name among the figure's views."""
    several = len(described.panels) > 1
    alone = replace(described, panels=described.panels[:1])
    return {
        "figure": described,
        "choice": choice,
        "caption": caption,
        "hint": hint,
        "files": files,
        "plot": {
            "data": json.loads(plotly_figure(described).to_json())["data"],
            "wide": layout(described, described.columns, bare=True, width=WIDE),
            "narrow": layout(described, min(2, described.columns), bare=True, width=NARROW),
            "alone": layout(alone, 1, bare=True, width=NARROW) if several else None,
        },
    }


def group_views(title: str, views: list[dict[str, Any]], choosers: bool = False) -> dict[str, Any]:
    """A figure for the template: what its views share; `choosers` adds menus of models and panels."""
    first = views[0]["figure"]
    legend = first.legend()
    models = list(dict.fromkeys(series.model for series in first.series))
    panels = [panel.title for panel in first.panels]
    return {
        "title": title,
        "views": views,
        "legend": legend if len(legend) > 1 else [],
        "models": models if choosers and len(models) > 2 else [],
        "panels": panels if choosers and len(panels) > 1 else [],
    }


def render_page(results: StudyResults, figures: list[dict[str, Any]], attention: list[Group], running: bool) -> str:
    """The whole document."""
    study, config, rows, metric = results.files, results.config, results.rows, results.metric
    run_results = [run.result for run in results.runs.values()]
    columns = runs_table.columns(rows)
    samples = study.figures / "samples.png"
    return render(
        "report.html.j2",
        styles=["report.css"],
        scripts=[
            *map(source, [*SCRIPTS, *(["live.js"] if running else [])]),
            *([plotly.offline.get_plotlyjs()] if figures else []),
        ],
        script_data={"plots": [view["plot"] for figure in figures for view in figure["views"]], "themes": THEMES},
        name=results.name,
        data=rows[0]["data"] if rows else None,
        date=format_date(study, run_results),
        conclusion=headline(results),
        running=f"{len(rows)} of {results.asked_for} runs finished" if running else "",
        caveats=[] if running else collect_caveats(results),
        tiles=make_tiles(results),
        figures=figures,
        generated=results.list_generated(GENERATED),
        texts=[(plural(figure["size"], metric.sized_by), figure["texts"]) for figure in results.sample_texts],
        samples=data_address(samples.read_bytes(), "image/png") if samples.is_file() else None,
        manifests=link_manifests(study),
        attention=attention,
        metric=metric,
        size_table=make_size_table(rows, results.outcomes, results.margin),
        fits=results.fits,
        tables=[(path.name, link("tables", path.name)) for path in tables.find_tables(study.folder)],
        looks=looks(families(rows)),
        columns=columns,
        choices=runs_table.choices(rows),
        runs=runs_table.run_rows(study, rows, columns),
        failed=[describe_failure(study, **figure) for figure in results.failures],
        held_fixed=" ".join(
            [
                provenance.describe_budget(config, rows),
                provenance.describe_tuning(config, rows),
                provenance.advise_tuning(results),
            ]
        ).rstrip(),
        study_facts=provenance.list_choices(config),
        by_model=provenance.compare_settings(results),
        commands=provenance.list_commands(
            results, waiting=any(figure.state == "waiting" for figure in list_uploads(results))
        ),
        start=os.path.relpath(study.start_folder(), study.folder.resolve()),
        machine=provenance.describe_machines(run_results),
    )


def link_manifests(study: StudyFiles) -> list[tuple[str, str]]:
    """Each file of subsets, or their folder where they are many."""
    names = sorted(path.name for path in study.subsets.glob("*.json"))
    if len(names) > MOST_MANIFESTS:
        return [(f"{len(names):,} files, one for each seed", folder_link("subsets"))]
    return [(name, link("subsets", name)) for name in names]


def make_tiles(results: StudyResults) -> list[dict[str, Any]]:
    """The four numbers: runs, best result per family, time, compute."""
    rows, metric, cells = results.rows, results.metric, results.files.cells()
    axes = ("variant" if results.varied else "model", "size", "seed")
    best = {
        name: max((cell.mean for cell in by_size.values()), key=lambda mean: metric.lead(mean, 0.0))
        for name, by_size in best_of_families(rows, metric).items()
        if by_size
    }
    time, compute = (sum(finite(row.get(key)) or 0.0 for row in rows) for key in ("wall_s", "train_flops"))
    planned = results.asked_for
    return [
        {
            "label": "finished runs",
            "value": f"{len(rows)} of {planned}" if planned > len(rows) else f"{len(rows)}",
            "note": ", ".join(plural(len({cell[place] for cell in cells}), n) for place, n in enumerate(axes)),
        },
        {"label": f"best {metric.name}", "entries": [(metric.text(value), name) for name, value in best.items()]},
        {"label": "training time", "value": duration(time), "note": "summed over runs"},
        {"label": "training compute", "value": with_prefix(compute, "FLOP"), "note": "summed over runs"},
    ]


def collect_caveats(results: StudyResults) -> list[str]:
    """Limits of the conclusion: failed and unfinished runs."""
    caveats = []
    rows, metric, failed = results.rows, results.metric, results.failures
    lost = sum(metric.value(row) is None for row in rows)
    if lost and lost < len(rows):
        caveats.append(f"{plural(lost, 'run')} ended without a finite {metric.name}.")
    missing = len(results.unfinished)
    if failed:
        caveats.append(f"{plural(len(failed), 'run')} failed.")
    if missing:
        caveats.append(f"{plural(missing, 'run')} {'has' if missing == 1 else 'have'} not finished.")
    return caveats


def format_date(study: StudyFiles, run_results: list[dict[str, Any]]) -> str:
    """When the last run ended, otherwise when the study was last written: `21 November 2025`."""
    ends = [text for run_result in run_results if isinstance(text := run_result.get("finished_at"), str)]
    try:
        when = datetime.fromisoformat(max(ends))
    except ValueError:
        path = study.results_path if study.results_path.is_file() else study.config_path
        when = datetime.fromtimestamp(path.stat().st_mtime)
    return f"{when.day} {when:%B %Y}"


def describe_failure(study: StudyFiles, run: str, error: str) -> dict[str, str | None]:
    """A failed run for the template, with links to its folder and log if they exist."""
    folder = study.folder / run
    return {
        "run": run,
        "error": error,
        "href": folder_link(run) if folder.is_dir() else None,
        "log": link(run, "log.txt") if (folder / "log.txt").is_file() else None,
    }
