"""Models by name. `build` makes one from its configuration, `build_model` from its name."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab.config import DescribeConfig, UserError, choices_text, compose, extent, first_line, raise_all
from vitlab.config.schema.models import ModelConfig
from vitlab.registry import implementation

FAMILIES = dict.fromkeys(("vision_transformer", "vision_transformer_hybrid", "deit"), "vit")  # of timm's modules
FAMILIES |= {"resnetv2": "resnet", "mlp_mixer": "mixer"}

if TYPE_CHECKING:
    from torch import nn

LABELLED = ("classes", "tags")  # heads with num_classes
HEADS = ("next_token", "masked", "span", "seq2seq", *LABELLED)  # of models of text
LENGTH, VOCABULARY = 1024, 50257  # of a model of text without published ones: GPT-2's
MODULES = {"timm": "timm_adapter", "captioner": "encoder_decoder"}  # of kinds that are not named like their module


def build(config: ModelConfig, **shape: Any) -> "nn.Module":
    """Build a model for inputs of a shape.

    Images: num_classes, image_size (height, width), channels; images (B, channels, height, width) -> logits
    (B, num_classes). Text: vocabulary, length (maximum number of tokens) and head (see `vitlab.models.text`). The model
    keeps both as `vitlab_config` and `vitlab_shape`. Raises UserError for a configuration that cannot be built.
    """
    module = implementation("vitlab.models", MODULES.get(config.kind, config.kind), "build")
    try:
        model = module.build(config, **shape)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"model={config.name}: {error}") from error
    except (RuntimeError, MemoryError) as error:  # torch raises them for too little memory
        raise UserError(f"model={config.name}: cannot be built: {first_line(error)}") from error
    model.vitlab_config, model.vitlab_shape = config, shape
    return model


def build_model(
    name: str | Path,
    *,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    length: int | None = None,
    vocabulary: int | None = None,
    head: str | None = None,
    **overrides: Any,
) -> "nn.Module":
    """Build a model by its name in `vitlab list models`, `timm:NAME` or a Hugging Face folder, with random weights.

    Images (B, channels, height, width) -> logits (B, num_classes), or features (B, D) with num_classes=0. image_size is
    a side or (height, width). The defaults are the folder's, else 3 channels of 224 pixels and 1000 classes; a folder's
    weights come with `load_weights(model, folder)`. A text model takes up to `length` tokens of a vocabulary instead,
    by default the published ones of its name; it has the head of its pre-training, or `head`: next_token, masked, span,
    or with num_classes classes, of a whole text, and tags, of each token. overrides are fields of the model's
    configuration (`depth=6`, `pretrained=True` for timm's). Raises UserError, a ValueError, for an unknown name or
    field, and for an argument of models of the other kind.
    """
    size = list(image_size) if isinstance(image_size, tuple) else image_size
    given = {"image_size": size, "num_classes": num_classes, "channels": channels}
    given |= {"length": length, "vocabulary": vocabulary}
    config = compose(DescribeConfig, base={"model": {"name": str(name), **overrides}, **given})
    shape = described_shape(config)
    is_text = "image_size" not in shape
    if is_text and head is not None:
        shape |= {"head": head} | ({"num_classes": num_classes} if head in LABELLED else {})
    taken = dict.fromkeys("length" if key == "target_length" else key for key in shape if is_text or key != "head")
    is_one_text = is_text and "target_length" not in shape
    problems = [] if head in (None, *HEADS) else [f"head={head}: unknown; {choices_text(head, HEADS)}"]
    problems += [
        f"{key}={value}: no argument of {name}, which takes {', '.join(taken)}"
        f"{'; give head=classes or head=tags, too' if is_one_text and key == 'num_classes' else ''}"
        for key, value in {**given, "head": head}.items()
        if value is not None and key not in taken and not problems
    ]
    if is_text and head in LABELLED and not num_classes:
        problems.append(f"head={head}: needs num_classes")
    raise_all(problems)
    return build(config.model, **shape)


def described_shape(config: ModelConfig) -> dict[str, Any]:
    """Return the shape of a DescribeConfig without data, as `build` takes it."""
    if config.model.modality == "text":
        length = config.length or config.model.published_length or LENGTH
        vocabulary = config.vocabulary or config.model.published_vocabulary or VOCABULARY
        shape = {"length": length, "vocabulary": vocabulary}
        if "causal" not in vars(config.model):
            return {**shape, "target_length": length, "head": "seq2seq"}
        return {**shape, "head": "next_token" if config.model.causal else "masked"}
    images = {"image_size": extent(config.image_size), "channels": config.channels}
    if config.model.kind == "captioner":
        length, vocabulary = config.length or LENGTH, config.vocabulary or VOCABULARY
        return {**images, "target_length": length, "vocabulary": vocabulary, "head": "seq2seq"}
    return {"num_classes": config.num_classes, **images}


def family(config: ModelConfig, model: "nn.Module") -> str:
    """Name the group of a model in figures: its `family`, else the family of the module that defines it."""
    module = type(model).__module__.rpartition(".")[2]
    return config.family or FAMILIES.get(module, module)
