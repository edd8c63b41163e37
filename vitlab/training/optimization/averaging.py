"""Averages of the weights, which are evaluated and saved: exponential, or the mean of the last checkpoints."""

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig

STALE = 0.5  # largest share of the first step's weights in the final average
SPACING = 100  # checkpoints that recipe.average counts in a run: one after each hundredth of its steps


class Averaging(WeightAveraging):
    """Averages the weights after every step, or after those in `steps`; evaluation uses the average.

    `average(averages, weights, count)` updates the averages of `count` weights. Floating-point buffers (BatchNorm's
    statistics) are averaged too. Until the first of the steps the weights themselves are evaluated. In a checkpoint
    the average is `state_dict`; training continues from `current_model_state`.
    """

    def __init__(self, average: Callable[..., None], device: torch.device, steps: Container[int] | None = None):
        # not Lightning's EMAWeightAveraging, which averages parameter by parameter, and rounds where nothing changed
        super().__init__(device=device, use_buffers=True, multi_avg_fn=average)
        self.steps = steps

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return step_idx is not None and (self.steps is None or step_idx + 1 in self.steps)

    @property
    def begun(self) -> bool:
        """Whether there is an average yet."""
        return self._average_model.n_averaged > 0

    def on_save_checkpoint(self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if self.begun:
            super().on_save_checkpoint(trainer, module, checkpoint)

    def on_load_checkpoint(self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if "averaging_state" in checkpoint:
            super().on_load_checkpoint(trainer, module, checkpoint)

    def _swap_models(self, module: L.LightningModule) -> None:
        if self.begun:
            super()._swap_models(module)

    @contextmanager
    def show_average(self, module: L.LightningModule) -> Iterator[None]:
        """Put the average into the module, as in evaluation; afterwards the weights that training continues from."""
        self._swap_models(module)
        try:
            yield
        finally:
            self._swap_models(module)

    def apply_average(self, module: L.LightningModule) -> None:
        """Copy the average into the module, as the end of training does, which a run resumed at its last step skips."""
        self._copy_average_to_current(module)


def mean(averages: list[Tensor], weights: list[Tensor], count: Tensor) -> None:
    """Add weights to the mean of `count` others, in place."""
    get_ema_multi_avg_fn(float(count / (count + 1)))(averages, weights, count)


def build_averages(recipe: RecipeConfig, steps: int, device: torch.device) -> list[Averaging]:
    """The callback that averages the weights of a run of `steps` if the recipe says so.

    recipe.ema: average = ema * average + (1 - ema) * weights after every step, from those of the first on.
    recipe.average=N: the mean of N checkpoints, the last at the end, a hundredth of the run apart. Vaswani et al.
    (2017, section 6.1) average 5 that are 10 minutes of 12 hours apart.
    """
    if recipe.ema is not None:
        return [Averaging(get_ema_multi_avg_fn(recipe.ema), device)]
    if recipe.average is not None:
        apart = max(1, steps // SPACING)
        return [Averaging(mean, device, range(steps - (recipe.average - 1) * apart, steps + 1, apart))]
    return []


def refuse_stale_average(recipe: RecipeConfig, steps: int) -> None:
    """Raise UserError if the average would still be mostly the first step's weights, or needs more steps."""
    if recipe.average is not None and recipe.average > steps:
        raise UserError(f"recipe.average={recipe.average}: the run has only {steps} steps; give at most {steps}")
    if recipe.ema is not None and recipe.ema ** (steps - 1) > STALE:
        advice = f"recipe.ema={max(0.1, 1 - 10 / steps):.4g} or recipe.ema=null" if steps > 1 else "recipe.ema=null"
        raise UserError(
            f"recipe.ema={recipe.ema}: after {steps} steps {recipe.ema ** (steps - 1):.0%} of the average would still "
            f"be the weights of the first step; give {advice}"
        )
