"""Checks of a composed configuration that a type cannot express. Each problem is one line."""

import importlib
import math
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from vitlab.config import groups, recipes
from vitlab.config.errors import NO_VALUE, Problem, UserError, choices_text
from vitlab.config.ranges import check_missing, check_ranges
from vitlab.config.schema.fields import LARGEST_IMAGE


def find_problems(config: DictConfig) -> list[str]:
    """Everything that is wrong with a configuration, one line each."""
    problems = [*check_ranges(config), *check_missing(config)]
    if "budget" in config:
        problems += check_budget(config.budget)
    for key in ("train_size", "sizes", "data.sizes"):
        values = OmegaConf.select(config, key, throw_on_missing=False)
        values = values if isinstance(values, ListConfig) or values is None else [values]
        problems += [line for value in values or () for line in check_size(key, value)]
    for key in ("seeds", "sizes", "data.sizes"):  # `models` may be a mapping: vitlab.studies.grid checks it
        values = OmegaConf.select(config, key, throw_on_missing=False)
        if isinstance(values, ListConfig):
            problems += [f"{key}=[]: needs at least one"] if not values else []
            listed = list(values)
            problems += [
                f"{key}={values}: '{v}' is given twice"
                for index, v in enumerate(listed)
                if listed.count(v) > 1 and listed.index(v) == index
            ]
    problems += [*check_names(config, "models", "model"), *check_names(config, "recipe", "recipe")]
    for name in config.get("probes", []):
        if name not in groups.names("probe"):
            problems.append(f"probes={name}: unknown probe; {choices_text(name, groups.names('probe'))}")
    problems += check_analyses(config)
    if isinstance(config.get("recipe"), DictConfig):
        problems += recipes.find_problems(config)
    problems += list(check_modalities(config))
    problems += list(check_auxiliary_lm(config))
    if config.get("init") is not None and None not in (config.init.weights, config.init.encoder):
        problems.append(
            f"init.encoder={config.init.encoder}: init.weights={config.init.weights} has one too; give one of them"
        )
    problems += list(check_captioner(config))
    problems += list(check_images(config))
    problems += list(check_crop(config))
    problems += list(check_test_share(config))
    return problems


def check_names(config: DictConfig, key: str, group: str) -> Iterator[str]:
    """Choices that a study holds by name, in a list or in named variants: those that cannot be loaded."""
    values = config.get(key)
    if isinstance(values, DictConfig) and OmegaConf.get_type(values) is dict:
        values = [value.get(group) if isinstance(value, DictConfig) else value for value in values.values()]
    for name in values if isinstance(values, (list, ListConfig)) else [values]:
        if isinstance(name, str):
            try:
                groups.load_node(group, name, key=key)
            except UserError as error:
                yield from error.problems


def check_analyses(config: DictConfig) -> Iterator[str]:
    """Analyses, by name or as YAML files, that cannot be loaded, or that would write the same files."""
    loaded: dict[str, str] = {}
    for choice in config.get("analyses", []):
        try:
            analysis = groups.load_node("analysis", choice, key="analyses")
        except UserError as error:
            yield from error.problems
            continue
        yield from check_ranges(analysis, f"{analysis.name}.")
        if (other := loaded.setdefault(analysis.name, choice)) != choice:
            yield f"analyses={choice}: is named '{analysis.name}' like {other}; give it another name in its file"


def check_budget(node: DictConfig) -> Iterator[str]:
    given = {key: value for key, value in node.items() if value is not None}
    if len(given) != 1:
        shown = " and ".join(f"budget.{k}={v}" for k, v in given.items()) or "no budget"
        yield Problem(shown, NO_VALUE, f"give exactly one of {', '.join(f'budget.{k}' for k in node)}")


SIZES = "a size is a whole number of examples, a share of them up to 1.0, or all"


def is_size(value: Any) -> bool:
    """Whether a value is a count (int), a share (float above 0, at most 1.0) or `all`."""
    if isinstance(value, float):
        return 0 < value <= 1
    return value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)


def check_size(key: str, value: Any) -> Iterator[str]:
    infinite = isinstance(value, float) and not math.isfinite(value)  # `ranges` has said so
    if not infinite and not is_size(value):
        yield f"{key}={value}: {SIZES}"


HOLDS = {"image": "images", "text": "text"}


def check_modalities(config: DictConfig) -> Iterator[str]:
    """A task, a model or probes that are not for this modality of data."""
    data = config.get("data")
    if not isinstance(data, DictConfig):
        return
    if config.get("probes") and data.modality == "text":
        yield f"probes={config.probes}: probes need images, but data={data.name} has text; give probes=[]"
    for group in ("task", "model"):
        node = config.get(group)
        if isinstance(node, DictConfig) and node.modality != data.modality:
            fit = [name for name in groups.names(group) if groups.load_node(group, name).modality == data.modality]
            yield (
                f"{group}={node.name}: takes {HOLDS[node.modality]}, but data={data.name} has {HOLDS[data.modality]}; "
                f"{choices_text('', fit)}"
            )


def check_auxiliary_lm(config: DictConfig) -> Iterator[str]:
    """A loss of next tokens for a bidirectional model."""
    weight = OmegaConf.select(config, "task.auxiliary_lm", throw_on_missing=False)
    if weight and OmegaConf.select(config, "model.causal", throw_on_missing=False) is False:
        yield f"task.auxiliary_lm={weight}: model={config.model.name} is bidirectional, it sees the next token; give 0"


def check_test_share(config: DictConfig) -> Iterator[str]:
    share = OmegaConf.select(config, "data.test_share", throw_on_missing=False)
    if isinstance(share, float) and math.isfinite(share) and not 0 < share < 1:
        yield f"data.test_share={share}: must be between 0 and 1, the share that is held out"


def check_crop(config: DictConfig) -> Iterator[str]:
    """Ranges of crops: two numbers, the smaller first."""
    examples = {"crop_scale": "the area, for example [0.08,1]", "crop_aspect": "the aspect, for example [0.75,1.33]"}
    for key, of in examples.items():
        value = OmegaConf.select(config, f"data.augment.{key}", throw_on_missing=False)
        if value is not None and (len(value) != 2 or value[0] > value[1]):
            yield f"data.augment.{key}={value}: give [min,max] of {of}"


def extent(value: Any) -> tuple[int, int]:
    """(height, width) of a side or a pair."""
    if isinstance(value, int):
        return value, value
    height, width = value
    return int(height), int(width)


def read_image_size(config: DictConfig) -> tuple[int, int] | None:
    """(height, width) that a configuration's model takes; None where it has none, or an invalid one."""
    key = "data.image_size" if isinstance(config.get("data"), DictConfig) else "image_size"
    value = OmegaConf.select(config, key, throw_on_missing=False)
    if value is None or (isinstance(value, ListConfig) and len(value) != 2):
        return None
    return extent(value) if all(1 <= side <= LARGEST_IMAGE for side in extent(value)) else None


def choose_patch(side: int) -> int:
    """The largest patch that divides an image's side and leaves at least 4 patches along it: 24 -> 6, 224 -> 56."""
    return max(patch for patch in range(1, max(1, side // 4) + 1) if side % patch == 0)


def check_images(config: DictConfig) -> Iterator[str]:
    """Image size, patch size and heads that do not divide each other, of a model and of a captioner's encoder."""
    image_key = "data.image_size" if isinstance(config.get("data"), DictConfig) else "image_size"
    shaped = True
    for key in (image_key, "model.patch_size", "model.encoder.patch_size"):
        value = OmegaConf.select(config, key, throw_on_missing=False)
        if isinstance(value, ListConfig) and len(value) != 2:
            shaped = False
            yield f"{key}={value}: give one number or [height,width]"
    task = OmegaConf.select(config, "task.kind")
    if OmegaConf.select(config, "model.pool") == "none" and task in ("classification", "multilabel", "regression"):
        yield f"model.pool=none gives logits per patch; {task} needs pool=token or mean"
    image_size = read_image_size(config)
    divisible = image_size is not None and shaped and not any(line for line in check_ranges(config))
    for slot in ("model", "model.encoder"):
        model = OmegaConf.select(config, slot)
        if not isinstance(model, DictConfig):
            continue
        yield from check_heads(model, slot)
        if model.get("kind") == "vit" and divisible:
            yield from check_patches(model, slot, image_size, image_key)


def check_heads(model: DictConfig, slot: str) -> Iterator[str]:
    """Heads that do not divide the width of a model with attention."""
    if "heads" not in model or model.get("head_width") is not None or list(check_ranges(model)):
        return
    if not model.width % model.heads or not ("mixer" not in model or is_attention(model.mixer)):
        return
    fits = [h for h in range(1, model.width + 1) if model.width % h == 0]
    near = sorted(sorted(fits, key=lambda h: abs(h - model.heads))[:3])
    other = f"; or give {slot}.head_width" if "head_width" in model else ""
    yield (
        f"{slot}.heads={model.heads}: does not divide {slot}.width={model.width}; "
        f"nearest that do: {', '.join(map(str, near))}{other}"
    )


def is_attention(mixer: DictConfig | None) -> bool:
    """Whether a token mixer has heads. Imports its module, and torch: ask where heads are wrong already."""
    kind = "" if mixer is None else mixer.kind
    try:
        module = importlib.import_module(kind if "." in kind else f"vitlab.models.mixers.{kind}")
    except ImportError:  # building the model says so
        return False
    classes = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    return any(getattr(each, "attends", False) for each in classes)


def check_patches(model: DictConfig, slot: str, image_size: tuple[int, int], image_key: str) -> Iterator[str]:
    """Patches that do not divide the image."""
    square = not isinstance(model.patch_size, ListConfig)
    for side, pixels, patch in zip(("height", "width"), image_size, extent(model.patch_size), strict=True):
        if pixels % patch:
            whole = math.gcd(*image_size) if square else pixels
            fits = [p for p in range(1, whole + 1) if whole % p == 0]
            near = sorted(sorted(fits, key=lambda p: abs(p - patch))[:3])
            yield (
                f"{slot}.patch_size={model.patch_size}: {patch} does not divide the image {side} of {pixels} pixels "
                f"({image_key}); nearest that do: {', '.join(map(str, near))}"
            )
            if square:
                return


def check_captioner(config: DictConfig) -> Iterator[str]:
    """Captions by another model than a captioner, a captioner for another task, or one without a ViT."""
    task, model = (OmegaConf.select(config, f"{group}.kind", throw_on_missing=False) for group in ("task", "model"))
    is_captioner = isinstance(task, str) and isinstance(model, str) and "." not in task + model
    if is_captioner and (task == "captioning") != (model == "captioner"):
        fit = [name for name in groups.names("model") if groups.load_node("model", name).kind == "captioner"]
        advice = choices_text("", fit) if task == "captioning" else "give task=captioning"
        yield f"model={config.model.name}: is not for task={config.task.name}; {advice}"
    encoder = OmegaConf.select(config, "model.encoder.kind")
    if encoder not in (None, "vit"):
        fit = [name for name in groups.names("model") if groups.load_node("model", name).kind == "vit"]
        yield f"model.encoder={config.model.encoder.name}: gives no tokens of patches; {choices_text('', fit)}"
