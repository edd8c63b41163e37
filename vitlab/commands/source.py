"""What a command's `RUN|timm:NAME` and `key=value` mean, before anything is loaded. Imports no torch."""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from vitlab.config import TrainConfig, UserError, compose, load, names, parse_override
from vitlab.training.files import RunFiles


def source_config(source: str, overrides: Sequence[str], free: Sequence[str]) -> tuple[DictConfig, set[str]]:
    """The configuration of a finished run with changes of its `free` keys, or of `timm:NAME`, and the keys given.

    Raises UserError.
    """
    if not source.startswith("timm:"):
        RunFiles(source).finished_result()
        return with_other_data(source, overrides, free), {parse_override(t)[0] for t in overrides}
    problems = []
    try:
        changed = {parse_override(text)[0] for text in overrides}
        if "data" not in changed:
            problems.append(f"{source}: give data=NAME, the images to look at; choices: {', '.join(names('data'))}")
        unread = sorted(key for key in changed if key.partition(".")[0] not in (*free, "model"))
        problems += [f"{key}: nothing here reads it; choices: {', '.join((*free, 'model'))}" for key in unread]
        if "model" in changed:
            problems.append(f"model: {source} is the model; only its fields change, as model.options.KEY=VALUE")
        config = compose(TrainConfig, overrides, base={"model": {"name": source, "pretrained": True}})
    except UserError as error:
        problems += error.problems
    if problems:
        raise UserError(problems)
    return config, changed


def with_other_data(source: str, overrides: Sequence[str], free: Sequence[str]) -> DictConfig:
    """A run's configuration with other data, changes of its other `free` keys, and what its model was trained with: the
    normalisation of images, the tokenizer of text.

    Raises UserError for any other change.
    """
    run = RunFiles(source).config()
    keys = [parse_override(text)[0] for text in overrides]
    refused = [key for key in keys if key.partition(".")[0] not in free]
    if refused:
        changes = f"only {', '.join(free)} {'changes' if len(free) == 1 else 'change'}"
        raise UserError(f"{key}: a finished run's {key.partition('.')[0]} is settled; {changes}" for key in refused)
    tokens = [key for key in keys if key in ("data.tokenizer", "data.vocabulary", "data.lowercase")]
    if tokens:
        raise UserError(f"{key}: the run's own tokenizer is taken, its model knows no other" for key in tokens)
    base = {**run, "train_size": "all"} if "data" in keys else run
    config = compose(TrainConfig, overrides, base=base)
    if config.data.modality == "text":
        config.data.tokenizer = str(RunFiles(source).tokenizer_path)
        return config
    for key in ("mean", "std"):
        if f"data.{key}" not in keys:
            config.data[key] = run["data"][key]
    return config


def analysis_options(overrides: Sequence[str]) -> dict[str, DictConfig]:
    """Analyses by name with changes of their options, each `ANALYSIS.key=value`. Raises UserError."""
    changes: dict[str, dict[str, Any]] = {}
    for text in overrides:
        path, value = parse_override(text)
        name, _, key = path.partition(".")
        if not key or key in ("name", "kind"):
            raise UserError(f"{path}: give {name}.KEY=VALUE to change one of its options, such as {name}.examples=8")
        changes.setdefault(name, {})[key] = value
    found = {name: load("analysis", {"name": name, **options}) for name, options in changes.items()}
    wrong = [name for name, options in found.items() if options.examples < 1]
    if wrong:
        raise UserError(f"{name}.examples={found[name].examples}: at least 1" for name in wrong)
    wrong = [name for name, options in found.items() if options.get("pictures", 1) < 1]
    if wrong:
        raise UserError(f"{name}.pictures={found[name].pictures}: at least 1 pixel" for name in wrong)
    return found
