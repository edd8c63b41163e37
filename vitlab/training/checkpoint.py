"""Checkpoints that are whole or not there, and runs that are loaded back."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from vitlab.config import UserError, first_line
from vitlab.files import replacing
from vitlab.training.callbacks import Clock, evaluation_follows

KEYS = ("state_dict", "global_step", "shape", "classes")


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's own may leave a part of a file: it moves across file systems. Reads tensors and plain values only."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        with replacing(path) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return read_checkpoint(path, map_location)


def restore_shape(state: dict[str, Any]) -> dict[str, Any]:
    """What the checkpoint's model was built for, as `vitlab.models.build` takes it."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in state["shape"].items()}


def read_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:
    """A checkpoint's contents, nothing unpickled. Raises UserError when it is not one."""
    try:
        found = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        lacking = [key for key in KEYS if key not in found]
        if lacking:
            raise ValueError(f"it lacks {', '.join(lacking)}")
        kinds = {"shape": dict, "state_dict": dict, "classes": list}
        if not all(isinstance(found[key], kind) for key, kind in kinds.items()):
            raise ValueError("its shape, its weights or its classes are none")
        return found
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint") from None
    except Exception as error:  # torch raises many kinds for a damaged file
        reason = first_line(error).partition(". ")[0]
        raise UserError(f"{path}: not a readable checkpoint ({reason}); delete it to train again") from error


class Checkpointing(L.Callback):
    """Writes last.ckpt every so many seconds, and at the end."""

    def __init__(self, path: Path, seconds: float, clock: Clock):
        self.path = path
        self.seconds = seconds
        self.clock = clock
        self.saved_at = 0.0  # not by `clock`, which stops for analyses: a kill would lose them as well

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.saved_at = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        if time.perf_counter() - self.saved_at >= self.seconds and not evaluation_follows(trainer, module):
            self.save(trainer)

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self.path)
        self.saved_at = time.perf_counter()
        self.clock.leave_out()
