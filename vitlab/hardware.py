"""The cores and GPUs that this process may use, and who launched it.

Imports no torch.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt


def count_cores() -> int:
    """Count the cores that this process may use, by its affinity and its container's quota."""
    from joblib import cpu_count  # 0.1 s

    return cpu_count()


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory, up to 2 GiB, for later arrays; tell whether it could.

    glibc gives arrays above 32 MB back at once, so that each new one, such as a batch of images, costs page faults,
    which take longer than filling it. Processes that are forked later do the same. Other C libraries stay as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    return bool(mallopt and mallopt(M_TRIM_THRESHOLD, 2**31 - 1) and mallopt(M_MMAP_MAX, 0))


def list_gpus(count: int) -> list[str]:
    """List the names of the `count` GPUs that this process sees, as CUDA_VISIBLE_DEVICES has them.

    A user may have named them: numbers, UUIDs, or the parts of one (MIG).
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(count)] if named is None else [name.strip() for name in named.split(",")]
    return names[:count]  # CUDA stops at the first name that it does not know


def share_gpus(gpus: Sequence[str], place: int, each: int) -> str:
    """Give CUDA_VISIBLE_DEVICES for the worker at a place, round robin; `each` is the number of GPUs of a run."""
    return ",".join(gpus[(place * each + offset) % len(gpus)] for offset in range(min(each, len(gpus))))


@dataclass(frozen=True)
class Launched:
    """One of `size` processes that a launcher started: its rank, its place on its machine, and the machine."""

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
    """Find this process's rank, place and machine if a launcher started it as one of several, else None."""
    for by, (mark, *names) in LAUNCHERS.items():
        if mark in os.environ and all(name in os.environ for name in names):
            launched = Launched(by, *(int(os.environ[name]) for name in names))
            return launched if launched.size > 1 else None
    return None
