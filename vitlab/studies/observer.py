"""Who watches an experiment: the reports that follow a run while it trains."""

from collections.abc import Sequence
from typing import Any

from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig

from vitlab.analysis.capture.findings import Findings
from vitlab.training.run import Run


class Observer:
    """Watches an experiment; a subclass overrides what it wants to know. One observer watches one experiment."""

    def observe_trial(self, run: str) -> "Observer":
        """Another observer, of a trial of `tune` for the run of this name."""
        return Observer()

    def on_start(self, run: Run) -> Sequence[Logger]:
        """Training begins, or resumes from `run.resumed_step`; gives Lightning's loggers of the training's rows."""
        return ()

    def on_analysis(
        self, run: Run, config: DictConfig, findings: Findings, rows: list[dict[str, Any]], step: int
    ) -> None:
        """An analysis looked at the model at a step; `rows` are those of the steps before, too.

        Its file is written afterwards: a step that stands in it has been observed.
        """

    def on_result(self, run: Run, result: dict[str, Any]) -> dict[str, Any]:
        """The run is trained; gives entries that are added to its result.json, which is written next."""
        return {}

    def on_failure(self, run: Run) -> None:
        """The run ends without a result: an error, or it was stopped."""

    def on_end(self, run: Run) -> None:
        """result.json is written: the run is finished."""
