"""What a configuration comes to with its data on this machine. `prepare` finds every problem and changes nothing."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from vitlab import models, tasks
from vitlab.config import UserError, resolved
from vitlab.config.identity import subset_seed
from vitlab.config.schema import TrainConfig, TrainerConfig
from vitlab.config.schema.kinds import keys_per_study
from vitlab.data.split import resolve_size, size_problems, training_items
from vitlab.models.base import before_head
from vitlab.models.counting import count
from vitlab.tasks.base import Task
from vitlab.training import budgets, settings
from vitlab.training.devices.checks import refuse_parts
from vitlab.training.optimization import averaging, schedules
from vitlab.training.optimization.optimizers import build_optimizer
from vitlab.training.settings import HERE, Placement, Settings


@dataclass(frozen=True)
class PreparedModel:
    """What runs of a configuration share, whatever the size of their training set and their seed."""

    config: TrainConfig
    task: Task
    settings: Settings
    family: str
    params: int
    flops_per_example: int  # of a training step

    @property
    def settled(self) -> dict[str, Any]:
        """The settings that have one value in all runs of a study."""
        return {key: vars(self.settings)[key] for key in keys_per_study(TrainerConfig)}

    def count_steps(self, train_items: int) -> int:
        """The optimizer steps of a run on so many items. Raises UserError where the recipe needs more steps."""
        recipe = self.config.recipe
        steps = budgets.compute_steps(
            self.config.budget,
            train_size=train_items,
            batch_size=recipe.batch_size,
            flops_per_example=self.flops_per_example,
        )
        schedules.refuse_endless_warmup(recipe, steps)
        averaging.refuse_stale_average(recipe, steps)
        return steps


@dataclass(frozen=True)
class Prepared(PreparedModel):
    """A run that can train."""

    data: Any
    train_size: int  # in the unit of the training split: examples, tokens or documents
    indices: np.ndarray  # of the training items, int64
    steps: int


def prepare_model(config: TrainConfig, data: Any, placement: Placement = HERE) -> PreparedModel:
    """The model and its costs, found without weights. Raises UserError."""
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    model = budgets.make_meta_model(config.model, task, frozen=config.recipe.freeze is not None)
    chosen = settings.resolve(config.trainer, model, cached=data.cached, placement=placement)
    refuse_parts(config, model, chosen.accelerator)
    if config.probes:
        before_head(model)  # raises UserError for a model without features
    build_optimizer(model, config.recipe)  # raises UserError for a model that it is not for
    family, params = models.family(config.model, model), count.parameters(model)
    return PreparedModel(config, task, chosen, family, params, budgets.count_train_flops(model, task))


def prepare(config: TrainConfig, data: Any, placement: Placement = HERE) -> Prepared:
    """A run on data that are open, to be trained at a place. Raises UserError with what does not fit."""
    model = prepare_model(config, data, placement)
    split = model.task.train
    if problems := size_problems([config.train_size], split, model.task.strata, data.name, "train_size"):
        raise UserError(problems)
    train_size = resolve_size(config.train_size, split.total)
    indices = training_items(split, train_size, subset_seed(resolved(config)))
    model.task.training_indices = indices
    return Prepared(
        **vars(model), data=data, train_size=train_size, indices=indices, steps=model.count_steps(len(indices))
    )
