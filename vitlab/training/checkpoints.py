"""Read a run's checkpoint and the trained model in it. Nothing is unpickled.

Imports neither lightning nor timm: importing them takes as long as all the rest of `vitlab predict`.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitlab import models
from vitlab.config import TrainConfig, UserError, compose, first_line
from vitlab.data.text.tokenization import Tokenizer, from_file
from vitlab.files import check_regular
from vitlab.models.layers import merge_low_rank
from vitlab.training.files import RETRAINED, RunFiles
from vitlab.training.settings import evaluation_context

KEYS = ("state_dict", "global_step", "shape", "classes", "scale")


def restore_shape(state: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by which `vitlab.models.build` builds the checkpoint's model."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in state["shape"].items()}


def read_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint without unpickling. Raises UserError for a file that is not a checkpoint."""
    check_regular(path, str(path))
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


@dataclass(frozen=True)
class LoadedRun:
    """Hold a run's configuration, its trained model in eval mode on the CPU, its result, its metrics.jsonl rows.

    `shape` holds the arguments of `vitlab.models.build` for this model, `classes` the names of its classes. `scale` is
    (mean, std) of the training targets: the model predicts the number output * std + mean. `tokenizer`: of texts.
    """

    config: TrainConfig
    model: nn.Module
    shape: dict[str, Any]
    classes: tuple[str, ...]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    scale: tuple[float, float] | None = None
    tokenizer: Tokenizer | None = None


def load_run(path: str | Path) -> LoadedRun:
    """Load a finished run's folder. Raises UserError where there is none; nothing is unpickled."""
    files = RunFiles(path)
    config = compose(TrainConfig, base={**files.config(), "analyses": []})  # their files may be gone
    result = files.finished_result()
    kinds = {"steps": int, "precision": str, "settings": dict}
    if wrong := [key for key, kind in kinds.items() if not isinstance(result.get(key), kind)]:
        raise UserError(f"{files.result_path}: {', '.join(wrong)}: missing or of another type; {RETRAINED}")
    state = read_checkpoint(files.weights_path)
    shape = restore_shape(state)
    model = models.build(config.model, **shape)
    try:
        model.load_state_dict(merge_low_rank({k.removeprefix("model."): v for k, v in state["state_dict"].items()}))
    except RuntimeError as error:
        raise UserError(
            f"{files.weights_path}: does not fit this run's model ({str(error).splitlines()[0]})"
        ) from error
    tokenizer = from_file(files.tokenizer_path) if files.tokenizer_path.is_file() else None
    found = config, model.eval(), shape, tuple(state["classes"]), result, files.metrics(), state["scale"], tokenizer
    return LoadedRun(*found)


def place_run(loaded: LoadedRun) -> tuple[nn.Module, AbstractContextManager]:
    """Move a run's model to a GPU if there is one; return the model and autocast in the precision of its training."""
    device, autocast = evaluation_context(loaded.result["precision"], evaluation_accelerator(loaded.config))
    model = loaded.model.to(device)
    if loaded.result["settings"].get("memory_format") == "channels_last":
        model.to(memory_format=torch.channels_last)
    return model, autocast


def evaluation_accelerator(config: TrainConfig) -> str:
    """Choose the accelerator to evaluate a run on: a machine without a GPU can evaluate a run trained on a GPU."""
    return "cpu" if config.trainer.accelerator == "cpu" else "auto"
