"""Where the runs of a study train: one module for each executor, which starts cells; their files say how they end."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from vitlab.config.schema import ExecutorConfig
from vitlab.studies.events import Executor, Job


def check_executor(config: ExecutorConfig) -> None:
    """Raise UserError unless runs can be started there: what it needs is missing, or it has no room for a run."""
    load_executor(config).check(config)


def build_executor(config: ExecutorConfig, job: Job, jobs: int, study: Path) -> Executor:
    """The executor of a configuration (`ExecutorConfig`) for a study's folder.

    `jobs` is how many runs train at a time, at most.
    """
    return load_executor(config).build(config, job, jobs, study)


def load_executor(config: ExecutorConfig) -> ModuleType:
    return import_module(f"vitlab.studies.executors.{config.kind}")
