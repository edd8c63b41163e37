"""The lean twin of a model: the same logits with less around them, and a model that stays as it was."""

import pytest
import torch
from torch import nn

from vitlab.models import build_model
from vitlab.models.decoding.lean import LeanLinear, lean
from vitlab.models.decoding.pages import HugePages

V, LENGTH = 29, 11
SMALL = {"vocabulary": V, "length": LENGTH, "width": 24, "depth": 2}
CHANGES = {
    "learned": {"positions": "learned"},
    "rotary, rmsnorm, swiglu": {"positions": "rotary", "norm": "rmsnorm", "mlp": "swiglu"},
    "relative, post-norm": {"positions": "relative", "norm_first": False},
}


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@torch.no_grad()
def test_a_lean_model_gives_the_same_logits_and_shares_its_caches(changes, rows):
    torch.manual_seed(0)
    model = build_model("gpt_nano", **SMALL, heads=3, dropout=0.3, **changes).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.02, std=0.3)
    words, caches = torch.randint(V, (rows, LENGTH)), model.new_caches()
    expected = model(words)
    twin, found = lean(model, rows), [model.next_logits(words[:, :4], caches)]
    found += [twin.next_logits(words[:, [place]], caches) for place in range(4, LENGTH)]
    torch.testing.assert_close(torch.stack(found, dim=1), expected[:, 3:], rtol=1e-5, atol=1e-5)
    assert torch.equal(model(words), expected)


@pytest.mark.parametrize("rows", [1, 5])
def test_a_layer_is_as_exact_as_its_own(rows):
    layer, x = nn.Linear(300, 70), torch.randn(rows, 1, 300)
    exact = layer.double()(x.double())
    layer.float()
    torch.testing.assert_close(
        LeanLinear(layer.weight, layer.bias, rows, HugePages())(x).double(), exact, rtol=1e-5, atol=1e-5
    )


def test_modules_in_training_and_with_hooks_stay_and_are_called():
    model, words, seen = build_model("gpt_nano", **SMALL, heads=3).eval(), torch.zeros(1, 3, dtype=torch.int64), []
    block = model.text.encoder.blocks[1]
    block.mlp.register_forward_hook(lambda *_: seen.append("mlp"))
    block.norm2.train()
    twin = lean(model, 1)
    twin(words)
    assert seen == ["mlp"]
    assert twin.text.encoder.blocks[1].norm2 is block.norm2
    assert lean(model.train(), 1) is model


@pytest.mark.parametrize("rows", [1, 3])
@torch.inference_mode()
def test_autocast_may_be_switched_on_and_off_between_the_calls_of_a_layer(rows):
    torch.manual_seed(0)
    layer, x = nn.Linear(40, 70), torch.randn(rows, 1, 40)
    lean_layer = LeanLinear(layer.weight, layer.bias, rows, HugePages())
    for on in (False, True, False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            expected, found = layer(x), lean_layer(x)
        assert found.dtype == (torch.bfloat16 if on else torch.float32)
        torch.testing.assert_close(found, expected, rtol=1e-2 if on else 1e-5, atol=1e-2 if on else 1e-5)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))  # its weights are what they were
