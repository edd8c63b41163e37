"""Processes of this machine that start quickly: forked from a server that has imported torch. Imports no torch."""

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext


def start_server(modules: Sequence[str] = ()) -> BaseContext:
    """Start the process that workers are forked from, where none runs yet; it imports the modules first.

    It returns at once, so that this process and the server import at the same time. The modules must not start
    threads or touch CUDA when they are imported. Gives the context of the workers.
    """
    if sys.platform == "linux":  # elsewhere system libraries do not survive a fork
        context = multiprocessing.get_context("forkserver")
        if modules:
            context.set_forkserver_preload(list(modules))
        resource_tracker.ensure_running()  # first: starting it unblocks SIGINT
        # the path of its socket has at most 107 characters: TMPDIR may be too long for it
        with contextlib.suppress(OSError), blocked_sigint():
            forkserver.ensure_running()
            return context
    return multiprocessing.get_context("spawn")


@atexit.register
def stop_server() -> None:
    """Kill the server: one that is still importing would keep this program's stderr open for seconds."""
    server = forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


@contextlib.contextmanager
def blocked_sigint() -> Iterator[None]:
    """Processes that are started here do not receive Ctrl-C, which reaches a whole process group: the parent decides.

    A blocked signal is inherited, so that not even a process that is still importing is interrupted.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
