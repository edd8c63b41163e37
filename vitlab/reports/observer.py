"""What a run shows while it trains: figures of its analyses in its folder, all of it in W&B."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lightning.pytorch.loggers import Logger

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures.analyses import draw_findings
from vitlab.reports.wandb import Tracker
from vitlab.studies.experiment import Observer
from vitlab.training.run import Run


class RunReporter(Observer):
    """Draws the analyses of a run and mirrors a training in W&B; what is added to a finished run is only drawn."""

    tracker: Tracker | None = None
    trial_of = ""  # the name of the run that a trial of `tune` is for

    def observe_trial(self, run: str) -> "RunReporter":
        reporter = RunReporter()
        reporter.trial_of = run
        return reporter

    def on_start(self, run: Run) -> Sequence[Logger]:
        prepared = run.prepared
        self.tracker = Tracker(
            run.config, run.files, family=prepared.family, params=prepared.params, trial_of=self.trial_of
        )
        last = min(run.resumed_step, run.last_step - 1)  # the end is analysed again
        self.tracker.replay(run.files.metrics(), last)
        return self.tracker.loggers

    def on_analysis(
        self, run: Run, config: AnalysisConfig, findings: Findings, rows: list[dict[str, Any]], step: int
    ) -> None:
        from vitlab.reports.figures.figure import save_figure

        name = run.files.folder.name
        source = name if step in (0, run.last_step) else f"{name} at step {step:,}"
        # a figure of heads shows those of the steps before, too
        shown = replace(findings, rows=rows) if "heads" in config.drawings else findings
        for figure in draw_findings(shown, config, source):
            _, picture = save_figure(figure, run.files.analysis_folder)
            if self.tracker:
                self.tracker.log_picture(picture, step)
        if self.tracker and step == run.last_step:
            self.tracker.log_rows(findings.name, rows, step)

    def on_result(self, run: Run, result: dict[str, Any]) -> dict[str, Any]:
        return {"wandb": self.tracker.finish(result)}

    def on_failure(self, run: Run) -> None:
        self.tracker.finish({"status": "failed"}, exit_code=1)

    def on_end(self, run: Run) -> None:
        self.tracker.forget()
