"""A study's workspace and report in W&B, with panels for what its runs logged.

Both are W&B's own objects (wandb-workspaces): their JSON is what W&B stores, and no network is needed to write it.
"""

from pathlib import Path
from typing import Any

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr
from wandb_workspaces.reports.v2 import internal as report_internal
from wandb_workspaces.workspaces import internal as workspace_internal

from vitlab.config import UserError, load, names
from vitlab.config.schema import WandbConfig
from vitlab.files import write_text
from vitlab.reports.figures.theme import THEMES, families, looks
from vitlab.reports.tracking import STEP
from vitlab.reports.words import format_markdown, headline
from vitlab.studies.grid import NAME
from vitlab.studies.results import Results, family_name
from vitlab.tasks.metrics import Metric


class Dashboards:
    """`workspace` and `report` of a study, and their files.

    The files keep the ids that W&B gave, so that saving again updates both. Raises UserError for a study without a
    finished run and for files that cannot be read.
    """

    def __init__(self, results: Results):
        study, config, rows = results.files, results.config, results.rows
        if not rows:
            raise UserError(f"{study.folder}: no run has finished yet, so a dashboard has nothing to show")
        self.results, self.rows, self.metric = results, rows, results.metric
        self.workspace_path = study.folder / "wandb-workspace.json"
        self.report_path = study.folder / "wandb-report.json"
        view = read_model(self.workspace_path, workspace_internal.View)
        report = read_model(self.report_path, report_internal.ReportViewspec)
        settings = config.get("wandb") or {}
        self.project = settings.get("project") or WandbConfig().project
        self.entity = settings.get("entity") or (
            view.entity if view else ""
        )  # empty: the default of whoever is logged in
        self.name = str(config.get("name"))  # also the group of the study's runs
        if not NAME.fullmatch(self.name):
            raise UserError(
                f"{study.config_path}: name={self.name}: give letters, digits and . _ + - with up to 100 in all"
            )
        if quoted := [family for family in families(rows).values() if "'" in family]:
            raise UserError(f"{study.results_path}: family={quoted[0]}: W&B's filters take no quotes")
        self.colours = choose_colours(results)
        self.workspace, self.report = self.build_workspace(), self.build_report()
        place = (self.entity, self.project)
        if view and (view.entity, view.project) == place:
            self.workspace._internal_name, self.workspace._internal_id = view.name, view.id
        if report and (report.project.entity_name, report.project.name) == place:
            self.report.id = report.id

    def build_workspace(self) -> ws.Workspace:
        """All runs of the study in one set, each in the colour of its family."""
        columns = ["run:displayName", "summary:family", "summary:train_size", f"summary:{self.metric.key}"]
        return ws.Workspace(
            entity=self.entity,
            project=self.project,
            name=self.name,
            sections=[
                ws.Section(name=title, panels=panels, is_open=True)
                for title, panels in make_panels(self.results).items()
            ],
            settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=100),
            runset_settings=ws.RunsetSettings(
                filters=expr.And(*self.counting_runs()),
                pinned_columns=[*columns, "summary:train_flops"],
                run_settings={run: ws.RunSettings(color=colour) for run, colour in self.colours.items()},
            ),
        )

    def build_report(self) -> wr.Report:
        """The conclusion, the table, and the same panels with a run set for each family."""
        blocks: list[Any] = [
            wr.P(" ".join(headline(self.results))),
            wr.MarkdownBlock(text=format_markdown(self.results)),
        ]
        for title, panels in make_panels(self.results).items():
            blocks += [wr.H2(title), wr.PanelGrid(runsets=self.build_runsets(), panels=panels)]
        return wr.Report(
            entity=self.entity,
            project=self.project,
            title=self.name,
            description=headline(self.results)[0],
            blocks=blocks,
            width="fluid",
        )

    def build_runsets(self) -> list[wr.Runset]:
        """One for each family, in the report's own project: naming the project would ask the server for it."""
        return [
            wr.Runset(
                name=family_name(family),
                filters=expr.And(*self.counting_runs(), expr.Summary("family") == family),
                run_settings={run: wr.RunSettings(color=colour) for run, colour in self.colours.items()},
            )
            for family in dict.fromkeys(families(self.rows).values())
        ]

    def counting_runs(self) -> list[Any]:
        """Filters of the study's runs without the trials of `tune`."""
        return [expr.Metric("Group") == self.name, expr.Metric("JobType") == "train"]

    def save(self) -> list[str]:
        """Save both in W&B; gives their addresses. Raises what W&B's client raises."""
        if not self.entity:
            self.entity = self.workspace.entity = self.report.entity = wandb.Api().default_entity
        return [self.workspace.save().url, self.report.save().url]

    def write(self) -> list[Path]:
        """Write both as JSON; gives the files."""
        for path, model in (
            (self.workspace_path, self.workspace._to_model()),
            (self.report_path, self.report._to_model()),
        ):
            write_text(path, model.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n")
        return [self.workspace_path, self.report_path]


def make_panels(results: Results) -> dict[str, list[Any]]:
    """Section title -> panels; a section without panels is left out."""
    metric, first = results.metric, next(iter(results.run_files.values()))
    logged = {key for row in first.metrics for key in row}
    curves = dict.fromkeys(
        [
            "train/loss",
            "validation/loss",
            f"validation/{metric.key}",
            "train/lr",
            "train/grad_norm",
            "train/images_per_s",
        ]
    )
    flops = wr.BarPlot(title="train_flops of each run", metrics=["train_flops"], max_bars_to_show=100)
    sections = {
        "Result": [plot_against("train_size", metric)],
        "Curves": [wr.LinePlot(title=key, x=STEP, y=[key], max_runs_to_show=100) for key in curves if key in logged],
        "Analyses": [show_figures(name, list_stems(results, "png")) for name in list_analyses(results)],
        "Compute": [plot_against("train_flops", metric), flops],
        "Runs": [wr.RunComparer(diff_only=True)],
    }
    return {title: panels for title, panels in sections.items() if panels}


def plot_against(key: str, metric: Metric) -> wr.ScatterPlot:
    """The metric of each finished run against another value of its summary."""
    return wr.ScatterPlot(
        title=f"{metric.name} against {key} by family",
        x=wr.SummaryMetric(key),
        y=wr.SummaryMetric(metric.key),
        log_x=True,
        legend_template="${summary:family} ${run:displayName}",
    )


def list_stems(results: Results, suffix: str) -> list[str]:
    """Names of the analyses (json) or of their figures (png) that some run has."""
    folders = [run.files.analysis_folder for run in results.run_files.values()]
    return sorted({path.stem for folder in folders for path in folder.glob(f"*.{suffix}")})


def list_analyses(results: Results) -> list[str]:
    """Names of the analyses that some run has and that are drawn."""
    shipped = set(names("analysis"))
    return [name for name in list_stems(results, "json") if name not in shipped or load("analysis", name).drawings]


def show_figures(analysis: str, figures: list[str]) -> wr.MediaBrowser:
    """All figures of an analysis, for each run."""
    shown = [name for name in figures if name == analysis or name.startswith(f"{analysis}-")] or [analysis]
    title = load("analysis", analysis).title if analysis in names("analysis") else analysis
    return wr.MediaBrowser(title=title, num_columns=2, media_keys=[f"{name}/picture" for name in shown])


def choose_colours(results: Results) -> dict[str, str]:
    """W&B id -> the colour of the run's family in the report."""
    look = looks(families(results.rows))
    ids = {row["run"]: results.run_files[row["run"]].wandb.get("id") for row in results.rows}
    colours = {row["run"]: THEMES["light"][look[row["model"]].colour] for row in results.rows}
    return {key: colours[run] for run, key in ids.items() if key}


def read_model(path: Path, kind: Any) -> Any:
    """A file that `write` wrote, as W&B's model; None without one. Raises UserError."""
    try:
        return kind.model_validate_json(path.read_text()) if path.exists() else None
    except (OSError, ValueError):
        raise UserError(f"{path}: cannot read it; delete the file to save a new one in W&B") from None
