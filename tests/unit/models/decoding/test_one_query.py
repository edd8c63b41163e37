"""Attention of one query, against the fused kernel."""

import pytest
import torch
import torch.nn.functional as F

from vitlab.models.decoding.one_query import attend, is_one_of_many

B, H, M, K, ROOM = 17, 4, 11, 16, 19


def from_cache(kind):
    return torch.randn(B, H, ROOM, K, dtype=kind).narrow(2, 0, M)


def from_context(kind):
    return torch.randn(B, M, 2, H, K, dtype=kind).permute(2, 0, 3, 1, 4).unbind(0)[1]


@pytest.mark.parametrize("mask", [None, "padding", "added", "added, of two dimensions"])
@pytest.mark.parametrize("make", [from_cache, from_context])
@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
@torch.inference_mode()
def test_it_looks_as_the_fused_kernel(kind, tolerance, make, mask):
    torch.manual_seed(0)
    q, k, v = torch.randn(B, 1, 3, H, K, dtype=kind).permute(2, 0, 3, 1, 4)[0], make(kind), make(kind)
    if mask == "padding":
        mask = torch.arange(M) < 1 + torch.arange(B)[:, None, None, None]
    elif mask == "added":
        mask = torch.randn(1, H, 1, M)
    elif mask is not None:
        mask = torch.randn(1, M).masked_fill(torch.arange(M) > 5, -torch.inf)
    assert is_one_of_many(q, v)
    exact = mask if mask is None or mask.dtype == torch.bool else mask.double()
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=exact, scale=0.3)
    found = attend(q, k, v, mask, 0.3)
    assert found.dtype == kind
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mask", [torch.zeros(M, dtype=torch.bool), torch.full((M,), -torch.inf)])
@torch.inference_mode()
def test_a_query_that_may_look_at_nothing_gives_numbers(mask):
    assert attend(torch.randn(B, H, 1, K), *torch.randn(2, B, H, M, K), mask, 1.0).isfinite().all()


def test_few_heads_several_queries_and_gradients_are_the_fused_kernels():
    q, v = torch.randn(B, H, 1, K), from_cache(torch.float32)
    assert not is_one_of_many(q, v)  # gradients
    with torch.no_grad():
        assert not is_one_of_many(q[:15], v[:15])
        assert not is_one_of_many(q.expand(-1, -1, 2, -1), v)
        assert not is_one_of_many(q.double(), v.double())
        assert is_one_of_many(q, v)
