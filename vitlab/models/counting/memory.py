"""The memory of a training step: activations and the optimizer's state, counted on the meta device."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Activations:
    """Bytes that a training step keeps from its forward pass for its backward pass, without parameters.

    `fixed` is there whatever the batch. `per_example` is of one example, and `checkpointed` too where each block
    computes its own again (Chen et al., 2016): the inputs of all blocks, and all of the largest block.
    """

    fixed: float
    per_example: float
    checkpointed: float


def count_activations(
    model: nn.Module, loss: Callable[[nn.Module, Any], Any], example: Any, *, half: bool = False
) -> Activations:
    """The activations of `loss(model, batch)`; `model` and `example`, a batch of one item, are on the meta device.

    They are the tensors that autograd saves in float32, each storage once, of attention those that a fused kernel
    saves. Under autocast (`half`) they take half their bytes, but in models with GroupNorm, which a GPU's autocast
    computes in float32; and weights are copied. What a second example adds is of one example, the rest is fixed.
    """
    of_one, two = (count_saved(model, partial(loss, model, repeat(example, size))) for size in (1, 2))
    per_example, checkpointed = (large - small for small, large in zip(of_one, two, strict=True))
    activations = Activations(of_one[0] - per_example, per_example, checkpointed)
    if not half:
        return activations
    share = 1 if any(isinstance(module, nn.GroupNorm) for module in model.modules()) else 0.5
    copies = sum(2 * parameter.numel() for parameter in model.parameters())
    return Activations(
        copies + share * activations.fixed, share * activations.per_example, share * activations.checkpointed
    )


def repeat(example: Any, size: int) -> Any:
    """A batch of a size that looks as a batch of one does, without values."""
    if is_dataclass(example):
        return replace(example, **{key: repeat(value, size) for key, value in vars(example).items()})
    return tree_map_only(Tensor, lambda tensor: tensor.new_empty(size, *tensor.shape[1:]), example)


def count_saved(model: nn.Module, forward: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that autograd saves in a forward pass: all, and where each block computes its own again.

    The model is in eval mode, for a norm over a batch of one raises in training; but its dropout trains: masks count.
    """
    for module in model.modules():
        module.training = isinstance(module, nn.Dropout)
    parameters = {storage(tensor) for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[nn.Module | None, dict[int, Tensor]] = defaultdict(dict)  # by block, None outside
    given: dict[int, Tensor] = {}  # to the blocks
    inside: list[nn.Module | None] = [None]

    def save(tensor: Tensor) -> Tensor:
        if storage(tensor) not in parameters:
            saved[inside[-1]][storage(tensor)] = tensor  # stays alive, so that no other gets its address
        return tensor

    def enter(block: nn.Module, args: tuple, kwargs: dict) -> None:
        inside.append(block)
        given.update({storage(x): x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)})

    def leave(*_: Any) -> None:
        inside.pop()

    blocks = list_blocks(model)
    hooks = [block.register_forward_pre_hook(enter, with_kwargs=True) for block in blocks]
    hooks += [block.register_forward_hook(leave) for block in blocks]
    try:
        with FusedAttention(), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    outside = saved.pop(None, {})
    everything = dict(item for tensors in (outside, *saved.values()) for item in tensors.items())
    largest = max((count_bytes(tensors.values()) for tensors in saved.values()), default=0)
    return count_bytes(everything.values()), count_bytes((outside | given).values()) + largest


def count_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class FusedAttention(TorchFunctionMode):
    """scaled_dot_product_attention on the meta device keeps what a fused kernel does; else its N x N weights too."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
    return KeepAttention.apply(query, key, value, attn_mask)


class KeepAttention(torch.autograd.Function):
    """Queries (..., H, N, K), keys and values (..., H, M, K), a mask -> (..., H, N, K), all kept."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        *batch, heads, length, _ = query.shape
        out = query.new_empty(*batch, length, heads, value.shape[-1]).transpose(-3, -2)  # joining heads copies nothing
        ctx.save_for_backward(query, key, value, mask, out)
        return out


def list_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks that the model consists of: the members of its lists `blocks` and `layers`, but for those inside."""
    blocks: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        is_list = isinstance(module, nn.ModuleList | nn.Sequential) and name.rpartition(".")[2] in ("blocks", "layers")
        if is_list and not any(name.startswith(f"{block}.") for block in blocks):
            blocks |= {f"{name}.{place}": block for place, block in module.named_children()}
    return list(blocks.values())


@contextmanager
def checkpointed(model: nn.Module) -> Iterator[None]:
    """In this context each block computes its activations again in the backward pass rather than keep them.

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
