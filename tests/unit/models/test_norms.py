"""BatchNorm as a norm of the encoder: statistics over tokens, without padding."""

import pytest
import torch
from torch import nn

from vitlab.models import build_model
from vitlab.models.encoder import TokenBatchNorm

B, N, D, V = 3, 7, 24, 29
SIZES = {"width": D, "depth": 2, "heads": 3, "mlp_width": 37}


def test_the_statistics_are_those_of_torchs_batch_norm_over_the_valid_tokens():
    norm, theirs = TokenBatchNorm(D, eps=1e-3), nn.BatchNorm1d(D, eps=1e-3)
    for module in (norm, theirs):
        nn.init.constant_(module.weight, 1.7)
        nn.init.constant_(module.bias, -0.3)
    x, valid = torch.randn(B, N, D) * 3 + 5, torch.arange(N) < torch.tensor([[7], [4], [1]])
    found = norm(x, valid)
    torch.testing.assert_close(found[valid], theirs(x[valid]))
    assert not found[~valid].any()
    assert all(torch.equal(value, norm.state_dict()[name]) for name, value in theirs.state_dict().items())
    torch.testing.assert_close(norm(x).flatten(0, 1), theirs(x.flatten(0, 1)))
    torch.testing.assert_close(norm.eval()(x, valid).flatten(0, 1), theirs.eval()(x.flatten(0, 1)))


@pytest.mark.parametrize("norm_first", [True, False])
def test_in_training_padding_changes_no_state_gradient_or_statistic(norm_first):
    words, lengths = torch.randint(V, (B, N)), torch.tensor([[7], [4], [1]])

    def train(columns):
        torch.manual_seed(1)
        model = build_model("bert_nano", vocabulary=V, length=19, norm="batchnorm", norm_first=norm_first, **SIZES)
        valid = torch.arange(N + columns) < lengths
        padded = torch.cat([words, words.new_zeros(B, columns)], dim=1).where(valid, columns)
        hidden = model.double().train()(padded, valid)[valid]
        hidden.pow(3).sum().backward()
        gradients = [p.grad for name, p in model.text.named_parameters() if "tokens" not in name]
        return [hidden, *gradients, *model.text.buffers()]

    for alone, padded in zip(train(0), train(5), strict=True):
        torch.testing.assert_close(padded, alone)
