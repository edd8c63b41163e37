"""Distances between position embeddings against values that are known."""

import math

import pytest
import torch

from vitlab.analysis.position_distance import position_distances, position_similarities
from vitlab.models.positions import sincos1d

N, D = 11, 14


def test_known_distances_and_similarities():
    table = torch.tensor([[3.0, 0.0], [0.0, 4.0], [-6.0, 0.0], [0.0, 0.0], [3.0, 3.0]])
    distances, similarities = position_distances(table), position_similarities(table)
    assert distances[0].tolist() == pytest.approx([0, 5, 9, 3, 3])
    assert similarities[0].tolist() == pytest.approx([1, 0, -1, 0, math.sqrt(0.5)])
    assert similarities[3].tolist() == [0, 0, 0, 0, 0]  # a vector of zeros has no direction
    for matrix in (distances, similarities):
        assert matrix.dtype == torch.float64
        assert torch.equal(matrix, matrix.T)


def test_sinusoidal_positions_are_known_by_their_offset():
    """The product of two positions is the sum over the rates of cos(rate * offset), and each has the norm sqrt(D/2)."""
    distances, similarities = (f(sincos1d(N, D)) for f in (position_distances, position_similarities))
    rates = [10_000 ** (-2 * i / D) for i in range(D // 2)]
    for i in range(N):
        for j in range(N):
            product = sum(math.cos(rate * (i - j)) for rate in rates)
            assert similarities[i, j].item() == pytest.approx(product / (D / 2), abs=1e-5)
            assert distances[i, j].item() == pytest.approx(math.sqrt(max(0.0, D - 2 * product)), abs=1e-4)


def test_random_positions_are_compared_pair_by_pair():
    table = torch.randn(N, D, requires_grad=True)
    distances, similarities = position_distances(table), position_similarities(table)
    assert not distances.requires_grad
    for i in range(N):
        for j in range(N):
            a, b = table[i].double(), table[j].double()
            assert distances[i, j].item() == pytest.approx((a - b).norm().item(), abs=1e-9)
            assert similarities[i, j].item() == pytest.approx((a @ b / a.norm() / b.norm()).item(), abs=1e-9)
    assert distances.diagonal().eq(0).all()


@pytest.mark.parametrize("table", [torch.ones(N), torch.ones(1, N, D), torch.ones(0, D)])
def test_another_shape_is_refused(table):
    with pytest.raises(ValueError, match=r"positions is \(N, D\)"):
        position_distances(table)
