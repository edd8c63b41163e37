"""The interface of models to the rest of vitlab: features, layers, head, patches and tokens.

Own models derive from `Model`. Modules of timm and of users stay as they are: `as_model` answers for them.

Shapes: B batch, C channels, Y x X pixels, N tokens, D width.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vitlab.config import UserError
from vitlab.config.schema.models import ModelConfig

BLOCKS = r"^(?:.*\.)?blocks\.(\d+)"  # the layers of a module that does not name them
HEADS = ("head", "head_dist")


@dataclass(frozen=True)
class Patches:
    """Layout of a model's tokens: `prefix` tokens, then a grid of patches row by row."""

    grid_size: tuple[int, int]  # rows, columns
    patch_size: tuple[int, int]  # height, width, pixels
    prefix: int

    @property
    def tokens(self) -> int:
        return self.prefix + self.grid_size[0] * self.grid_size[1]


class Interface:
    """The members of every model, with defaults."""

    features: Callable[..., Tensor] | None = None  # inputs (B, ...) -> (B, D), what the head reads
    decoding: Callable[..., Any] | None = None  # what a text is written after -> `vitlab.models.decoding.Decoding`
    head_modules: Sequence[str] = HEADS  # the classifier's names; a fine-tuned run replaces these
    patches: Patches | None = None  # None: its tokens are not a grid of patches, or it has none
    position_table: Tensor | None = None  # (1, N, D), added to the tokens; the prefix tokens come first
    reads_class_token = False  # rather than the mean over the patches
    classifies = True  # False: its outputs are features
    channels_first = True  # of the maps (B, D, y, x) that its layers give, else (B, y, x, D)

    def group_matcher(self, coarse: bool = False) -> Any:
        """Map each parameter to its layer, in the format of timm's layer-wise decay; analyses look at its `blocks`."""
        return {"blocks": BLOCKS}

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters without weight decay, beside norms and biases."""
        return set()

    def part_of(self, name: str) -> str:
        """Name the part of the model that a parameter belongs to, for counting."""
        return name.partition(".")[0]

    @property
    def sequence_length(self) -> int | None:
        """Tokens per example; None for a model without tokens or with fewer at each stage."""
        return self.patches.tokens if self.patches else None


class Model(Interface, nn.Module):
    """The base class of models."""

    vitlab_config: ModelConfig  # that `vitlab.models.build` made it of
    vitlab_shape: dict[str, Any]  # of its inputs


class ModuleAdapter(Interface):
    """Adapts a module of timm or of a user, by the names of timm's attributes. The module itself is not changed."""

    def __init__(self, module: nn.Module):
        self.module = module
        heads = (self.get("pretrained_cfg") or {}).get("classifier") or HEADS
        self.head_modules = (heads,) if isinstance(heads, str) else tuple(heads)
        self.position_table = table if isinstance(table := self.get("pos_embed"), Tensor) else None
        self.reads_class_token = self.get("global_pool") == "token"
        self.classifies = self.get("num_classes") != 0
        self.channels_first = self.get("output_fmt", "NCHW") == "NCHW"
        self.patches = self.find_patches()
        self.features = self.find_features()
        for name in ("group_matcher", "no_weight_decay", "part_of"):
            if method := self.get(name):
                setattr(self, name, method)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self.module, name, default)

    def find_patches(self) -> Patches | None:
        embed, prefix = self.get("patch_embed"), self.get("num_prefix_tokens")
        if embed is None:  # timm's MLP-Mixer
            embed, prefix = self.get("stem"), 0
        grid_size = getattr(embed, "grid_size", None)
        image_size = getattr(embed, "img_size", None) or getattr(embed, "image_size", None)
        if grid_size is None or image_size is None or prefix is None:
            return None
        # not embed.patch_size: behind a convolutional stem a patch is larger than that
        sides = tuple(pixels // cells for pixels, cells in zip(image_size, grid_size, strict=True))
        return Patches(tuple(grid_size), sides, prefix)

    def find_features(self) -> Callable[[Tensor], Tensor] | None:
        if self.get("forward_features") and self.get("forward_head"):
            timm = self.module
            return lambda images: timm.forward_head(timm.forward_features(images), pre_logits=True).flatten(1)
        method = self.get("features")
        # in timm's VGG it is a module
        return method if callable(method) and not isinstance(method, nn.Module) else None


def as_model(module: nn.Module) -> Interface:
    """Return a module as an `Interface`: an own model itself, also if compiled, else a `ModuleAdapter`."""
    module = getattr(module, "_orig_mod", module)  # of torch.compile
    return module if isinstance(module, Model) else ModuleAdapter(module)


def extract_features(model: nn.Module, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the input of the model's head, for a batch that is on the model's device.

    Images (B, C, Y, X) -> (B, D), also with `num_classes=0`. Tokens (B, N) -> (B, D) in a classifier of whole texts,
    hidden states (B, N, D) in other models; `mask` (B, N), of bools or of 0 and 1 as transformers' attention_mask, is
    False at padding, which is at the end. The model's mode (train or eval) stays. Raises UserError for a model with
    neither timm's `forward_features` and `forward_head` nor a method `features`, and for a mask of one without tokens.
    """
    features = before_head(model)
    if mask is None:
        return features(inputs)
    if "mask" not in inspect.signature(features).parameters:
        raise UserError(f"mask: {type(model).__name__} reads no texts; leave it out")
    return features(inputs, mask.bool())


def before_head(model: nn.Module) -> Callable[..., Tensor]:
    """Return the function that `extract_features` calls. Raises UserError for a model without one."""
    features = as_model(model).features
    if features is None:
        raise UserError(
            f"{type(model).__name__} has no method features(inputs) -> (B, D), which probes and extract_features need"
        )
    return features


def read_by_head(model: nn.Module, head: str, inputs: Tensor) -> tuple[Tensor, bool]:
    """Run a model; return the input of its module `head`, and whether the head's output is the model's output."""
    calls = []
    with model.get_submodule(head).register_forward_hook(lambda _, given, output: calls.append((given[0], output))):
        output = model.forward(inputs)  # not a compiled call, which would not see the hook
    return calls[-1][0], len(calls) == 1 and calls[0][1] is output


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set the model to eval mode in the block, then restore each module's own mode: frozen ones stay in eval mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
