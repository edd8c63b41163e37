"""The memory of training as it is counted, against tensors that real steps save."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from vitlab.config import TrainConfig, compose
from vitlab.models import build_model
from vitlab.models.counting import count, memory
from vitlab.models.mixers import attention
from vitlab.training.optimization.optimizers import build_optimizer

CLASSES = 5
VIT = {"patch_size": (5, 7), "depth": 3, "width": 24, "heads": 3}


def really_kept(model, images, dtype=None):
    """Bytes that a real forward pass saves for its backward pass, each storage once, parameters left out."""
    own = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    autocast = torch.autocast("cpu", dtype=dtype, enabled=dtype is not None)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast:
        out = model.train()(images)
    assert out.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def shape_of(name):
    return {"image_size": (10, 21) if "nano" in name else (32, 48), "channels": 2, "num_classes": CLASSES}


def build_meta(name, **changes):
    with torch.device("meta"):
        return build_model(name, **shape_of(name), **changes)


MODELS = [
    ("vit_nano", VIT),
    ("vit_nano", {**VIT, "dropout": 0.1, "drop_path": 0.1}),  # their masks are kept too
    ("resnet_nano", {}),
    ("timm:vit_tiny_patch16_224", {"options": {"depth": 2}}),
]


@pytest.mark.parametrize(("name", "changes"), MODELS)
def test_activations_are_those_of_a_real_step(name, changes):
    shape = shape_of(name)
    real = really_kept(build_model(name, **shape, **changes), torch.randn(2, 2, *shape["image_size"]))
    model = build_meta(name, **changes)
    assert memory.activation_bytes(model, shape) * 2 == real
    assert all(p.is_meta for p in model.parameters()), "the model is left as it was"


@pytest.mark.parametrize(("name", "changes"), [MODELS[0], *MODELS[2:]])
def test_activations_on_a_gpu_in_half_precision_are_those_of_a_real_step_here(name, changes, monkeypatch):
    """These models' layers have the same precision under autocast on both; attention is fused on both."""
    monkeypatch.setattr(attention, "FEW_KEYS", 0)  # which a CPU computes as products
    shape, batch = shape_of(name), 16
    real = really_kept(
        build_model(name, **shape, **changes), torch.randn(batch, 2, *shape["image_size"]), torch.bfloat16
    )
    example = torch.zeros(1, 2, *shape["image_size"], device="meta")
    found = memory.count_activations(
        build_meta(name, **changes), lambda model, images: model(images), example, torch.bfloat16
    )
    assert found.fixed + batch * found.per_example == pytest.approx(real, rel=0.02)
    assert found.checkpointed < found.per_example or not memory.list_blocks(build_meta(name, **changes))


def test_activations_of_blocks_that_are_computed_again_are_their_inputs_and_those_of_one():
    width, depth = 7, 6
    with torch.device("meta"):
        blocks = (
            nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)) for _ in range(depth)
        )
        model = nn.Sequential(OrderedDict(blocks=nn.Sequential(*blocks)))
        example = torch.zeros(1, width)
    found = memory.count_activations(model, lambda model, x: model(x).square().sum(), example, None)
    # a block saves its input and the hidden layer, once; the loss its own input
    assert found.per_example == 4 * (depth * 5 * width + width)
    assert found.checkpointed == 4 * (depth * width + width + 5 * width)
    assert found.fixed == 0


@pytest.mark.parametrize(("optimizer", "least", "most"), [("adamw", 2, 2), ("sgd", 1, 1), ("muon", 1.01, 1.99)])
def test_the_state_of_an_optimizer_is_as_large_as_the_parameters_so_many_times(optimizer, least, most):
    config = compose(TrainConfig, ["model=vit_nano", f"recipe.optimizer={optimizer}"])
    model = build_meta("vit_nano", **VIT)
    size = memory.count_state(build_optimizer(model, config.recipe)) / (4 * count.parameters(model))
    assert least <= size <= most
