"""results.csv of a study while it runs."""

import time

from vitlab.studies.store import StudyFiles

SHARE = 0.02  # of the time that rewriting it may take


class LiveTable:
    """Rewrites results.csv as runs finish: after each while that is quick, after several of a study of many runs."""

    def __init__(self, files: StudyFiles):
        self.files = files
        self.changed, self.due = False, 0.0

    def update(self, changed: bool) -> None:
        """At every event of the study; `changed`: a run has ended."""
        self.changed |= changed
        begun = time.monotonic()
        if self.changed and begun >= self.due:
            collect(self.files)
            ended = time.monotonic()
            self.changed, self.due = False, ended + (ended - begun) * (1 / SHARE - 1)


def collect(files: StudyFiles) -> None:
    """Rewrite results.csv from the result of every finished run of the study."""
    files.write_rows(files.finished_rows())
