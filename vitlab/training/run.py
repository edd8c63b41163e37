"""A run in its folder: the model, the weights that it begins with, how far it is."""

from dataclasses import asdict
from pathlib import Path

import lightning.pytorch as L
import torch
from torch import nn

from vitlab import models
from vitlab.config import resolved
from vitlab.data.cache import contents
from vitlab.data.loader import CPU
from vitlab.files import write_json
from vitlab.hardware import keep_freed_memory
from vitlab.models.weights.load import LoadReport
from vitlab.training import checkpoint
from vitlab.training.devices.ranks import ALONE, Ranks
from vitlab.training.files import RunFiles, source_of
from vitlab.training.optimization.optimizers import freeze_body
from vitlab.training.prepare import Prepared
from vitlab.training.sources import (
    fingerprint,
    initialise,
    refuse_other_source,
    refuse_other_tokenizer,
    refuse_tokenizer,
)


class Run:
    """A prepared run in a folder. Writes nothing before `write_start`. Raises UserError where it holds another run.

    The model has its first weights, by the run's seed or from the source that the configuration names.
    """

    def __init__(self, prepared: Prepared, folder: str | Path, ranks: Ranks = ALONE):
        self.prepared = prepared
        self.config, self.task, self.settings = prepared.config, prepared.task, prepared.settings
        self.files = RunFiles(folder)
        self.ranks = ranks  # the processes that train it
        self.contents = contents(self.config.data, prepared.data)
        self.check_folder()
        self.use_settings()
        L.seed_everything(self.config.seed, verbose=False)
        self.model = models.build(self.config.model, **self.task.shape)
        self.init = self.load_initial_weights()
        if self.config.recipe.freeze:
            freeze_body(self.model)
        self.resumed_step, stopped_early = self.read_checkpoint()
        # fewer steps than the budget's once it has stopped early
        self.last_step = self.resumed_step if stopped_early else prepared.steps

    def check_folder(self) -> None:
        """Raise UserError if the folder's run has other data, another tokenizer, or batches in other parts."""
        refuse_other_tokenizer(self.files, self.task.tokenizer, self.prepared.data.name)
        self.files.refuse_other_parts(resolved(self.config))
        self.files.refuse_other_data(self.prepared.data.name, self.contents)

    def use_settings(self) -> None:
        """Set what holds for the whole process."""
        torch.set_num_threads(self.settings.threads)
        keep_freed_memory()
        if self.settings.accelerator == "gpu":
            torch.set_float32_matmul_precision("high")

    def load_initial_weights(self) -> LoadReport | None:
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

    def read_checkpoint(self) -> tuple[int, bool]:
        """The step of last.ckpt, 0 where there is none; whether training stopped early there."""
        if not self.files.checkpoint_path.exists():
            return 0, False
        state = checkpoint.read_checkpoint(self.files.checkpoint_path)
        return int(state["global_step"]), state.get("callbacks", {}).get("Selection", {}).get("stopped", False)

    def write_start(self) -> None:
        """Write what a run is before it trains, and drop rows of metrics.jsonl that training on writes again."""
        self.files.write_config(resolved(self.config))
        if self.task.tokenizer is not None:
            self.task.tokenizer.save(self.files.tokenizer_path)
        if self.init is not None:
            source = fingerprint(source_of(self.config.init))
            write_json(self.files.init_path, {**asdict(self.init), "sha256": source})
        write_json(self.files.data_path, {"sha256": self.contents, "steps": self.prepared.steps})
        self.files.keep_metrics(self.resumed_step, evaluated_again=self.resumed_step == self.last_step)

    @property
    def device(self) -> torch.device:
        """That this process trains on."""
        return torch.device("cuda", self.ranks.local_rank) if self.settings.accelerator == "gpu" else CPU

    def placed_model(self) -> nn.Module:
        """The model on the device that it trains on."""
        return self.model.to(self.device)

    def set_memory_format(self) -> None:
        if self.settings.memory_format == "channels_last":
            self.model.to(memory_format=torch.channels_last)

    def load_weights(self, path: Path) -> None:
        """Build the model again, with a checkpoint's weights. Raises UserError."""
        self.model = models.build(self.config.model, **self.task.shape)
        state = checkpoint.read_checkpoint(path)["state_dict"]
        self.model.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
        self.set_memory_format()
