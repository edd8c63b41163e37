"""The memory of training as it is counted, against tensors that real steps save."""

import pytest
import torch
from torch import nn

from vitlab.models import build_model, counting

CLASSES = 5
VIT = {"patch_size": (5, 7), "depth": 3, "width": 24, "heads": 3}


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
    # its convolutions normalise their weights, once for all examples
    ("r26_vit_s32", {"depth": 2, "width": 24, "heads": 3, "stem": [1], "patch_size": 8}),
]


def count_kept(model, batch):
    """Bytes of the storages that a forward pass saves, each once, without parameters and buffers."""
    own = {counting.storage(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept = {}

    def keep(tensor):
        kept[counting.storage(tensor)] = tensor  # alive, so that no other gets its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(*batch)
    return counting.count_bytes(tensor for key, tensor in kept.items() if key not in own)


@pytest.mark.parametrize(("name", "changes"), MODELS)
def test_activations_are_those_of_a_real_step(name, changes):
    model, shape = build_model(name, **shape_of(name), **changes).train(), shape_of(name)
    few, many = (count_kept(model, counting.inputs(shape, size, "cpu")) for size in (2, 4))
    found = counting.count_activations(
        build_meta(name, **changes), lambda model, batch: model(*batch), counting.inputs(shape)
    )
    assert found == pytest.approx((many - few) / 2, rel=0.02)


def test_attention_keeps_no_weights_of_all_pairs():
    tokens, heads, width = 64, 2, 8
    with torch.device("meta"):
        q, scale = torch.zeros(1, heads, tokens, width), torch.nn.Parameter(torch.ones(()))
    found = counting.count_activations(
        nn.ParameterList([scale]), lambda _, q: nn.functional.scaled_dot_product_attention(q * scale, q, q), q
    )
    assert 0 < found < 4 * heads * tokens * tokens
