"""How long a run trains: the optimizer steps of a budget, the operations of a step."""

import math

from torch import nn

from vitlab.config import UserError
from vitlab.config.schema import BudgetConfig
from vitlab.config.schema.models import ModelConfig
from vitlab.models.counting import count
from vitlab.tasks.base import Task
from vitlab.training.optimization.optimizers import freeze_body

LARGEST_STEPS = 2**40  # as budget.steps


def compute_steps(budget: BudgetConfig, *, train_size: int, batch_size: int, flops_per_example: int) -> int:
    """The optimizer steps of a run. Raises UserError for a budget below one step or above 2**40."""
    if budget.steps is not None:
        return budget.steps
    if budget.flops is not None:
        steps = int(budget.flops // (flops_per_example * batch_size))
        if steps < 1:
            raise UserError(
                f"budget.flops={budget.flops:g}: one step of {batch_size} examples takes "
                f"{flops_per_example * batch_size:.3g}; give at least as much"
            )
        if steps > LARGEST_STEPS:
            raise UserError(
                f"budget.flops={budget.flops:g}: this is {steps:.3g} steps; give at most {LARGEST_STEPS:.3g} steps"
            )
        return steps
    examples = budget.examples if budget.examples is not None else budget.epochs * train_size
    return max(1, math.ceil(examples / batch_size))


def format_budget(budget: BudgetConfig) -> str:
    """`steps=1000`: the unit that is set and its value."""
    key, value = next((key, value) for key, value in vars(budget).items() if value is not None)
    return f"{key}={value if isinstance(value, int) else format(value, 'g')}"


def count_train_flops(model: nn.Module, task: Task) -> int:
    """Operations of a training step for one example; of a frozen body there is no backward pass.

    `model` is on the meta device. Raises UserError for examples that it does not take.
    """
    example = task.example()
    return count.flops(model, task.shape, lambda model: task.loss(model, example))[1]


def make_meta_model(config: ModelConfig, task: Task, frozen: bool) -> nn.Module:
    """The model without numbers, and with `frozen` its body frozen."""
    model = count.meta(config, **task.shape)
    if frozen:
        freeze_body(model)
    return model


def leaves_unused(config: ModelConfig, task: Task) -> bool:
    """Whether a run's loss does not depend on all parameters that train."""
    model = make_meta_model(config.model, task, config.recipe.freeze is not None).eval()
    task.loss(model, task.example()).sum().backward()
    return any(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
