"""Calling the program as a user does, and reading what it leaves."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.cli import main
from vitlab.data.opening import OPENED

TINY = ["data=digits", "trainer.evaluations=2", "trainer.log_every=3"]


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


def start(*words: str | Path) -> subprocess.Popen:
    """Start the program in a process group of its own, as a terminal does."""
    command = [sys.executable, "-m", "vitlab.cli", *map(str, words)]
    pipe = subprocess.PIPE
    own = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}  # not the tests' own W&B process
    return subprocess.Popen(
        command,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        env=own,
        # a shell's background jobs ignore Ctrl-C, and so would what they start
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(condition: Callable[[], Any], process: subprocess.Popen, seconds: float = 600) -> None:
    """Until a running program has come so far; fails when it ends before."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wandb_file(path: Path) -> list[dict[str, Any]]:
    """Every record of one offline run's .wandb file, by W&B's own reader."""
    asked = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    found = subprocess.run(asked, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


def wandb_records(folder: Path) -> list[dict[str, Any]]:
    """Every record of the last offline run below a run's folder."""
    return [record for path in folder.glob("wandb/latest-run/*.wandb") for record in wandb_file(path)]


def wandb_history(folder: Path) -> list[dict[str, Any]]:
    """The logged rows of the last offline run below a run's folder."""
    return [record["history"]["item"] for record in wandb_records(folder) if record["type"] == "history"]
