"""Fixed and rotary positions against their formulas."""

import math

import pytest
import torch
from timm.layers import RotaryEmbeddingCat, apply_rot_embed_cat
from transformers.models.t5.modeling_t5 import T5Attention

from vitlab.models.layers import RelativePositions, rotary1d, rotary2d, rotate, sincos1d

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


@pytest.mark.parametrize("causal", [False, True])
def test_relative_positions_are_the_buckets_of_transformers(causal):
    relative = RelativePositions(5, causal=causal, buckets=32, furthest=128)
    distances = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(distances, bidirectional=not causal)
    assert torch.equal(relative.bucket(distances), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_a_relative_bias_depends_on_the_distance_and_hides_padding_and_what_follows(causal):
    relative, mask = RelativePositions(5, causal=causal), torch.tensor([[True] * 9, [True] * 4 + [False] * 5])
    torch.nn.init.normal_(relative.bias)
    bias = relative(9, 9, mask)
    assert bias.shape == (2, 5, 9, 9)
    seen = mask[:, None, None, :] & (torch.ones(9, 9).tril().bool() if causal else torch.ones(9, 9).bool())
    assert torch.equal(bias.isfinite(), seen.expand(2, 5, 9, 9))
    assert torch.equal(bias[:1, :, 1:, 1:], bias[:1, :, :-1, :-1])
    assert torch.equal(relative(2, 9, mask), bias[:, :, -2:]), "the queries are the last of the tokens"
