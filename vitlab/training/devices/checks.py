"""What several devices, or a batch in parts, cannot do."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vitlab.config import UserError
from vitlab.config.identity import count_parts
from vitlab.config.schema import TrainConfig, TrainerConfig
from vitlab.hardware import count_cores
from vitlab.models.counting.memory import list_blocks

PLAIN_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # that torch replaces by synchronised ones


def refuse_devices(trainer: TrainerConfig, accelerator: str) -> None:
    """Raise UserError for more devices than this machine has."""
    there = torch.cuda.device_count() if accelerator == "gpu" else count_cores()
    if trainer.devices > max(1, there):
        has = f"{there} GPU{'s' * (there != 1)}" if accelerator == "gpu" else f"{there} cores, and torch uses no GPU"
        raise UserError(f"trainer.devices={trainer.devices}: this machine has {has}; give at most {there}")


def refuse_parts(config: TrainConfig, model: nn.Module, accelerator: str) -> None:
    """Raise UserError for what does not go with a batch in parts."""
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
