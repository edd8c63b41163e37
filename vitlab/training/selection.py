"""Early stopping and the best weights of a training, by its evaluations on the validation data."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import lightning.pytorch as L
import torch

from vitlab.config.schema import RecipeConfig
from vitlab.tasks.metrics import Metric


def score(metrics: Mapping[str, float], metric: Metric) -> tuple[float, float]:
    """How good an evaluation is, larger is better: by the task's metric, of equal ones the lower loss."""
    return metric.lead(metrics[metric.key], 0.0), -metrics["loss"]


class Selection(L.Callback):
    """Ends training after `patience` evaluations without a better one, and keeps the weights of the best (`keep`).

    Not Lightning's EarlyStopping and ModelCheckpoint: here best weights, counts and the decision to stop are part of
    last.ckpt, so that a run that is killed anywhere goes on to the same end. `show(module)` puts the weights that are
    evaluated into the module.
    """

    on_train_batch_end = None  # it looks at evaluations alone

    def __init__(self, recipe: RecipeConfig, metric: Metric, show: Callable[..., AbstractContextManager]):
        self.patience, self.keep = recipe.patience, recipe.keep == "best"
        self.metric = metric
        self.show = show
        self.evaluated = 0  # the last step that was
        self.waited = 0  # evaluations since the best
        self.step = 0  # of the best
        self.metrics: dict[str, float] = {}
        self.weights: dict[str, torch.Tensor] = {}  # on the CPU; empty unless they are kept

    @property
    def stopped(self) -> bool:
        return self.patience is not None and self.waited >= self.patience

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if module.evaluated_step <= self.evaluated:  # a finished training that is started again
            return
        self.evaluated = module.evaluated_step
        if not self.metrics or score(module.validation, self.metric) > score(self.metrics, self.metric):
            self.waited, self.step, self.metrics = 0, module.evaluated_step, dict(module.validation)
            if self.keep:
                with self.show(module):
                    state = module.model.state_dict()
                    self.weights = {key: value.detach().cpu().clone() for key, value in state.items()}
        else:
            self.waited += 1
        if self.stopped:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        names = ("evaluated", "waited", "step", "metrics", "weights")
        return {**{name: vars(self)[name] for name in names}, "stopped": self.stopped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({name: value for name, value in state.items() if name != "stopped"})
