"""One cell of a study as any executor starts it, in any process and on any host that sees the study's folder."""

import contextlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from vitlab.config import StudyConfig, TrainConfig, UserError, compose, resolved
from vitlab.hardware import find_launched
from vitlab.signals import Stopping
from vitlab.studies.claims import ClaimLost, Held, Hold, hold
from vitlab.studies.events import summarize_error
from vitlab.studies.experiment import Observer, Unclaimed, run_experiment
from vitlab.studies.grid import Spec, compose_models, make_spec, name_run
from vitlab.studies.store import StudyFiles
from vitlab.training.callbacks import Diverged, Interrupted
from vitlab.training.devices.launch import KILLED, DeviceLost
from vitlab.training.devices.ranks import ALONE, Ranks, is_lost_rank, join_ranks
from vitlab.training.files import RunFiles
from vitlab.training.settings import Placement

LOG = "log.txt"
LOOK = 0.5  # seconds between two looks at the files of a run of several devices
GRACE = 10.0  # seconds that rank 0 has to write why a cell has failed
HELD = 75  # exit code of a cell that another process trains


class StudyJob:
    """What any executor does with a spec, on whatever host: train it, its output in the run's log.txt.

    `settled` are the trainer's settings of each variant, `cores` those that a run has. Where it fails for good,
    error.json says why, before the run is given back: what failed in one start of a study is not tried in another that
    goes on. A start takes away those of earlier ones.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cores: int,
        settled: Mapping[str, Mapping[str, Any]],
        observe: Callable[[], Observer] = Observer,
    ):
        self.folder, self.cores, self.settled, self.observe = folder, cores, settled, observe
        self.checked: dict[str, TrainConfig] = {}  # of each variant that this process has met

    def __call__(self, spec: Spec, report: Callable[[Any], None], stop: Callable[[], bool]) -> dict[str, Any]:
        if not (self.folder / "study.yaml").is_file():  # else a study that was deleted would appear again
            raise UserError(f"{self.folder}: holds no study.yaml any more, or is not seen from this host")
        devices = spec.config["trainer"]["devices"]
        return self.run_ranks(spec, devices, report, stop) if devices > 1 else self.run_here(spec, report, stop)

    def run_here(
        self, spec: Spec, report: Callable[[Any], None], stop: Callable[[], bool], ranks: Ranks = ALONE
    ) -> dict[str, Any]:
        """Train it in this process, which is rank 0 where there are several."""
        files = RunFiles(self.folder / spec.name)
        with hold(files.folder) as claim, nullcontext() if ranks.size > 1 else log_to(files.folder / LOG):
            if (error := files.error()) is not None:
                raise UserError(error)
            doing, done = "continuing" if files.checkpoint_path.is_file() else "training", "trained"
            if files.read_result()[0] is not None:
                doing, done = "completing", "completed"
            log(claim, doing)
            try:
                result = run_experiment(
                    self.compose(spec.config),
                    claim,
                    placement=self.place(spec),
                    ranks=ranks,
                    observer=self.observe(),
                    progress=report,
                    stop=stop,
                )
                log(claim, done)
                return result
            except ClaimLost as error:
                log(claim, str(error))
                raise
            except Interrupted:
                log(claim, "stopped; the same command continues it")
                raise
            except Exception as error:
                traceback.print_exc()
                if not is_lost_rank(error):  # `run_ranks` knows more of those
                    files.write_error(summarize_error(error))
                raise

    def run_ranks(
        self, spec: Spec, devices: int, report: Callable[[Any], None], stop: Callable[[], bool]
    ) -> dict[str, Any]:
        """Train it by a process for each device, as `python -m vitlab.studies.cells STUDY CELL` under torchrun."""
        files = RunFiles(self.folder / spec.name)
        files.folder.mkdir(parents=True, exist_ok=True)
        observe = f"{self.observe.__module__}:{self.observe.__name__}"
        command = [sys.executable, "-m", "vitlab.training.devices.launch", str(devices), "vitlab.studies.cells"]
        command += [str(self.folder), spec.name, str(self.cores), observe]
        log_path = files.folder / LOG
        with log_path.open("a") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
            while process.poll() is None:
                time.sleep(LOOK)
                if progress := files.read_progress():
                    report(progress)
                if stop():
                    process.terminate()
                    process.wait()
                    raise Interrupted
        if process.returncode == 0:
            return files.finished_result()
        if (error := files.error()) is not None:
            raise UserError(error)
        if process.returncode == HELD:
            raise ClaimLost("another process trains it")
        line = log_path.read_text(errors="replace").splitlines()[-1]
        raise DeviceLost(line.removeprefix("failed: "), killed=process.returncode == KILLED)

    def place(self, spec: Spec) -> Placement:
        return Placement(self.cores, self.settled[spec.config["variant"]])

    def compose(self, config: Mapping[str, Any]) -> TrainConfig:
        """A run's configuration, checked once a variant: that takes 0.1 s, as long as a tiny run trains."""
        changes = {key: config[key] for key in ("train_size", "seed")}
        variant = str({**config, **dict.fromkeys(changes)})
        if variant not in self.checked:
            self.checked[variant] = compose(TrainConfig, base=config)
        return replace(self.checked[variant], **changes)


def run_cell(folder: str, name: str, cores: str, observe: str) -> int:
    """What each rank of a cell of several devices does, under torchrun; the exit code."""
    files, launched = StudyFiles(folder), find_launched()
    study, (module, _, attribute) = compose(StudyConfig, base=files.config()), observe.partition(":")
    variant, size, seed = next(cell for cell in files.cells() if name_run(*cell) == name)
    spec = make_spec(resolved(compose_models(study)[variant]), size, seed)
    observer = vars(import_module(module))[attribute]
    job = StudyJob(files.folder, cores=int(cores), settled=study.settled, observe=observer)
    try:
        with Stopping() as stopping, join_ranks(launched) as ranks:
            if ranks.is_main:
                job.run_here(spec, lambda _: None, stopping.asked, ranks)
            else:
                claim = Unclaimed(files.folder / name)
                run_experiment(job.compose(spec.config), claim, placement=job.place(spec), ranks=ranks)
    except (Held, ClaimLost):
        return HELD
    except (Diverged, Interrupted):
        return int(launched.rank == 0)
    except Exception as error:
        if launched.rank and isinstance(error, UserError):  # rank 0 has it too, and writes it down
            time.sleep(GRACE)
        return 1
    return 0


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
    """What this process prints goes to the end of a file."""
    with path.open("a", buffering=1) as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield


def log(claim: Hold, what: str) -> None:
    """A line of log.txt: when, who and what."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {claim.owner}: {what}")
