"""Measure what a model's layers represent (CKA), and which pixels or tokens they depend on (effective receptive field).

Shapes: B images, n of them in a batch, C channels, Y x X pixels, D width, L layers of one model, M of another.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.analysis.capture import (
    Analysis,
    ShowCount,
    find_layers,
    has_layers,
    run_eagerly,
    track_progress,
    watch_outputs,
)
from vitlab.config import UserError, collecting, raise_all
from vitlab.config.schema import AnalysisConfig
from vitlab.config.schema.models import timm_model
from vitlab.models import build_model
from vitlab.models.base import as_model
from vitlab.models.text import TextModel
from vitlab.tasks.base import TokenInputs
from vitlab.training.finished import load_run


def compute_gram(features: Tensor) -> Tensor:
    """Compute the products (n, n), float64, between the images' features (n, ...), all centered.

    Centring changes no CKA, but the products of uncentred ones would lose their digits.
    """
    rows = features.detach().flatten(1)
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    rows = rows - rows.mean(dim=0)
    with torch.autocast(rows.device.type, enabled=False):
        return (rows @ rows.T).double()


def hsic(k: Tensor, l: Tensor) -> Tensor:  # noqa: E741, the paper's letter
    """Compute HSIC_1 (L, M) of the products k (L, n, n) and l (M, n, n): unbiased, so it can be below 0.

    With zero diagonals, [tr(k l) + 1'k1 1'l1 / ((n - 1) (n - 2)) - 2 / (n - 2) 1'k l1] / (n (n - 3)).
    """
    n = k.shape[-1]
    others = 1 - torch.eye(n, dtype=k.dtype, device=k.device)
    k, l = k * others, l * others  # noqa: E741
    k_rows, l_rows = k.sum(dim=-1), l.sum(dim=-1)
    products = k.flatten(1) @ l.flatten(1).T
    totals = k_rows.sum(dim=-1).outer(l_rows.sum(dim=-1)) / ((n - 1) * (n - 2))
    return (products + totals - 2 / (n - 2) * k_rows @ l_rows.T) / (n * (n - 3))


def minibatch_cka(products: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Compute CKA float64 (L, M) of two models' layers, from the products k (L, n, n) and l (M, n, n) of each batch.

    CKA tells how alike two layers represent the same images (Kornblith et al., 2019): linear, over mini-batches (Nguyen
    et al., 2021), unbiased (HSIC_1 of Song et al., 2012). NaN for a layer that is the same for all images.
    """
    parts = ((hsic(k, l), hsic(k, k).diagonal(), hsic(l, l).diagonal()) for k, l in products)  # noqa: E741
    cross, of_k, of_l = map(sum, zip(*parts, strict=True))
    return cross / of_k.clamp(min=0).sqrt().outer(of_l.clamp(min=0).sqrt())


@torch.no_grad()
def compute_grams(model: nn.Module, images: Tensor) -> Tensor:
    """Compute the products (L, n, n) of each layer's output, all tokens or pixels; hold only one output at a time."""
    modules = {module: layer for layer, module in enumerate(find_layers(model).values())}
    grams: dict[int, Tensor] = {}
    with watch_outputs(model, modules, lambda layer, output: grams.update({layer: compute_gram(output)})):
        model(images)
    return torch.stack([grams[layer] for layer in range(len(modules))])


def cka(
    model: nn.Module,
    images: Tensor,
    other: nn.Module | None = None,
    batch: int = 32,
    progress: ShowCount | None = None,
) -> Tensor:
    """Compute CKA float64 (L, M) between all layers of a model, or of a model and an `other` for the same images.

    The images (B, C, Y, X), four or more, are split into batches of at least `batch`, or one batch if they are fewer.
    Raises UserError for a model without layers.
    """

    def products() -> Iterator[tuple[Tensor, Tensor]]:
        for chunk in track_progress(images.tensor_split(max(1, len(images) // batch)), progress):
            k = compute_grams(model, chunk)
            yield k, k if other is None else compute_grams(other, chunk)

    return minibatch_cka(products()).cpu()


def load_other(source: str, images: Tensor, prepared: Any = None) -> nn.Module:
    """Load the model of a finished run, or of timm with its weights, to see the same images (B, C, Y, X).

    The images are prepared for the first model; a model of timm sees them with its own normalization if `prepared`, an
    ImagePreparation, tells theirs. Raises UserError.
    """
    size, channels = tuple(images.shape[2:]), images.shape[1]
    if source.startswith("timm:"):
        other = build_model(image_size=size, channels=channels, **timm_model(source))
        cfg = other.pretrained_cfg
        if prepared and channels == len(cfg["mean"]):
            numbers = (prepared.mean, prepared.std, cfg["mean"], cfg["std"])
            mean, std, its_mean, its_std = (images.new_tensor(values).view(-1, 1, 1) for values in numbers)
            other.register_forward_pre_hook(lambda _, given: ((given[0] * std + mean - its_mean) / its_std,))
    else:
        problems: list[str] = []
        with collecting(problems, "cka.other: "):
            loaded = load_run(source)
        raise_all(problems)
        other, shape = loaded.model, loaded.shape
        theirs, ours = (shape.get("image_size"), shape.get("channels")), (size, channels)
        if theirs != ours:
            wanted = f"image_size and channels {theirs}, these images have {ours}"
            raise UserError(f"cka.other={source}: was trained for {wanted}; give a run of such images")
    if not has_layers(other):
        raise UserError(f"cka.other={source}: has no layers named as blocks to compare with")
    return other.eval().to(images.device)


def run_cka(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: ShowCount | None = None, prepared: Any = None
) -> list[dict[str, Any]]:
    """Return one row {"layer", "other", "value", "name", "other_name"} per pair of layers, by `config.batch` images.

    Layers are counted from 1 and named by their modules. The layers of "other" are the model's own, or
    those of the run or the model of timm `config.other`. "value" is None for a layer that is the same for all images.
    Raises UserError as `cka` does, and for an other model that does not take the images.
    """
    other = None if config.other is None else load_other(str(config.other), images, prepared)
    similarities, others = cka(model, images, other, config.batch, progress).tolist(), list(find_layers(other or model))
    return [
        {
            "layer": layer,
            "other": against,
            "value": round(value, 5) if value == value else None,
            "name": name,
            "other_name": others[against - 1],
        }
        for layer, (name, values) in enumerate(zip(find_layers(model), similarities, strict=True), start=1)
        for against, value in enumerate(values, start=1)
    ]


WITHIN = 1 - 0.9545  # of the peak: what still belongs to the field, the paper's choice
CHUNK = 8  # images in one forward and backward pass


def receptive_fields(
    model: nn.Module, images: Tensor, chosen: list[int], seed: int = 0, progress: ShowCount | None = None
) -> tuple[Tensor, list[list[int]]]:
    """Compute the fields (len(chosen), Y, X) of the chosen layers (0: first), each with a peak of 1, and their grids.

    A grid is [rows, columns] of the units that a layer gives.

    The root of the mean over images, of the sum over channels, of (d(v . u) / d pixel)^2, where u (D,) is the layer's
    output in the middle, and v a random direction for each image, for in a plain sum of u channels could cancel.
    Raises UserError for a model without layers.

    Luo et al., 2016; for a ViT the middle is the patch in the middle of the grid. With an even number of units the
    middle is the unit right of it and below, where strided convolutions have it within a pixel of the picture's middle:
    with a total stride of s, and the usual padding, unit i lies over pixel s i. So a map of one unit lies over the
    upper left corner, and its field with it.
    """
    layers = list(find_layers(model).values())
    generator = torch.Generator().manual_seed(seed)
    squares = torch.zeros(len(chosen), *images.shape[-2:], dtype=torch.float64, device=images.device)
    units: dict[int, Tensor] = {}
    grids: dict[int, list[int]] = {}
    modules = {layers[layer]: layer for layer in chosen}

    def see(layer: int, output: Tensor) -> None:
        output = to_map(model, output)
        grids[layer] = rows, columns = list(output.shape[1:3])
        units[layer] = output[:, rows // 2, columns // 2].clone()  # a copy, for the next layer may write over it

    for chunk in track_progress(images.split(CHUNK), progress):
        pixels = chunk.detach().clone().requires_grad_()
        with torch.enable_grad():
            with watch_outputs(model, modules, see):
                model(pixels)
            for place, layer in enumerate(chosen):
                unit = units[layer]
                direction = torch.randn(unit.shape, generator=generator).to(unit)
                (slope,) = torch.autograd.grad((unit * direction).sum(), pixels, retain_graph=True)
                squares[place] += slope.double().square().sum(dim=(0, 1))
    peaks = squares.amax(dim=(1, 2), keepdim=True)
    return (squares / peaks).sqrt().cpu(), [grids[layer] for layer in chosen]


def to_map(model: nn.Module, output: Tensor) -> Tensor:
    """Turn a layer's output, tokens (B, N, D) or a map (B, D, y, x), into a map (B, y, x, D).

    Raises UserError for tokens that are no grid of patches.
    """
    if output.ndim == 3:
        patches = as_model(model).patches
        if patches is None or output.shape[1] != patches.tokens:
            raise UserError(f"{type(model).__name__} has no patch grid, so its layers have no middle")
        return output[:, patches.prefix :].unflatten(1, patches.grid_size)
    return output.movedim(1, -1) if as_model(model).channels_first else output


def effective_size(field: Tensor) -> float:
    """Compute the side in pixels of a square as large as the part of a field (Y, X) above 4.55% of its peak."""
    return (field > WITHIN * field.max()).sum().sqrt().item()


def measure_reach(field: Tensor) -> float:
    """Measure the root mean squared distance, in pixels, of a field's parts (Y, X) from their own middle.

    Attention of uniform weights has a mean distance of about 1.3 times as much on a square.
    """
    places = torch.cartesian_prod(*(torch.arange(side, dtype=torch.float64) for side in field.shape))
    weights = field.flatten().double() / field.sum()
    middle = weights @ places
    return (weights @ (places - middle).square().sum(dim=1)).sqrt().item()


def run_receptive_field(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: ShowCount | None = None
) -> dict[str, Any]:
    """Return {"fields": float32 (n, Y, X), "rows": [{"layer", "grid", "value", "reach"}]} of `config.layers` layers.

    The layers stand evenly over the model's depth and include the last; "layer" counts from 1, "grid" is [rows,
    columns] of the units that it gives, "value" the field's effective size, "reach" is by `measure_reach`.
    Raises UserError as `receptive_fields` does.
    """
    depth = len(find_layers(model))
    count = min(config.layers, depth)
    chosen = [round((place + 1) * depth / count) - 1 for place in range(count)]
    fields, grids = receptive_fields(model, images, chosen, config.seed, progress)
    rows = [
        {"layer": layer + 1, "grid": grid, "value": round(effective_size(field), 5)}
        | {"reach": round(measure_reach(field), 5)}
        for layer, grid, field in zip(chosen, grids, fields, strict=True)
    ]
    return {"fields": fields.numpy().astype(np.float32), "rows": rows}


BINS = 16  # of distances at most


def run_token_reach(
    model: nn.Module, inputs: TokenInputs, config: AnalysisConfig, progress: ShowCount | None = None
) -> list[dict[str, Any]]:
    """Return rows {"distance", "value", "reach"}: by distance, the share of a hidden state's dependence on tokens.

    The state is that of a text's last token, or of its middle token where later tokens count too. A token's share is
    the size of d(v . state) / d embedding, v a random direction, over the sum of all sizes, in the mean over texts;
    "distance" is the first of a bin of distances, "reach" the root of the mean squared distance in tokens.
    """
    generator, embedded = torch.Generator().manual_seed(config.seed), []
    weights = torch.zeros(inputs.tokens.shape[1], dtype=torch.float64)

    def cut(_: nn.Module, args: tuple, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    hook = model.text.embed.register_forward_hook(cut)
    # cuDNN has no backward pass of recurrent layers in eval mode
    with hook, run_eagerly(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        for chunk in track_progress(inputs.split(CHUNK), progress):
            hidden, rows = model.text(chunk.tokens, **chunk.options), torch.arange(len(chunk.tokens))
            counts = chunk.mask.sum(dim=1)
            places = counts - 1 if model.text.causal else counts // 2
            unit = hidden[rows, places]
            direction = torch.randn(unit.shape, generator=generator).to(unit)
            (slope,) = torch.autograd.grad((unit * direction).sum(), embedded.pop())
            sizes = slope.double().norm(dim=-1) * chunk.mask
            distances = (torch.arange(sizes.shape[1], device=sizes.device) - places[:, None]).abs()
            weights.index_add_(0, distances.flatten().cpu(), (sizes / sizes.sum(dim=1, keepdim=True)).flatten().cpu())
    weights = weights / weights.sum()
    reach = round((weights @ torch.arange(len(weights)).double().square()).sqrt().item(), 5)
    bins = torch.arange(len(weights)).tensor_split(min(BINS, len(weights)))
    shares = [(int(of[0]), round(weights[of].sum().item(), 5)) for of in bins]
    return [{"distance": distance, "value": share, "reach": reach} for distance, share in shares]


ANALYSES = {
    "cka": Analysis("CKA", "images, and layers named as blocks", has_layers, run_cka),
    "receptive_field": Analysis("pixels", "images, and layers named as blocks", has_layers, run_receptive_field),
    "token_reach": Analysis("share", "tokens", lambda model: isinstance(model, TextModel), run_token_reach),
}
