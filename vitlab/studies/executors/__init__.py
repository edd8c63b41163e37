"""Where the runs of a study train: one module for each executor, which starts cells; their files say how they end.

A module has `check(config)`, which raises UserError where runs cannot be started, and `build(config, job, jobs,
study)`, which gives a `vitlab.studies.execute.Executor`: `jobs` is how many runs train at a time, at most, `study` the
study's folder. It may have `ON_THIS_MACHINE = True`, so that runs share this machine's cores and GPUs, and `DETACHES =
True` where the executor's `submit` starts runs that go on without this program. `execute` does the rest: it starts
runs while there is room, leaves out those of other starts of the study, reads the files of those that run, and starts
again what was killed. `vitlab.studies.events.do` does a job, on whatever host.
"""

from pathlib import Path
from types import ModuleType

from vitlab.config import UserError, choices_text
from vitlab.config.schema import ExecutorConfig
from vitlab.registry import find_function, implementation, list_modules
from vitlab.studies.events import Job
from vitlab.studies.execute import Executor


def check_executor(config: ExecutorConfig) -> None:
    """Raise UserError unless runs can be started there: what it needs is missing, or it has no room for a run."""
    load_executor(config).check(config)


def build_executor(config: ExecutorConfig, job: Job, jobs: int, study: Path) -> Executor:
    """The executor of a configuration for a study's folder."""
    return load_executor(config).build(config, job, jobs, study)


def is_on_this_machine(config: ExecutorConfig) -> bool:
    return bool(find_function(load_executor(config), "ON_THIS_MACHINE"))


def can_detach(config: ExecutorConfig) -> bool:
    return bool(find_function(load_executor(config), "DETACHES"))


def load_executor(config: ExecutorConfig) -> ModuleType:
    """The module of an executor. Raises UserError for one that does not exist."""
    choices = list_modules(__name__)
    if config.kind not in choices and "." not in config.kind:
        raise UserError(f"executor={config.kind}: unknown executor; {choices_text(config.kind, choices)}")
    return implementation(__name__, config.kind, "build")
