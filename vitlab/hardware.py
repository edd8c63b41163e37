"""The cores and GPUs that this process may use, and who launched it.

Imports no torch.
"""

import ctypes
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/")  # where `proc` and `sys` are
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt


def count_cores() -> int:
    """Count the cores that this process may use: its affinity, and the whole cores of its control groups' quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = (read_quota(folder) for folder in list_groups("cpu"))
    return max(1, int(min(cores, *quotas, cores)))


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


def list_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups, the innermost first: of version 2, then of 1.

    A container may show its own group as the root, though the process's path says otherwise: a missing folder has no
    limits.
    """
    try:
        lines = (ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, inner = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            mount = ROOT / "sys/fs/cgroup" / (controller if controllers else "")
            path = PurePosixPath(inner)
            yield from (mount / folder.relative_to("/") for folder in (path, *path.parents))


def read_quota(folder: Path) -> float:
    """Read the cores of cpu.max (`150000 100000`, or `max 100000`), or of version 1's two files; infinity: no limit."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        if quota not in ("max", "-1"):
            return int(quota) / int(period)
    return math.inf


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
