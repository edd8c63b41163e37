"""A study as one page that works offline, `report.html`, and its figures and tables as files."""

import csv
import io
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import datetime
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from vitlab.files import read_json, write_text
from vitlab.formatting import TIMES, duration, finite, folder_link, link, plural, with_prefix
from vitlab.reports import follow_parent, looks, provenance, write_chart
from vitlab.reports.figures import Figure, describe_chart, draw_study, pack_for_page
from vitlab.reports.pages import render
from vitlab.reports.pages.attention import write_attention_pages
from vitlab.reports.pages.compare import list_columns, make_runs_table, write_compare_page
from vitlab.reports.wandb import WAITING, list_uploads
from vitlab.reports.words import TABLES, format_latex, format_markdown, headline, make_size_table
from vitlab.studies.grid import TRIAL
from vitlab.studies.laws import list_params
from vitlab.studies.results import Results
from vitlab.studies.status import write_board

MOST_OF_A_TILE = 6  # models whose results are in large type
GENERATED = 8  # test items for which it shows what the models write
SCRIPTS = ("charts.js", "report.js", "table.js")


def write_report(results: Results, *, running: bool = False, compared: Sequence[str] = ()) -> Path:
    """Write a study's figures/, tables/, report.html, compare.html and attention/; return the report's path.

    With `running` the page says so and reloads itself; compare.html begins with the runs `compared`. Raises UserError.
    """
    with ProcessPoolExecutor(1, get_context("spawn"), follow_parent) as beside:
        pictures: list[Future] = []  # drawing their files takes as long as all the rest
        drawn = draw_study(
            results,
            lambda figure: pictures.append(beside.submit(write_chart, *describe_chart(figure, results.files.figures))),
        )
        figures: list[list[Figure]] = []  # neighbours with a `choice` are views of one
        for figure in drawn:
            if figure.choice and figures and figures[-1][0].choice:
                figures[-1].append(figure)
            else:
                figures.append([figure])
        figures[1:] = sorted(figures[1:], key=lambda views: views[0].detail)  # the page folds them
        for name, text in zip(TABLES, (format_markdown, format_latex), strict=True) if results.rows else ():
            write_text(results.files.folder / name, text(results))
        if results.fits.by_model:
            tables = {"laws": list_params(results.fits.by_model), "crossovers": results.fits.list_crossovers()}
            for name, rows in tables.items():
                lines = io.StringIO()
                csv.writer(lines, lineterminator="\n").writerows(rows)
                write_text(results.files.figures / f"{name}.csv", lines.getvalue())
        attention = [] if results.is_foreign else write_attention_pages(results)
        write_compare_page(results, results.files.folder / "compare.html", compared)
        write_text(results.files.report_path, render_page(results, figures, attention, running))
        for picture in pictures:
            picture.result()
    return results.files.report_path


def render_page(results: Results, figures: list[list[Figure]], attention: list[dict[str, Any]], running: bool) -> str:
    """Render the whole document."""
    study, config, rows, metric = results.files, results.config, results.rows, results.metric
    run_results = [run.result for run in results.run_files.values()]
    samples = read_json(study.figures / "samples.json") or []
    failed = []
    for failure in results.failures:
        folder, run = study.folder / failure["run"], failure["run"]
        log = link(run, "log.txt") if (folder / "log.txt").is_file() else None
        failed.append({**failure, "href": folder_link(run) if folder.is_dir() else None, "log": log})
    conclusion, *details = headline(results)
    if results.is_foreign:
        fixed = [f"{note[0].upper()}{note[1:]}." for note in config["notes"]]
        facts, commands = list(config["read_as"].items()), config["commands"]
    else:
        fixed = [provenance.describe_budget(config, rows), provenance.describe_tuning(config)]
        fixed.append(provenance.advise_tuning(results))
        waiting = WAITING in [state for _, state, _ in list_uploads(results)]
        facts, commands = provenance.list_choices(config), provenance.list_commands(results, waiting=waiting)
    ends = [text for run_result in run_results if isinstance(text := run_result.get("finished_at"), str)]
    when = datetime.fromisoformat(max(ends)) if ends else datetime.fromtimestamp(study.config_path.stat().st_mtime)
    return render(
        "report.html.j2",
        styles=["report.css"],
        scripts=[*(["vega"] if figures else []), *SCRIPTS],
        script_data={"charts": [pack_for_page(view) for view in chain(*figures)]},
        title=f"{results.name}: {conclusion}",
        name=f"study: {results.name}",
        about=[*([f"data: {rows[0]['data']}"] if rows else []), f"{when.day} {when:%B %Y}"],
        heading=conclusion,
        details=[*filter(None, details)],
        running=write_board(results.status) if running else "",
        caveats=[] if running else collect_caveats(results),
        tiles=make_tiles(results),
        figures=figures,
        generated=results.list_generated(GENERATED),
        samples=[(plural(one["size"], metric.sized_by), one["pictures"], one["texts"]) for one in samples],
        manifests=len([*study.subsets.glob("*.json")]),
        attention=attention,
        metric=metric,
        size_table=make_size_table(results),
        fits=results.fits,
        tables=[(Path(name).name, name) for name in TABLES if rows],
        history=[(duration(one[2]), one[1], *one[3:]) for one in results.history.itertuples(index=False)],
        looks=looks(results.families),
        failed=failed,
        held_fixed=" ".join(filter(None, fixed)),
        study_facts=facts,
        by_model=provenance.compare_settings(results),
        commands=commands,
        start=os.path.relpath(study.start_folder(), study.folder.resolve()),
        is_study=not results.is_foreign,
        machine=provenance.describe_machines(run_results),
        **make_runs_table(results, list_columns(rows), study.folder),
    )


def make_tiles(results: Results) -> list[dict[str, Any]]:
    """Make the four tiles: runs, each family's result with most data, time, compute."""
    rows, metric = results.all_rows, results.metric
    keys = results.files.run_keys() or [(row["model"], row["train_size"], row["seed"]) for row in rows]
    runs = [(*variant.partition(TRIAL)[::2], *rest) for variant, *rest in keys]
    axes = ("model", "trial", "size", "seed")
    reached = {name: results.by_model[of[max(of)]][max(of)].mean for name, of in results.contenders.items()}
    best = sorted(reached, key=lambda name: metric.lead(reached[name], 0.0), reverse=True)[:MOST_OF_A_TILE]
    shown = f", best {len(best)} of {len(reached)}" if len(reached) > len(best) else ""
    entries = [(metric.text(mean), results.name_of(name)) for name, mean in reached.items() if name in best]
    tuned, trained = sum(finite(row.get("finetune_flops")) or 0.0 for row in rows), results.effort.sum()
    summed = "summed over runs, with fine-tuning" if tuned else "summed over runs"
    planned = f" of {len(runs)}" if len(runs) > len(rows) else ""
    counts = [len({run[place] for run in runs} - {""}) for place in range(len(axes))]
    asked = f" {TIMES} ".join(plural(number, noun) for number, noun in zip(counts, axes, strict=True) if number)
    tiles = [
        {"label": "finished runs", "value": f"{len(rows)}{planned}", "note": asked},
        {"label": f"{metric.name} with most data{shown}", "entries": entries},
        {"label": "training time", "value": duration(3600 * trained.hours), "note": "summed over runs"},
        {"label": "training compute", "value": with_prefix(trained.FLOPs + tuned, "FLOP"), "note": summed},
    ]
    return tiles[:2] if results.is_foreign else tiles


def collect_caveats(results: Results) -> list[str]:
    """List limits of the conclusion: failed and unfinished runs."""
    rows, failed, missing = results.rows, len(results.failures), len(results.unfinished)
    lost = sum(results.metric.value(row) is None for row in rows)
    caveats = {
        f"{plural(lost, 'run')} ended without a finite {results.metric.name}.": 0 < lost < len(rows),
        f"{plural(failed, 'run')} failed.": failed,
        f"{plural(missing, 'run')} {'has' if missing == 1 else 'have'} not finished.": missing,
    }
    return [text for text, applies in caveats.items() if applies]
