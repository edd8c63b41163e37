"""Where the runs of a study train: one module for each executor, which starts cells; their files say how they end."""

from importlib import import_module

from omegaconf import DictConfig

from vitlab.studies.cells import CellReader
from vitlab.studies.events import Executor, Job


def build_executor(config: DictConfig, job: Job, jobs: int, cells: CellReader) -> Executor:
    """The executor of a configuration (`ExecutorConfig`); `jobs` is how many runs train at a time on this machine."""
    return import_module(f"vitlab.studies.executors.{config.kind}").build(config, job, jobs, cells)
