"""Find the cores and GPUs of this process, and its launcher.

Imports no torch.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt


def count_cores() -> int:
    """Count the cores of this process, limited by its affinity and its container's quota."""
    from joblib import cpu_count  # 0.1 s

    return cpu_count()


def keep_freed_memory() -> bool:
    """Make glibc keep up to 2 GiB of freed memory for later arrays; return whether it accepted.

    By default glibc returns arrays above 32 MB to the system at once. Each new batch of images then costs page faults,
    which take longer than filling the batch. Forked processes inherit the setting. Other C libraries do not change.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    return bool(mallopt and mallopt(M_TRIM_THRESHOLD, 2**31 - 1) and mallopt(M_MMAP_MAX, 0))


def list_gpus(count: int) -> list[str]:
    """List the `count` visible GPUs by their names in CUDA_VISIBLE_DEVICES.

    Users name GPUs by number, by UUID, or by the parts of a GPU (MIG).
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(count)] if named is None else [name.strip() for name in named.split(",")]
    return names[:count]  # CUDA stops at the first unknown name


def share_gpus(gpus: Sequence[str], place: int, each: int) -> str:
    """Return CUDA_VISIBLE_DEVICES for worker number `place`, round robin; `each` is the number of GPUs per run."""
    return ",".join(gpus[(place * each + offset) % len(gpus)] for offset in range(min(each, len(gpus))))


@dataclass(frozen=True)
class Launched:
    """One of `size` processes started by the launcher `by`; `local_rank` counts on its machine `node`."""

    by: str
    rank: int
    size: int
    local_rank: int
    node: int


LAUNCHERS = {  # launcher: environment variables of its mark, rank, size, rank on the machine, machine
    "torchrun": ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"),
    "srun": ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID"),
}


def find_launched() -> Launched | None:
    """Find this process's rank and machine if a launcher started several processes, else None."""
    for by, (mark, *names) in LAUNCHERS.items():
        if mark in os.environ and all(name in os.environ for name in names):
            launched = Launched(by, *(int(os.environ[name]) for name in names))
            return launched if launched.size > 1 else None
    return None
