import mmap

import pytest
import torch

from vitlab.models.decoding import pages


def test_copies_keep_their_values_side_by_side_also_beyond_a_chunk(monkeypatch):
    monkeypatch.setattr(pages, "CHUNK", 4096)
    weights = [torch.randn(3, 5).t(), torch.randn(40, 50), *torch.randn(30, 17, 7).bfloat16()]
    memory = pages.HugePages()
    copies = [memory.copy(weight) for weight in weights]
    for weight, copy in zip(weights, copies, strict=True):
        assert torch.equal(copy, weight)
        assert copy.is_contiguous()
        assert copy.dtype == weight.dtype
        assert copy.data_ptr() % pages.LINE == 0


@pytest.mark.parametrize("advice", [None, 9999])
def test_where_there_are_no_huge_pages_memory_is_given_all_the_same(monkeypatch, advice):
    """Without the advice, as outside Linux, and with a kernel that does not know it."""
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    if advice:
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", advice, raising=False)
    weight = torch.randn(3, 5)
    assert torch.equal(pages.HugePages().copy(weight), weight)
