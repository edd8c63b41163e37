"""Learning curves as they are, docs/real-curves.csv: a line for each run of a learner on a subset of its task's pool.

    uv run --with matplotlib python scripts/real_curves [CSV] [--tasks NAME ...]    # 15 minutes on one core

scikit-learn's learners, n-gram models and vitlab's smallest networks on data that need no download: vitlab's own sets,
the samples that scikit-learn and matplotlib bring, the names of Unicode's characters, and the source code of Python's
library.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # before NumPy's

import numpy as np
import pandas as pd
from sequences import TASKS as SEQUENCES
from tasks import TASKS as OTHERS
from tasks import Data, Task, measure_error

from vitlab.files import write_text
from vitlab.formatting import duration

CSV = Path(__file__).resolve().parents[2] / "docs" / "real-curves.csv"
TASKS = {task.name: task for task in (*OTHERS, *SEQUENCES)}
SEEDS, SEEDS_OF_HEAVY = 5, 3


def make(path: Path, names: list[str]) -> None:
    """Trains the named tasks, or all; the rows of other tasks that the file already has are kept."""
    tasks, curves = [TASKS[name] for name in names or TASKS], {}
    if path.exists():
        curves = dict(list(pd.read_csv(path, dtype=str, keep_default_na=False).groupby("task")))
    total, done, begin = sum(len(task.learners) for task in tasks), 0, time.monotonic()
    cpu = time.process_time()
    for task in tasks:
        data, rows = task.load(), []
        for name in task.learners:
            started = time.process_time()
            rows += train_curve(task, name, data)
            done += 1
            left = duration((time.monotonic() - begin) / done * (total - done))
            spent = time.process_time() - started
            print(f"{done}/{total} {task.name} {name}: {spent:.1f} s; about {left} left", file=sys.stderr, flush=True)
        curves[task.name] = pd.DataFrame(rows)
        table = pd.concat([curves[name] for name in TASKS if name in curves])  # in the order of the tasks
        write_text(path, table.to_csv(index=False, lineterminator="\n"))
    print(f"{total} curves of {len(tasks)} tasks, {duration(time.process_time() - cpu)} of CPU time", file=sys.stderr)


def train_curve(task: Task, name: str, data: Data) -> Iterator[dict[str, object]]:
    """A row for each run of one learner: its sizes, and its seeds."""
    heavy = task.heavy or {}
    limit, seeds = (heavy[name], SEEDS_OF_HEAVY) if name in heavy else (np.inf, SEEDS)
    for seed in range(seeds):
        order = data.draw_order(seed)
        for size in task.sizes:
            if size > limit:
                break
            chosen = order[:size]
            learner = task.learners[name](seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a fixed number of iterations, and classes with few items
                learner.fit(data.inputs[chosen], data.targets[chosen])
            error = measure_error(task.measure, learner, data.test_inputs, data.test_targets)
            yield {
                "task": task.name,
                "model": name,
                "train_size": size,
                "seed": seed,
                "error": f"{error:.5g}",
                "measure": task.measure,
                "chance": f"{data.chance:.4g}" if task.measure == "error" else "",
                "test_items": len(data.test_targets),
            }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="?", default=CSV)
    parser.add_argument("--tasks", nargs="+", default=[])
    args = parser.parse_args()
    make(args.csv, args.tasks)
