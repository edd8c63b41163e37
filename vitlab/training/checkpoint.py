"""Checkpoints, written atomically."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from vitlab.config import UserError, first_line
from vitlab.files import replacing
from vitlab.training.callbacks import Clock, Interrupted, evaluation_follows

KEYS = ("state_dict", "global_step", "shape", "classes", "scale")


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes whole files or none; Lightning's own moves files across file systems. Unpickles nothing.

    `check_claim` is called before a file takes the place of another, and raises where it must not.
    """

    def __init__(self, check_claim: Callable[[], None] = lambda: None):
        super().__init__()
        self.check_claim = check_claim

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        with replacing(path) as file:
            torch.save(checkpoint, file)
            self.check_claim()

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return read_checkpoint(path, map_location)


def restore_shape(state: dict[str, Any]) -> dict[str, Any]:
    """What the checkpoint's model was built for, as `vitlab.models.build` takes it."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in state["shape"].items()}


def read_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:
    """A checkpoint's contents; nothing is unpickled. Raises UserError for a file that is not a checkpoint."""
    try:
        state = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        missing = [key for key in KEYS if key not in state]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        return state
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint") from None
    except Exception as error:  # torch raises many kinds for a damaged file
        reason = first_line(error).partition(". ")[0]
        raise UserError(f"{path}: not a readable checkpoint ({reason}); delete it to train again") from error


def write_weights(path: Path, module: L.LightningModule, step: int) -> None:
    """Write a checkpoint of the module's weights alone, as those of a step."""
    state: dict[str, Any] = {"state_dict": module.state_dict(), "global_step": step}
    module.on_save_checkpoint(state)
    AtomicCheckpointIO().save_checkpoint(state, path)


class Checkpointing(Checkpoint):  # Lightning calls callbacks of this type last
    """Writes last.ckpt every `seconds`, at the end, and when `stop` says that the run is to stop here.

    `agree` makes what the first of several processes decides what all of them do.
    """

    def __init__(
        self,
        path: Path,
        seconds: float,
        clock: Clock,
        stop: Callable[[], bool] | None,
        agree: Callable[..., Sequence[bool]],
    ):
        self.path = path
        self.seconds = seconds
        self.clock = clock
        self.stop = stop
        self.agree = agree
        self.saved_at = 0.0  # wall time, not `clock`, which stops during analyses: a kill would lose those too

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.saved_at = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        if evaluation_follows(trainer, module):
            return
        due = time.perf_counter() - self.saved_at >= self.seconds
        stopping, due = self.agree(self.stop is not None and self.stop(), due)
        if stopping or due:
            self.save(trainer)
        if stopping:
            raise Interrupted

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self.path)
        self.saved_at = time.perf_counter()
        self.clock.leave_out()
