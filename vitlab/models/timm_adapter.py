"""Any model of timm, by its name in timm, for images of any size."""

from pathlib import Path
from typing import Any

import timm
import torch
from huggingface_hub import constants, get_session
from huggingface_hub.errors import LocalEntryNotFoundError
from torch import nn

from vitlab.config import UserError, choices_text, first_line
from vitlab.config.schema.models import CONFIG, TimmConfig
from vitlab.files import read_json

SMALL_IMAGE = 64  # pixels; up to this size stem=auto is the small stem
HUB_TIMEOUT = 5  # seconds


def build(config: TimmConfig, *, num_classes: int, image_size: tuple[int, int], channels: int) -> nn.Module:
    name = config.timm_name
    options = dict(config.options)
    cfg = pretrained_cfg(name)
    if cfg is not None and cfg.fixed_input_size:
        options.setdefault("img_size", image_size)
    options |= {"num_classes": num_classes, "in_chans": channels}
    if config.pretrained and torch.get_default_device().type != "meta":  # which counts and needs no weights
        model = create_pretrained(name, f"model={config.name}", "model.pretrained=false for random weights", **options)
    else:
        model = create(name, f"model={config.name}", **options)
    if config.stem == "small" or (config.stem == "auto" and max(image_size) <= SMALL_IMAGE):
        # a convolution of stride 1 without pooling (He et al., 2016, section 4.2)
        if not isinstance(getattr(model, "conv1", None), nn.Conv2d) or not hasattr(model, "maxpool"):
            raise UserError(
                f"model.stem=small: {name} has no stem of one convolution and one pooling; give model.stem=imagenet"
            )
        model.conv1 = nn.Conv2d(channels, model.conv1.out_channels, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
    return model


def create(name: str, setting: str, **options: Any) -> nn.Module:
    """Call `timm.create_model`. Raises UserError, which names the setting that asked for the model."""
    try:
        return timm.create_model(name, **options)
    except Exception as error:  # timm's models raise many kinds for options and sizes that they do not take
        raise UserError(f"{setting}: timm cannot build {name}: {first_line(error)}") from error


def create_pretrained(name: str, setting: str, instead: str, **options: Any) -> nn.Module:
    """Create a model of timm with its pretrained weights, from the Hugging Face hub or its local cache.

    `instead` names the user's alternative if there are no weights. Raises UserError, within seconds if the network
    is down and the cache is empty.
    """
    cfg = pretrained_cfg(name)
    if cfg is None or not cfg.has_weights:
        raise UserError(f"{setting}: timm has no pretrained weights for {name}; give {instead}")
    was_offline = constants.HF_HUB_OFFLINE
    try:  # by itself the hub's client retries for more than a minute, file by file, before it looks into its cache
        get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT)
    except Exception:  # which kinds depends on the HTTP library of huggingface_hub's version
        constants.HF_HUB_OFFLINE = True
    try:
        return create(name, setting, pretrained=True, **options)
    except UserError as error:
        if not isinstance(error.__cause__, LocalEntryNotFoundError):
            raise
        raise UserError(
            f"{setting}: cannot download the weights of {name}: {constants.ENDPOINT} is not reachable, and they are "
            f"not in the local cache {constants.HF_HUB_CACHE}; `hf download {cfg.hf_hub_id}` fetches them where there "
            f"is a network; give {instead}"
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = was_offline


def name_source(source: str) -> str:
    """Name the model `timm:NAME=FILE` by the file too, without its folder: its weights need not be those of timm."""
    name, _, file = source.partition("=")
    return f"{name}={Path(file).name}" if file else name


def read_cfg(folder: str | Path) -> tuple[Any, list[str] | None]:
    """Read timm's record of the weights in a folder that timm wrote, and the names of its classes, if it has them."""
    card = read_json(Path(folder) / CONFIG, advice="give one that timm wrote")
    return timm.models.PretrainedCfg(**card["pretrained_cfg"]), card.get("label_names")


def pretrained_cfg(name: str) -> Any:
    """Return timm's record of a model, with its image size, mean and std; None if timm has none. Raises UserError."""
    try:
        exists = timm.is_model(timm.models.parse_model_name(name)[1].split(".")[0])
        cfg = timm.models.get_pretrained_cfg(name) if exists else None
    except (ValueError, RuntimeError) as error:
        raise UserError(f"model=timm:{name}: {error}") from None
    if not exists:
        raise UserError(f"model=timm:{name}: timm has no such model; {choices_text(name, timm.list_models())}")
    return cfg
