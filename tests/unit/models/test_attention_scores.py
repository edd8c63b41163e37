"""The score functions of recurrent attention against their published formulas, one pair of vectors at a time."""

import math

import pytest
import torch

from vitlab.models.recurrent import SCORES

D = 6
FORMULAS = {
    "dot": lambda score, q, k: q @ k,
    "scaled_dot": lambda score, q, k: q @ k / math.sqrt(D),
    "general": lambda score, q, k: q @ (score.key.weight @ k),
    "additive": lambda score, q, k: score.sum.weight[0] @ (score.query(q) + score.key.weight @ k).tanh(),
    "cosine": lambda score, q, k: score.log_sharpness.exp() * (q @ k) / (q.norm() * k.norm()),
}


@pytest.mark.parametrize("name", SCORES)
def test_each_query_scores_each_key_by_the_formula(name):
    score, queries, context = SCORES[name](D), torch.randn(2, 3, D), torch.randn(2, 4, D)
    found = score(queries, score.keys(context))
    assert found.shape == (2, 3, 4)
    for b in range(2):
        for n in range(3):
            for m in range(4):
                torch.testing.assert_close(found[b, n, m], FORMULAS[name](score, queries[b, n], context[b, m]))


def test_the_cosine_starts_as_sharp_as_a_scaled_product_of_vectors_of_variance_1():
    assert SCORES["cosine"](D).log_sharpness.exp().item() == pytest.approx(math.sqrt(D))
