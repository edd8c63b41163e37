"""The dataclass of each kind of a choice, and the parts of a configuration that affect weights, cost or the cache."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import cache
from pathlib import Path
from typing import Any

from vitlab.config import schema
from vitlab.config.errors import UserError
from vitlab.config.schema.fields import Choice

PACKAGE = Path(__file__).resolve().parents[1]
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
