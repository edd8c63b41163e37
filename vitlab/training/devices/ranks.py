"""The processes of a run on several devices: all of them train; rank 0 writes the files, reports, tests and analyses.

torchrun and srun start them; `launch` is torchrun on this machine.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from lightning.pytorch.plugins.environments import LightningEnvironment, SLURMEnvironment
from torch import distributed

from vitlab.data.loader import Part
from vitlab.hardware import Launched

PATIENCE = timedelta(days=7)  # what ranks wait for each other: while rank 0 analyses, the others wait
PORTS = (15000, 25000)  # on which rank 0 of a step of SLURM is met


@dataclass(frozen=True)
class Ranks:
    """This process among those of a run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on its machine
    node: int = 0

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def part(self) -> Part:
        """What it has of each batch."""
        return Part(self.rank, self.size)

    def agree(self, *decisions: bool) -> Sequence[bool]:
        """The decisions of rank 0, on every rank."""
        if self.size == 1:
            return decisions
        decided = torch.tensor(decisions, dtype=torch.uint8)
        distributed.broadcast(decided, 0)
        return decided.bool().tolist()

    def share(self, value: Any) -> Any:
        """The value of rank 0, on every rank."""
        if self.size == 1:
            return value
        shared = [value]
        distributed.broadcast_object_list(shared, device=torch.device("cpu"))
        return shared[0]

    def leave(self) -> None:
        """Leave the other ranks: what follows is done by rank 0 alone."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


ALONE = Ranks()


@contextmanager
def join_ranks(launched: Launched | None) -> Iterator[Ranks]:
    """This process among those that a launcher started: gloo between CPUs, NCCL between GPUs."""
    if launched is None:
        yield ALONE
        return
    if launched.by == "srun":
        nodes, job, step = (os.environ[f"SLURM_{name}"] for name in ("STEP_NODELIST", "JOB_ID", "STEP_ID"))
        port = PORTS[0] + (int(job) * 10 + int(step)) % (PORTS[1] - PORTS[0])  # the same for all of them
        os.environ |= {"MASTER_ADDR": SLURMEnvironment.resolve_root_node_address(nodes), "MASTER_PORT": str(port)}
        os.environ |= {"RANK": str(launched.rank), "WORLD_SIZE": str(launched.size)}
    threading.Thread(target=end_with_launcher, args=(os.getppid(),), daemon=True).start()
    distributed.init_process_group(timeout=PATIENCE)
    ranks = Ranks(launched.rank, launched.size, launched.local_rank, launched.node)
    try:
        yield ranks
    finally:
        ranks.leave()


def end_with_launcher(launcher: int) -> None:
    """End this process when the one that started it is gone."""
    while os.getppid() == launcher:
        time.sleep(1.0)
    os._exit(1)


def is_lost_rank(error: BaseException) -> bool:
    """Whether an error is that another rank is gone, which has an error of its own."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)


class Place(LightningEnvironment):
    """What Lightning asks of a process's place; it starts no others, here or inside SLURM."""

    creates_processes_externally = True

    def __init__(self, ranks: Ranks):
        super().__init__()
        self.ranks = ranks
        self.set_global_rank(ranks.rank)
        self.set_world_size(ranks.size)

    def local_rank(self) -> int:
        return self.ranks.local_rank

    def node_rank(self) -> int:
        return self.ranks.node

    def teardown(self) -> None:
        """Lightning's own takes WORLD_SIZE out of the environment."""
