"""A study's workspace and report in W&B, built from its files: which panels there are depends on what its runs logged.

Both are W&B's own objects (wandb-workspaces), so their JSON is what W&B keeps of them and no network is needed to
write it.
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
from vitlab.reports.figures.theme import THEMES, families, family_name, looks
from vitlab.reports.results import tables
from vitlab.reports.results.published import find_published
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.results.summary import sentence
from vitlab.studies.grid import NAME
from vitlab.studies.metrics import Metric

STEP = "trainer/global_step"


class Dashboards:
    """`workspace` and `report` of a study, and their files.

    What was saved in W&B before is changed, not made a second time: the files keep its ids. Raises UserError for a
    study without a finished run and for files that cannot be read.
    """

    def __init__(self, results: StudyResults):
        study, config, rows = results.files, results.config, results.rows
        if not rows:
            raise UserError(f"{study.folder}: no run has finished yet, so a dashboard has nothing to show")
        self.results, self.rows, self.metric = results, rows, results.metric
        self.workspace_path = study.folder / "wandb-workspace.json"
        self.report_path = study.folder / "wandb-report.json"
        view = parsed(self.workspace_path, workspace_internal.View)
        report = parsed(self.report_path, report_internal.ReportViewspec)
        asked = config.get("wandb") or {}
        self.project = asked.get("project") or WandbConfig().project
        self.entity = asked.get("entity") or (view.entity if view else "")  # empty: of who is logged in at the save
        self.name = str(config.get("name"))  # the group of every run of the study, too
        if not NAME.fullmatch(self.name):
            raise UserError(
                f"{study.config_path}: name={self.name}: give letters, digits and . _ + - with up to 100 in all"
            )
        if quoted := [family for family in families(rows).values() if "'" in family]:
            raise UserError(f"{study.results_path}: family={quoted[0]}: W&B's filters take no quotes")
        self.colours = run_colours(results)
        self.workspace, self.report = self.build_workspace(), self.build_report()
        place = (self.entity, self.project)
        if view and (view.entity, view.project) == place:
            self.workspace._internal_name, self.workspace._internal_id = view.name, view.id
        if report and (report.project.entity_name, report.project.name) == place:
            self.report.id = report.id

    def sections(self) -> dict[str, list[Any]]:
        """Title -> new panels."""
        return sections(self.results)

    def build_workspace(self) -> ws.Workspace:
        """All runs of the study in one set, each in the colour of its family."""
        columns = ["run:displayName", "summary:family", "summary:train_size", f"summary:{self.metric.key}"]
        return ws.Workspace(
            entity=self.entity,
            project=self.project,
            name=self.name,
            sections=[ws.Section(name=title, panels=panels, is_open=True) for title, panels in self.sections().items()],
            settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=100),
            runset_settings=ws.RunsetSettings(
                filters=expr.And(expr.Metric("Group") == self.name),
                pinned_columns=[*columns, "summary:train_flops"],
                run_settings={run: ws.RunSettings(color=colour) for run, colour in self.colours.items()},
            ),
        )

    def build_report(self) -> wr.Report:
        """The conclusion, the table, and the same panels with a run set for each family."""
        blocks: list[Any] = [
            wr.P(sentence(self.rows)),
            wr.MarkdownBlock(text=tables.format_markdown(self.rows, find_published(self.results))),
        ]
        for title, panels in self.sections().items():
            blocks += [wr.H2(title), wr.PanelGrid(runsets=self.runsets(), panels=panels)]
        return wr.Report(
            entity=self.entity,
            project=self.project,
            title=self.name,
            description=sentence(self.rows),
            blocks=blocks,
            width="fluid",
        )

    def runsets(self) -> list[wr.Runset]:
        """One for each family, of the report's own project: to name it would ask the server for it."""
        return [
            wr.Runset(
                name=family_name(family),
                filters=expr.And(expr.Metric("Group") == self.name, expr.Summary("family") == family),
                run_settings={run: wr.RunSettings(color=colour) for run, colour in self.colours.items()},
            )
            for family in dict.fromkeys(families(self.rows).values())
        ]

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


def sections(results: StudyResults) -> dict[str, list[Any]]:
    """Title -> panels: the metric against the size, curves of what is logged, analyses, compute, the comparer."""
    metric, first = results.metric, next(iter(results.runs.values()))
    logged = {key for row in first.metrics for key in row}
    curves = dict.fromkeys(
        ["train/loss", "heldout/loss", f"heldout/{metric.key}", "train/lr", "train/grad_norm", "train/images_per_s"]
    )
    flops = wr.BarPlot(title="train_flops of each run", metrics=["train_flops"], max_bars_to_show=100)
    found = {
        "Result": [against("train_size", metric)],
        "Curves": [wr.LinePlot(title=key, x=STEP, y=[key], max_runs_to_show=100) for key in curves if key in logged],
        "Analyses": [pictures(name, stems(results, "png")) for name in analysed(results)],
        "Compute": [against("train_flops", metric), flops],
        "Runs": [wr.RunComparer(diff_only=True)],
    }
    return {title: panels for title, panels in found.items() if panels}


def against(key: str, metric: Metric) -> wr.ScatterPlot:
    """The metric of each finished run against another number of its summary."""
    return wr.ScatterPlot(
        title=f"{metric.name} against {key} by family",
        x=wr.SummaryMetric(key),
        y=wr.SummaryMetric(metric.key),
        log_x=True,
        legend_template="${summary:family} ${run:displayName}",
    )


def stems(results: StudyResults, suffix: str) -> list[str]:
    """Names of the analyses (json) or of their figures (png) that some run has."""
    folders = [run.files.analysis_folder for run in results.runs.values()]
    return sorted({path.stem for folder in folders for path in folder.glob(f"*.{suffix}")})


def analysed(results: StudyResults) -> list[str]:
    """Names of the analyses that some run has, and that are drawn."""
    known = set(names("analysis"))
    return [name for name in stems(results, "json") if name not in known or load("analysis", name).drawings]


def pictures(analysis: str, figures: list[str]) -> wr.MediaBrowser:
    """An analysis of each run: its figures, such as that against the step, as pictures and as plots."""
    shown = [name for name in figures if name == analysis or name.startswith(f"{analysis}-")] or [analysis]
    title = load("analysis", analysis).title if analysis in names("analysis") else analysis
    keys = [f"{name}/{kind}" for name in shown for kind in ("picture", "plot")]
    return wr.MediaBrowser(title=title, num_columns=2, media_keys=keys)


def run_colours(results: StudyResults) -> dict[str, str]:
    """W&B id -> the colour of the run's family in the report page."""
    look = looks(families(results.rows))
    ids = {row["run"]: results.runs[row["run"]].wandb.get("id") for row in results.rows}
    colours = {row["run"]: THEMES["light"][look[row["model"]].colour_key] for row in results.rows}
    return {key: colours[run] for run, key in ids.items() if key}


def parsed(path: Path, kind: Any) -> Any:
    """A file of ours as W&B's model; None where there is none. Raises UserError."""
    try:
        return kind.model_validate_json(path.read_text()) if path.exists() else None
    except (OSError, ValueError):
        raise UserError(f"{path}: cannot read it; delete the file to save a new one in W&B") from None
