"""The ViT: patches, positions, tokens before the patches, pooling, heads."""

import pytest
import torch

from tests.learning import randomized
from vitlab.config.errors import UserError
from vitlab.models import build_model
from vitlab.models.layers import sincos2d


def test_sincos2d_is_its_formula():
    rows, columns, width = 3, 5, 12
    table = sincos2d((rows, columns), width)
    assert table.shape == (rows * columns, width)
    for row in range(rows):
        for column in range(columns):
            rates = [10_000 ** -(k / (width // 4 - 1)) for k in range(width // 4)]
            angles = torch.tensor([[place * rate for rate in rates] for place in (column, row)])
            expected = torch.cat([angles[0].sin(), angles[0].cos(), angles[1].sin(), angles[1].cos()])
            torch.testing.assert_close(table[row * columns + column], expected)
    with pytest.raises(UserError, match="multiple of 4, not 6"):
        build_model("vit_nano", width=6, heads=3, positions="sincos2d", image_size=8, patch_size=4)


def test_initial_weights_follow_the_paper():
    torch.manual_seed(0)
    model = build_model("vit_nano", image_size=32, patch_size=4, num_classes=500, width=128, pool="token", heads=4)
    std = {name: p.std().item() for name, p in model.named_parameters() if p.ndim > 1}
    for name, value in std.items():
        wanted = {"cls_token": 1e-6, "patch_embed.proj.weight": (3 * 4 * 4) ** -0.5}.get(name, 0.02)
        assert value == pytest.approx(wanted, rel=0.2), name
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name


def vit(**changes):
    return build_model("vit_nano", image_size=(8, 12), patch_size=4, num_classes=3, **changes).eval()


def test_the_tokens_before_the_patches_stand_in_order_and_take_positions():
    model, images = randomized(vit(pool="token", distillation=True, registers=2)), torch.randn(2, 3, 8, 12)
    tokens = torch.cat([model.cls_token, model.dist_token, model.reg_token], dim=1).expand(2, 4, 64)
    expected = torch.cat([tokens, model.patch_embed(images)], dim=1) + model.pos_embed
    torch.testing.assert_close(model.embed(images), expected)


def test_the_pre_training_head_has_a_hidden_tanh_layer():
    model, images = vit(pre_logits=True), torch.randn(2, 3, 8, 12)
    inner = model.tokens(images).mean(dim=1) @ model.pre_logits[0].weight.T + model.pre_logits[0].bias
    torch.testing.assert_close(model(images), model.head(inner.tanh()))


def test_layer_scale_begins_where_it_is_told_and_scales_both_parts():
    model, x = vit(layer_scale=0.25, depth=1, norm_first=False), torch.randn(2, 6, 64)
    block = model.encoder.blocks[0]
    inner = block.norm1(x + 0.25 * block.mixer(x))
    torch.testing.assert_close(model.encoder(x), block.norm2(inner + 0.25 * block.mlp(inner)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pool": "token", "class_token": False}, "model.pool=token needs a class token"),
        ({"distillation": True}, "model.distillation=true needs model.pool=token, not mean"),
        ({"positions": "rotary", "mixer": "fourier"}, "rotary needs model.mixer=attention, not fourier"),
        ({"positions": "rotary", "head_width": 6}, "head width that is a multiple of 4, not 6"),
        ({"positions": "sincos1d", "width": 33, "heads": 3}, "an even width, not 33"),
    ],
)
def test_parts_that_do_not_go_together_are_the_users_mistake(changes, says):
    with pytest.raises(UserError, match=says):
        vit(**changes)
