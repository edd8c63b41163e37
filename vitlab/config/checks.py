"""Checks of a composed configuration that a type cannot express. Each problem is one line."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf

from vitlab.config import groups
from vitlab.config.errors import UserError, choices_text, key_of, to_text
from vitlab.config.groups import check_missing, check_ranges
from vitlab.config.identity import get_value
from vitlab.config.schema import RecipeConfig
from vitlab.config.schema.fields import LARGEST_IMAGE, default_of


def find_problems(config: DictConfig) -> list[str]:
    """List each problem of a configuration as one line; a key out of its range is not used to judge other keys."""
    ranges = [*check_ranges(config), *check_missing(config)]
    keys, problems = {*map(key_of, ranges)}, [line for _, _, line in groups.find_idle(config)]
    if "budget" in config:
        ranges += check_budget(config.budget)
    for key in ("train_size", "sizes", "data.sizes", "seeds"):  # `models` may be a mapping: see vitlab.studies.grid
        values = OmegaConf.select(config, key)
        listed = list(values) if isinstance(values, ListConfig) else [values]
        if values is not None and key != "seeds":
            infinite = [value for value in listed if isinstance(value, float) and not math.isfinite(value)]
            wrong = [value for value in listed if not is_size(value) and value not in infinite]  # `ranges` says those
            problems += [f"{key}={value}: {SIZES}" for value in wrong]
        if isinstance(values, ListConfig):
            twice = dict.fromkeys(str(value) for value in listed if listed.count(value) > 1)
            problems += [f"{key}=[]: needs at least one"] * (not listed)
            problems += [f"{key}={values}: '{value}' is given twice" for value in twice]
    for probe in config.get("probes", []):
        name, _, data = str(probe).partition("@")
        if name not in groups.names("probe"):
            problems.append(f"probes={probe}: unknown probe; {choices_text(name, groups.names('probe'))}")
        if (data or name == "finetune") and data not in groups.names("data"):
            problems.append(f"probes={name}@{data}: unknown data; {choices_text(data, groups.names('data'))}")
    for entry in config.get("eval_on", []):
        name, known = entry.partition("@")[0], groups.names("data")
        if name not in known and not name.endswith((".yaml", ".yml")):
            problems.append(f"eval_on={entry}: unknown data; {choices_text(name, known)}")
    metric, _, data = str(OmegaConf.select(config, "task.metric")).partition("@")
    is_probe = metric.startswith(tuple(groups.names("probe")))
    if data and not is_probe and data not in config.get("eval_on", []):
        problems.append(f"task.metric={metric}@{data}: is of other test data; give eval_on=[{data}]")
    for probe in groups.names("probe"):
        wanted = f"{probe}@{data}" if data else probe
        if metric.startswith(probe) and wanted not in config.get("probes", []):
            problems.append(
                f"task.metric={OmegaConf.select(config, 'task.metric')}: is a probe's number; give probes=[{wanted}]"
            )
    if config.get("init") is not None and None not in (config.init.weights, config.init.encoder):
        both = f"init.encoder={config.init.encoder}: init.weights={config.init.weights}"
        problems.append(f"{both} has one too; give one of them")
    if isinstance(config.get("recipe"), DictConfig):
        problems += [*check_recipe(config.recipe, config.get("model")), *check_excluded(config)]
    for check in (check_analyses, check_modalities, check_captioner, check_images, check_data):
        problems += check(config)
    return [*ranges, *(problem for problem in problems if not judges_by(problem, keys))]


def judges_by(problem: str, keys: Iterable[str]) -> bool:
    """Tell whether a line judges its own key by another one, which is among these."""
    ends = {key: r"(?![\w.])" if "." in key else "[=)]" for key in keys}  # "the data" is no key
    rest = problem.partition(":")[2]
    return any(re.search(rf"(?<![\w.]){re.escape(key)}{end}", rest) for key, end in ends.items())


def check_paths(data: Any) -> Iterator[str]:
    """Yield a line for each file or folder that data name and that is missing, worded as opening the data would."""
    for field in fields(OmegaConf.get_type(data)) if isinstance(data, DictConfig) else ():
        is_needed = field.metadata.get("path") and default_of(field) in (MISSING, None)  # others are downloaded
        value = None if OmegaConf.is_missing(data, field.name) else data[field.name]
        if is_needed and field.type is not Any and value and not Path(value).expanduser().exists():
            yield f"data.{field.name}={value}: no such file or folder"


def check_analyses(config: DictConfig) -> Iterator[str]:
    """Yield problems of analyses, by name or as YAML files, that cannot be loaded or write to the same files."""
    loaded: dict[str, str] = {}
    for choice in config.get("analyses", []):
        try:
            analysis = groups.load_node("analysis", choice, key="analyses")
        except UserError as error:
            yield from error.problems
            continue
        yield from find_misfit(analysis, config.get("task"))
        yield from check_ranges(analysis, f"{analysis.name}.")
        if (other := loaded.setdefault(analysis.name, choice)) != choice:
            yield f"analyses={choice}: is named '{analysis.name}' like {other}; give it another name in its file"


def find_misfit(chosen: Any, task: Any) -> Iterator[str]:
    """Yield a line for an analysis that is not for the kinds of targets of a task, with the shipped ones that are."""
    of = set(task.of) if task else set()  # of a user's own task perhaps not known before it is built
    if of and chosen.of and not of & {*chosen.of}:
        fitting = [name for name, node in read_shipped("analysis") if of & {*(node.of or of)}]
        yield (
            f"analyses={chosen.name}: is for {', '.join(chosen.of)}, but task={task.name} gives {', '.join(task.of)}; "
            f"{choices_text('', fitting)}"
        )


def check_budget(node: DictConfig, path: str = "budget") -> Iterator[str]:
    """Yield a problem unless there is exactly one unit; a recipe's own budget may have none."""
    given = {key: value for key, value in node.items() if value is not None}
    shown = " and ".join(f"{path}.{key}={value}" for key, value in given.items())
    if path == "budget" and len(given) != 1:
        yield f"{shown or 'no budget'}: give exactly one of {', '.join(f'budget.{k}' for k in node)}"
    elif len(given) > 1:
        yield f"{shown}: give at most one; to train shorter or longer, give budget.{next(iter(given))}=N"


SIZES = "a size is a whole number of examples, a share of them up to 1.0, or all"


def is_size(value: Any) -> bool:
    """Tell whether a value is a count (int), a share (float above 0, at most 1.0) or `all`."""
    if isinstance(value, float):
        return 0 < value <= 1
    return value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)


HOLDS = {"image": "images", "text": "text"}


def check_modalities(config: DictConfig) -> Iterator[str]:
    """Yield problems of a task, a model or probes that do not fit this modality of data."""
    data = config.get("data")
    if not isinstance(data, DictConfig):
        return
    for probe in config.get("probes") or []:
        name, _, other = probe.partition("@")
        if data.modality == "text" and name != "finetune":
            yield f"probes={probe}: needs images, but data={data.name} has text; give probes=[finetune@DATA]"
        elif name in groups.names("probe") and (not other or other in groups.names("data")):
            yield from check_probe(name, other, config)
    for group in ("task", "model"):
        node = config.get(group)
        if isinstance(node, DictConfig) and node.modality != data.modality:
            yield (
                f"{group}={node.name}: takes {HOLDS[node.modality]}, but data={data.name} has {HOLDS[data.modality]}; "
                f"{list_fitting(group, 'modality', data.modality)}"
            )


def check_probe(name: str, other: str, config: DictConfig) -> Iterator[str]:
    """Yield a problem of a probe that finds no one class of each item, in the run's own data or in `other` data."""
    of, task = {*groups.load_node("probe", name).of}, config.get("task")
    data, modality = config.data, config.data.modality
    if other:
        data = groups.load_node("data", other)
        task = groups.load_node("task", data.task)
    why = f"needs {HOLDS[modality]}, but data={data.name} has {HOLDS[data.modality]}"
    if data.modality == modality:
        if not isinstance(task, DictConfig) or not task.of or of & {*task.of}:
            return
        why = f"needs one class of each item, but data={data.name} is for task={task.name}"
    tasks = [name for name, node in read_shipped("task") if of & {*node.of}]
    fitting = [name for name, node in read_shipped("data") if node.task in tasks and node.modality == modality]
    shown = f"{name}@{other}" if other else name
    yield f"probes={shown}: {why}; give probes=[{name}@DATA], {choices_text('', fitting)}"


def list_fitting(group: str, key: str, value: str) -> str:
    """List the shipped choices of a group that have this value of a key, as words of a message."""
    return choices_text("", [name for name, node in read_shipped(group) if node[key] == value])


def read_shipped(group: str) -> Iterator[tuple[str, DictConfig]]:
    """Read the shipped choices of a group; their nodes are not to be changed, so none is copied."""
    for name in groups.names(group):
        yield name, groups.load_shipped(group, name, group)


def check_data(config: DictConfig) -> Iterator[str]:
    """Yield problems of ranges, and of a loss of next tokens with a bidirectional model."""
    for key in ("augment.crop_scale", "augment.crop_aspect", "scale", "large"):
        value = OmegaConf.select(config, f"data.{key}")
        if isinstance(value, ListConfig) and (len(value) != 2 or value[0] > value[1]):
            yield f"data.{key}={value}: give [min,max]"
    if "." not in (subset := OmegaConf.select(config, "subset") or ".") and subset != "nested":
        yield f"subset={subset}: give nested, or PACKAGE.MODULE with a function order(split, seed)"
    weight = OmegaConf.select(config, "task.auxiliary_lm")
    if weight and OmegaConf.select(config, "model.causal") is False:
        yield f"task.auxiliary_lm={weight}: model={config.model.name} is bidirectional, it sees the next token; give 0"


def extent(value: Any) -> tuple[int, int]:
    """Return (height, width) of a side or a pair."""
    if isinstance(value, int):
        return value, value
    height, width = value
    return int(height), int(width)


def read_image_size(config: DictConfig) -> tuple[int, int] | None:
    """Read the (height, width) that a configuration's model takes; None if there is none, or an invalid one."""
    key = "data.image_size" if isinstance(config.get("data"), DictConfig) else "image_size"
    value = OmegaConf.select(config, key)
    if value is None or (isinstance(value, ListConfig) and len(value) != 2):
        return None
    return extent(value) if all(1 <= side <= LARGEST_IMAGE for side in extent(value)) else None


MOST_ALONG = 16  # patches along a side, with model.patch_size=auto: 37 pixels would be 37 x 37 tokens


def choose_patch(side: int) -> int:
    """Choose the largest patch that divides an image's side and leaves 4 to 16 along it: 24 -> 6; 0 for none."""
    patch = max(patch for patch in range(1, max(1, side // 4) + 1) if side % patch == 0)
    return patch if side <= patch * MOST_ALONG else 0


def check_images(config: DictConfig) -> Iterator[str]:
    """Yield problems of image size, patch size and heads, of a model and of a captioner's encoder."""
    image_key = "data.image_size" if isinstance(config.get("data"), DictConfig) else "image_size"
    for key in (image_key, "model.patch_size", "model.encoder.patch_size"):
        value = OmegaConf.select(config, key)
        if isinstance(value, ListConfig) and len(value) != 2:
            yield f"{key}={value}: give one number or [height,width]"
    task = OmegaConf.select(config, "task.kind")
    if OmegaConf.select(config, "model.pool") == "none" and task in ("classification", "multilabel", "regression"):
        yield f"model.pool=none gives logits per patch; {task} needs pool=token or mean"
    image_size = read_image_size(config)
    for slot in ("model", "model.encoder"):
        model = OmegaConf.select(config, slot)
        if not isinstance(model, DictConfig):
            continue
        yield from check_heads(model, slot)
        if model.get("kind") == "vit" and image_size is not None and model.patch_size == "auto":
            side = next(side for side in image_size if not choose_patch(side))
            yield (
                f"{slot}.patch_size=auto: no patch leaves 4 to {MOST_ALONG} along {side} pixels; give {image_key}="
                f"{side // 4 * 4}, or {slot}.patch_size: {near_divisors(side, side // 4)}"
            )
        elif model.get("kind") == "vit" and image_size is not None:
            yield from check_patches(model, slot, image_size, image_key)


def near_divisors(whole: int, wanted: int) -> str:
    """List the three divisors of a number that are nearest to the wanted one, as words of a message."""
    fits = [number for number in range(1, whole + 1) if whole % number == 0]
    return ", ".join(map(str, sorted(sorted(fits, key=lambda number: abs(number - wanted))[:3])))


def check_heads(model: DictConfig, slot: str) -> Iterator[str]:
    """Yield a problem if heads do not divide the width of a model with attention."""
    is_out = {"heads", "width"} & {*map(key_of, check_ranges(model))}
    if "heads" not in model or model.get("head_width") is not None or is_out:
        return
    mixer = model.get("mixer", {"attends": True})  # None where its name was refused
    if not model.width % model.heads or not (mixer and mixer["attends"]):
        return
    other = f"; or give {slot}.head_width" if "head_width" in model else ""
    yield (
        f"{slot}.heads={model.heads}: does not divide {slot}.width={model.width}; "
        f"nearest that do: {near_divisors(model.width, model.heads)}{other}"
    )


def check_patches(model: DictConfig, slot: str, image_size: tuple[int, int], image_key: str) -> Iterator[str]:
    """Yield a problem if patches do not divide the image."""
    square = not isinstance(model.patch_size, ListConfig)
    if "patch_size" in map(key_of, check_ranges(model)) or not (square or len(model.patch_size) == 2):
        return
    for side, pixels, patch in zip(("height", "width"), image_size, extent(model.patch_size), strict=True):
        if pixels % patch:
            whole = math.gcd(*image_size) if square else pixels
            yield (
                f"{slot}.patch_size={model.patch_size}: {patch} does not divide the image {side} of {pixels} pixels "
                f"({image_key}); nearest that do: {near_divisors(whole, patch)}"
            )
            if square:
                return


def check_captioner(config: DictConfig) -> Iterator[str]:
    """Yield problems of captioning without a captioner, a captioner for another task, or one without a ViT."""
    task, model = (OmegaConf.select(config, f"{group}.kind") for group in ("task", "model"))
    is_captioner = isinstance(task, str) and isinstance(model, str) and "." not in task + model
    if is_captioner and (task == "captioning") != (model == "captioner"):
        advice = list_fitting("model", "kind", "captioner") if task == "captioning" else "give task=captioning"
        yield f"model={config.model.name}: is not for task={config.task.name}; {advice}"
    encoder = OmegaConf.select(config, "model.encoder.kind")
    if encoder not in (None, "vit"):
        fit = list_fitting("model", "kind", "vit")
        yield f"model.encoder={config.model.encoder.name}: gives no tokens of patches; {fit}"


def check_recipe(node: DictConfig, model: DictConfig | None) -> Iterator[str]:
    """Yield problems of a recipe's keys that contradict, have no effect, or do not fit its model or its batch."""
    if len(node.betas) != 2:
        yield f"recipe.betas={node.betas}: give two, for example recipe.betas=[0.9,0.999]"
    if node.freeze and node.optimizer == "muon":
        yield f"recipe.freeze={node.freeze}: trains the head alone, which recipe.optimizer=muon cannot; give adamw, sgd"
    if node.lora.rank and node.optimizer == "muon":
        yield f"recipe.lora.rank={node.lora.rank}: recipe.optimizer=muon trains whole matrices; give adamw or sgd"
    if node.lora.rank and node.freeze:
        yield f"recipe.lora.rank={node.lora.rank}: recipe.freeze={node.freeze} trains the head only; give one of them"
    name = node.schedule
    if name == "noam" and isinstance(model, DictConfig) and "width" not in model:
        yield (
            f"recipe.schedule=noam: scales the rate with the model's width, but model={model.name} has no width; "
            "choices for it: cosine, linear, constant, multistep"
        )
    if name == "noam" and node.warmup == 0:
        yield "recipe.warmup=0: recipe.schedule=noam divides by it; give recipe.warmup=4000"
    if name == "multistep" and not (node.milestones and sorted(set(node.milestones)) == list(node.milestones)):
        yield f"recipe.milestones={node.milestones}: give one or more that increase, such as [0.3,0.6,0.9]"
    if node.average is not None and node.ema is not None:
        yield f"recipe.average={node.average}: recipe.ema={node.ema} is an average too; give one of them"
    if node.average is not None and node.patience is not None:
        yield (
            f"recipe.average={node.average}: is of the last steps, and with recipe.patience={node.patience} these are "
            "not known; give recipe.ema, or recipe.patience=null"
        )
    if node.repeats > node.batch_size:
        yield f"recipe.repeats={node.repeats}: must be at most recipe.batch_size={node.batch_size}"
    yield from check_budget(node.budget, "recipe.budget")


MIXES = ("class_weights", "mixup", "cutmix", "random_erasing")
TARGETS = ("is for images of one class each", (*MIXES, "label_smoothing"))
AUGMENTS = ("mixup", "cutmix", "random_erasing", "repeats", "rand_augment.layers")
EXCLUDED = {  # the keys of a recipe that do not go with a modality of data, a task or what is frozen, and why
    "text": ("is only for images", ("class_weights", *AUGMENTS)),
    "features": ("needs recipe.freeze=body, since recipe.freeze=features computes each picture once", AUGMENTS),
    "captioning": ("a caption does not say what it makes of a picture", MIXES),
    "multilabel": TARGETS,
    "regression": TARGETS,
}


def check_excluded(config: DictConfig) -> Iterator[str]:
    """Yield a line for each key of the recipe that EXCLUDED rules out, unless it has its default."""
    for place in ("data.modality", "task.kind", "recipe.freeze"):
        reason, keys = EXCLUDED.get(OmegaConf.select(config, place), ("", ()))
        for key in keys:
            value, default = attrgetter(key)(config.recipe), attrgetter(key)(RecipeConfig())
            if value != default:
                shown = f"{default:g}" if isinstance(default, float) else to_text(default)
                yield f"recipe.{key}={to_text(value)}: {reason}; give recipe.{key}={shown}"


NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
FACTOR = re.compile(f"x{NUMBER}")
RANGE = re.compile(rf"(log|uniform)\( *(x?)(-?{NUMBER}) *, *\2(-?{NUMBER}) *\)")
TUNED = ("recipe", "model")  # whose keys can be
TRIALS, MOST_TRIALS = "trials", 1024  # the key of `tune` that says how many are drawn from ranges


def list_settings(tune: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the settings of each trial, a value for each dotted key; a single empty one if nothing is tuned.

    They are every combination of values, or points of a scrambled Sobol sequence, of which the first k of any number
    are the same k.
    """
    if TRIALS not in tune:
        return [dict(zip(tune, values, strict=True)) for values in product(*tune.values())]
    from scipy.stats.qmc import Sobol  # 1 s

    points = Sobol(len(tune) - 1, rng=0).random_base2(math.ceil(math.log2(tune[TRIALS])))[: tune[TRIALS]]
    drawn = {k: v if isinstance(v, list) else read_range(v) for k, v in tune.items() if k != TRIALS}
    pick = lambda of, share: of[int(share * len(of))] if isinstance(of, list) else of(share)  # noqa: E731
    return [{key: pick(of, share) for (key, of), share in zip(drawn.items(), at, strict=True)} for at in points]


def read_range(text: Any) -> Callable[[float], Any] | None:
    """Read a range such as `log(0.001, 0.1)` as its value at a share from 0 to 1; None if it is none, or empty."""
    found = RANGE.fullmatch(str(text))
    kind, factor, low, high = (found[1], found[2], float(found[3]), float(found[4])) if found else ("", "", 0.0, 0.0)
    if not (low < high and (low > 0 or kind + factor == "uniform")):
        return None
    at = lambda share: low * (high / low) ** share if kind == "log" else low + (high - low) * share  # noqa: E731
    return lambda share: f"x{at(share):.4g}" if factor else float(f"{at(share):.4g}")


def check_tune(tune: Mapping[str, Any]) -> Iterator[str]:
    """Yield problems of keys that cannot be tuned, of their values, and of the number of trials."""
    ranges, count = [key for key, values in tune.items() if read_range(values)], tune.get(TRIALS)
    if TRIALS in tune and not (isinstance(count, int) and 0 < count <= MOST_TRIALS and len(tune) > 1):
        yield f"tune.trials={count}: expected how many to draw from the ranges of other keys, 1 to {MOST_TRIALS}"
    elif ranges and TRIALS not in tune:
        yield f"tune.{ranges[0]}={tune[ranges[0]]}: is a range; say how many trials to draw, for example tune.trials=16"
    for key, values in tune.items():
        if key == TRIALS or key in ranges or (key.endswith(")") and values is None):  # the rest of `{lr: log(1, 2)}`
            continue
        if key.partition(".")[0] not in TUNED or "." not in key:
            example = "for example tune.recipe.lr=[0.001,0.01]"
            yield f"tune.{key}: cannot be tuned; give keys of {' or '.join(TUNED)}, {example}"
        elif not isinstance(values, list) or not values:
            wanted = "a range: log(LOW,HIGH) or uniform(LOW,HIGH), LOW < HIGH, for log above 0; in braces with quotes"
            yield f"tune.{key}={values}: expected a list of values such as [0.001,0.01], or {wanted}"
        elif twice := [value for index, value in enumerate(values) if value in values[:index]]:
            yield f"tune.{key}={values}: '{twice[0]}' is given twice"


def apply_factors(values: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Turn each `x0.5` into that multiple of the configuration's value, so that one list of values fits all recipes."""

    def apply(value: Any, own: Any) -> Any:
        is_factor = isinstance(value, str) and FACTOR.fullmatch(value) and isinstance(own, int | float)
        return float(f"{own * float(value[1:]):.6g}") if is_factor else value

    return {key: apply(value, get_value(config, key)) for key, value in values.items()}
