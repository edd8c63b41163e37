"""Any model of timm by its name there, for images of any size."""

from typing import Any

import timm
from omegaconf import DictConfig, OmegaConf
from torch import nn

from vitlab.config import UserError, choices_text, first_line

SMALL_IMAGE = 64  # pixels; up to here stem=auto takes the small stem


def build(config: DictConfig, *, num_classes: int, image_size: tuple[int, int], channels: int) -> nn.Module:
    name = config.timm_name
    options = OmegaConf.to_container(config.options)
    cfg = pretrained_cfg(name)
    if cfg is not None and cfg.fixed_input_size:
        options.setdefault("img_size", image_size)
    try:
        model = timm.create_model(
            name, pretrained=config.pretrained, num_classes=num_classes, in_chans=channels, **options
        )
    except Exception as error:  # its many models raise many kinds for options and sizes that they do not take
        raise UserError(
            f"model={config.name}: timm cannot build {name} for images of {image_size}: {first_line(error)}"
        ) from error
    if config.stem == "small" or (config.stem == "auto" and max(image_size) <= SMALL_IMAGE):
        small_stem(model, name, channels)
    return model


def pretrained_cfg(name: str) -> Any:
    """timm's record of a model, with its own image size, mean and std; None where it has none. Raises UserError."""
    try:
        known = timm.is_model(timm.models.parse_model_name(name)[1].split(".")[0])
        cfg = timm.models.get_pretrained_cfg(name) if known else None
    except (ValueError, RuntimeError) as error:
        raise UserError(f"model=timm:{name}: {error}") from None
    if not known:
        raise UserError(f"model=timm:{name}: timm has no such model; {choices_text(name, timm.list_models())}")
    return cfg


def small_stem(model: nn.Module, name: str, channels: int) -> None:
    """A 3x3 convolution of stride 1 and no pooling in place of ImageNet's stem (He et al., 2016, section 4.2)."""
    if not isinstance(getattr(model, "conv1", None), nn.Conv2d) or not hasattr(model, "maxpool"):
        raise UserError(f"model.stem=small: {name} has no stem of one convolution and a pooling; use stem=imagenet")
    model.conv1 = nn.Conv2d(channels, model.conv1.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
