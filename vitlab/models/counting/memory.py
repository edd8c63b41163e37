"""The memory of a training step, counted without one: nothing is computed, and no GPU is needed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint

from vitlab.models.counting.count import inputs

BATCHES = (2, 4)  # a norm over a batch of one raises


@dataclass(frozen=True)
class Activations:
    """Bytes that a step on a GPU keeps from its forward pass for its backward pass, without parameters.

    `fixed` is there whatever the batch: autocast's copies of the weights. `per_example` is of one example, and
    `checkpointed` too where the blocks compute theirs again (Chen et al., 2016): their inputs, and all of one block.
    """

    fixed: float
    per_example: float
    checkpointed: float


def count_activations(
    model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], example: Any, dtype: torch.dtype | None
) -> Activations:
    """The activations of `loss(model, batch)` on a GPU, under autocast to `dtype` unless that is None.

    `model` is on the meta device; `example` is a batch of one item. Counted with two sizes of the batch: what grows
    with it is of the examples. Recurrent layers are counted as on a CPU, in fp32: of cuDNN's nothing is known without a
    GPU.
    """
    device = "cpu" if any(isinstance(module, nn.RNNBase) for module in model.modules()) else "cuda"
    with FakeTensorMode(allow_non_fake_inputs=True), placed(model, device):
        (small, small_checkpointed), (large, large_checkpointed) = (
            count_kept(model.train(), loss, repeat(example, size, device), dtype) for size in BATCHES
        )
    grown = BATCHES[1] - BATCHES[0]
    per_example = (large - small) / grown
    return Activations(small - BATCHES[0] * per_example, per_example, (large_checkpointed - small_checkpointed) / grown)


@contextmanager
def placed(model: nn.Module, device: str) -> Iterator[None]:
    """A model's parameters and buffers on a device, without values; shared ones stay shared. Afterwards as before."""
    moved: dict[Tensor, Tensor] = {}
    before = [(held, dict(held)) for module in model.modules() for held in (module._parameters, module._buffers)]
    for held, tensors in before:
        for name, tensor in tensors.items():
            if tensor is not None and tensor not in moved:
                empty = torch.empty_like(tensor, device=device)
                trained = isinstance(tensor, nn.Parameter)
                moved[tensor] = nn.Parameter(empty, tensor.requires_grad) if trained else empty
            held[name] = moved.get(tensor)
    try:
        yield
    finally:
        for held, tensors in before:
            held.update(tensors)


def activation_bytes(model: nn.Module, shape: Mapping[str, Any]) -> float:
    """Bytes per example that a step on a CPU in fp32 keeps for its backward pass, without parameters and buffers.

    `model` is on the meta device; in training mode, so dropout masks count.
    """
    with FakeTensorMode(allow_non_fake_inputs=True), placed(model, "cpu"):
        batch = inputs(shape, BATCHES[0], "cpu")
        return count_kept(model.train(), lambda model, batch: model(*batch), batch, None)[0] / BATCHES[0]


def repeat(example: Any, size: int, device: str) -> Any:
    """A batch of a size that looks as a batch of one does, without values."""

    def grow(tensor: Tensor) -> Tensor:
        return torch.zeros((size, *tensor.shape[1:]), dtype=tensor.dtype, device=device)

    if is_dataclass(example):
        return replace(example, **{key: repeat(value, size, device) for key, value in vars(example).items()})
    return tree_map_only(Tensor, grow, example)


def count_kept(
    model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], batch: Any, dtype: torch.dtype | None
) -> tuple[int, int]:
    """Bytes of the storages that one forward pass saves, all and with the blocks computed again; each counted once."""
    own = {storage(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, tuple[Tensor, int | None]] = {}  # the tensors stay alive, so that no storage gets another's address
    given: dict[int, tuple[Tensor, None]] = {}  # to the blocks
    inside: list[int] = []  # the block that runs

    def keep(tensor: Tensor) -> Tensor:
        if storage(tensor) not in own:
            kept.setdefault(storage(tensor), (tensor, inside[-1] if inside else None))
        return tensor

    def enter(block: nn.Module, args: tuple, kwargs: dict) -> None:
        given.update({storage(x): (x, None) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)})
        inside.append(id(block))

    def leave(*_: Any) -> None:
        inside.pop()

    blocks = list_blocks(model)
    hooks = [block.register_forward_pre_hook(enter, with_kwargs=True) for block in blocks]
    hooks += [block.register_forward_hook(leave) for block in blocks]
    try:
        with autocast(dtype), FusedAttention(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = loss(model, batch)  # the graph lives as long as its output
    finally:
        for hook in hooks:
            hook.remove()
    del out
    by_block = {id(block): {} for block in blocks} | {None: given}
    for key, (tensor, block) in kept.items():
        by_block[block][key] = (tensor, block)
    sums = {
        block: sum(tensor.untyped_storage().nbytes() for tensor, _ in held.values()) for block, held in by_block.items()
    }
    total = sum(tensor.untyped_storage().nbytes() for tensor, _ in kept.values())
    outside = sums.pop(None)
    return total, outside + max(sums.values(), default=0)


def list_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks that the model consists of: the members of its lists `blocks` and `layers`, but for those inside."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        is_list = isinstance(module, nn.ModuleList | nn.Sequential) and name.rpartition(".")[2] in ("blocks", "layers")
        if is_list and not any(name.startswith(f"{block}.") for block in found):
            found |= {f"{name}.{place}": block for place, block in module.named_children()}
    return list(found.values())


@contextmanager
def autocast(dtype: torch.dtype | None) -> Iterator[None]:
    """torch.autocast of a GPU; its own context manager switches itself off where there is none."""
    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", dtype is not None)
    torch.set_autocast_dtype("cuda", dtype or before)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_dtype("cuda", before)
        torch.set_autocast_enabled("cuda", False)


class FusedAttention(TorchFunctionMode):
    """Attention as a GPU runs it; without one torch chooses the path that keeps the N x N weights."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is not F.scaled_dot_product_attention or args[0].device.type == "cpu":
            return func(*args, **(kwargs or {}))
        return attend(*args, **(kwargs or {}))


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """scaled_dot_product_attention by the kernels of a GPU: FlashAttention in half precision, with a mask the other."""
    if torch.is_autocast_enabled("cuda"):
        q, k, v = (tensor.to(torch.get_autocast_dtype("cuda")) for tensor in (q, k, v))
    if attn_mask is None and q.dtype != torch.float32:
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype)
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*q.shape[:-1], k.shape[-2])
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        q, k, v, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]


def count_state(optimizer: Optimizer) -> int:
    """Bytes of an optimizer's state after a step; its parameters are on the meta device."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    held = [tensor for state in optimizer.state.values() for tensor in tree_leaves(state) if isinstance(tensor, Tensor)]
    return sum(tensor.nbytes for tensor in held if tensor.is_meta)


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


@contextmanager
def checkpointed(model: nn.Module) -> Iterator[None]:
    """Meanwhile each block computes its activations again in the backward pass rather than keep them.

    Chen et al., 2016. What is computed is the same, dropout too.
    """
    blocks = list_blocks(model)
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward
