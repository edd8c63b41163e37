"""A study's report while the study runs, written by the process that watches it."""

import contextlib
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

SHARE = 0.05  # of the watching process's time that writing may take: no run is started meanwhile
EVERY = 15.0  # seconds between two reports, at least
LOG = "report.log"  # below the study's folder: what went wrong in its report


class LiveReport:
    """Rewrites report.html of a study's folder when runs have finished, but not too often."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.changed = self.started = False
        self.due = 0.0

    def update(self, changed: bool) -> None:
        """At every event of the study; `changed`: a run has finished or failed. Between two events it may write."""
        self.changed |= changed
        begun = time.monotonic()
        if changed or not self.changed or begun < self.due:
            return
        self.changed, self.started = False, True
        self.write(running=True)
        ended = time.monotonic()
        self.due = ended + max(EVERY, (ended - begun) * (1 / SHARE - 1))

    def write(self, running: bool = False) -> None:
        """Write the report; what goes wrong in it is in LOG and does not reach the study."""
        try:
            from vitlab.reports.pages.study import write_report  # 2 s, here: nothing waits for what draws
            from vitlab.studies.results import load_results

            write_report(load_results(self.folder), running=running)
        except Exception:
            with contextlib.suppress(OSError):
                (self.folder / LOG).write_text(traceback.format_exc())


@contextlib.contextmanager
def live_report(folder: Path) -> Iterator[LiveReport]:
    """A live report; a study that ends early, by an error or Ctrl-C, leaves a page that no longer reloads itself."""
    live = LiveReport(folder)
    try:
        yield live
    except BaseException:
        if live.started:
            live.write()
        raise
