"""Fully sharded training (FSDP2: Zhao et al., 2023): each device keeps its share of the weights, of their gradients and
of the optimizer's state, and gathers a block's weights while it computes it.

Checkpoints are those of one device, so that any strategy goes on from them: the first device gathers the whole.
"""

from collections.abc import Callable
from typing import Any

from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from vitlab.models.counting.memory import list_blocks
from vitlab.models.heads import Classifier
from vitlab.training.checkpoint import read_checkpoint
from vitlab.training.devices.ranks import PATIENCE
from vitlab.training.module import TrainingModule


class ShardedModule(TrainingModule):
    """A training whose model's blocks are sharded, each by itself, and what is left of the model with its root."""

    @property
    def can_fuse(self) -> bool:
        return super().can_fuse and self.recipe.optimizer != "sgd"  # torch has no fused one for sharded tensors

    def configure_model(self) -> None:
        mesh = self.device_mesh["data_parallel"]
        for block in list_blocks(self.model):
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        if isinstance(self.model, Classifier):  # its other way in
            register_fsdp_forward_method(self.model, "hidden")


class ShardedStrategy(ModelParallelStrategy):
    """Lightning's, with whole checkpoints, in which the optimizer's state is numbered as on one device."""

    def __init__(self, devices: int):
        super().__init__(devices, 1, save_distributed_checkpoint=False, timeout=PATIENCE)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        plain = unwrap(optimizer)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_optimizer_state_dict(self.model, plain, options=options)
        if not state:  # not the first device
            return state
        names = [name for group in state["param_groups"] for name in group["params"]]
        return rename(state, {name: number for number, name in enumerate(names)}.__getitem__)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Raises UserError for a file that is not a checkpoint."""
        state = read_checkpoint(checkpoint_path)
        options = StateDictOptions(full_state_dict=True, strict=True)
        set_model_state_dict(self.model, state["state_dict"], options=options)
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for optimizer, saved in zip(self.optimizers, state["optimizer_states"], strict=True):
            plain = unwrap(optimizer)
            order = [names[parameter] for group in plain.param_groups for parameter in group["params"]]
            numbers = [number for group in saved["param_groups"] for number in group["params"]]
            named = rename(saved, dict(zip(numbers, order, strict=True)).__getitem__)
            set_optimizer_state_dict(self.model, plain, named, options=options)
        return state


def rename(state: dict[str, Any], name: Callable[[Any], Any]) -> dict[str, Any]:
    """An optimizer's state with other names of the parameters."""
    groups = [
        {**group, "params": [name(parameter) for parameter in group["params"]]} for group in state["param_groups"]
    ]
    return {"state": {name(parameter): values for parameter, values in state["state"].items()}, "param_groups": groups}


def unwrap(optimizer: Any) -> Any:
    """torch's optimizer inside Lightning's."""
    return optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
