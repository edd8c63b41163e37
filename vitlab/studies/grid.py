"""Expand a study's grid into runs: models, with own settings, x axes x sizes x seeds. Imports no torch."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, NamedTuple

from vitlab.config import (
    StudyConfig,
    TrainConfig,
    UserError,
    collecting,
    compose,
    parse_override,
    raise_all,
    resolved,
    to_text,
)
from vitlab.config.checks import TRIALS, apply_factors, list_settings
from vitlab.config.errors import key_of
from vitlab.config.groups import assign, keys_per_study, read, structured
from vitlab.config.identity import flatten, get_value, list_changes, weight_settings
from vitlab.config.schema.fields import Choice

# ---- variants


Settings = dict[str, Any]  # "model", a name or a file, then dotted keys of one run
SHARED = [field.name for field in fields(StudyConfig) if field.name in TrainConfig.__dataclass_fields__]
FIXED = keys_per_study(TrainConfig)
# how a model sees the same items: enlarged, normalised, augmented
SEEN = re.compile(r"data\.(label_noise|image_size|mean|std|augment\.\w+)")
DRAWN = ("glyphs", "pointer", "arrow", "captioned_glyphs")  # kinds of data whose pictures of another size are others
EXAMPLE = "models={a: vit_nano, b: {model: vit_nano, recipe.lr: 0.001}}"
FEW = 4  # compose so many models of a study with another mistake: the answer takes under half a second
MOST = 64  # models of a pattern
TRIAL = " trial="  # in the name of a trial, between its variant's and its number


def name_models(models: Any) -> dict[str, Settings]:
    """Return each model's settings by its name, from a list or a mapping of named variants. Raises UserError."""
    problems, named = [], {}
    if isinstance(models, list):
        problems = [f"models={models}: expected names, not {to_text(m)}" for m in models if not isinstance(m, str)]
        twice = [m for index, m in enumerate(models) if m in models[:index]]
        problems += [f"models: '{m}' is given twice; name variants, for example {EXAMPLE}" for m in twice]
        named = {} if problems else {model: {"model": model} for model in models}
    elif isinstance(models, Mapping):
        for name, given in models.items():
            settings = {"model": given} if isinstance(given, str) else given
            if not isinstance(settings, Mapping) or not isinstance(settings.get("model"), str):
                problems.append(f"models.{name}={to_text(given)}: needs a model; for example {EXAMPLE}")
            elif not isinstance(name, str):
                problems.append(f"models: {name} is a number; a name is text: write '{name}' in quotes, or another")
            else:
                named[name] = dict(flatten(settings))
    else:
        problems = [f"models={to_text(models)}: expected a list, for example models=[{to_text(models)}]"]
    if not problems and not named:
        problems = ["models=[]: needs at least one"]
    raise_all(problems)
    return named


def compose_variant(study: Mapping[str, Any], name: str, settings: Settings) -> TrainConfig:
    """Compose the configuration of a variant's runs, at the whole training set and seed 0. Raises UserError."""
    base = {**{key: study[key] for key in SHARED}, "study": study["name"], "model": settings["model"], "variant": name}
    changes = [(key, value) for key, value in settings.items() if key != "model"]
    return compose(TrainConfig, [*study["set"], *changes], base=base)


def compose_trials(study: Mapping[str, Any], settings: Settings, variant: TrainConfig) -> dict[str, TrainConfig]:
    """Compose the trials of a variant by their names, `vit_nano trial=3`; the variant alone if nothing is tuned.

    Raises UserError with all problems.
    """
    if not study["tune"]:
        return {variant.variant: variant}
    trials, problems = {}, dict[str, str]()  # the first problem of a key: a range draws many values
    for number, values in enumerate(list_settings(study["tune"]), 1):
        try:
            values = apply_factors(values, resolved(variant))
            trial = compose_variant(study, variant.variant, settings | values)
            trials[name_trial(variant.variant, number)] = replace(trial, trial=number)
        except UserError as error:
            for line in error.problems:
                problems.setdefault(key_of(line), f"tune.{line}" if key_of(line) in values else line)
    raise_all(problems.values())
    return trials


def list_variants(study: Mapping[str, Any]) -> dict[str, Settings]:
    """List every variant by its name. Raises UserError with all problems."""
    variants = find_variants(study, problems := [], {})
    raise_all(dict.fromkeys(problems))
    return variants


def find_variants(
    study: Mapping[str, Any], problems: list[str], composed: dict[str, TrainConfig], most: int | None = None
) -> dict[str, Settings]:
    """Find variants by their names, `vit_nano patch_size=4`: each model with each value of the axes that apply to it.

    Skip an axis for a model that lacks its key or sets the key itself. One axis may depend on an earlier one:
    `model.mixer.kernel` on `model.mixer`. Add problems of wrong variants to `problems`, and configurations of models
    that no axis varies to `composed`. With `most`, examine only the first `most` models.
    """
    models, named, axes, used = study["models"], {}, {}, set()
    for part in [{name: models[name]} for name in models] if isinstance(models, Mapping) and models else [models]:
        with collecting(problems):
            named |= name_models(part)
    for key, values in flatten(study["grid"]):
        with collecting(problems):
            axes |= read_axes({key: values})
    problems += check_keys(named, axes, dict(flatten(study["tune"])), get_value(study, "data.kind"))
    axes.pop("model", None)
    labels = {key: key.rpartition(".")[2] for key in axes}
    labels = {key: key if [*labels.values()].count(label) > 1 else label for key, label in labels.items()}
    variants: list[tuple[str, Settings]] = []
    is_whole = bool(named) and most is None
    for name, settings in islice(named.items(), most):
        try:
            config = compose_variant(study, "", settings)
        except UserError as error:
            own = settings.keys() - {"model"} if isinstance(models, Mapping) else ()
            lines = [re.sub("^model=", "models=", line) for line in error.problems]
            problems += [f"models.{name}: {line}" if key_of(line) in own else line for line in lines]
            is_whole = False
            continue
        # a listed model has its file's name, a named variant the user's name
        name = config.model.name if isinstance(study["models"], list) else name
        grown = [(name, settings)]
        for key, values in axes.items():
            before, grown = grown, []
            for label, one in before:
                if any(isinstance(look_up(config, key), Choice) for key in one.keys() - settings.keys()):
                    with collecting(problems):
                        config = compose_variant(study, "", one)
                used |= {key} if key in settings else set()
                if key in settings or look_up(config, key) is MISSING:
                    grown.append((label, one))
                    continue
                used.add(key)
                grown += [(f"{label} {describe_value(labels[key], value)}", {**one, key: value}) for value in values]
        variants += grown
        if grown == [(name, settings)]:
            composed[name] = replace(config, variant=name)
    folders: dict[str, str] = {}
    for label, _ in variants:
        folder = name_run(label, "", 0)
        if folder in folders:
            alike = f"'{folders[folder]}' and '{label}' are alike; their runs would share a folder"
            problems.append(f"models, grid: {alike}; name variants, for example {EXAMPLE}")
            break
        folders[folder] = label
    if is_whole and (unused := axes.keys() - used):  # name the nearest key of the first model
        node = structured(compose_variant(study, "", next(iter(named.values()))))
        reasons = [next(iter(assign(node, key, None))) for key in axes if key in unused]
        problems += [f"grid.{why} (no model of this study has it)" for why in reasons]
    return dict(variants)


def read_axes(grid: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Read each axis's values by its dotted key. Raises UserError."""
    axes = dict(flatten(grid))
    raise_all(
        f"grid.{key}={to_text(values)}: expected its values, for example grid.{key}=[{to_text(values or '0.001,0.01')}]"
        for key, values in axes.items()
        if not isinstance(values, list) or not values
    )
    return axes


def check_keys(
    named: Mapping[str, Settings], axes: Mapping[str, Any], tune: Mapping[str, Any], kind: str | None
) -> Iterator[str]:
    """Yield a problem for each key that a variant or an axis may not set; `kind` is of the data."""
    for place, keys in (("grid", axes), *((f"models.{name}", settings) for name, settings in named.items())):
        for key in keys:
            if key == "model" and place == "grid":
                yield f"grid.model: give the models in models=[{','.join(map(str, axes[key]))}]"
            elif key == "data.image_size" and kind in DRAWN:
                yield f"{place}: {key}: data of kind {kind} draws other pictures then; give it for the study"
            elif (top := key.partition(".")[0]) in FIXED and not SEEN.fullmatch(key):
                yield f"{place}: {key}: {top} is the same for all runs of a study; give it for the study"
            elif key in tune and place == "grid":  # a variant may set it: tuned factors multiply its value
                yield f"grid.{key}: tune chooses its value; leave it out here, or out of tune"


def look_up(config: TrainConfig, key: str) -> Any:
    """Return a configuration's value at a dotted key, or the open mapping on its way; MISSING if it has no such key."""
    node: Any = config
    for part in key.split("."):
        if isinstance(node, Mapping):
            return node
        node = vars(node).get(part, MISSING) if is_dataclass(node) else MISSING
    return node


def describe_value(label: str, value: Any) -> str:
    """Describe an axis's value in a variant's name: `patch_size=4`, `widths=16,32`, `steps=1000`."""
    if isinstance(value, Mapping):
        named = [f"{label}={value['name']}"] if "name" in value else []
        return " ".join([*named, *(describe_value(k, v) for k, v in flatten(value) if k != "name")])
    return f"{label}={format_value(value)}"


def format_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(short := f"{value:g}") == value:
        return short
    return to_text(value)


def list_varied_keys(study: Mapping[str, Any]) -> list[str]:
    """List keys that variants, axes or trials set: columns of results.csv, without `budget`, which always has one."""
    models = study.get("models")
    named = models.values() if isinstance(models, Mapping) else ()
    keys = [key for settings in named if isinstance(settings, Mapping) for key, _ in flatten(settings)]
    keys += [key for part in ("grid", "tune") for key, _ in flatten(study.get(part) or {})]
    return [key for key in dict.fromkeys(keys) if key.partition(".")[0] not in ("budget", TRIALS) and key != "model"]


def read_varied(config: Mapping[str, Any], keys: list[str]) -> dict[str, Any]:
    """Read a run's values of these keys, as one cell each, from its resolved configuration; None for a missing key."""
    columns = {}
    for key in keys:
        value = get_value(config, key)
        if isinstance(value, Mapping):  # a group's choice, or first weights
            value = value.get("name") or value.get("weights") or value.get("encoder")
        columns[key] = format_value(value) if isinstance(value, list) else value
    if "subset_seed" in columns and columns["subset_seed"] is None:
        columns["subset_seed"] = config.get("seed")
    return columns


def merge_variants(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two starts of one study, resolved, into `models`, `grid` and `tune` that ask for the runs of both.

    Join two lists of models. Otherwise put each variant with its settings into `models`, and leave no axis.
    """
    tune = {"tune": max((of.get("tune") or {} for of in (new, old)), key=lambda tune: len(list_settings(tune)))}
    if all(old.get(key) == new.get(key) for key in ("models", "grid")):
        return tune
    models = [old["models"], new["models"]]
    if all(isinstance(one, list) for one in models) and not (old.get("grid") or new.get("grid")):
        return tune | {"models": list(dict.fromkeys(models[0] + models[1]))}
    return tune | {"models": list_variants(old) | list_variants(new), "grid": {}}


# ---- runs


COMPOSED: list[tuple[dict[str, Any], dict[str, TrainConfig]]] = []  # the last study and its variants
NAME = re.compile(r"\w[\w.+ -]{0,99}")  # of a study


def compose_study(study: str, overrides: Sequence[str]) -> StudyConfig:
    """Compose a study from its name under configs/study/ or its file, with overrides; check every variant's runs.

    `models=[...]` among the overrides may name variants of the file, which keep their settings. Raises UserError with
    all problems.
    """
    base = dict(read("study", study, "study"))
    words = [choose_models(base.get("models"), word) for word in overrides]
    words = [(word[0], match_timm(word[1])) if isinstance(word, tuple) else word for word in words]
    base |= {"models": match_timm(base["models"])} if "models" in base else {}
    words.sort(key=lambda word: isinstance(word, str))  # first the choice of variants, which replaces all of the file's
    given = any(isinstance(word, str) and word.startswith("budget") for word in words)
    listed = list_budgets(("budget", base.get("budget") or {}))
    if listed != [("budget", base.get("budget") or {})]:
        del base["budget"]
        words = [*([] if given else listed), *words]
    words = [each for word in words for each in list_budgets(word)]
    return compose(StudyConfig, words, base, also=check_study)


def list_budgets(word: str | tuple[str, Any]) -> list[str | tuple[str, Any]]:
    """Turn budgets in a list, `budget.steps=[500,1000]`, into an axis of the grid; return any other word as it is."""
    with suppress(UserError):  # composing says so
        pairs = [*flatten(dict([parse_override(word) if isinstance(word, str) else word]))]
        if any(key.partition(".")[0] == "budget" and isinstance(values, list) for key, values in pairs):
            return [(f"grid.{key}", values) for key, values in pairs]
    return [word]


def check_study(study: dict[str, Any], is_wrong: bool) -> None:
    """Raise UserError for a name that cannot name a folder, and for wrong variants (of a wrong study the first few)."""
    study["set"] = [word for word in study["set"] if isinstance(word, str)]  # other words are reported already
    problems, wanted = [], "letters, digits, '_', '.', '+' and '-' only; it names the study's folder"
    if not NAME.fullmatch(study["name"]):
        problems.append(f"name={study['name']}: {wanted}")
    with collecting(problems):
        runs = [run for run in compose_models(study, FEW if is_wrong else None).values() if run.recipe.cooldown]
        if len({str(run.budget) for run in runs}) > 1:
            shares = dict.fromkeys(run.recipe.warmup for run in runs if 0 < run.recipe.warmup < 1)
            alike = "a share of the steps differs between budgets, which begin alike with recipe.cooldown"
            problems += [f"recipe.warmup={share:g}: {alike}; give it in steps, such as 50" for share in shares]
    raise_all(problems)


def choose_models(of_file: Any, word: str) -> str | tuple[str, Any]:
    """Parse an override; in a choice of models, replace the name of a file's variant by the whole variant."""
    with suppress(UserError):  # composing says so
        key, chosen = parse_override(word)
        if key == "models" and isinstance(chosen, list):
            named = name_models(of_file) if isinstance(of_file, Mapping) else {}
            if any(isinstance(name, str) and name in named for name in chosen):
                return key, {name: named.get(name, {"model": name}) for name in chosen}
            return key, chosen
    return word


def match_timm(models: Any) -> Any:
    """Match patterns in a list of models, such as `timm:resnet18*`, with timm's names. Raises UserError."""
    found = []
    for model in models if isinstance(models, list) else ():
        names = [model]
        if isinstance(model, str) and re.match(r"timm:.*[*?[]", model):
            import timm  # 7 s

            names, stem = [f"timm:{name}" for name in timm.list_models(model[5:])], re.sub(r"\W", "", model[5:])
            near = sorted(timm.list_models(), key=lambda name: SequenceMatcher(None, stem, name[: len(stem)]).ratio())
            if not 0 < len(names) <= MOST:
                many, none = f"{len(names)} models of timm, more than {MOST}", f"none; near: {', '.join(near[-6:])}"
                raise UserError(f"models={model}: {many if names else none}; give another pattern")
        found += [name for name in names if name == model or name not in found]
    return found if isinstance(models, list) else models


class Spec(NamedTuple):
    """A run of a study: variant or trial, size and seed, and its resolved configuration as plain containers.

    Runs of a variant share the containers below the top level: copy them before you change one.
    """

    variant: str
    size: int
    seed: int
    config: dict[str, Any]

    @property
    def name(self) -> str:
        return name_run(self.variant, self.size, self.seed)


def name_run(variant: str, size: Any, seed: int) -> str:
    """Name a run `<variant>-n<size>-s<seed>`, safe as a folder's name."""
    return f"{re.sub(r'[^A-Za-z0-9_.+-]', '-', variant)}-n{size}-s{seed}"


def list_study_changes(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """List, as `key old -> new`, the changes between two states of a study that alter the final weights of runs.

    Compare the runs, so the place where a key was given does not matter. A study may gain variants, trials, sizes and
    seeds; a new variant has settings of its own.
    """
    changes = [f"name {old['name']} -> {new['name']}"] if old["name"] != new["name"] else []
    if any(one != other for one, other in zip(*(list_settings(of["tune"]) for of in (new, old)), strict=False)):
        changes.append(f"tune {old['tune']} -> {new['tune']}")
    before = list_variants(old)
    for name, settings in list_variants(new).items():
        try:
            runs = [
                resolved(compose_variant(study, name, of))
                for study, of in ((new, settings), (old, before.get(name, settings)))
            ]
        except UserError:  # the old settings do not fit a new model
            changes.append(f"set {old['set']} -> {new['set']}")
        else:
            changes += list_changes(*(weight_settings(run, contents_known=True) for run in runs))
    return list(dict.fromkeys(changes))


def compose_models(study: StudyConfig | dict[str, Any], most: int | None = None) -> dict[str, TrainConfig]:
    """Compose a run's configuration for each variant of the study, or each of its trials, by their names.

    Keep the last study's configurations: composing takes 30 ms a variant, and a start asks three times. Raises
    UserError with all problems.
    """
    study = study if isinstance(study, dict) else resolved(study)
    if COMPOSED and COMPOSED[0][0] == study:
        return dict(COMPOSED[0][1])
    problems, known, composed = [], {}, {}
    for text in study["set"]:
        key = ""
        with suppress(UserError):  # composing the runs says so
            key = parse_override(text)[0]
        top = key.partition(".")[0]
        if top in (*FIXED, "budget") or key == "model":
            problems.append(f"set: {text}: {top} is the same for all runs of a study; give {text} without set")
    for name, settings in islice(find_variants(study, problems, known, most).items(), most):
        with collecting(problems):
            variant = known[name] if name in known else compose_variant(study, name, settings)
            composed |= compose_trials(study, settings, variant)
    raise_all(dict.fromkeys(problems))
    if most is None:
        COMPOSED[:] = [(study, composed)]
    return dict(composed)


def expand(study: StudyConfig, sizes: Sequence[int]) -> list[Spec]:
    """List every run, the smallest sizes first, so that a first picture comes early."""
    plain = [resolved(variant) for variant in compose_models(study).values()]
    return [make_spec(variant, size, seed) for seed in study.seeds for size in sizes for variant in plain]


def list_shorter(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """List for each variant with a cooldown the variants whose steps it shares: they differ only in a smaller budget.

    `variants` are resolved configurations. Variants with a warm-up as a share of the steps, or with analyses on the
    way, share none.
    """
    families: dict[str, list[tuple[float, str]]] = {}
    for name, config in variants.items():
        recipe, looks = config["recipe"], config["analyses"] and config["trainer"]["analyze_every"]
        if recipe["cooldown"] and not 0 < recipe["warmup"] < 1 and not looks:
            unit, value = next((unit, value) for unit, value in config["budget"].items() if value is not None)
            alike = weight_settings({**config, "budget": unit}, contents_known=True)
            families.setdefault(json.dumps(alike, sort_keys=True), []).append((value, name))
    return {name: [other for least, other in some if least < most] for some in families.values() for most, name in some}


def make_spec(variant: Mapping[str, Any], size: int, seed: int) -> Spec:
    """Make a run of a variant, or of a trial, from its resolved configuration."""
    data = variant["data"]
    if data.get("holdout") == "repeated":
        data = {**data, "holdout": int(seed)}
    config = {**variant, "data": data, "train_size": int(size), "seed": int(seed)}
    return Spec(name_trial(config["variant"], config["trial"]), int(size), int(seed), config)


def name_trial(variant: str, trial: Any) -> str:
    """Name a trial `vit_nano trial=3`, as runs.json does; name any other run by its variant."""
    return f"{variant}{TRIAL}{trial}" if trial else variant
