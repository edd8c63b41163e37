"""Models by name. `build` makes one from its configuration, `build_model` from its name."""

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vitlab.config import DescribeConfig, UserError, compose, extent, first_line
from vitlab.registry import implementation

FAMILIES = {  # of timm's modules
    "vision_transformer": "vit",
    "vision_transformer_hybrid": "vit",
    "deit": "vit",
    "resnetv2": "resnet",
    "mlp_mixer": "mixer",
}

if TYPE_CHECKING:
    from torch import nn

MODULES = {"timm": "timm_adapter"}  # a module is not named like the library that it uses


def build(config: DictConfig, **shape: Any) -> "nn.Module":
    """A model for data of a shape.

    For images: num_classes, image_size (height, width), channels; it takes images (B, channels, height, width) and
    returns logits (B, num_classes). For text: vocabulary, length (tokens at most) and what the task wants of it (see
    `vitlab.models.heads`). Raises UserError where the configuration cannot be built.
    """
    module = implementation("vitlab.models", MODULES.get(config.kind, config.kind), "build")
    try:
        return module.build(config, **shape)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"model={config.name}: {error}") from error
    except (RuntimeError, MemoryError) as error:  # torch's way to say that there is no memory for it
        raise UserError(f"model={config.name}: cannot be built: {first_line(error)}") from error


def build_model(
    name: str,
    *,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] = 224,
    channels: int = 3,
    length: int = 1024,
    vocabulary: int = 50257,
    **overrides: Any,
) -> "nn.Module":
    """A model by name, as `vitlab list models` gives them, or `timm:NAME`.

    image_size is a side or (height, width); a model of text takes `length` tokens of a vocabulary instead, and gives
    what it is pre-trained for; overrides are fields of the model's configuration (`depth=6`). Raises UserError, a
    ValueError, for a name or a field that does not exist.
    """
    size = list(image_size) if isinstance(image_size, tuple) else image_size
    given = {"image_size": size, "num_classes": num_classes, "channels": channels}
    given |= {"length": length, "vocabulary": vocabulary}
    config = compose(DescribeConfig, base={"model": {"name": name, **overrides}, **given})
    return build(config.model, **described_shape(config))


def described_shape(config: DictConfig) -> dict[str, Any]:
    """The shape that a DescribeConfig without data gives."""
    if config.model.modality == "text":
        head = "next_token" if config.model.causal else "masked"
        return {"length": config.length, "vocabulary": config.vocabulary, "head": head}
    return {"num_classes": config.num_classes, "image_size": extent(config.image_size), "channels": config.channels}


def family(config: DictConfig, model: "nn.Module") -> str:
    """What a model is grouped by in figures: its `family`, else that of the module that defines it."""
    module = type(model).__module__.rpartition(".")[2]
    return config.family or FAMILIES.get(module, module)
