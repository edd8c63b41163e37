"""Look into a model: its attention, its layers' outputs, a number for each head; and hold the findings.

Attention weights are exact. The fused kernel never forms them, so its calls are intercepted during one forward pass:
the weights are computed again from a layer's queries, keys, mask and scale, in float32 or better, a block of queries at
a time.

Shapes: B batch, C channels, Y x X pixels, H heads, N queries, M keys (N where a layer attends to its own tokens), K
head width, n queries of a block.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import timm.layers
import torch
import torch.nn.functional as F
from PIL import Image
from timm.models.beit import Attention as BeitAttention
from timm.models.eva import EvaAttention
from timm.models.vision_transformer import ParallelScalingBlock
from timm.models.vision_transformer_relpos import RelPosAttention
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.config import UserError
from vitlab.models.base import BLOCKS, Patches, as_model, evaluating
from vitlab.models.mixers import Mixer
from vitlab.models.weights import first_convolution
from vitlab.tasks.base import TokenInputs


class Analysis(NamedTuple):
    """An analysis among several in a module; a user's own module has the same names at its top level."""

    UNIT: str
    NEEDS: str  # what a model must have for it, in words
    applies: Callable[[nn.Module], bool]
    run: Callable[..., Any]


Item = TypeVar("Item")
ShowCount = Callable[[int, int], None]  # how much is done, of how much

# of timm; each calls the kernel once, with all of its tokens
KINDS = (
    timm.layers.Attention,
    timm.layers.AttentionRope,
    BeitAttention,
    EvaAttention,
    ParallelScalingBlock,
    RelPosAttention,
)
HIDDEN = -1e4  # a mask that adds this or less to a score hides the key
BLOCK = 2**20  # weights in memory at a time, as far as whole queries allow


@dataclass(frozen=True)
class AttentionCall:
    """The inputs that one attention layer gave the kernel.

    q (B, H, N, K), k (B, H, M, K). `mask` is broadcastable to (B, H, N, M): bool, True where a query may look, or a
    number to add to the score. `causal` hides key j from query i < j.
    """

    q: Tensor
    k: Tensor
    mask: Tensor | None
    causal: bool
    scale: float

    def weights(self, queries: slice = slice(None)) -> Tensor:
        """Compute softmax(q k^T scale + mask) (B, H, n, M) for some queries; by default for all.

        float32, or float64 where the layer's are. As the kernel has it, a query that may look nowhere gets zeros.
        """
        dtype = torch.promote_types(self.q.dtype, torch.float32)
        with torch.no_grad(), torch.autocast(self.q.device.type, enabled=False):
            scores = (self.q[:, :, queries].to(dtype) * self.scale) @ self.k.to(dtype).mT
            if self.causal:
                places = torch.arange(max(self.q.shape[2], self.k.shape[2]), device=scores.device)
                rows = places[: self.q.shape[2]][queries]
                scores.masked_fill_(places[: self.k.shape[2]] > rows[:, None], float("-inf"))
            if self.mask is None:
                return scores.softmax(dim=-1)
            mask = self.mask if self.mask.shape[-2] == 1 else self.mask[..., queries, :]
            scores = scores.masked_fill_(~mask, float("-inf")) if mask.dtype == torch.bool else scores.add_(mask)
            nowhere = (scores == float("-inf")).all(dim=-1, keepdim=True)
            return scores.softmax(dim=-1).masked_fill_(nowhere, 0)

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[slice, Tensor]]:
        """Yield (queries, their weights (B, H, n, M)) in turn for all queries, about `size` weights at a time."""
        call = self.copy(torch.promote_types(self.q.dtype, torch.float32))
        queries = self.q.shape[2]
        step = max(1, size // (self.q.shape[0] * self.q.shape[1] * self.k.shape[2]))
        for first in range(0, queries, step):
            chosen = slice(first, min(first + step, queries))
            yield chosen, call.weights(chosen)

    def uniform(self) -> "AttentionCall":
        """Return a call with one head, whose queries look evenly at all keys that they may look at."""
        mask = None if self.mask is None else self.mask[:, :1] if self.mask.ndim == 4 else self.mask
        if mask is not None and mask.dtype != torch.bool:
            mask = mask > HIDDEN
        return replace(self, q=torch.zeros_like(self.q[:, :1]), k=self.k[:, :1], mask=mask)

    def copy(self, dtype: torch.dtype | None = None) -> "AttentionCall":
        """Copy the call with its own contiguous q and k: views would keep the values in memory too."""
        q, k = (part.to(dtype or part.dtype).clone(memory_format=torch.contiguous_format) for part in (self.q, self.k))
        return replace(self, q=q, k=k)


Reduction = Callable[[Tensor, slice], Tensor]  # weights (B, H, n, M) of these queries -> (B, H, n)


def find_attention_layers(model: nn.Module) -> list[nn.Module]:
    """List a model's attention modules in the order of its definition; empty if it has none."""
    return [m for m in model.modules() if isinstance(m, KINDS) or (isinstance(m, Mixer) and m.attends)]


def find_patches(model: nn.Module) -> Patches:
    """Find the model's grid of patches. Raises UserError for a model whose tokens are not a grid of patches."""
    patches = as_model(model).patches
    if patches is None:
        raise UserError(f"{type(model).__name__} has no patch grid: attention over pixels needs a vision transformer")
    return patches


def has_patches(model: nn.Module) -> bool:
    """Tell whether the model has attention over a grid of patches."""
    return bool(find_attention_layers(model)) and as_model(model).patches is not None


def attention_maps(
    model: nn.Module, inputs: Tensor, layers: Sequence[int] | None = None, **forward: Any
) -> Iterator[tuple[int, Tensor]]:
    """Yield (layer, weights (B, H, N, M)) of the asked layers (0 is the first; default: all), one at a time.

    Own models and timm's; `forward` holds further arguments of the model's forward, such as a padding mask. It
    keeps the queries and keys of the asked layers: for many images call it with a few at a time, or call
    `visit_attention`, which keeps neither. Raises UserError for a model without attention and for a layer that does
    not exist.
    """
    calls: dict[int, AttentionCall] = {}
    visit_attention(model, inputs, lambda layer, call: calls.update({layer: call.copy()}), layers, **forward)
    return ((layer, calls[layer].weights()) for layer in (calls if layers is None else map(int, layers)))


def visit_attention(
    model: nn.Module,
    inputs: Tensor,
    visit: Callable[[int, AttentionCall], None],
    layers: Sequence[int] | None = None,
    **forward: Any,
) -> None:
    """Run one forward pass; call `visit(layer, call)` for each asked layer as it runs, in that order.

    The model is left as it is: its mode, its hooks, its fused attention; a layer that was set not to use the kernel
    does so inside this context. Raises as `attention_maps` does, and RuntimeError where a layer did not run once.
    """
    attention_layers = find_attention_layers(model)
    if not attention_layers:
        raise UserError(
            f"{type(model).__name__} has no attention layers that vitlab knows: "
            "window, channel and talking-heads attention are not supported"
        )
    chosen = range(len(attention_layers)) if layers is None else [int(layer) for layer in layers]
    for layer in chosen:
        if not 0 <= layer < len(attention_layers):
            raise UserError(f"layer {layer}: the model has layers 0 to {len(attention_layers) - 1}")
    modules = {attention_layers[layer]: layer for layer in chosen}
    seen: list[int] = []

    def seeing(layer: int, call: AttentionCall, *_: Tensor) -> None:
        seen.append(layer)
        visit(layer, call)

    with torch.no_grad(), run_eagerly(model), KernelCalls(modules, seeing):
        model(inputs, **forward)
    if sorted(seen) != sorted(modules.values()):
        raise RuntimeError(f"of the attention layers {[*modules.values()]} the model's forward pass ran {seen}")


class KernelCalls(TorchFunctionMode):
    """While entered, calls `visit(layer, call, values, result)` for each call of the fused kernel inside a module.

    It makes timm's layers among the modules call this kernel, and restores their own choice at its exit.
    """

    def __init__(self, modules: dict[nn.Module, int], visit: Callable[[int, AttentionCall, Tensor, Tensor], None]):
        super().__init__()
        self.modules, self.visit = modules, visit
        self.off = [module for module in modules if isinstance(module, KINDS) and not module.fused_attn]
        self.layer: int | None = None  # the one that is running

    def __enter__(self) -> "KernelCalls":
        self.handles = [module.register_forward_pre_hook(self.begin) for module in self.modules]
        self.handles += [module.register_forward_hook(self.end) for module in self.modules]
        for module in self.off:
            module.fused_attn = True
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self.handles:
            handle.remove()
        for module in self.off:
            module.fused_attn = False

    def begin(self, module: nn.Module, args: tuple) -> None:
        self.layer = self.modules[module]

    def end(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.layer = None

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention and self.layer is not None:
            self.visit(self.layer, make_attention_call(*args, **(kwargs or {})), args[2], result)
        return result


def make_attention_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> AttentionCall:
    """Make an `AttentionCall` from the arguments of torch's scaled_dot_product_attention."""
    return AttentionCall(query, key, attn_mask, is_causal, query.shape[-1] ** -0.5 if scale is None else scale)


def find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Find a model's residual blocks by name, in the order of its definition.

    The blocks are those that the model's `group_matcher` names, as for layer-wise decay; timm's and vitlab's models
    have it. Raises UserError for a model without any.
    """
    groups = as_model(model).group_matcher(coarse=False)
    patterns = groups.get("blocks", "") if isinstance(groups, dict) else BLOCKS  # a few of timm's give a function
    if not isinstance(patterns, str):  # (pattern, None), or with a number for what is not a block, as the last norm
        patterns = "|".join(pattern for pattern, number in patterns if number is None)
    layers = {name: module for name, module in model.named_modules() if name and re.fullmatch(patterns, name)}
    if not layers:
        raise UserError(f"{type(model).__name__} has no layers that vitlab knows: no blocks named as such")
    return layers


def finds(find: Callable[[nn.Module], Any], model: nn.Module) -> bool:
    """Tell whether a function that raises UserError for models without something finds it in a model."""
    with suppress(UserError):
        return find(model) is not None
    return False


def has_layers(model: nn.Module) -> bool:
    """Tell whether the model has layers that take images."""
    return takes_images(model) and finds(find_layers, model)


def takes_images(model: nn.Module) -> bool:
    """Tell whether a convolution reads the pixels: a ViT's patch embedding, a ResNet's stem."""
    return first_convolution(model) is not None


@contextmanager
def watch_outputs(
    model: nn.Module, modules: dict[nn.Module, int], see: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """Call `see(layer, output)` for each of the modules in forward passes in this context, in eval mode, not compiled.

    Raises UserError in a forward pass where a module gives something else than one tensor.
    """

    def hook(module: nn.Module, args: tuple, output: Any) -> None:
        if not isinstance(output, Tensor):
            raise UserError(f"{type(model).__name__}: a layer gives {type(output).__name__}, not one tensor")
        see(modules[module], output)

    with ExitStack() as hooks, run_eagerly(model):
        for module in modules:
            hooks.enter_context(module.register_forward_hook(hook))
        yield


@contextmanager
def run_eagerly(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode and, because hooks inside a compiled graph would not run, turn compilation off."""
    with torch.compiler.set_stance("force_eager"), evaluating(model):
        yield


CHUNK = 16  # images in one forward pass


def track_progress(items: Sequence[Item], progress: ShowCount | None = None) -> Iterator[Item]:
    """Yield the items; call `progress(done, total)` before the first and after each."""
    for done, item in enumerate(items):
        if progress and not done:
            progress(0, len(items))
        yield item
        if progress:
            progress(done + 1, len(items))


def in_chunks(inputs: Any, progress: ShowCount | None = None) -> Iterator[Any]:
    """Yield a few images, or a few texts of a `TokenInputs`, at a time."""
    return track_progress(inputs.split(CHUNK), progress)


def average_per_head(
    model: nn.Module,
    inputs: Tensor | TokenInputs,
    reduction: Reduction,
    first: int = 0,
    progress: ShowCount | None = None,
    uniform: bool = False,
) -> list[dict[str, Any]]:
    """Return one row {"layer", "head", "value"} per head, both counted from 1; never hold a whole layer's weights.

    `reduction` gives (B, H, n) for a block of queries at a time, during the forward pass; queries before the `first` do
    not count, nor does padding. With `uniform` each layer has one head, which looks evenly at all of its keys. For
    texts it measures the model's body; for an encoder-decoder that is the encoder.
    """
    totals: dict[int, Tensor] = {}
    of_text = isinstance(inputs, TokenInputs)
    for chunk in in_chunks(inputs, progress):
        looked, shown, options = (model.text, chunk.tokens, chunk.options) if of_text else (model, chunk, {})
        counted = chunk.mask[:, None, first:] if of_text else None  # those that are no padding

        def visit(layer: int, call: AttentionCall, mask: Tensor | None = counted) -> None:
            blocks = (call.uniform() if uniform else call).blocks()
            values = torch.cat([reduction(weights, queries) for queries, weights in blocks], dim=2)
            values = values[:, :, first:].double()
            means = values.mean(dim=2)
            if mask is not None:
                means = values.masked_fill(~mask, 0).sum(dim=2) / mask.sum(dim=2)
            totals[layer] = totals.get(layer, 0) + means.sum(dim=0)

        visit_attention(looked, shown, visit, **options)
    count = len(inputs.tokens if of_text else inputs)
    return [
        {"layer": layer + 1, "head": head + 1, "value": round(value / count, 5)}
        for layer, total in sorted(totals.items())
        for head, value in enumerate(total.tolist())
    ]


@dataclass(frozen=True)
class Findings:
    """The result of an analysis: its `rows`, `arrays` and `references`, any of which may be empty."""

    name: str
    unit: str
    rows: list[dict[str, Any]]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    images: np.ndarray | None = None  # uint8 (B, C, Y, X), before normalisation; None of texts
    labels: np.ndarray | None = None  # int64 (B,)
    classes: Sequence[str] = ()  # their names
    references: dict[str, float] = field(default_factory=dict)  # values of known cases by name, in the unit of the rows

    @property
    def array(self) -> np.ndarray:
        """The first array: the array to draw."""
        return next(iter(self.arrays.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a run's analysis/NAME.json."""
        document = {"name": self.name, "unit": self.unit, "rows": self.rows}
        return {**document, "references": self.references} if self.references else document

    def with_pictures(self, side: int) -> "Findings":
        """Add the images, no side longer than `side`, as an array "pictures" uint8 (B, C, y, x), and their "names"."""
        assert self.images is not None, "texts have no pictures"
        labels = [] if self.labels is None else self.labels
        names = [str(self.classes[label]) for label in labels] or [""] * len(self.images)
        return replace(
            self,
            arrays={**self.arrays, "pictures": shrink_images(self.images, side), "names": np.array(names, dtype=str)},
        )

    @classmethod
    def of(cls, found: list[dict[str, Any]] | dict[str, Any], **others: Any) -> "Findings":
        """Build the findings from the output of an analysis's `run`."""
        if isinstance(found, list):
            return cls(rows=found, **others)
        plain = {key: found[key] for key in ("rows", "references", "unit") if key in found}
        arrays = {key: value for key, value in found.items() if key not in plain}
        return cls(**{"rows": [], **others, **plain}, arrays=arrays)


def shrink_images(images: np.ndarray, side: int) -> np.ndarray:
    """Shrink images uint8 (B, C, Y, X) so that no side is longer than `side` pixels; smaller images stay."""
    height, width = images.shape[-2:]
    factor = side / max(height, width)
    if factor >= 1:
        return images
    size = max(1, round(factor * width)), max(1, round(factor * height))
    channels = [Image.fromarray(channel).resize(size, Image.Resampling.LANCZOS) for channel in np.concatenate(images)]
    return np.stack([np.asarray(channel) for channel in channels]).reshape(*images.shape[:2], *size[::-1])
