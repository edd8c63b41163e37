"""Fixed and rotary positions against their formulas."""

import math

import pytest
import torch
from timm.layers import RotaryEmbeddingCat, apply_rot_embed_cat

from vitlab.models import build_model
from vitlab.models.positions import rotary1d, rotary2d, rotate, sincos1d

N, K = 7, 12


def test_sincos1d_is_the_papers_formula():
    table = sincos1d(N, K)
    for position in range(N):
        for i in range(K // 2):
            angle = position / 10_000 ** (2 * i / K)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_rotary_positions_turn_each_pair_by_its_angle():
    x, table = torch.randn(2, 3, N, K), rotary1d(N, K)
    turned = rotate(x, table)
    for position in range(N):
        for i in range(K // 2):
            angle = position / 10_000 ** (2 * i / K)
            pair = torch.complex(x[:, :, position, 2 * i], x[:, :, position, 2 * i + 1])
            expected = pair * complex(math.cos(angle), math.sin(angle))
            torch.testing.assert_close(turned[:, :, position, 2 * i], expected.real)
            torch.testing.assert_close(turned[:, :, position, 2 * i + 1], expected.imag)


def test_rotary2d_is_timms_and_leaves_prefix_tokens_alone():
    theirs = RotaryEmbeddingCat(K, in_pixels=False, feat_shape=[3, 5], temperature=100.0, grid_indexing="ij")
    x, prefix = torch.randn(2, 3, 2 + 15, K), 2
    turned = rotate(x, rotary2d((3, 5), K, prefix))
    assert torch.equal(turned[:, :, :prefix], x[:, :, :prefix])
    torch.testing.assert_close(turned[:, :, prefix:], apply_rot_embed_cat(x[:, :, prefix:], theirs.get_embed()))


def test_a_vit_with_rotary_positions_sees_the_order_of_patches():
    model = build_model("vit_nano", image_size=(8, 12), patch_size=4, num_classes=3, positions="rotary").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    assert model.pos_embed is None
    images = torch.randn(2, 3, 8, 12)
    swapped = torch.cat([images[..., 8:], images[..., :8]], dim=-1)
    assert not torch.allclose(model(images), model(swapped), atol=1e-3)
