"""Declaring the fields of settings (default, range, unit, what a value changes), and the dataclass of each kind."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union

from omegaconf import MISSING

from vitlab.config.errors import UserError

Extent = Union[int, list[int]]  # a square's side, or [height, width]
LARGEST_IMAGE = 2**16  # pixels a side; a larger number is a mistake, and would take long to count divisors of
LARGEST_LAYER = 2**20  # the same for widths
LARGEST_LENGTH = 2**20  # tokens of a sequence
LARGEST_DEPTH = 256  # layers; a larger number is a mistake, and would take minutes to count
Modality = Literal["image", "text"]

WEIGHTS = "weights"  # a run's final weights: the setting is part of the run's identity
COST = "cost"  # the time or memory of a step
CACHE = "cache"  # what the cache holds of a data set
NO_EFFECT = ""


def setting(
    default: Any = MISSING,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    affects: str = f"{WEIGHTS} {COST} {CACHE}",
    per: Literal["run", "study"] = "run",
    fixed: bool = False,
    path: bool = False,
    group: str = "",
) -> Any:
    """Declare a field of a settings dataclass; each instance copies a list or dict, and calls a class, as default.

    least, most (inclusive), above, below (exclusive): limits of a number, or of each number of a list. affects: what a
    value changes, some of WEIGHTS, COST and CACHE. per: "study" if all runs of a study have the same value. fixed:
    the value belongs to the choice of a group, and cannot be set beside it. path: names a file or folder of data.
    group: holds a whole choice of that group.
    """
    limits = {"least": least, "most": most, "above": above, "below": below}
    metadata = {key: limit for key, limit in limits.items() if limit is not None}
    metadata |= {"affects": frozenset(affects.split()), "per": per, "fixed": fixed, "path": path, "group": group}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def default_of(field: dataclasses.Field) -> Any:
    """Return the value that a field holds if nobody sets it."""
    return field.default if field.default_factory is NO_DEFAULT else field.default_factory()


@dataclass(frozen=True)
class Choice:
    """A choice of a group: its name, and the module (`kind`) that implements it."""

    name: str = setting(affects=WEIGHTS)
    kind: str = setting(fixed=True)


PACKAGE = Path(__file__).resolve().parents[2]
FOLDERS = {  # of the modules of a group's kinds, of data by their modality
    "model": "models",
    "mixer": "models/mixers",
    "image": "data/images",
    "text": "data/text",
    "task": "tasks",
    "analysis": "analysis",
}


@cache
def kinds() -> dict[tuple[str, str], type[Choice]]:
    """Map each (group, kind) to its dataclass; the kind "" has the base of all others of its group."""
    from vitlab.config import schema
    from vitlab.config.schema import data, models  # 50 ms that `vitlab list` need not wait for

    return {
        ("model", ""): models.ModelConfig,
        ("model", "vit"): models.ViTConfig,
        ("model", "timm"): models.TimmConfig,
        ("model", "resnet"): models.ResNetConfig,
        ("model", "color_histogram"): models.ColorHistogramConfig,
        ("model", "text"): models.TextConfig,
        ("model", "encoder_decoder"): models.EncoderDecoderConfig,
        ("model", "captioner"): models.CaptionerConfig,
        ("model", "lstm"): models.LSTMConfig,
        ("model", "recurrent"): models.RecurrentConfig,
        ("data", ""): data.DataConfig,
        ("data", "image"): data.ImageDataConfig,  # of all kinds of this modality that are not here
        ("data", "text"): data.TextDataConfig,
        ("data", "imagefolder"): data.FolderConfig,
        ("data", "torchvision"): data.TorchvisionConfig,
        ("data", "webdataset"): data.WebDatasetConfig,
        ("data", "captioned_glyphs"): data.CaptionedConfig,
        ("data", "captions"): data.CaptionsConfig,
        ("data", "imagetable"): data.ImageTableConfig,
        **{("data", kind): data.FileConfig for kind in ("textfile", "table", "conll", "squad")},
        ("data", "parallel"): data.ParallelConfig,
        ("data", "huggingface"): data.HuggingFaceConfig,
        ("recipe", ""): schema.RecipeConfig,
        # of these kinds there are modules of the same name, which need not be imported
        **dict.fromkeys([("task", ""), ("task", "text_classification")], schema.TaskConfig),
        **dict.fromkeys([("analysis", ""), ("analysis", "alignment")], schema.AnalysisConfig),
        **dict.fromkeys([("mixer", ""), ("mixer", "attention"), ("probe", "")], Choice),
    }


def find_class(group: str, kind: str, modality: str | None = None) -> type[Choice]:
    """Find the dataclass of a kind: the entry of `kinds`, else `Config` of the kind's module, else the group's base.

    Raises UserError for a `Config` that is not a frozen dataclass with that base.
    """
    base = "" if group != "data" else "text" if modality == "text" else "image"
    return kinds().get((group, kind)) or import_class(group, kind, FOLDERS.get(base or group)) or kinds()[group, base]


@cache
def import_class(group: str, kind: str, folder: str | None) -> type[Choice] | None:
    """Import `Config` of a user's or a new kind's module, which may import what it likes; None if it has none."""
    if "." not in kind and not (folder and (PACKAGE / folder / f"{kind}.py").is_file()):
        return None
    try:
        module = importlib.import_module(kind if "." in kind else f"vitlab/{folder}/{kind}".replace("/", "."))
    except Exception:  # whoever builds the choice says why
        return None
    own, base = getattr(module, "Config", None), kinds()[group, ""]
    if own is None or (isinstance(own, type) and dataclasses.is_dataclass(own) and issubclass(own, base)):
        return own
    raise UserError(f"kind={kind}: its Config is not a frozen dataclass with the base {base.__name__}")


def select(settings: Mapping[str, Any], parent: type, wanted: Callable[[Field], bool]) -> dict[str, Any]:
    """Select a plain configuration's wanted fields of this class, also of nested ones; undeclared keys stay."""
    fields = {field.name: field for field in dataclasses.fields(parent)}
    selected = {}
    for key, value in settings.items():
        field = fields.get(key)
        if field is not None and field.metadata and not wanted(field):
            continue
        below = None  # the dataclass of the value
        if field is not None and isinstance(value, Mapping):
            below = field.type if dataclasses.is_dataclass(field.type) else None
            if (group := field.metadata.get("group")) and isinstance(value.get("kind"), str):
                below = find_class(group, value["kind"], value.get("modality"))
        selected[key] = value if below is None else select(value, below, wanted)
    return selected


def affecting(what: str) -> Callable[[Field], bool]:
    """Make a test for `select`: whether a field affects WEIGHTS, COST or CACHE."""
    return lambda field: what in field.metadata["affects"]


def keys_per_study(parent: type) -> list[str]:
    """List the fields that have the same value in all runs of a study."""
    return [field.name for field in dataclasses.fields(parent) if field.metadata.get("per") == "study"]
