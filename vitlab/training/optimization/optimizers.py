"""Optimizers and their parameter groups: weight decay, layer-wise learning rates, Muon's matrices."""

from typing import Any

import torch
from timm.models import group_parameters
from timm.optim import Muon, param_groups_layer_decay, param_groups_weight_decay
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.overrides import TorchFunctionMode

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig
from vitlab.models.base import as_model
from vitlab.models.heads import TextModel
from vitlab.models.weights.load import head_names
from vitlab.training.devices.bf16 import cpu_has_bf16


def build_optimizer(model: nn.Module, recipe: RecipeConfig, fused: bool = False) -> Optimizer:
    """The recipe's optimizer; norms, biases, positions and class tokens have no weight decay. `fused`: in one kernel.

    With `layer_decay` the head has the recipe's rate and each layer that share of the rate of the layer above it (Clark
    et al., 2020; Bao et al., 2022). Raises UserError for muon with a model without hidden matrices, and for BatchNorm
    with a batch of one.
    """
    if recipe.batch_size == 1 and any(
        isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()
    ):
        raise UserError("recipe.batch_size=1: BatchNorm needs at least 2 examples per batch; give 2 or more")
    if recipe.optimizer == "muon":
        return build_muon(model, recipe)
    groups = make_parameter_groups(model, recipe)
    if recipe.optimizer == "sgd":
        momentum = {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
        return SGD(groups, lr=compute_peak_rate(recipe), **momentum, fused=fused or None)
    return build_adamw(groups, recipe, fused)


def build_adamw(groups: list[dict[str, Any]], recipe: RecipeConfig, fused: bool) -> AdamW:
    betas = tuple(recipe.betas)
    return AdamW(groups, lr=compute_peak_rate(recipe), betas=betas, eps=recipe.eps, fused=fused or None)


def compute_peak_rate(recipe: RecipeConfig) -> float:
    """The recipe's peak rate; with `lr_batch` it scales linearly with the batch size (Goyal et al., 2017)."""
    return recipe.lr if recipe.lr_batch is None else recipe.lr * recipe.batch_size / recipe.lr_batch


def make_parameter_groups(
    model: nn.Module, recipe: RecipeConfig, fallback: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """timm's groups, each with its own `lr`; those of the parameters named in `fallback` have `use_fallback`."""
    not_decayed = as_model(model).no_weight_decay()
    options = {"weight_decay": recipe.weight_decay, "no_weight_decay_list": not_decayed, "fallback_list": fallback}
    if recipe.layer_decay is None:
        return param_groups_weight_decay(model, **options)
    groups = param_groups_layer_decay(model, layer_decay=recipe.layer_decay, **options)
    for group in groups:
        group["lr"] = compute_peak_rate(recipe) * group.pop("lr_scale")
    return groups


def build_muon(model: nn.Module, recipe: RecipeConfig) -> Muon:
    """Muon for the hidden matrices, AdamW for all else, with one rate for both: Muon's step is scaled to AdamW's
    (Jordan et al., 2024; Liu et al., 2025, arXiv 2502.16982, eq. 4).
    """
    hidden = find_hidden_matrices(model)
    if not hidden:
        raise UserError(
            "recipe.optimizer=muon: Muon needs linear layers or convolutions between the first and the last layer, and "
            "this model has none; choices for it: adamw, sgd"
        )
    others = tuple(name for name, _ in model.named_parameters() if name not in hidden)
    groups = make_parameter_groups(model, recipe, others)
    for group in groups:
        if group.get("use_fallback"):
            group.update(nesterov=False, eps=recipe.eps)  # with nesterov timm takes NAdamW
        else:
            group["use_muon"] = True
    kind = Muon if cpu_has_bf16() else MuonInFloat32
    return kind(
        groups,
        lr=compute_peak_rate(recipe),
        weight_decay=recipe.weight_decay,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        betas=tuple(recipe.betas),
        ns_coefficients="original",
    )


def find_hidden_matrices(model: nn.Module) -> set[str]:
    """Names of the weights of linear layers and convolutions (but those of a channel each) in the model's blocks:
    neither in its first nor in its last layer.

    Layers are those of the model's `group_matcher`. Muon takes a convolution's weights as a matrix (out, in * window).
    """
    layers = group_parameters(model, as_model(model).group_matcher(), reverse=True)
    matrices = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
    }
    return {name for name in matrices & layers.keys() if 0 < layers[name] < max(layers.values())}


class MuonInFloat32(Muon):
    """timm's Muon, which multiplies in bf16, for a CPU without bf16 matrix instructions: ten times as fast there.

    Operands and results are rounded to bf16, sums are taken in float32: what such instructions do.
    """

    def step(self, closure: Any = None) -> Any:
        with ProductsInFloat32():
            return super().step(closure)


class ProductsInFloat32(TorchFunctionMode):
    """Multiplies bf16 matrices of a CPU in float32 and rounds the result to bf16."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.addmm and args[0].is_cpu and args[0].dtype == torch.bfloat16:
            out = kwargs.pop("out")
            return out.copy_(func(*(tensor.float() for tensor in args), **kwargs))
        return func(*args, **kwargs)


def freeze_body(model: nn.Module) -> None:
    """Freeze all but the head: no gradients, and eval mode, so no dropout and no new statistics of its norms.

    The head is the classifier; in a text model it is all outside the body `text`, so BERT's pooler too. Raises
    UserError for a model without a head.
    """
    is_text = isinstance(model, TextModel)
    names = [name for name, _ in model.named_parameters()]
    head = {name for name in names if not name.startswith("text.")} if is_text else {*head_names(model)} & {*names}
    if not head:
        raise UserError(f"recipe.freeze=body: {type(model).__name__} has no head to train; give recipe.freeze=null")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in head)
    (model.text if is_text else model).eval()  # a linear head has no modes
