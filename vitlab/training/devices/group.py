"""One run on several devices: a process for each, all in one process group. The first leads: it alone writes files,
reports and decides when to save or to stop; the others do what it orders (vitlab.training.devices.following).

torchrun and srun start the processes before the program begins; else the first starts the others (processes.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vitlab.config import UserError
from vitlab.config.errors import Problem
from vitlab.config.exclusions import find_excluded
from vitlab.config.identity import count_parts
from vitlab.config.schema import TrainConfig, TrainerConfig
from vitlab.data.loader import Part
from vitlab.hardware import count_cores
from vitlab.models.counting.memory import list_blocks
from vitlab.training.callbacks import Diverged, Interrupted

# what one waits for the others: while the first analyses, they wait; a process that dies is noticed otherwise
PATIENCE = timedelta(days=7)
PLAIN_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # that torch replaces by synchronised ones


@dataclass
class Group:
    """This process among those of a run: its `rank` of `size`, its place on its machine, the machine's."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    node: int = 0
    busy: bool = False  # whether the others do what was ordered last, rather than wait

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def part(self) -> Part:
        """What it has of each batch."""
        return Part(self.rank, self.size)

    def join(self, store: distributed.Store) -> None:
        """Begin the process group: gloo for what is on CPUs, NCCL between GPUs."""
        distributed.init_process_group(store=store, rank=self.rank, world_size=self.size, timeout=PATIENCE)

    def order(self, order: Any) -> None:
        """Tell the others, if this is the first, what to do; they `obey`."""
        if self.leads and self.size > 1:
            distributed.broadcast_object_list([order], device=torch.device("cpu"))

    @contextmanager
    def together(self, order: str) -> Iterator[None]:
        """What the others are ordered to do while this process does it."""
        self.order(order)
        self.busy = True
        try:
            yield
        except (Diverged, Interrupted):  # all of them end so
            self.busy = False
            raise
        self.busy = False

    def obey(self) -> Any:
        """Wait for the first one's next order."""
        received = [None]
        distributed.broadcast_object_list(received, device=torch.device("cpu"))
        return received[0]

    def agree(self, *decisions: bool) -> Sequence[bool]:
        """What the first one decides, for all."""
        if self.size == 1:
            return decisions
        decided = torch.tensor(decisions, dtype=torch.uint8)
        distributed.broadcast(decided, 0)
        return decided.bool().tolist()


ALONE = Group()


class DeviceLost(RuntimeError):
    """Another process of the run has failed, or the system has `killed` it."""

    def __init__(self, message: str, killed: bool = False):
        super().__init__(message)
        self.killed = killed


def lost_another(error: BaseException) -> bool:
    """Whether an error is that another process is gone, which has an error of its own."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)


class Member(LightningEnvironment):
    """What Lightning asks of a process's place; it starts no others, here or inside SLURM."""

    creates_processes_externally = True

    def __init__(self, group: Group):
        super().__init__()
        self.group = group
        self.set_global_rank(group.rank)
        self.set_world_size(group.size)

    def local_rank(self) -> int:
        return self.group.local_rank

    def node_rank(self) -> int:
        return self.group.node

    def teardown(self) -> None:
        """Lightning's own takes WORLD_SIZE out of the environment."""


def refuse_devices(trainer: TrainerConfig, accelerator: str) -> None:
    """Raise UserError for more devices than this machine has."""
    there = torch.cuda.device_count() if accelerator == "gpu" else count_cores()
    if trainer.devices > max(1, there):
        has = f"{there} GPU{'s' * (there != 1)}" if accelerator == "gpu" else f"{there} cores, and torch uses no GPU"
        raise UserError(f"trainer.devices={trainer.devices}: this machine has {has}; give at most {there}")


def refuse_parts(config: TrainConfig, model: nn.Module, accelerator: str) -> None:
    """Raise UserError for what does not go with a batch in parts, or cannot be sharded."""
    recipe, trainer = config.recipe, config.trainer
    devices, parts = trainer.devices * trainer.nodes, count_parts(vars(trainer))
    given = {key: vars(trainer)[key] for key in ("devices", "nodes", "accumulate") if vars(trainer)[key] > 1}
    shown = " ".join(f"trainer.{key}={value}" for key, value in given.items())
    problems = []
    if recipe.batch_size % parts:
        near = max(parts, round(recipe.batch_size / parts) * parts)
        problems.append(
            f"recipe.batch_size={recipe.batch_size}: {shown} share{'s' * (len(given) == 1)} a batch in {parts} equal "
            f"parts; give a multiple of {parts}, such as {near}"
        )
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    if norms and parts > 1:
        name = config.model.name
        plain = all(type(norm) in PLAIN_NORMS for norm in norms)
        if trainer.accumulate > 1:
            why = "whose statistics would be those of a part of the batch; give trainer.accumulate=1"
            problems.append(f"trainer.accumulate={trainer.accumulate}: model={name} has BatchNorm, {why}")
        elif accelerator != "gpu" or not plain or trainer.strategy == "fsdp":
            where = "on GPUs with trainer.strategy=ddp alone" if plain else "not in this form"
            problems.append(
                f"{shown}: model={name} has BatchNorm, which torch synchronises {where}; give trainer.devices=1, or a "
                "model with another norm"
            )
    if trainer.checkpoint_activations:
        blocks = list_blocks(model)
        if not blocks or any(isinstance(module, _BatchNorm) for block in blocks for module in block.modules()):
            why = "would count each batch twice in its BatchNorm" if blocks else "has no blocks that could do so"
            problems.append(f"trainer.checkpoint_activations=true: model={config.model.name} {why}; give false")
    if devices > 1 and trainer.strategy == "fsdp":
        problems += list_unsharded(config)
    if problems:
        raise UserError(problems)


def list_unsharded(config: TrainConfig) -> list[Problem]:
    """What sharded weights do not go with."""
    return [
        *find_excluded(config.recipe, "fsdp", "recipe"),
        *find_excluded(config.trainer, "fsdp", "trainer"),
    ]
