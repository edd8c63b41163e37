"""Run torchrun on this machine, one process for each device; Ctrl-C and SIGTERM. Imports no torch before a call."""

import logging
import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

KILLED = 137  # exit code if the system has ended a process


class DeviceLost(RuntimeError):
    """The system has ended the process of a device."""


class Stopping:
    """Handles Ctrl-C and SIGTERM in a `with` block: the first asks training to end at its next step.

    The second removes the folder `scratch`, if given, and ends the process at once.
    """

    def __init__(self, scratch: Path | None = None) -> None:
        self.requested, self.scratch = False, scratch
        self.before: dict[int, Any] = {}

    def asked(self) -> bool:
        return self.requested

    def __enter__(self) -> "Stopping":
        self.before = {number: signal.signal(number, self.handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: Any) -> None:
        if self.requested:  # not KeyboardInterrupt: Lightning turns that into an exit code of its own
            if self.scratch:
                shutil.rmtree(self.scratch, ignore_errors=True)
            os._exit(130)
        self.requested = True


def launch(devices: int, module: str, words: Sequence[str]) -> int:
    """Run `python -m module words` once for each device; return the exit code.

    Raises DeviceLost if the system ends a process, KeyboardInterrupt if a signal stops them.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # DeviceLost says it
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=devices,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", module, *words)
    except SignalException:
        raise KeyboardInterrupt from None
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        for rank, code in codes.items():
            if code >= 0 or code == -signal.SIGTERM:  # torchrun sends SIGTERM to the others
                continue
            cause = f"{signal.Signals(-code).name}{': out of memory?' if code == -signal.SIGKILL else ''}"
            raise DeviceLost(f"device {rank} of {devices} was ended by {cause}") from None
        return next((code for _, code in sorted(codes.items()) if code > 0), 1)
    return 0


def main(devices: str, module: str, *words: str) -> int:
    """Run `launch` as a program; end its processes when the program's parent is gone."""
    threading.Thread(
        target=stop_with_parent, args=(os.getppid(), lambda: os.kill(os.getpid(), signal.SIGTERM)), daemon=True
    ).start()
    try:
        return launch(int(devices), module, words)
    except KeyboardInterrupt:
        return 130
    except DeviceLost as error:
        print(f"failed: {error}", file=sys.stderr)
        return KILLED


def stop_with_parent(parent: int, stop: Callable[[], None]) -> None:
    """Wait until this process's `parent` is gone, then call `stop`."""
    while os.getppid() == parent:
        time.sleep(1.0)
    stop()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
