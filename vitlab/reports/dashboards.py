"""Build a study's workspace and report for W&B (wandb-workspaces); writing them to files needs no network."""

import os
from typing import Any

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr
from wandb_workspaces.reports.v2.internal import ReportViewspec
from wandb_workspaces.workspaces.internal import View

from vitlab.config import UserError, load, names
from vitlab.config.errors import first_line
from vitlab.config.schema import WandbConfig
from vitlab.files import write_text
from vitlab.reports import THEMES, looks
from vitlab.reports.wandb import STEP, list_by_size
from vitlab.reports.words import format_markdown, headline
from vitlab.studies.results import Results, family_name

CURVES = ("train/lr", "train/grad_norm", "train/images_per_s")


def write_dashboards(results: Results, *, online: bool) -> tuple[list[str], str]:
    """Write wandb-workspace.json and wandb-report.json of a study; with `online` save both in W&B first.

    Returns the files and W&B's addresses, and the reason if W&B did not save them. The files keep W&B's ids, so saving
    again updates both. Raises UserError for a study without a finished run.
    """
    folder = results.files.folder
    if not results.rows:
        raise UserError(f"{folder}: no run has finished yet, so a dashboard has nothing to show")
    paths = folder / "wandb-workspace.json", folder / "wandb-report.json"
    view, page = (
        kind.model_validate_json(path.read_text()) if path.exists() else None
        for path, kind in zip(paths, (View, ReportViewspec), strict=True)
    )
    place = {
        "entity": os.environ.get("WANDB_ENTITY") or (view.entity if view else ""),  # empty: the logged-in user
        "project": (results.config.get("wandb") or {}).get("project") or WandbConfig().project,
    }
    columns = ("family", "train_size", results.metric.key, "train_flops")
    pinned = ["run:displayName", *(f"summary:{key}" for key in columns)]
    workspace = ws.Workspace(
        **place,
        name=results.name,
        sections=[ws.Section(name=title, panels=made, is_open=True) for title, made in make_panels(results).items()],
        settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=100),
        runset_settings=ws.RunsetSettings(pinned_columns=pinned, **choose_runs(results, ws)),
    )
    report = make_report(results, place)
    if view and {"entity": view.entity, "project": view.project} == place:
        workspace._internal_name, workspace._internal_id = view.name, view.id
    if page and {"entity": page.project.entity_name, "project": page.project.name} == place:
        report.id = page.id
    addresses, failure = [], ""
    try:
        if online:
            workspace.entity = report.entity = place["entity"] or wandb.Api().default_entity
            addresses = [workspace.save().url, report.save().url]
    except Exception as error:  # any error of W&B's client, transport or server
        failure = first_line(error)
    for path, board in zip(paths, (workspace, report), strict=True):
        write_text(path, board._to_model().model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n")
    return [*map(str, paths), *addresses], failure


def make_report(results: Results, place: dict[str, str]) -> wr.Report:
    """Make the report: the conclusion, the table, and the workspace's panels with a run set for each family."""
    summary = wr.Runset(name="study", **choose_runs(results, wr, expr.Metric("JobType") == "summary"))
    runsets = [summary] + [  # no project given: a named project costs a request to the server
        wr.Runset(name=family_name(family), **choose_runs(results, wr, expr.Summary("family") == family))
        for family in dict.fromkeys(results.families.values())
    ]
    blocks = [wr.P(" ".join(headline(results))), wr.MarkdownBlock(text=format_markdown(results))]
    for title, panels in make_panels(results).items():
        blocks += [wr.H2(title), wr.PanelGrid(runsets=runsets, panels=panels)]
    return wr.Report(**place, title=results.name, description=headline(results)[0], blocks=blocks, width="fluid")


def choose_runs(results: Results, module: Any, *filters: Any) -> dict[str, Any]:
    """Choose the study's runs and its summary, colored by family as in the reports."""
    look, settings = looks(results.families), {}
    for row in results.all_rows:
        if key := results.run_files[row["run"]].wandb.get("id"):
            settings[key] = module.RunSettings(color=THEMES["light"][look[row["model"]].colour])
    of_study = expr.Metric("Group") == results.name, expr.Metric("JobType").isin(["train", "summary"])
    return {"filters": expr.And(*of_study, *filters), "run_settings": settings}


def make_panels(results: Results) -> dict[str, list[Any]]:
    """Make the panels by section title; leave out a section without panels."""
    metric, runs = results.metric, [*results.run_files.values()]
    logged = {key for row in runs[0].metrics for key in row}
    curves = dict.fromkeys(["train/loss", "validation/loss", f"validation/{metric.key}", *CURVES])
    by_family = {"x": STEP, "groupby": wr.Config("family"), "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    by_family["max_runs_to_show"] = 100
    by_size: dict[str, list[str]] = {}  # charted quantity -> keys of the study's summary
    for key in dict.fromkeys(key for numbers in list_by_size(results).values() for key in numbers):
        by_size.setdefault(key.split("/")[1], []).append(key)
    means = [key for key in by_size.get(metric.key, ()) if not key.endswith(("/low", "/high"))]
    result = wr.LinePlot(title=f"{metric.name} by size, mean over seeds", x="train_size", y=means, log_x=True)
    pictures = {end: sorted(results.files.figures.glob(f"*_against_{end}.png")) for end in ("size", "compute")}
    browsers = {
        end: wr.MediaBrowser(
            title=f"mean and interval against {end}", media_keys=[f"study/{path.stem}" for path in paths]
        )
        for end, paths in pictures.items()
        if paths
    }
    flops = wr.BarPlot(title="train_flops of each run", metrics=["train_flops"], max_bars_to_show=100)
    figures = sorted({path.stem for run in runs for path in run.files.analysis_folder.glob("*.png")})
    analyses = []
    for name in sorted({name for run in runs for name in run.analyses}):
        if shown := [f"{stem}/picture" for stem in figures if stem == name or stem.startswith(f"{name}-")]:
            title = load("analysis", name).title if name in names("analysis") else name
            analyses.append(wr.MediaBrowser(title=title, num_columns=2, media_keys=shown))
            heads = next((found for run in runs if (found := run.last_analysis(name))), {"rows": []})["rows"]
            if layers := sorted({row["layer"] for row in heads}):
                of_layers = [f"{name}/layer{layer}/mean" for layer in layers]
                analyses.append(wr.LinePlot(title=f"{title} by layer, mean over heads", y=of_layers, **by_family))
            if name in by_size:
                heading = f"{title} by size, mean over heads"
                analyses.append(wr.LinePlot(title=heading, x="train_size", y=by_size[name], log_x=True))
    sections = {
        "Result": [result, *([browsers["size"]] if "size" in browsers else [])],
        "Curves": [wr.LinePlot(title=key, y=[key], **by_family) for key in curves if key in logged],
        "Analyses": analyses,
        "Compute": [*([browsers["compute"]] if "compute" in browsers else []), flops],
        "Runs": [wr.RunComparer(diff_only=True)],
    }
    return {title: panels for title, panels in sections.items() if panels}
