"""What a study of many short runs costs beside their training: seconds a run, memory of the parent, the report's share.

python scripts/bench_cells.py OUT [RUNS]    trains a ViT of 3,716 weights for 10 steps, RUNS times (default 1,000)
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from vitlab import cli
from vitlab.formatting import plural
from vitlab.reports.pages import live
from vitlab.studies.store import StudyFiles

JOBS = 2
EVERY = 5.0  # seconds between two samples
Row = tuple[float, int, float, float, float, float]
STUDY = {
    "name": "cells",
    "models": {
        "vit_tiny": {"model": "vit_nano", "model.depth": 1, "model.width": 16, "model.heads": 2, "model.mlp_width": 32}
    },
    "data": "glyphs",
    "sizes": [100, 200],
    "budget": {"steps": 10},
    "analyses": [],
    "wandb": {"mode": "off"},
    "trainer": {"threads": 1},
}


class Sampler(threading.Thread):
    """Notes (seconds, finished runs, MB of this process, its CPU seconds, the report's process's, the workers')."""

    def __init__(self, folder: Path):
        super().__init__(daemon=True)
        self.folder, self.begun, self.reporter = folder, time.monotonic(), 0
        self.rows: list[Row] = []

    def run(self) -> None:
        while True:
            self.note()
            time.sleep(EVERY)

    def note(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        finished = sum(os.path.exists(f"{entry.path}/result.json") for entry in os.scandir(self.folder))
        processes = dict(read_processes())
        servers = {pid for pid, (parent, _) in processes.items() if parent == os.getpid()}
        report, workers = (
            sum(
                cpu for pid, (parent, cpu) in processes.items() if parent in servers and (pid == self.reporter) == of_it
            )
            for of_it in (True, False)
        )
        megabytes, seconds = pages * os.sysconf("SC_PAGE_SIZE") / 1e6, time.monotonic() - self.begun
        self.rows.append((seconds, finished, megabytes, time.process_time(), report, workers))


def read_processes() -> Iterator[tuple[int, tuple[int, float]]]:
    """(process, (its parent, its CPU seconds)) of this machine."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = path.read_text().rpartition(")")[2].split()
            cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            yield int(path.parent.name), (int(fields[1]), cpu)


def main() -> None:
    out, runs = Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 1000
    out.mkdir(parents=True)
    study = {**STUDY, "seeds": list(range(runs // len(STUDY["sizes"])))}
    (out / "study.yaml").write_text(yaml.safe_dump(study))
    folder = out / "study"
    folder.mkdir()
    sampler = Sampler(folder)
    start = live.LiveReport.start

    def start_and_note(self: live.LiveReport) -> None:
        start(self)
        sampler.reporter = self.process.pid

    live.LiveReport.start = start_and_note
    sampler.start()
    cli.main(["scale", str(out / "study.yaml"), "--out", str(folder), "--jobs", str(JOBS)])
    sampler.note()
    show(sampler.rows, StudyFiles(folder).finished_rows())


def show(samples: list[Row], rows: list[dict[str, float]]) -> None:
    """From the first finished run to the last, so without the start of the program and the last report."""
    first = next(one for one in samples if one[1])
    last = max(samples, key=lambda one: one[5])  # before the workers have ended, whose time goes with them
    seconds, done = last[0] - first[0], last[1] - first[1]
    training = sum(row["wall_s"] for row in rows) / len(rows)
    beyond = JOBS * seconds / done - training
    whole = f"{samples[-1][0]:.0f} s, of which {first[0]:.0f} s to the first result"
    print(f"{plural(len(rows), 'run')}, {JOBS} workers: {whole}")
    print(f"a run: {training:.2f} s of training, {beyond:.2f} s beyond that")
    between = [one for one in samples if first[0] <= one[0] <= last[0]]
    memory = " ".join(f"{between[i * (len(between) - 1) // 4][2]:.0f}" for i in range(5))
    print(f"memory of the parent in MB, from the first result to the last: {memory}")
    parent, report, workers = (last[place] - first[place] for place in (3, 4, 5))
    total = parent + report + workers
    print(f"CPU seconds a run: {workers / done:.2f} of the workers, {parent / done:.3f} of the parent")
    print(f"the report: {report / total:.1%} of the CPU time, {report / seconds / JOBS:.1%} of {JOBS} cores' time")


if __name__ == "__main__":
    main()
