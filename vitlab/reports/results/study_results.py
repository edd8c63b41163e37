"""A study's results, loaded once for everything that is made of them: pages, figures, tables, dashboards, uploads."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.files import read_json
from vitlab.reports.results.comparison import MARGIN
from vitlab.reports.results.fits import StudyFits, fit_study
from vitlab.reports.results.run_results import RunResults
from vitlab.studies.grid import name_run
from vitlab.studies.metrics import main_metric
from vitlab.studies.store import StudyFiles
from vitlab.studies.variants import list_varied_keys
from vitlab.tasks.metrics import Metric

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class StudyResults:
    """A study's configuration, the row of each finished run by model, size and seed, and what each run left."""

    files: StudyFiles
    config: dict[str, Any]
    rows: Rows
    runs: Mapping[str, RunResults]  # by the run's name, in the order of the rows

    @property
    def name(self) -> str:
        return str(self.config.get("name") or self.files.folder.resolve().name)

    @property
    def margin(self) -> float:
        """Points within which models are level."""
        return float(self.config.get("margin", MARGIN))

    @cached_property
    def metric(self) -> Metric:
        """What the runs are compared by."""
        return main_metric(self.rows)

    @property
    def is_resampled(self) -> bool:
        """Whether each seed has a test set of its own."""
        return self.config["data"].get("holdout") == "repeated"

    @cached_property
    def outcomes(self) -> dict[str, np.ndarray]:
        """The metric on each test item (n,), by the name of the runs that kept it; see `Outcomes.of_metric`."""
        if self.is_resampled:
            return {}  # no two seeds have the same test items
        of_runs = [(row, self.runs[row["run"]].outcomes, self.metric.value(row)) for row in self.rows]
        values = {
            row["run"]: outcomes.of_metric(self.metric, value)
            for row, outcomes, value in of_runs
            if outcomes and value is not None
        }
        return {run: items for run, items in values.items() if items is not None}

    @cached_property
    def fits(self) -> StudyFits:
        """The scaling laws of its models and where they cross."""
        return fit_study(self.rows, self.outcomes)

    @cached_property
    def unfinished(self) -> list[str]:
        """Names of the runs that were asked for and have neither finished nor failed."""
        ended = {*self.runs, *(failure["run"] for failure in self.failures)}
        return [name for cell in self.files.cells() if (name := name_run(*cell)) not in ended]

    @property
    def asked_for(self) -> int:
        """The number of runs, finished, failed or neither."""
        return len(self.rows) + len(self.failures) + len(self.unfinished)

    @cached_property
    def varied(self) -> list[str]:
        """The keys that its variants and axes set, each a column of the rows."""
        return list_varied_keys(self.config)

    @cached_property
    def failures(self) -> list[dict[str, str]]:
        """`{"run", "error"}` of each run that failed."""
        return self.files.failures()

    @cached_property
    def sample_texts(self) -> list[dict[str, Any]]:
        """`{"size", "texts"}` of each size of a study of text, from figures/samples.json; empty for one of images."""
        return read_json(self.files.figures / "samples.json") or []

    def list_generated(self, count: int) -> list[dict[str, Any]]:
        """`{"source", "reference", "by"}` of some test items, evenly spread over them.

        `by` has what each model, trained on most data, generates with its first seed. Empty where none generates any.
        """
        largest = max((row["train_size"] for row in self.rows), default=0)
        first: dict[str, str] = {}
        for row in self.rows:
            if row["train_size"] == largest:
                first.setdefault(row["model"], row["run"])
        texts = {model: some for model, run in first.items() if (some := self.runs[run].generated)}
        items = next(iter(texts.values()), [])
        places = sorted({int(place) for place in np.linspace(0, len(items) - 1, count)}) if items else []
        return [
            {**items[place], "by": {model: texts[model][place]["generated"] for model in texts}} for place in places
        ]


def load_results(folder: str | Path) -> StudyResults:
    """A study's results. Raises UserError for a folder that is not a study and for a file that does not parse.

    The runs' folders are the truth: a finished run that results.csv lacks is added to it. Warns of damaged results.
    """
    files = StudyFiles(folder)
    config = files.config()
    rows = files.rows() if files.results_path.exists() else []
    listed = {row["run"] for row in rows}
    finished = files.finished_rows()
    for damage in filter(None, files.damaged.values()):
        warnings.warn(damage, stacklevel=2)
    if any(row["run"] not in listed for row in finished):
        by_run = {row["run"]: row for row in [*rows, *finished]}
        files.write_rows(files.sort_rows(list(by_run.values())))
        rows = files.rows()
    return StudyResults(files, config, rows, {row["run"]: RunResults(files.run(row["run"])) for row in rows})
