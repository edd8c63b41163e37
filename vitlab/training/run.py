"""One run, from a configuration to a result."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import numpy as np
import torch
from lightning.pytorch.loggers import Logger
from torch import nn

from vitlab import models, tasks
from vitlab.config import UserError, resolved
from vitlab.config.identity import subset_seed
from vitlab.config.schema import TrainConfig
from vitlab.data.cache.content_hash import contents
from vitlab.data.loader import CPU, eval_loader, train_loader
from vitlab.data.subset import resolve_size, size_problems, training_items
from vitlab.files import write_json
from vitlab.hardware import keep_freed_memory
from vitlab.models.counting.memory import checkpointed
from vitlab.models.weights.load import LoadReport
from vitlab.tasks.common.evaluate import evaluate_held_out
from vitlab.training import budgets, checkpoint, settings
from vitlab.training.callbacks import Clock, Measurements, PeriodicAnalysis, Reporting, refuse_not_finite
from vitlab.training.devices.checks import refuse_parts
from vitlab.training.devices.ranks import ALONE, Ranks
from vitlab.training.devices.sharding import ShardedModule
from vitlab.training.files import RunFiles, source_of
from vitlab.training.module import TrainingModule
from vitlab.training.optimization import averaging, schedules
from vitlab.training.optimization.freezing import freeze_body
from vitlab.training.optimization.optimizers import build_optimizer
from vitlab.training.progress import Progress
from vitlab.training.selection import Selection
from vitlab.training.settings import HERE, Placement, evaluation_context
from vitlab.training.sources import initialise, refuse_other_source, refuse_other_tokenizer, refuse_tokenizer
from vitlab.training.trainer import JsonLines, Stream, build_trainer


class Run:
    """A model, its data and its folder. Raises UserError when they do not fit."""

    def __init__(
        self, config: TrainConfig, data: Any, folder: str | Path, *, placement: Placement = HERE, ranks: Ranks = ALONE
    ):
        self.config = config
        self.placement = placement
        self.ranks = ranks  # the processes that train it
        self.data = data
        self.files = RunFiles(folder)
        self.task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
        refuse_other_tokenizer(self.files, self.task.tokenizer, data.name)
        self.files.refuse_other_parts(resolved(config))
        self.contents = contents(config.data, data)
        self.files.refuse_other_data(data.name, self.contents)
        problems = size_problems([config.train_size], self.task.train, self.task.strata, data.name, "train_size")
        if problems:
            raise UserError(problems)
        self.train_size = resolve_size(config.train_size, self.task.train.total)
        L.seed_everything(config.seed, verbose=False)
        self.model = models.build(config.model, **self.task.shape)
        self.init = self.initialise()
        if config.recipe.freeze:
            freeze_body(self.model)
        self.family = models.family(config.model, self.model)
        self.task.training_indices = self.indices
        self.settings = settings.resolve(config.trainer, self.model, cached=data.cached, placement=placement)
        refuse_parts(config, self.model, self.settings.accelerator)
        torch.set_num_threads(self.settings.threads)
        keep_freed_memory()
        if self.settings.accelerator == "gpu":
            torch.set_float32_matmul_precision("high")
        self.steps = budgets.compute_steps(
            config.budget,
            train_size=len(self.indices),
            batch_size=config.recipe.batch_size,
            flops_per_example=self.flops_per_example,  # counted for the result too; refuses images that do not fit
        )
        schedules.refuse_endless_warmup(config.recipe, self.steps)
        averaging.refuse_stale_average(config.recipe, self.steps)
        build_optimizer(self.model, config.recipe)  # raises UserError for a model that it is not for

    def initialise(self) -> LoadReport | None:
        """Load the weights that the configuration starts from, unless the run resumes or is finished."""
        source = source_of(self.config.init)
        if source is None:
            return None
        refuse_other_source(source, self.files)
        if self.files.checkpoint_path.exists():
            return None
        if source == self.config.init.weights:  # an encoder alone knows no tokens
            refuse_tokenizer(source, self.task.tokenizer)
        return initialise(self.model, self.config, self.task.classes)

    @cached_property
    def flops_per_example(self) -> int:
        """Operations of a training step for one example."""
        return budgets.count_train_flops(self.config.model, self.task, frozen=self.config.recipe.freeze is not None)

    @cached_property
    def indices(self) -> np.ndarray:
        """Indices of the training examples, int64."""
        return training_items(self.task.train, self.train_size, subset_seed(resolved(self.config)))

    @cached_property
    def resumed_step(self) -> int:
        """The step of last.ckpt, 0 where there is none."""
        return self.checkpointed[0]

    @cached_property
    def checkpointed(self) -> tuple[int, bool]:
        """The step of last.ckpt, 0 where there is none; whether training stopped early there."""
        if not self.files.checkpoint_path.exists():
            return 0, False
        state = checkpoint.read_checkpoint(self.files.checkpoint_path)
        return int(state["global_step"]), state.get("callbacks", {}).get("Selection", {}).get("stopped", False)

    @cached_property
    def trained_steps(self) -> int:
        """The steps that the run takes; fewer than its budget's once it has stopped early."""
        if self.finished:
            return self.files.finished_result()["steps"]
        step, stopped = self.checkpointed
        return step if stopped else self.steps

    def drop_rows_after_checkpoint(self) -> None:
        """Drop the rows of metrics.jsonl that training on from last.ckpt writes again."""
        self.files.keep_metrics(self.resumed_step, evaluated_again=self.resumed_step == self.trained_steps)

    @property
    def finished(self) -> bool:
        """Whether the folder holds this configuration's result."""
        return self.files.has_finished(resolved(self.config), self.contents)

    def fit(
        self,
        *,
        loggers: Sequence[Logger] = (),
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
        look: Callable[[int], None] | None = None,
        check_claim: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Train, resuming from last.ckpt where there is one, with evaluations on the validation data.

        Gives what results.csv says of the training itself; `validation` holds the metrics of the last evaluation.
        `look(step)` is called every `trainer.analyze_every` steps, with the weights that count in `model`.
        `check_claim` is called before metrics or a checkpoint are written; it raises where another process has taken
        the folder over.

        Raises Interrupted when `stop` says so, Diverged for a loss or a metric that is not finite.
        """
        if self.ranks.is_main:
            write_json(self.files.data_path, {"sha256": self.contents, "steps": self.steps})
            self.drop_rows_after_checkpoint()
        with checkpointed(self.model) if self.config.trainer.checkpoint_activations else nullcontext():
            return self.fit_model(loggers, progress, stop, look, check_claim)

    def fit_model(
        self,
        loggers: Sequence[Logger],
        progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool] | None,
        look: Callable[[int], None] | None,
        check_claim: Callable[[], None],
    ) -> dict[str, Any]:
        """`fit` itself."""
        self.set_memory_format()
        if self.settings.compile:
            self.model.compile()
        recipe, trainer_config = self.config.recipe, self.config.trainer
        batch_size = recipe.batch_size
        sharded = self.settings.strategy == "fsdp"
        module = (ShardedModule if sharded else TrainingModule)(
            self.model,
            self.task,
            recipe,
            steps=self.steps,
            seed=self.config.seed,
            shape=self.task.shape,
            classes=self.task.classes,
            width=vars(self.config.model).get("width"),
            log_to_loggers=False,  # Measurements writes the rows
            part=self.ranks.part,
            accumulate=trainer_config.accumulate,
        )
        path, resumed_step = self.files.checkpoint_path, self.resumed_step
        lines = JsonLines(self.files, check_claim) if self.ranks.is_main else None
        clock = Clock()
        measurements = Measurements(self.files, clock, trainer_config.log_every, batch_size)
        saving = checkpoint.Checkpointing(path, trainer_config.checkpoint_every, clock, stop, self.ranks.agree)
        averages = averaging.build_averages(recipe, self.steps, self.device)  # before the callbacks that save
        weights = averages[0].show_average if averages else nullcontext
        selection = Selection(recipe.patience, recipe.keep == "best", weights)
        every = trainer_config.analyze_every
        looking = [PeriodicAnalysis(look, every, clock, weights)] if look and every else []
        trainer = build_trainer(
            self.settings,
            check_claim,
            self.ranks,
            unused=self.settings.strategy == "ddp" and budgets.leaves_unused(self.config, self.task),
            max_steps=self.trained_steps,
            val_check_interval=max(1, math.ceil(self.steps / trainer_config.evaluations)),
            log_every_n_steps=trainer_config.log_every,
            logger=[lines, *loggers] if lines else False,
            callbacks=[*averages, clock, measurements, selection, *looking, Reporting(progress, measurements), saving],
            default_root_dir=self.files.folder,
        )
        workers, together = self.settings.workers, self.task.eval_batch_size or max(batch_size, 256)
        shared = {"workers": workers, "device": self.device}
        validation = eval_loader(self.task.validation, batch_size=together, part=self.ranks.part, **shared)
        batches = train_loader(
            self.task.train,
            self.indices,
            batch_size=batch_size,
            steps=self.steps,
            seed=self.config.seed,
            start=resumed_step,
            repeats=recipe.repeats,
            part=self.ranks.part,
            **shared,
        )
        try:
            trainer.fit(
                module, Stream(batches), validation, ckpt_path=path if resumed_step else None, weights_only=True
            )
            for average in averages:
                average.apply_average(module)
            self.trained_steps = trainer.global_step
            if module.evaluated_step != self.trained_steps:
                trainer.validate(module, validation, verbose=False)
        finally:
            if lines:
                lines.close()
        if sharded and self.ranks.is_main:  # which tests with the whole
            self.load_weights(path)
        self.validation, kept = module.validation, {}
        if selection.keep:
            self.model.load_state_dict(selection.weights)
            if self.ranks.is_main:
                check_claim()
                checkpoint.write_weights(self.files.best_path, module, selection.step)
            self.validation, kept = selection.metrics, {"kept_step": selection.step}
        return {
            **kept,
            "train_loss": measurements.train_loss,
            "images_per_s": round(clock.steps_timed * batch_size / clock.train_s, 1) if clock.train_s else None,
            "wall_s": round(clock.wall_s, 2),
        }

    def test(self) -> dict[str, float | None]:
        """The metrics of results.csv on the test data, by the weights in `model`. Nothing else reads these data.

        `outcomes` holds what each item gave (2, items), as the metric of that name says, `generated` the texts
        of a task that generates some.

        Raises Diverged for a metric that is not finite.
        """
        _, autocast = evaluation_context(self.settings.precision, self.settings.accelerator)
        collected = evaluate_held_out(self.placed_model().eval(), self.task, autocast, self.settings.workers)
        found, texts = collected.compute(), dict(collected).get("texts")
        self.generated = texts.list_texts() if texts is not None else None
        self.outcomes = found["outcomes"].cpu().numpy()
        metrics = {name: float(value) for name, value in found.items() if not value.ndim}
        for name, value in metrics.items():
            refuse_not_finite(f"test {name}", value, self.trained_steps, self.config.recipe)
        return {"accuracy": None, **metrics, "test_items": len(self.task.test)}

    @property
    def device(self) -> torch.device:
        """That this process trains on."""
        return torch.device("cuda", self.ranks.local_rank) if self.settings.accelerator == "gpu" else CPU

    def set_memory_format(self) -> None:
        if self.settings.memory_format == "channels_last":
            self.model.to(memory_format=torch.channels_last)

    def load_weights(self, path: Path) -> None:
        """Build the model anew, with a checkpoint's weights. Raises UserError."""
        self.model = models.build(self.config.model, **self.task.shape)
        state = checkpoint.read_checkpoint(path)["state_dict"]
        self.model.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
        self.set_memory_format()

    def placed_model(self) -> nn.Module:
        """The model on the device that it trains on."""
        return self.model.to(self.device)
