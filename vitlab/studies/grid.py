"""The grid of a study: variants x sizes x seeds, each a run of its own. Imports no torch."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vitlab.config import StudyConfig, TrainConfig, UserError, compose, parse_override, resolved
from vitlab.config.groups import read
from vitlab.config.identity import list_changes, weight_settings
from vitlab.studies.variants import FIXED, add_words, compose_variant, list_variants, name_models

COMPOSED: list[tuple[StudyConfig, dict[str, TrainConfig]]] = []  # the last study and its variants
NAME = re.compile(r"\w[\w.+ -]{0,99}")  # of a study


def compose_study(study: str, overrides: Sequence[str]) -> StudyConfig:
    """A study by its name under configs/study/ or its file, with overrides, every variant's runs checked.

    `models=[...]` among the overrides may name variants of the file, which keep their settings. Raises UserError with
    all problems.
    """
    base = read("study", study, "study")
    if base.get("per_model"):
        base |= {"models": add_words(base.get("models"), base.pop("per_model"))}
    config = compose(StudyConfig, [choose_models(base.get("models"), word) for word in overrides], base=base)
    problems, per_model = [], config.per_model
    try:
        config = replace(config, models=add_words(config.models, per_model), per_model={})
        model_names = name_models(config.models)
        problems += [
            f"per_model.{name}: is not a model of this study; choices: {', '.join(model_names)}"
            for name in per_model
            if name not in model_names
        ]
    except UserError as error:
        problems += error.problems
    if not NAME.fullmatch(config.name):
        problems.append(f"name={config.name}: letters, digits, '_', '.', '+' and '-' only; it names the study's folder")
    try:
        compose_models(config)
    except UserError as error:
        problems += error.problems
    if problems:
        raise UserError(dict.fromkeys(problems))
    return config


def choose_models(of_file: Any, word: str) -> str | tuple[str, Any]:
    """An override; where it chooses models, a name of the file's variants stands for the whole variant."""
    try:
        key, chosen = parse_override(word)
    except UserError:
        return word  # composing says so
    if key != "models" or not isinstance(of_file, Mapping) or not isinstance(chosen, list):
        return word
    model_names = name_models(of_file)
    if not any(isinstance(name, str) and name in model_names for name in chosen):
        return word
    return key, {name: model_names.get(name, {"model": name}) for name in chosen}


@dataclass(frozen=True)
class Spec:
    """One run of a study: its folder's name, and its resolved configuration as plain containers.

    The runs of a variant share those below the top: copy them before you change one.
    """

    name: str
    config: dict[str, Any]


def name_run(variant: str, size: Any, seed: int) -> str:
    """`<variant>-n<size>-s<seed>`, safe as a folder's name."""
    return f"{re.sub(r'[^A-Za-z0-9_.+-]', '-', variant)}-n{size}-s{seed}"


def list_study_changes(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """`key old -> new` of what changes the final weights of runs between two states of one study.

    The runs are compared, so it does not matter where a key was given. The variants, sizes and seeds of a study may
    grow, and a variant that is new to it has settings of its own.
    """
    changes = [f"name {old['name']} -> {new['name']}"] if old["name"] != new["name"] else []
    before = list_variants(old)
    for name, settings in list_variants(new).items():
        try:
            runs = [
                resolved(compose_variant(study, name, of))
                for study, of in ((new, settings), (old, before.get(name, settings)))
            ]
        except UserError:  # of the old settings with a model that they were not for
            changes.append(f"set {old['set']} -> {new['set']}")
        else:
            changes += list_changes(*(weight_settings(run, contents_known=True) for run in runs))
    return list(dict.fromkeys(changes))


def compose_models(study: StudyConfig) -> dict[str, TrainConfig]:
    """One run's configuration per variant of the study, by variant. Raises UserError with the problems of all.

    Composing takes 30 ms a variant, and a start asks three times: those of the last study are kept.
    """
    for earlier, composed in COMPOSED:
        if earlier == study:
            return dict(composed)
    composed = compose_all(study)
    COMPOSED[:] = [(study, composed)]
    return dict(composed)


def compose_all(study: StudyConfig) -> dict[str, TrainConfig]:
    problems, composed = [*check_set(study)], {}
    variants: dict[str, Any] = {}
    try:
        variants = list_variants(resolved(study))
    except UserError as error:
        problems += error.problems
    for name, settings in variants.items():
        try:
            composed[name] = compose_variant(resolved(study), name, settings)
        except UserError as error:
            problems += error.problems
    folders: dict[str, str] = {}
    for name in composed:
        other = folders.setdefault(name_run(name, "", 0), name)
        if other != name:
            problems.append(f"models: '{other}' and '{name}' are alike; their runs would share a folder; rename one")
    problems += check_copies(study, composed)
    if problems:
        raise UserError(dict.fromkeys(problems))
    return composed


def check_set(study: StudyConfig) -> Iterator[str]:
    for text in study.set:
        try:
            key = parse_override(text)[0]
        except UserError:
            continue  # composing the runs says so
        top = key.partition(".")[0]
        if top in (*FIXED, "budget") or key == "model":
            yield f"set: {text}: {top} is the same for all runs of a study; give {text} without set"


def check_copies(study: StudyConfig, found: Mapping[str, TrainConfig]) -> Iterator[str]:
    """Values of axes that mean the same, such as a patch size of 6 and of auto where that is 6."""
    if study.grid:
        first: dict[str, str] = {}
        for name, config in found.items():
            settings = str(weight_settings(resolved(config), contents_known=True))
            if first.setdefault(settings, name) != name:
                yield f"grid: '{first[settings]}' and '{name}' are the same run; leave one of the values out"


def expand(study: StudyConfig, sizes: Sequence[int], variants: Mapping[str, TrainConfig] | None = None) -> list[Spec]:
    """Every run, the smallest sizes first, so that a first picture comes early.

    `variants` is what `compose_models` gives for the study, where that is at hand.
    """
    plain = [resolved(variant) for variant in (variants or compose_models(study)).values()]
    return [make_spec(variant, size, seed) for seed in study.seeds for size in sizes for variant in plain]


def configure_run(variant: TrainConfig, size: int, seed: int) -> TrainConfig:
    """The configuration of one run of a variant."""
    repeated = vars(variant.data).get("holdout") == "repeated"
    data = replace(variant.data, holdout=int(seed)) if repeated else variant.data
    return replace(variant, data=data, train_size=int(size), seed=int(seed))


def make_spec(variant: Mapping[str, Any], size: int, seed: int) -> Spec:
    """One run of a variant, from its resolved configuration."""
    data = variant["data"]
    if data.get("holdout") == "repeated":
        data = {**data, "holdout": int(seed)}
    config = {**variant, "data": data, "train_size": int(size), "seed": int(seed)}
    return Spec(name_run(config["variant"], size, seed), config)
