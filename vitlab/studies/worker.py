"""Train the free runs of a study, one after another, until none is left: the same loop on any machine.

A worker needs only the study's folder. `study.yaml` and `runs.json` list the runs, each run's folder shows its missing
parts, a claim there (vitlab/studies/claims.py) keeps other workers away, `log.txt` holds the printed lines.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from vitlab.config import StudyConfig, TrainConfig, UserError, compose, first_line, printable, read_yaml, resolved
from vitlab.config.schema import ExecutorConfig
from vitlab.data.opening import hash_data, open_data
from vitlab.files import read_stamp
from vitlab.hardware import Launched, count_cores, find_launched
from vitlab.studies.claims import ClaimLost, Held, Hold, find_own, hold, read_claim
from vitlab.studies.experiment import run_experiment
from vitlab.studies.grid import compose_models, list_shorter, make_spec, name_run
from vitlab.studies.store import StudyFiles, list_missing, summarize_error
from vitlab.training.distributed import is_lost_rank, join_ranks
from vitlab.training.files import RunFiles
from vitlab.training.launch import KILLED, DeviceLost, Stopping
from vitlab.training.loop import Diverged, Interrupted
from vitlab.training.settings import Machine

LOG = "log.txt"
LOOK = 0.5  # seconds between two looks at the folder, or whether a run of several devices is to stop
GRACE = 10.0  # seconds that rank 0 has to say why a run has failed


@dataclass(frozen=True)
class Training:
    """A run that was asked for."""

    files: RunFiles
    config: dict[str, Any]  # resolved
    settled: Mapping[str, Any]  # the trainer's settings of its variant
    shorter: Sequence[RunFiles] | None = None  # runs whose first steps this run shares; None without a cooldown

    @property
    def trunks(self) -> list[str] | None:
        """The folders of shorter runs that kept the checkpoint where their cooldown began."""
        return self.shorter and [str(files.folder) for files in self.shorter if files.trunk_path.is_file()]

    @property
    def waits(self) -> bool:
        """True if a run whose first steps this run shares has yet to reach its cooldown."""
        unsure = (files for files in self.shorter or () if not files.trunk_path.is_file())
        return any(not files.result_path.is_file() and not files.error_path.is_file() for files in unsure)


class Study:
    """A study as a worker sees it: the runs that were asked for, read again because other starts add some."""

    def __init__(self, folder: Path):
        self.files = StudyFiles(folder)
        self.config: dict[str, Any] = {}
        self.ended: dict[str, Any] = {}  # result stamps of complete runs

    def read(self) -> None:
        """Read the study again if it has changed. Raises UserError if it was deleted, or this host does not see it."""
        if self.config is not self.files.config():
            self.config = self.files.config()
            study = compose(StudyConfig, base=self.config)
            self.variants = {name: resolved(model) for name, model in compose_models(study).items()}
            self.shorter = list_shorter(self.variants)
            self.data_hash = hash_data(study.data, open_data(study.data))
            self.ended = {}
            executor = read_yaml(self.files.config_path).get("executor") or {}
            self.retries = executor.get("retries", ExecutorConfig.retries)

    def find_free(self, stop: Callable[[], bool]) -> Training | None:
        """Find the smallest run that lacks something, has not failed and has no other worker.

        If only a silent run of another host is left, wait: the run is free once its process is dead. Wait too for runs
        whose first steps others share: training these steps twice would save no time.
        """
        while True:
            self.read()
            silent, keys = False, dict.fromkeys(self.files.run_keys())
            for key in sorted(keys, key=lambda key: key[1]):
                files = self.files.run(name_run(*key))
                stamp = read_stamp(files.result_path)
                if files.error_path.exists() or (stamp is not None and stamp == self.ended.get(files.folder.name)):
                    continue
                spec = make_spec(self.variants[key[0]], *key[1:])
                settled, shorter = self.config["settled"].get(spec.variant, {}), self.shorter.get(key[0])
                if shorter is not None:
                    others = ((variant, *key[1:]) for variant in shorter)
                    shorter = [self.files.run(name_run(*other)) for other in others if other in keys]
                run = Training(files, spec.config, settled, shorter)
                if stamp is not None and not list_missing(files, spec.config, self.data_hash):
                    self.ended[files.folder.name] = stamp
                    continue
                if (claim := read_claim(files.folder)) is None or claim.is_dead:
                    if stamp is not None or files.checkpoint_path.is_file() or not run.waits:
                        return run
                    silent = True
                else:
                    silent |= claim.is_silent
            if not silent or stop():
                return None
            time.sleep(LOOK)


def work(
    folder: str | Path,
    cores: int | None,
    stop: Callable[[], bool],
    observe: Callable[[], Any] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Train free runs of a study until none is left or `stop()`, asked at each step, is true.

    cores: of each run, by default all of this machine. observe: makes a run's observer (experiment.py). tell: hears of
    each run taken. Continue a run whose process has died from its last checkpoint, `executor.retries` times. Write any
    other error to error.json, and leave that run alone until the next start of the study. Raises UserError if there is
    no study.
    """
    study = Study(Path(folder).absolute())
    study.files.config()
    os.chdir(study.files.start_folder())  # relative paths in configurations are meant from there
    while not stop() and (run := study.find_free(stop)):
        with contextlib.suppress(Held, ClaimLost), hold(run.files.folder) as claim:
            if run.files.error_path.exists() or not list_missing(run.files, run.config, study.data_hash):
                continue  # another worker has ended it since
            if (died := claim.number - 1) > study.retries:
                why = f"its process was ended {died} times (out of memory?); executor.retries={study.retries}"
                run.files.write_error(why)
                continue
            try:
                tell(f"{run.files.folder.name}: training")
                if run.config["trainer"]["devices"] > 1:
                    launch_ranks(run, claim, study.retries - died, cores, stop)
                else:
                    with log_to(run.files.folder / LOG):
                        train(run, claim, cores, stop=stop, observer=observe())
            except Interrupted:
                return
            except (Held, ClaimLost):
                raise
            except Exception as error:  # its file says which
                if not run.files.error_path.exists():
                    run.files.write_error(summarize_error(error))


def train(run: Training, claim: Hold, cores: int | None, **options: Any) -> None:
    """Train or complete a claimed run in this process, rank 0 of several, with `run_experiment`'s options."""
    doing, done = "continuing" if run.files.checkpoint_path.is_file() else "training", "trained"
    if run.files.read_result()[0] is not None:
        doing, done = "completing", "completed"
    log(doing)
    machine = Machine(cores or count_cores(), run.settled)
    try:
        run_experiment(compose(TrainConfig, base=run.config), claim, machine=machine, trunks=run.trunks, **options)
        log(done)
    except (ClaimLost, Interrupted) as error:
        log(str(error) or "stopped; to be continued")
        raise
    except Exception as error:
        traceback.print_exc()
        if not is_lost_rank(error):  # `launch_ranks` knows more of those
            run.files.write_error(summarize_error(error))
        raise


def launch_ranks(run: Training, claim: Hold, retries: int, cores: int | None, stop: Callable[[], bool]) -> None:
    """Train a claimed run with a process for each device, as `vitlab work --rank ...` under torchrun."""
    command = [sys.executable, "-m", "vitlab.training.launch", str(run.config["trainer"]["devices"])]
    about = {"folder": str(run.files.folder), "config": run.config, "settled": run.settled}
    about |= {"cores": cores or count_cores(), "number": claim.number, "trunks": run.trunks}
    command += ["vitlab", "work", "--rank", json.dumps(about)]
    log_path = run.files.folder / LOG
    while True:
        with log_path.open("a") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
            while process.poll() is None:
                time.sleep(LOOK)
                if stop():
                    process.terminate()
                    process.wait()
                    raise Interrupted
        if process.returncode == 0 or run.files.error_path.exists():
            return
        claim.check()
        if process.returncode != KILLED or not retries:
            line = log_path.read_text(errors="replace").splitlines()[-1]
            raise DeviceLost(line.removeprefix("failed: "))
        retries -= 1


def run_rank(text: str, observer: Any) -> int:
    """Run a rank of a run under torchrun; return the exit code. The worker that launched the ranks holds the folder."""
    about, launched = json.loads(text), find_launched()
    trunks = about["trunks"]
    run = Training(RunFiles(about["folder"]), about["config"], about["settled"], trunks and [*map(RunFiles, trunks)])
    if launched.rank:
        config, machine = compose(TrainConfig, base=run.config), Machine(about["cores"], run.settled)
        return follow(config, run.files.folder, launched, machine=machine, trunks=trunks)
    try:
        with Stopping() as stopping, join_ranks(launched) as ranks:
            claim, options = Hold(run.files.folder, about["number"]), {"stop": stopping.asked, "observer": observer}
            train(run, claim, about["cores"], ranks=ranks, **options)
    except Exception:  # `train` has said so
        return 1
    return 0


def follow(config: TrainConfig, folder: Path, launched: Launched, **options: Any) -> int:
    """Run a rank other than 0 in a folder that rank 0 holds, with `run_experiment`'s options; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # both reach all ranks; rank 0 decides
        signal.signal(number, signal.SIG_IGN)
    try:
        with join_ranks(launched) as ranks:
            run_experiment(config, Hold(folder), ranks=ranks, **options)
    except (Diverged, Interrupted):  # on all ranks; rank 0 reports them
        return 0
    except Exception as error:
        if isinstance(error, UserError) and launched.node == 0:  # rank 0 has it too
            time.sleep(GRACE)  # else torchrun would end rank 0 before it has said so
        elif not is_lost_rank(error):
            line = f"vitlab: device {launched.rank} of {launched.size} failed: {printable(first_line(error))}"
            print(line, file=sys.__stderr__, flush=True)
        return 1
    return 0


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Append what this process prints to a file."""
    with path.open("a", buffering=1) as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield


def log(what: str) -> None:
    """Print a line for log.txt: when, who and what."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {find_own()}: {what}")
