"""One cell of a study as any executor starts it, in any process and on any host that sees the study's folder."""

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from vitlab.config import TrainConfig, UserError, compose
from vitlab.studies.claims import ClaimLost, Hold, hold
from vitlab.studies.events import summarize_error
from vitlab.studies.experiment import Observer, train_held
from vitlab.studies.grid import Spec
from vitlab.training.callbacks import Interrupted
from vitlab.training.devices.group import DeviceLost
from vitlab.training.files import RunFiles
from vitlab.training.settings import Placement


class StudyJob:
    """What any executor does with a spec, on whatever host: train it, its output in the run's log.txt.

    `settled` are the trainer's settings of each variant, `cores` those that a run has. Where it fails for good,
    error.json says why, before the run is given back: what failed in one start of a study is not tried in another that
    goes on meanwhile. A start takes away those of earlier ones.
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
        files = RunFiles(self.folder / spec.name)
        if not (self.folder / "study.yaml").is_file():  # else a study that was deleted meanwhile would appear again
            raise UserError(f"{self.folder}: holds no study.yaml any more, or is not seen from this host")
        with hold(files.folder) as claim, log_to(files.folder / "log.txt"):
            if (error := files.error()) is not None:
                raise UserError(error)
            doing, done = "continuing" if files.checkpoint_path.is_file() else "training", "trained"
            if files.read_result()[0] is not None:
                doing, done = "completing", "completed"
            log(claim, doing)
            try:
                result = train_held(
                    self.compose(spec.config),
                    claim,
                    placement=Placement(self.cores, self.settled[spec.config["variant"]]),
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
                if not (isinstance(error, DeviceLost) and error.killed):  # else it may be tried again
                    files.write_error(summarize_error(error))
                raise

    def compose(self, config: Mapping[str, Any]) -> TrainConfig:
        """A run's configuration, checked once a variant: that takes 0.1 s, as long as a tiny run trains."""
        own = {key: config[key] for key in ("train_size", "seed")}
        variant = str({**config, **dict.fromkeys(own)})
        if variant not in self.checked:
            self.checked[variant] = compose(TrainConfig, base=config)
        return replace(self.checked[variant], **own)


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
    """What this process prints goes to the end of a file."""
    with path.open("a", buffering=1) as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield


def log(claim: Hold, what: str) -> None:
    """A line of log.txt: when, who and what."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {claim.owner}: {what}")
