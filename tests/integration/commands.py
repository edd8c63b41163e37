"""Calling the program as a user does, and reading what it leaves."""

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import torch

from vitlab.cli import main
from vitlab.commands.executors import start_server
from vitlab.data.opening import OPENED
from vitlab.training.finished import read_checkpoint

TINY = ["data=digits", "trainer.evaluations=2", "trainer.log_every=3"]
PLAIN = [*TINY, "analyses=[]", "wandb.mode=off"]
FINISHED = [*TINY, "analyses=[attention_distance,cka]", "train_size=110", "budget.steps=60", "probes=[knn]"]


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def vitlab(*words: str | Path) -> Done:
    """Run the program to its end in this process, which spares the seconds that importing torch takes."""
    out, err = io.StringIO(), io.StringIO()
    OPENED.clear()  # a program that starts has no data open
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Done(code, out.getvalue(), err.getvalue())


def succeed(*words: str | Path) -> Done:
    """Run the program, which must do what it is asked."""
    done = vitlab(*words)
    assert done.returncode == 0, done.stderr
    return done


class Program:
    """The program in a process group of its own, as of a terminal; forked from a server that has imported torch."""

    def __init__(self, *words: str | Path):
        self.folder = tempfile.TemporaryDirectory()
        self.errors = Path(self.folder.name, "stderr")
        environment = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}  # not the tests' own
        self.process = serve().Process(target=run_program, args=([*map(str, words)], self.errors, environment))
        self.process.start()

    def wait_for(self, condition: Callable[[], Any], seconds: float = 600) -> None:
        """Until it has come so far; fails when it ends before."""
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.process.is_alive() or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(self.errors.read_text())
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """To all of its processes."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            self.signal(signal.SIGKILL)
        self.process.join()

    def end(self) -> Done:
        """Wait until it ends; one that does not is killed, for pytest would wait for it."""
        self.process.join(600)
        code = self.process.exitcode
        if code is None:
            self.kill()
        return Done(code, self.errors.with_name("stdout").read_text(), self.errors.read_text())


def run_program(words: list[str], errors: Path, environment: dict[str, str]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # workers of a study do not receive it
    for number, path in ((1, errors.with_name("stdout")), (2, errors)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
    sys.exit(main(words))


def serve() -> BaseContext:
    """The server, which imports all that the tests' runs need, where this process has none yet."""
    return start_server("vitlab.commands.train", "vitlab.reports.pages.study", __name__)


def wandb_file(path: Path) -> list[dict[str, Any]]:
    """Every record of one offline run's .wandb file, by W&B's own reader; each state of a file is read once."""
    return read_wandb(path, path.stat().st_mtime_ns)


@functools.cache
def read_wandb(path: Path, changed_at: int) -> list[dict[str, Any]]:
    asked = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    found = subprocess.run(asked, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


def wandb_records(folder: Path) -> list[dict[str, Any]]:
    """Every record of the last offline run below a run's folder."""
    return [record for path in folder.glob("wandb/latest-run/*.wandb") for record in wandb_file(path)]


def wandb_history(folder: Path) -> list[dict[str, Any]]:
    """The logged rows of the last offline run below a run's folder."""
    return [record["history"]["item"] for record in wandb_records(folder) if record["type"] == "history"]


DROPPED = ("wall_s", "train/images_per_s")  # of metrics.jsonl: they depend on the machine's mood


def weights(folder):
    return read_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]


def rows(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in DROPPED} for line in lines]


def assert_same_training(one, other):
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert rows(one) == rows(other)
