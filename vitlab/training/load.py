"""Models loaded to be used: a finished run's or one of timm, with data to look at, or a language model to write."""

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import nn

from vitlab import models
from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.opening import open_data
from vitlab.data.text.tokenization import Tokenizer
from vitlab.models import count
from vitlab.models.heads import LanguageModel
from vitlab.models.timm_adapter import pretrained_cfg
from vitlab.models.weights.huggingface import load_huggingface
from vitlab.training import checkpoint
from vitlab.training.files import RunFiles


@dataclass(frozen=True)
class LoadedRun:
    """A run's configuration, its trained model in eval mode on the CPU, its result, its metrics.jsonl rows.

    `shape` is what the model was built for, as `vitlab.models.build` takes it; `classes` are the names of its classes.
    """

    config: DictConfig
    model: nn.Module
    shape: dict[str, Any]
    classes: tuple[str, ...]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]


def load_run(path: str | Path) -> LoadedRun:
    """Load a finished run's folder. Raises UserError where there is none; nothing is unpickled."""
    files = RunFiles(path)
    config = compose(TrainConfig, base=files.config())
    result = files.finished_result()
    state = checkpoint.read(files.checkpoint_path)
    shape = checkpoint.shape_of(state)
    model = models.build(config.model, **shape)
    try:
        model.load_state_dict({k.removeprefix("model."): v for k, v in state["state_dict"].items()})
    except RuntimeError as error:
        raise UserError(
            f"{files.checkpoint_path}: is not of this run's model ({str(error).splitlines()[0]})"
        ) from error
    return LoadedRun(config, model.eval(), shape, tuple(state["classes"]), result, files.metrics())


@dataclass(frozen=True)
class Subject:
    """A model to look at, the data to show it, and where its analyses go."""

    name: str
    model: nn.Module
    data: Any  # as `vitlab.data.load` gives it
    step: int
    folder: Path
    strange: str  # why the model's outputs do not mean the data's classes; empty when they do


def load_subject(source: str, config: DictConfig, changed: Set[str]) -> Subject:
    """A run's folder, or `timm:NAME`, with the data of a configuration of which the user gave the keys `changed`.

    Raises UserError, also for images of another shape than the model takes.
    """
    return (
        load_timm_subject(source, config, changed) if source.startswith("timm:") else load_run_subject(source, config)
    )


def load_run_subject(source: str, config: DictConfig) -> Subject:
    """A finished run and the data of a configuration. The numbers of training itself stay where they are."""
    loaded, data = load_run(source), open_data(config.data)
    refuse_misfit(loaded, data)
    folder = RunFiles(source).analysis_folder / "trained"
    strange = "; ".join(other_classes(loaded, data))
    name = RunFiles(source).folder.resolve().name
    return Subject(name, loaded.model, data, loaded.result["steps"], folder, strange)


def load_timm_subject(source: str, config: DictConfig, changed: Set[str]) -> Subject:
    """A model of timm at its own image size and normalisation, unless the user changed them."""
    cfg = pretrained_cfg(source.removeprefix("timm:"))
    if cfg is not None and "data.image_size" not in changed:
        config.data.image_size = list(cfg.input_size[1:])
    data = open_data(config.data)
    if cfg is not None and data.channels == 3 and not changed & {"data.mean", "data.std"}:
        config.data.mean, config.data.std = list(cfg.mean), list(cfg.std)
    shape = {**data.shape, "num_classes": len(data.classes)}
    count.flops(count.meta(config.model, **shape), shape)  # refuses images that do not fit
    model = models.build(config.model, **shape).eval()
    folder = Path("runs") / source.replace(":", "-").replace("/", "-") / "analysis"
    strange = ""
    if cfg is None or not config.model.pretrained or cfg.num_classes != len(data.classes):
        strange = f"{source} was not trained on the classes of {data.name}"
    return Subject(source, model, data, 0, folder, strange)


def refuse_misfit(run: LoadedRun, data: Any) -> None:
    """Raise UserError unless a run's model takes these data: images of its size, or no longer texts in its tokens."""
    unfit = {key: value for key, value in data.shape.items() if value != run.shape[key]}
    if unfit.get("length", 0) < run.shape.get("length", 0):
        unfit.pop("length", None)
    if unfit:
        raise UserError(misfit(data, key, value, run.shape[key]) for key, value in unfit.items())


def other_classes(run: LoadedRun, data: Any) -> list[str]:
    """What is different about the data's classes, in a line; empty when they are the run's, or it has none."""
    if not run.classes:
        return []
    if len(data.classes) != len(run.classes):
        return [misfit(data, "num_classes", len(data.classes), len(run.classes))]
    pairs = [pair for pair in zip(run.classes, data.classes, strict=True) if pair[0] != pair[1]]
    if not pairs:
        return []
    mine, other = pairs[0]
    return [f"data={data.name}: its classes are not the run's: '{other}' stands in the place of '{mine}'"]


def misfit(data: Any, key: str, value: object, wanted: object) -> str:
    value, wanted = (list(v) if isinstance(v, tuple) else v for v in (value, wanted))
    return f"data={data.name}: has {key}={value}, the run's model was trained for {wanted}"


def load_language_model(source: str) -> tuple[LanguageModel, Tokenizer]:
    """A finished run's model and its tokenizer, or those of a folder of Hugging Face's. Raises UserError."""
    folder = Path(source)
    if not RunFiles(folder).config_path.exists() and (folder / "config.json").exists():
        model, report = load_huggingface(folder)
        if lacking := [name for name in report.missing if name.startswith("text.")]:
            raise UserError(f"{source}: its weights lack {len(lacking)} of the model's tensors, such as {lacking[0]}")
        path = folder / "tokenizer.json"
    else:
        model, path = load_run(source).model, RunFiles(source).tokenizer_path
    if not isinstance(model, LanguageModel):
        raise UserError(f"{source}: {type(model).__name__} is not a causal LM; give a run of task=causal_lm")
    if not path.is_file():
        raise UserError(f"{source}: has no tokenizer.json, which turns text into tokens")
    tokenizer = Tokenizer.load(path)
    if tokenizer.size > model.vocabulary:
        raise UserError(
            f"{path}: has {tokenizer.size} tokens, but the model has {model.vocabulary}; it belongs to another model"
        )
    return model, tokenizer
