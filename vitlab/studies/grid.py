"""The grid of a study: models x sizes x seeds, each a run of its own. Imports no torch."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from vitlab.config import StudyConfig, TrainConfig, UserError, compose, parse_override, resolved
from vitlab.config.groups import read
from vitlab.config.identity import list_changes, weight_settings

NAME = re.compile(r"\w[\w.+ -]{0,99}")  # of a study
FIXED = ("data", "task", "train_size", "seed", "study", "budget", "wandb")  # a study sets these for all its runs


def compose_study(study: str, overrides: Sequence[str]) -> DictConfig:
    """A study by its name under configs/study/ or its file, with overrides, every model's runs checked.

    Entries of `per_model` for models of the file that the overrides leave out are dropped. Raises UserError with all
    problems.
    """
    base = read("study", study, "study")
    config = compose(StudyConfig, overrides, base=base)
    left_out = {*(base.get("models") or [])} - {*config.models}
    config.per_model = {model: words for model, words in config.per_model.items() if model not in left_out}
    if not NAME.fullmatch(config.name):
        raise UserError(f"name={config.name}: letters, digits, '_', '.', '+' and '-' only; it names the study's folder")
    compose_models(config)
    return config


@dataclass(frozen=True)
class Spec:
    """One run of a study: its folder's name, and its resolved configuration as plain containers."""

    name: str
    config: dict[str, Any]


def name_run(model: str, size: Any, seed: int) -> str:
    """`<model>-n<size>-s<seed>`, safe as a folder's name."""
    return f"{re.sub(r'[^A-Za-z0-9_.+-]', '-', model)}-n{size}-s{seed}"


def compose_run(study: DictConfig, model: str, size: Any, seed: int) -> DictConfig:
    """The configuration of one run. Raises UserError."""
    plain = resolved(study)
    kept = {key: plain[key] for key in ("data", "task", "recipe", "budget", "trainer", "wandb", "analyses", "probes")}
    return compose(
        TrainConfig,
        [*plain["set"], *plain["per_model"].get(model, [])],
        base={**kept, "model": model, "train_size": size, "seed": seed, "study": plain["name"]},
    )


def list_study_changes(new: DictConfig, old: DictConfig) -> list[str]:
    """`key old -> new` of what changes the final weights of runs between two states of one study.

    The runs are compared, so it does not matter where a key was given. The models, sizes and seeds of a study may
    grow, and a model that is new to it may have settings of its own.
    """
    changes = [f"name {old.name} -> {new.name}"] if old.name != new.name else []
    for model in new.models:
        before = old.copy()
        if model not in old.models:
            before.per_model = new.per_model
        try:
            runs = [resolved(compose_run(study, model, "all", 0)) for study in (new, before)]
        except UserError:  # of the old settings with a model that they were not for
            changes.append(f"set {old.set} -> {new.set}")
        else:
            changes += list_changes(*(weight_settings(run, contents_known=True) for run in runs))
    return list(dict.fromkeys(changes))


def compose_models(study: DictConfig) -> dict[str, DictConfig]:
    """One run's configuration per model of the study, by model. Raises UserError with the problems of all."""
    problems = list(check_overrides(study))
    found = {}
    for model in study.models:
        try:
            found[model] = compose_run(study, model, "all", study.seeds[0])
        except UserError as error:
            problems += error.problems
    names = [name_run(config.model.name, "", 0) for config in found.values()]
    problems += [
        f"models: two are named '{config.model.name}' or alike; their runs would share a folder"
        for index, config in enumerate(found.values())
        if names[index] in names[:index]
    ]
    if problems:
        raise UserError(dict.fromkeys(problems))
    return found


def check_overrides(study: DictConfig) -> Iterator[str]:
    for model in study.per_model:
        if model not in study.models:
            yield f"per_model.{model}: is not a model of this study; choices: {', '.join(study.models)}"
    for key, texts in (("set", study.set), *((f"per_model.{m}", t) for m, t in study.per_model.items())):
        for text in texts:
            try:
                top = parse_override(text)[0].partition(".")[0]
            except UserError:
                continue  # composing the runs says so
            if top in FIXED or parse_override(text)[0] == "model":
                yield f"{key}: {text}: {top} is the same for all runs of a study; give {text} without {key}"


def expand(study: DictConfig, sizes: Sequence[int]) -> list[Spec]:
    """Every run, the smallest sizes first, so that a first picture comes early."""
    configs = compose_models(study)
    specs = []
    for seed in study.seeds:
        for size in sizes:
            for first in configs.values():
                config = first.copy()
                config.train_size, config.seed = int(size), int(seed)
                specs.append(Spec(name_run(first.model.name, size, seed), resolved(config)))
    return specs
