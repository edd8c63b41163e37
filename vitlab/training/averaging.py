"""An exponential moving average of the weights, which is what is evaluated and saved."""

from collections.abc import Iterator
from contextlib import contextmanager

import lightning.pytorch as L
from lightning.pytorch.callbacks import WeightAveraging
from omegaconf import DictConfig
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vitlab.config import UserError

STALE = 0.5  # the most that the first step's weights may still count at the end


class Averaging(WeightAveraging):
    """After every step: average = decay * average + (1 - decay) * weights, beginning with those of the first step.

    Buffers with a floating point (BatchNorm's statistics) are averaged as well. Evaluation sees the average; in a
    checkpoint it is `state_dict`, and the weights that training goes on from are `current_model_state`.
    """

    def __init__(self, decay: float, device: str):
        # not Lightning's EMAWeightAveraging, which averages parameter by parameter, and rounds where nothing changed
        super().__init__(device=device, use_buffers=True, multi_avg_fn=get_ema_multi_avg_fn(decay))

    @contextmanager
    def show_average(self, module: L.LightningModule) -> Iterator[None]:
        """The average in the module's place, as in evaluation; afterwards the weights that training goes on from."""
        self._swap_models(module)
        try:
            yield
        finally:
            self._swap_models(module)

    def apply_average(self, module: L.LightningModule) -> None:
        """Put the average into the module for good, as the end of training does; a resumed run may have no such end."""
        self._copy_average_to_current(module)


def refuse_stale_average(recipe: DictConfig, steps: int) -> None:
    """Raise UserError where the average would still be mostly of the first step's weights at the end."""
    if recipe.ema is not None and recipe.ema ** (steps - 1) > STALE:
        advice = f"recipe.ema={max(0.1, 1 - 10 / steps):.4g} or recipe.ema=null" if steps > 1 else "recipe.ema=null"
        raise UserError(
            f"recipe.ema={recipe.ema}: after {steps} steps {recipe.ema ** (steps - 1):.0%} of the average would still "
            f"be the weights of the first step; give {advice}"
        )
