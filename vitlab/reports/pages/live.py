"""A study's report while the study runs: rewritten as runs finish, in a process of its own.

So neither the time that it takes nor what goes wrong in it reaches the study.
"""

import contextlib
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from vitlab.studies.launching.processes import blocked_sigint, start_server

SHARE = 0.05  # of a core's time that rewriting may take
LOG = "report.log"  # below the study's folder: what went wrong in its report
PATIENCE = 30.0  # seconds that a report has to be finished at the end of the study


class LiveReport:
    """Rewrites report.html of a study's folder whenever runs have finished, but not too often."""

    def __init__(self, folder: Path):
        context = start_server()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=write_reports, args=(theirs, folder), daemon=True)
        self.started = self.changed = self.writing = False
        self.theirs, self.due = theirs, 0.0

    def update(self, changed: bool) -> None:
        """At every event of the study; `changed`: a run has finished or failed. Returns at once."""
        self.changed |= changed
        now = time.monotonic()
        with contextlib.suppress(OSError, EOFError):  # the process is gone: the last report is written without it
            if self.writing and self.connection.poll():
                self.writing, self.due = False, now + self.connection.recv() * (1 / SHARE - 1)
            if self.changed and not self.writing and now >= self.due:
                self.start()
                self.connection.send("write")
                self.changed, self.writing = False, True

    def start(self) -> None:
        if not self.started:
            with blocked_sigint():
                self.process.start()
            self.theirs.close()
            self.started = True

    def close(self) -> None:
        """End the process; a report that is being written is waited for, so that it cannot come after the last one."""
        if self.started and self.process.is_alive():
            with contextlib.suppress(OSError):
                self.connection.send(None)
            self.process.join(PATIENCE if self.writing else 1.0)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()
        self.connection.close()


@contextlib.contextmanager
def live_report(folder: Path) -> Iterator[LiveReport]:
    """A live report; a study that ends early, by an error or Ctrl-C, leaves a page that no longer reloads itself."""
    live = LiveReport(folder)
    try:
        yield live
    except BaseException:
        live.close()
        if live.started:
            from vitlab.reports.pages.study import write_report
            from vitlab.studies.results import load_results

            with contextlib.suppress(Exception):
                write_report(load_results(folder))
        raise
    finally:
        live.close()


def write_reports(connection: Connection, folder: Path) -> None:
    """The process: write the report when asked to, answer with the seconds of a core it took; None ends it."""
    from vitlab.reports.pages.study import write_report  # 2 s, here: the study need not wait for what draws
    from vitlab.studies.results import load_results

    try:
        while connection.recv():
            started = time.process_time()
            try:
                write_report(load_results(folder), running=True)
            except Exception:
                (folder / LOG).write_text(traceback.format_exc())
            connection.send(time.process_time() - started)
    except (OSError, EOFError):  # the study was killed: its page must not go on reloading
        with contextlib.suppress(Exception):
            write_report(load_results(folder))
