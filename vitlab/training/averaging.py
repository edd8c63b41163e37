"""Exponential moving average of the weights: the average is evaluated and saved."""

from collections.abc import Iterator
from contextlib import contextmanager

import lightning.pytorch as L
from lightning.pytorch.callbacks import WeightAveraging
from omegaconf import DictConfig
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vitlab.config import UserError

STALE = 0.5  # largest share of the first step's weights in the final average


class Averaging(WeightAveraging):
    """After every step: average = decay * average + (1 - decay) * weights, starting from those of the first step.

    Floating-point buffers (BatchNorm's statistics) are averaged too. Evaluation uses the average. In a checkpoint the
    average is `state_dict`; training continues from `current_model_state`.
    """

    def __init__(self, decay: float, device: str):
        # not Lightning's EMAWeightAveraging, which averages parameter by parameter, and rounds where nothing changed
        super().__init__(device=device, use_buffers=True, multi_avg_fn=get_ema_multi_avg_fn(decay))

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


def refuse_stale_average(recipe: DictConfig, steps: int) -> None:
    """Raise UserError if the final average would still be mostly the weights of the first step."""
    if recipe.ema is not None and recipe.ema ** (steps - 1) > STALE:
        advice = f"recipe.ema={max(0.1, 1 - 10 / steps):.4g} or recipe.ema=null" if steps > 1 else "recipe.ema=null"
        raise UserError(
            f"recipe.ema={recipe.ema}: after {steps} steps {recipe.ema ** (steps - 1):.0%} of the average would still "
            f"be the weights of the first step; give {advice}"
        )
