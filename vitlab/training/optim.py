"""Optimizers, their parameter groups, learning-rate schedules, and averages of the weights.

A schedule gives the rate of each step as a share of the recipe's rate, by the papers' formulas. `step` counts from 0 to
`steps` - 1. A linear warm-up comes before every schedule: (step + 1) / warmup, so that its last step has the whole rate
and no step is wasted.
"""

import math
import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from timm.models._manipulate import group_with_matcher
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.adamw import adamw
from torch.optim.lr_scheduler import LambdaLR

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig
from vitlab.models.base import Model, as_model
from vitlab.models.layers import LowRank
from vitlab.models.text import TextModel
from vitlab.models.weights import head_names


def build_optimizer(model: nn.Module, recipe: RecipeConfig, fused: bool = False) -> Optimizer:
    """Build the recipe's optimizer: no weight decay on norms, biases, positions, class tokens. `fused`: in one kernel.

    With `layer_decay` the head has the recipe's rate; each layer multiplies the rate of the layer above by that factor
    (Clark et al., 2020; Bao et al., 2022). Raises UserError for muon if the model has no hidden matrices, and for
    BatchNorm with a batch of one.
    """
    if recipe.batch_size == 1 and any(
        isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()
    ):
        raise UserError("recipe.batch_size=1: BatchNorm needs at least 2 examples per batch; give 2 or more")
    if recipe.optimizer == "muon":
        return build_muon(model, recipe, fused)
    groups = make_parameter_groups(model, recipe)
    if recipe.optimizer == "sgd":
        momentum = {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
        return SGD(groups, lr=compute_peak_rate(recipe), **momentum, fused=fused or None)
    betas = tuple(recipe.betas)
    return AdamW(groups, lr=compute_peak_rate(recipe), betas=betas, eps=recipe.eps, fused=fused or None)


def compute_peak_rate(recipe: RecipeConfig) -> float:
    """Compute the recipe's peak rate; with `lr_batch` it scales linearly with the batch size (Goyal et al., 2017)."""
    return recipe.lr if recipe.lr_batch is None else recipe.lr * recipe.batch_size / recipe.lr_batch


def make_parameter_groups(
    model: nn.Module, recipe: RecipeConfig, fallback: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Make timm's groups, with `layer_decay` an `lr` for each; set `use_fallback` for the parameters in `fallback`."""
    not_decayed = as_model(model).no_weight_decay()
    options = {"weight_decay": recipe.weight_decay, "no_weight_decay_list": not_decayed, "fallback_list": fallback}
    if recipe.layer_decay is None:
        return param_groups_weight_decay(model, **options)
    groups = param_groups_layer_decay(model, layer_decay=recipe.layer_decay, **options)
    for group in groups:
        group["lr"] = compute_peak_rate(recipe) * group.pop("lr_scale")
    return groups


def build_muon(model: nn.Module, recipe: RecipeConfig, fused: bool = False) -> "Muon":
    """Build Muon for the hidden matrices, with AdamW at the same rate for all other parameters."""
    hidden = find_hidden_matrices(model)
    if not hidden:
        raise UserError(
            "recipe.optimizer=muon: Muon needs linear layers or convolutions between the first and the last layer, and "
            "this model has none; choices for it: adamw, sgd"
        )
    others = tuple(name for name, _ in model.named_parameters() if name not in hidden)
    options = {name: getattr(recipe, name) for name in ("weight_decay", "momentum", "nesterov", "betas", "eps")}
    return Muon(make_parameter_groups(model, recipe, others), lr=compute_peak_rate(recipe), fused=fused, **options)


def find_hidden_matrices(model: nn.Module) -> set[str]:
    """Find the names of the linear and ungrouped convolution weights in the model's blocks, not in its stem or head.

    Takes layers from the model's `group_matcher`; vitlab's own models number their blocks (a bridge between two parts
    is no block). Muon reads a convolution's weights as a matrix (out, in * window).
    """
    named = [*model.named_parameters(), ("", None)]  # a head's layer is the last: that of "", also if the head is tied
    layers = group_with_matcher(named, as_model(model).group_matcher(coarse=False), reverse=True)
    matrices = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
    }
    number = r"\d" if isinstance(model, Model) else ""
    return {name for name in matrices & layers.keys() if 0 < layers[name] < layers[""] and re.search(number, name)}


class Muon(Optimizer):
    """Muon (Jordan et al., 2024), its step scaled to AdamW's (Liu et al., 2025, arXiv 2502.16982, eq. 4).

    Steps groups with `use_fallback` by AdamW. Takes timm's Muon step, but multiplies all matrices of a shape in one
    call: single calls keep small matrices waiting.
    """

    def __init__(self, groups: list[dict[str, Any]], **defaults: Any):
        super().__init__(groups, {"use_fallback": False, **defaults})
        for group in self.param_groups:
            names = ("exp_avg", "exp_avg_sq") if group["use_fallback"] else ("momentum",)
            for parameter in group["params"]:
                step = torch.zeros((), device=parameter.device if group["fused"] else "cpu")  # AdamW's
                self.state[parameter] = {"step": step, **{name: torch.zeros_like(parameter) for name in names}}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if group["use_fallback"]:
                self.step_adamw(parameters, group)
            else:
                for shape in dict.fromkeys(parameter.shape for parameter in parameters):
                    self.step_matrices([parameter for parameter in parameters if parameter.shape == shape], group)
        return loss

    def step_matrices(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update parameters of one shape by a step of Muon."""
        grads = [parameter.grad for parameter in parameters]
        updates = momenta = [self.state[parameter]["momentum"] for parameter in parameters]
        torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
        if group["nesterov"]:
            updates = torch._foreach_lerp(grads, momenta, group["momentum"])
        steps = orthogonalize(torch.stack([update.flatten(1) for update in updates]))
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        rate = group["lr"] * 0.2 * max(steps.shape[1:]) ** 0.5
        torch._foreach_add_(parameters, [step.view_as(parameters[0]) for step in steps], alpha=-rate)

    def step_adamw(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        grads = [parameter.grad for parameter in parameters]
        names = ("exp_avg", "exp_avg_sq", "step")
        *averages, steps = ([self.state[parameter][name] for parameter in parameters] for name in names)
        beta1, beta2 = group["betas"]
        options = {name: group[name] for name in ("lr", "weight_decay", "eps", "fused")}
        adamw(
            parameters, grads, *averages, [], steps, amsgrad=False, maximize=False, beta1=beta1, beta2=beta2, **options
        )


def orthogonalize(matrices: Tensor) -> Tensor:
    """Give matrices (K, M, N) singular values near 1: five steps of Newton and Schulz with Jordan's coefficients.

    Multiplies in bf16 on a GPU, in float32 on a CPU: float32 takes 0.5 to 0.7 of bf16's time for small matrices on a
    CPU, also with AVX512-BF16.
    """
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x.mT if tall else x).to(matrices.dtype)


def freeze(model: nn.Module, recipe: RecipeConfig) -> None:
    """Turn off the gradients of all parameters that the recipe does not train, in place.

    The head trains: the classifier, in a text model all outside the body `text`, so BERT's pooler too. With
    `recipe.lora`, adds low-rank products to the blocks' linear layers (except cross-attention), and they train too.
    Without, puts the frozen body in eval mode: no dropout, no new norm statistics. Raises UserError for a model without
    a head, or without such layers.
    """
    rank = recipe.lora.rank
    if not (rank or recipe.freeze):
        return
    is_text = isinstance(model, TextModel)
    names = [name for name, _ in model.named_parameters()]
    head = {name for name in names if not name.startswith("text.")} if is_text else {*head_names(model)} & {*names}
    if not (head or rank):
        raise UserError(f"recipe.freeze={recipe.freeze}: {type(model).__name__} has no head to train; give null")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in head)
    if not rank:
        (model.text if is_text else model).eval()  # a linear head has no modes
        return
    layers = {name.removesuffix(".weight") for name in find_hidden_matrices(model) if ".cross." not in name}
    linear = {name: module for name in layers if isinstance(module := model.get_submodule(name), nn.Linear)}
    choices = sorted({name.rpartition(".")[2] for name in linear})
    if not linear:
        raise UserError(f"recipe.lora.rank={rank}: {type(model).__name__} has no linear layers in blocks; give null")
    if unknown := [name for name in recipe.lora.on if name not in choices]:
        raise UserError(f"recipe.lora.on=[{','.join(unknown)}]: choices for this model: {', '.join(choices)}")
    for name in sorted(linear):
        if name.rpartition(".")[2] in (recipe.lora.on or choices):
            LowRank.attach(linear[name], rank)


def to_steps(value: float, steps: int) -> int:
    """Convert a duration to steps; a value below 1 is a share of the steps."""
    return round(value * steps) if value < 1 else int(value)


def find_fork(recipe: RecipeConfig | SimpleNamespace, steps: int) -> int:
    """Find the first step of the cooldown, 0 without one: runs of all budgets have the same steps before it."""
    return min(max(1, steps - round(recipe.cooldown * steps)), steps - 1) if recipe.cooldown else 0


def find_branch(recipe: RecipeConfig, steps: int) -> int:
    """Find the last step shared with runs of larger budgets: before the cooldown and before a mean of checkpoints."""
    averaged = list_averaged_steps(recipe, steps) if recipe.average else ()
    return min([find_fork(recipe, steps), *(step - 1 for step in averaged)])


def refuse_endless_warmup(recipe: RecipeConfig, steps: int) -> None:
    """Raise UserError for a warm-up that is longer than the run."""
    if recipe.warmup >= max(1, steps):
        raise UserError(
            f"recipe.warmup={recipe.warmup}: the run has only {steps} steps; give recipe.warmup=0.1, a share of "
            "the steps, or a longer budget"
        )


def compute_rate(recipe: RecipeConfig | SimpleNamespace, step: int, steps: int, width: int | None = None) -> float:
    """Compute the learning rate of optimizer step `step` of `steps`, as a share of the recipe's rate.

    `width` is the model's; only noam reads it.
    """
    warmup = to_steps(recipe.warmup, steps)
    if recipe.schedule == "noam":  # Vaswani et al., 2017, eq. 3, warm-up included; the paper counts steps from 1
        return width**-0.5 * min((step + 1) ** -0.5, (step + 1) * max(1, warmup) ** -1.5)
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    if recipe.schedule == "cosine":  # Loshchilov and Hutter, 2017, eq. 5
        return recipe.final_lr + (1 - recipe.final_lr) * 0.5 * (1 + math.cos(math.pi * progress))
    if recipe.schedule == "linear":
        return recipe.final_lr + (1 - recipe.final_lr) * (1 - progress)
    if recipe.schedule == "multistep":
        return recipe.decay_factor ** sum(step >= round(share * steps) for share in recipe.milestones)
    fork = find_fork(recipe, steps)  # constant, with a cooldown of Zhai et al., 2022, or without
    return min(1.0, 1 - (step - fork) / (steps - fork)) if fork else 1.0


def build_schedule(optimizer: Optimizer, recipe: RecipeConfig, steps: int, width: int | None = None) -> LambdaLR:
    return LambdaLR(optimizer, partial(compute_rate, recipe, steps=steps, width=width))


STALE = 0.5  # largest share of the first step's weights in the final average
SPACING = 100  # recipe.average takes checkpoints a hundredth of the run apart


def list_averaged_steps(recipe: RecipeConfig, steps: int) -> range:
    """List the steps after which weights join the average of a run of `steps`; none if the recipe averages nothing.

    recipe.ema: average = ema * average + (1 - ema) * weights after every step, beginning with the first step's weights.
    recipe.average=N: the mean of the last N checkpoints, a hundredth of the run apart, the last at the end. Vaswani et
    al. (2017, section 6.1) average 5 checkpoints, 10 minutes apart in a run of 12 hours.
    """
    if recipe.ema is not None:
        return range(1, steps + 1)
    apart, count = max(1, steps // SPACING), recipe.average or 0
    return range(steps - (count - 1) * apart, steps + 1, apart)


def refuse_stale_average(recipe: RecipeConfig, steps: int) -> None:
    """Raise UserError if a run is too short for its average: too few steps, or mostly the first step's weights."""
    if recipe.average is not None and recipe.average > steps:
        raise UserError(f"recipe.average={recipe.average}: the run has only {steps} steps; give at most {steps}")
    if recipe.ema is not None and recipe.ema ** (steps - 1) > STALE:
        advice = f"recipe.ema={max(0.1, 1 - 10 / steps):.4g} or recipe.ema=null" if steps > 1 else "recipe.ema=null"
        raise UserError(
            f"recipe.ema={recipe.ema}: after {steps} steps {recipe.ema ** (steps - 1):.0%} of the average would still "
            f"be the weights of the first step; give {advice}"
        )
