"""What the processes of a run's other devices do: what the first one orders."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection

from torch import distributed

from vitlab.config import TrainConfig, compose, first_line, printable
from vitlab.data.opening import open_data
from vitlab.hardware import Launched
from vitlab.training.callbacks import Diverged, Interrupted
from vitlab.training.devices.group import PATIENCE, Group, lost_another
from vitlab.training.devices.processes import join_launched
from vitlab.training.run import Run
from vitlab.training.settings import Placement


def follow(group: Group) -> None:
    """Train and test what the first one trains and tests, until it dismisses this process."""
    run: Run | None = None
    while (order := group.obey()) is not None:
        if isinstance(order, dict):
            config = compose(TrainConfig, base=order["config"])
            place = Placement(**order["placement"])
            run = Run(config, open_data(config.data), order["folder"], placement=place, group=group)
            continue
        with contextlib.suppress(Diverged, Interrupted):  # all have them, and the first one says so
            getattr(run, order)()


def follow_launched(launched: Launched) -> int:
    """What a process does that is not the first of those that a launcher started; the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # which reach all of them, and the first decides
        signal.signal(number, signal.SIG_IGN)
    try:
        follow(join_launched(launched))
    except Exception as error:
        if not lost_another(error):
            name = f"device {launched.rank} of {launched.size}"
            print(f"vitlab: {name}: {printable(first_line(error))}", file=sys.__stderr__, flush=True)
        return 1
    return 0


def main(group: Group, port: int, connection: Connection, environment: Mapping[str, str]) -> None:
    """A process that the first one has started: it says nothing but, to that one, why it failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=end_with_first, args=(connection,), daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    try:
        group.join(distributed.TCPStore("127.0.0.1", port, group.size, is_master=False, timeout=PATIENCE))
        follow(group)
    except BaseException as error:
        if not lost_another(error):
            with contextlib.suppress(OSError):
                connection.send(first_line(error))
        os._exit(1)
    os._exit(0)


def end_with_first(connection: Connection) -> None:
    """End this process once the first one has."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv()
    os._exit(1)
