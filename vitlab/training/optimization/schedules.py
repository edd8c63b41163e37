"""Learning-rate schedules: the rate of each step as a share of the recipe's rate, by the papers' formulas.

`step` counts from 0 to `steps` - 1. A linear warm-up comes before every schedule: (step + 1) / warmup, so that its last
step has the whole rate and no step is wasted.
"""

import math
from functools import partial
from types import SimpleNamespace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig


def to_steps(value: float, steps: int) -> int:
    """A duration in steps; a value below 1 is a share of the steps."""
    return round(value * steps) if value < 1 else int(value)


def refuse_endless_warmup(recipe: RecipeConfig, steps: int) -> None:
    """Raise UserError for a warm-up that is longer than the run."""
    if recipe.warmup >= max(1, steps):
        raise UserError(
            f"recipe.warmup={recipe.warmup}: the run has only {steps} steps; give recipe.warmup=0.1, a share of "
            "the steps, or a longer budget"
        )


def compute_rate(recipe: RecipeConfig | SimpleNamespace, step: int, steps: int, width: int | None = None) -> float:
    """The learning rate of optimizer step `step` of `steps`, as a share of the recipe's rate.

    `width` is the model's, which noam alone reads.
    """
    warmup = to_steps(recipe.warmup, steps)
    if recipe.schedule == "noam":  # Vaswani et al., 2017, eq. 3, which counts steps from 1; the warm-up is part of it
        return width**-0.5 * min((step + 1) ** -0.5, (step + 1) * max(1, warmup) ** -1.5)
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    if recipe.schedule == "cosine":  # Loshchilov and Hutter, 2017, eq. 5
        return recipe.final_lr + (1 - recipe.final_lr) * 0.5 * (1 + math.cos(math.pi * progress))
    if recipe.schedule == "linear":
        return recipe.final_lr + (1 - recipe.final_lr) * (1 - progress)
    if recipe.schedule == "multistep":
        return recipe.decay_factor ** sum(step >= round(share * steps) for share in recipe.milestones)
    length = to_steps(recipe.cooldown, steps)  # of the line to 0 at the end
    end = max(0.0, min(1.0, (steps - step) / length)) if length else 1.0
    if recipe.schedule == "constant":
        return end
    timescale = recipe.timescale or max(1, warmup)  # rsqrt: Zhai et al., 2022, appendix B; big_vision
    return end * (timescale / (timescale + (step - warmup))) ** 0.5


def build_schedule(optimizer: Optimizer, recipe: RecipeConfig, steps: int, width: int | None = None) -> LambdaLR:
    return LambdaLR(optimizer, partial(compute_rate, recipe, steps=steps, width=width))
