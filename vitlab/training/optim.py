"""Optimizers, learning-rate schedules and budgets."""

import math

import torch
from omegaconf import DictConfig
from timm.optim import param_groups_weight_decay
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from vitlab.config import UserError


def optimizer(model: nn.Module, recipe: DictConfig) -> torch.optim.Optimizer:
    """The recipe's optimizer; norms, biases, positions and class tokens are not decayed."""
    kept = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()
    groups = param_groups_weight_decay(model, recipe.weight_decay, no_weight_decay_list=kept)
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov)
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=tuple(recipe.betas))


def warmup_steps(recipe: DictConfig, steps: int) -> int:
    """The recipe's warm-up as a number of steps: below 1 it is a share of them."""
    return round(recipe.warmup * steps) if recipe.warmup < 1 else int(recipe.warmup)


def rate(name: str, step: int, steps: int, warmup: int) -> float:
    """The learning rate of optimizer step `step` (0 is the first) as a share of the recipe's rate.

    Linear warm-up to 1 over `warmup` steps, then: constant 1, linear to 0, or half a cosine to 0 (Loshchilov and
    Hutter, 2017) at `steps`.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    if name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    return 1 - progress if name == "linear" else 1.0


def schedule(optimizer: torch.optim.Optimizer, recipe: DictConfig, steps: int) -> LambdaLR:
    warmup = warmup_steps(recipe, steps)
    return LambdaLR(optimizer, lambda step: rate(recipe.schedule, step, steps, warmup))


def steps_of(budget: DictConfig, *, train_size: int, batch_size: int, flops_per_example: int) -> int:
    """Optimizer steps of a run under a budget. Raises UserError when the budget is below one step."""
    if budget.steps is not None:
        return budget.steps
    if budget.flops is not None:
        steps = int(budget.flops // (flops_per_example * batch_size))
        if steps < 1:
            raise UserError(
                f"budget.flops={budget.flops:g}: one step of {batch_size} examples takes "
                f"{flops_per_example * batch_size:.3g}; give at least that"
            )
        return steps
    examples = budget.examples if budget.examples is not None else budget.epochs * train_size
    return max(1, math.ceil(examples / batch_size))


def budget_text(budget: DictConfig) -> str:
    """`steps=1000`: the one unit that is given."""
    key, value = next((key, value) for key, value in budget.items() if value is not None)
    return f"{key}={value if isinstance(value, int) else format(value, 'g')}"
