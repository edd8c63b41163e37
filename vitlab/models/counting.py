"""Costs of a model: parameters and operations, counted on the meta device, and the time and memory of a step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from vitlab.config import UserError, first_line
from vitlab.config.schema.models import ModelConfig
from vitlab.models import build
from vitlab.models.base import as_model
from vitlab.models.decoding import generate
from vitlab.models.encoder import Block


def meta(config: ModelConfig, **shape: Any) -> nn.Module:
    """Build the model on the meta device, without memory for its weights. `shape` as for `vitlab.models.build`."""
    with torch.device("meta"):
        return build(config, **shape)


def inputs(shape: Mapping[str, Any], batch_size: int = 1, device: str = "meta") -> tuple[Tensor, ...]:
    """Make inputs of zeros for a shape: images (B, C, Y, X) or tokens int64 (B, N), and a target's tokens if any."""

    def tokens(length: int) -> Tensor:
        return torch.zeros(batch_size, length, dtype=torch.int64, device=device)

    if "image_size" in shape:
        first = torch.zeros(batch_size, shape["channels"], *shape["image_size"], device=device)
    else:
        first = tokens(shape["length"])
    return (first, tokens(shape["target_length"])) if "target_length" in shape else (first,)


TIMED, TIMED_BATCH = 5, 8  # steps of which the fastest counts, after one more: other programs only add; examples


def measure(config: ModelConfig, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a forward and a backward pass in float32 over TIMED_BATCH examples, and the writing of one sequence.

    Returns `device`, `train_seconds` and `activation_bytes` per example (memory kept for the backward pass, without the
    weights; each storage counts once), and `write_seconds` per token up to the model's length, None if it writes none.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, batch = build(config, **shape).to(device), inputs(shape, TIMED_BATCH, device)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def finish(work: Callable[[], Any]) -> float:
        started = perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return perf_counter() - started

    def train() -> None:
        model.zero_grad()
        model(*batch).float().square().mean().backward()

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        train()
    for weight in (*model.parameters(), *model.buffers()):
        kept.pop(weight.untyped_storage().data_ptr(), None)
    about = {"device": device, "train_seconds": min(finish(train) for _ in range(TIMED)) / TIMED_BATCH}
    about |= {"activation_bytes": sum(kept.values()) // TIMED_BATCH, "write_seconds": None}
    if as_model(model).decoding and len(batch) == 1:
        count, given = shape["length"] - 1, batch[0][:1, :1]
        model.eval()
        written = [finish(lambda: generate(model.decoding(), given, count)) for _ in range(2)]
        about["write_seconds"] = min(written) / count
    return about


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def parts(model: nn.Module) -> dict[str, int]:
    """Count parameters by part: by the model's `part_of(name)`, else by its top-level modules."""
    return by_part(model, {name: parameter.numel() for name, parameter in model.named_parameters()})


def by_part(model: nn.Module, amounts: dict[str, int]) -> dict[str, int]:
    """Sum amounts by parameter or module name to amounts by part."""
    part_of = as_model(model).part_of
    counts: dict[str, int] = {}
    for name, amount in amounts.items():
        counts[part_of(name)] = counts.get(part_of(name), 0) + amount
    return counts


@dataclass(frozen=True)
class Weight:
    """The direct parameters of one module of a layer, in its order; a linear layer's shapes are (in, out)."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    params: int


@dataclass(frozen=True)
class Stack:
    """Consecutive layers of the same shape; `weights` belong to one layer."""

    name: str
    layers: int
    width: int | None  # None for layers without a norm
    cross: bool  # whether the layers have cross-attention
    weights: tuple[Weight, ...]

    @property
    def params_per_layer(self) -> int:
        return sum(weight.params for weight in self.weights)


def stacks(model: nn.Module) -> list[Stack]:
    """List the model's `blocks` or `layers` whose members have the same shape and share no parameters."""
    stacks: list[Stack] = []
    for name, module in model.named_modules():
        is_list = isinstance(module, nn.ModuleList | nn.Sequential) and name.rpartition(".")[2] in ("blocks", "layers")
        blocks = list(module) if is_list else []
        shapes = [[(name, p.shape) for name, p in block.named_parameters()] for block in blocks]
        held = [id(p) for block in blocks for p in block.parameters()]
        is_alike = held and len({*held}) == len(held) and all(shape == shapes[0] for shape in shapes)
        if is_alike and not any(name.startswith(f"{stack.name}.") for stack in stacks):
            norms = [p for n, p in blocks[0].named_parameters() if "norm" in n and n.endswith("weight")]
            width = norms[0].numel() if norms else None
            cross = isinstance(blocks[0], Block) and blocks[0].cross is not None
            stacks.append(Stack(name, len(blocks), width, cross, tuple(weights(blocks[0]))))
    return stacks


def weights(block: nn.Module) -> list[Weight]:
    weights = []
    for name, module in block.named_modules():
        parameters = list(module.parameters(recurse=False))
        shapes = tuple(
            tuple(p.T.shape if isinstance(module, nn.Linear) and p.ndim == 2 else p.shape) for p in parameters
        )
        if parameters:
            weights.append(Weight(name or "itself", shapes, sum(p.numel() for p in parameters)))
    return weights


def outside(model: nn.Module, stacks: Sequence[Stack]) -> dict[str, int]:
    """Count the parameters outside these stacks, by part."""
    inside = tuple(f"{stack.name}." for stack in stacks)
    return by_part(model, {n: p.numel() for n, p in model.named_parameters() if not n.startswith(inside)})


def flops(
    model: nn.Module, shape: Mapping[str, Any], loss: Callable[[nn.Module], Tensor] | None = None
) -> tuple[dict[str, int], int]:
    """Count operations for one example, forward by part and for a training step (forward, backward): 2 a multiply-add.

    A part has those of its modules, "" those outside of them. `model` is on the meta device (see `meta`) and built for
    `shape`; `loss` computes a task's loss for one example, by default the model's output is used. Counts matrix
    products, convolutions and fused attention. Raises UserError for a model of timm that does not take such examples;
    errors of other code stay as they are.
    """
    formulas = {torch.ops.aten.convolution_backward: convolution_backward_flops}
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        try:
            model.eval()  # in training mode a norm over a batch of one raises
            out = model(*inputs(shape)) if loss is None else loss(model)
            forward = {name: sum(of.values()) for name, of in counter.get_flop_counts().items()}
            everything = forward.pop("Global", 0)
            out.sum().backward()
        except Exception as error:
            # timm's models raise many kinds for images that are too small or not a multiple of something
            inside = any(frame.f_locals.get("self") is model for frame, _ in walk_tb(error.__traceback__))
            if not (inside and type(model).__module__.startswith("timm.")):
                raise
            given = " ".join(f"{key}={value}" for key, value in shape.items())
            raise UserError(f"{type(model).__name__} does not take {given}: {first_line(error)}") from error
    own = dict(forward)  # of each module, without its children's
    for name, total in forward.items():
        above = name.rpartition(".")[0]
        while above and above not in forward:  # a ModuleList has no forward
            above = above.rpartition(".")[0]
        if above:
            own[above] -= total
    root = type(model).__name__
    named = {name.removeprefix(root).removeprefix("."): amount for name, amount in own.items() if amount}
    if outside := everything - sum(named.values()):  # of the modules
        named[""] = named.get("", 0) + outside
    return by_part(model, named), counter.get_total_flops()


def convolution_backward_flops(
    grad_shape: Sequence[int], x_shape: Sequence[int], weight_shape: Sequence[int], *args: Any, **_: Any
) -> int:
    """Count as many operations for each gradient as forward; torch's formula is wrong for grouped convolutions."""
    transposed, needed = args[4], args[7]
    return conv_flop_count(x_shape, weight_shape, grad_shape, transposed) * sum(needed[:2])


def list_blocks(model: nn.Module) -> list[nn.Module]:
    """List the layers of a model's stacks."""
    return [block for stack in stacks(model) for block in model.get_submodule(stack.name)]


@contextmanager
def checkpointed(model: nn.Module) -> Iterator[None]:
    """Have each block compute its activations again in the backward pass rather than keep them.

    Chen et al., 2016. The results are the same, also of dropout.
    """
    blocks = list_blocks(model)
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward
