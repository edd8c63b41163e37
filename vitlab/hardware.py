"""What this machine offers. Imports no torch."""

import os
from dataclasses import dataclass


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Launched:
    """This process among the `size` that a launcher started: its rank, its place on its machine, and the machine."""

    by: str
    rank: int
    size: int
    local_rank: int
    node: int


LAUNCHERS = {  # name: what says that it started this process; rank, size, place on the machine, machine
    "torchrun": ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"),
    "srun": ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID"),
}


def find_launched() -> Launched | None:
    """This process's place among those of a launcher, if it is one of several."""
    for by, (mark, *names) in LAUNCHERS.items():
        if mark in os.environ and all(name in os.environ for name in names):
            found = Launched(by, *(int(os.environ[name]) for name in names))
            return found if found.size > 1 else None
    return None
