"""The layers are timm's to the bit: the same first weights, the same dropped paths, the same outputs."""

import pytest
import timm.layers
import torch
from torch import nn

from vitlab.models import layers

B, N, D, HIDDEN = 64, 5, 8, 24


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (
            lambda: layers.Mlp(D, HIDDEN, act=nn.ReLU, bias=False, dropout=0.3),
            lambda: timm.layers.Mlp(D, HIDDEN, act_layer=nn.ReLU, bias=False, drop=0.3),
        ),
        (lambda: layers.GatedMlp(D, HIDDEN, dropout=0.3), lambda: timm.layers.SwiGLU(D, HIDDEN, drop=0.3)),
        (lambda: layers.LayerScale(D, 0.1), lambda: timm.layers.LayerScale(D, 0.1)),
        (lambda: layers.DropPath(0.4), lambda: timm.layers.DropPath(0.4)),
        (layers.QuickGELU, timm.layers.QuickGELU),
    ],
    ids=["Mlp", "GatedMlp", "LayerScale", "DropPath", "QuickGELU"],
)
@pytest.mark.parametrize("training", [True, False])
def test_a_layer_has_the_numbers_of_timms(own, theirs, training):
    found = []
    for build in (own, theirs):
        torch.manual_seed(3)
        layer, x = build().train(training), torch.randn(B, N, D)
        found.append([layer(x), *layer.state_dict().values()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert list(own().state_dict()) == list(theirs().state_dict())
