"""The processes of a run on several devices: all of them train; rank 0 writes the files, reports, tests and analyses.

torchrun and srun start them; `vitlab.training.launch` is torchrun on this machine.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vitlab.config import UserError
from vitlab.config.identity import count_parts
from vitlab.config.schema import TrainConfig, TrainerConfig
from vitlab.data.loader import Part
from vitlab.formatting import plural
from vitlab.hardware import Launched, count_cores
from vitlab.models.counting import list_blocks
from vitlab.training.launch import stop_with_parent

PATIENCE = timedelta(hours=3)  # ranks wait for each other so long, as while rank 0 prepares data; then the run fails
PORTS = (15000, 25000)  # the ranks of a SLURM step meet rank 0 at a port in this range


@dataclass(frozen=True)
class Ranks:
    """This process's place among the processes of a run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on its machine

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def part(self) -> Part:
        """The part of each batch that this rank computes."""
        return Part(self.rank, self.size)

    def agree(self, *decisions: bool) -> Sequence[bool]:
        """Return rank 0's decisions on every rank."""
        if self.size == 1:
            return decisions
        decided = torch.tensor(decisions, dtype=torch.uint8)
        distributed.broadcast(decided, 0)
        return decided.bool().tolist()

    def share(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        if self.size == 1:
            return value
        shared = [value]
        distributed.broadcast_object_list(shared, device=torch.device("cpu"))
        return shared[0]

    def leave(self) -> None:
        """Leave the other ranks: rank 0 does the rest alone."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


ALONE = Ranks()


@contextmanager
def join_ranks(launched: Launched | None) -> Iterator[Ranks]:
    """Join the processes that a launcher started, by gloo on CPUs, NCCL on GPUs; yield this process's `Ranks`."""
    if launched is None:
        yield ALONE
        return
    if launched.by == "srun":
        from lightning.pytorch.plugins.environments import SLURMEnvironment

        nodes, job, step = (os.environ[f"SLURM_{name}"] for name in ("STEP_NODELIST", "JOB_ID", "STEP_ID"))
        port = PORTS[0] + (int(job) * 10 + int(step)) % (PORTS[1] - PORTS[0])  # the same on all ranks
        os.environ |= {"MASTER_ADDR": SLURMEnvironment.resolve_root_node_address(nodes), "MASTER_PORT": str(port)}
        names = {"RANK": launched.rank, "WORLD_SIZE": launched.size, "LOCAL_RANK": launched.local_rank}
        os.environ |= {name: str(value) for name, value in {**names, "GROUP_RANK": launched.node}.items()}
    threading.Thread(target=stop_with_parent, args=(os.getppid(), lambda: os._exit(1)), daemon=True).start()
    distributed.init_process_group(timeout=PATIENCE)
    ranks = Ranks(launched.rank, launched.size, launched.local_rank)
    try:
        yield ranks
    finally:
        ranks.leave()


def is_lost_rank(error: BaseException) -> bool:
    """Tell whether an error only says that another rank is gone; the other rank has then reported its own error."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)


PLAIN_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # torch replaces them by synchronised norms


def refuse_devices(trainer: TrainerConfig, accelerator: str) -> None:
    """Raise UserError for more devices than this machine has."""
    there = torch.cuda.device_count() if accelerator == "gpu" else count_cores()
    if trainer.devices > max(1, there):
        has = f"{plural(there, 'GPU')}" if accelerator == "gpu" else f"{plural(there, 'core')}, and torch uses no GPU"
        raise UserError(f"trainer.devices={trainer.devices}: this machine has {has}; give at most {there}")


def refuse_parts(config: TrainConfig, model: nn.Module, accelerator: str) -> None:
    """Raise UserError if batches in parts, or recomputed activations, would break the batch size or the model."""
    recipe, trainer = config.recipe, config.trainer
    parts = count_parts(vars(trainer))
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
        elif accelerator != "gpu" or not plain:
            where = "on GPUs alone" if plain else "not in this form"
            problems.append(
                f"{shown}: model={name} has BatchNorm, which torch synchronises {where}; give trainer.devices=1, or a "
                "model with another norm"
            )
    if trainer.checkpoint_activations:
        blocks = list_blocks(model)
        if not blocks or any(isinstance(module, _BatchNorm) for block in blocks for module in block.modules()):
            why = "would count each batch twice in its BatchNorm" if blocks else "has no blocks that could do so"
            problems.append(f"trainer.checkpoint_activations=true: model={config.model.name} {why}; give false")
    if problems:
        raise UserError(problems)
