"""The trials of a tuned run as files in RUN/tune/. Imports nothing that trains."""

from typing import Any

from vitlab.files import read_json
from vitlab.training.files import RETRAINED, RunFiles

Trial = dict[str, Any]  # settings, status, steps, train_flops, validation: what its result.json holds


class TrialFiles(RunFiles):
    """The files of a trial, whose result is no row of a table."""

    def result(self) -> Trial | None:
        return read_json(self.result_path, check_trial, RETRAINED)


def check_trial(trial: Any) -> Trial:
    """Raises ValueError for what is no trial's result."""
    keys = ("id", "settings", "status", "steps", "train_flops")
    if not isinstance(trial, dict) or not trial.keys() >= {*keys}:
        raise ValueError(f"it lacks one of {', '.join(keys)}")
    return trial


def list_trials(files: RunFiles) -> list[TrialFiles]:
    """The trials of a run that have begun, by their names."""
    return [TrialFiles(folder) for folder in sorted((files.folder / "tune").glob("*/"))]
