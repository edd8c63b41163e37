"""Token mixers against formulas that are written out here."""

import pytest
import torch

from tests.learning import randomized
from vitlab.config import names
from vitlab.config.errors import UserError
from vitlab.models import build_model
from vitlab.models.mixers.attention import PlainAttention
from vitlab.models.mixers.simple import CausalConvolution, DepthwiseConvolution, Fourier, Pooling

B, ROWS, COLUMNS, D = 2, 3, 5, 7
N = ROWS * COLUMNS


@pytest.mark.parametrize("mixer", names("mixer"))
def test_every_shipped_mixer_works_in_a_vit(mixer):
    model = build_model(
        "vit_nano", image_size=(15, 14), channels=2, num_classes=11, depth=2, width=36, heads=3, patch_size=[5, 7],
        mixer=mixer,
    )  # fmt: skip
    randomized(model, 0.1, mean=0.1).train()
    images = torch.randn(3, 2, 15, 14)
    model(images).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())
    changed = images.clone()
    changed[:, :, :5, :7] += torch.randn(3, 2, 5, 7)
    tokens = [model.encoder(model.patch_embed(at))[:, -1] for at in (images, changed)]
    assert not torch.allclose(*tokens), "the first patch reaches the last one's token"


def test_fourier_is_the_real_part_of_the_transform_over_tokens_and_width():
    x = torch.randn(B, N, D)
    tokens = torch.exp(-2j * torch.pi * torch.outer(torch.arange(N), torch.arange(N)) / N)
    width = torch.exp(-2j * torch.pi * torch.outer(torch.arange(D), torch.arange(D)) / D)
    expected = torch.einsum("mn,bnd,de->bme", tokens, x.to(tokens.dtype), width).real
    torch.testing.assert_close(Fourier()(x), expected, rtol=1e-4, atol=1e-4)
    half = Fourier()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.02, atol=0.3)


def at(grid, row, column):
    inside = 0 <= row < ROWS and 0 <= column < COLUMNS
    return grid[:, row * COLUMNS + column] if inside else None


def test_depthwise_convolution_weighs_the_neighbours_of_each_patch():
    mixer, x = DepthwiseConvolution(D, (ROWS, COLUMNS), 3), torch.randn(B, N, D)
    out = mixer(x)
    for row in range(ROWS):
        for column in range(COLUMNS):
            expected = mixer.conv.bias.expand(B, D).clone()
            for i in range(3):
                for j in range(3):
                    near = at(x, row + i - 1, column + j - 1)
                    expected += 0 if near is None else near * mixer.conv.weight[:, 0, i, j]
            torch.testing.assert_close(out[:, row * COLUMNS + column], expected)


def test_pooling_is_the_mean_of_the_neighbours_that_are_there_less_the_patch():
    mixer, x = Pooling((ROWS, COLUMNS), 3), torch.randn(B, N, D)
    out = mixer(x)
    for row in range(ROWS):
        for column in range(COLUMNS):
            near = [at(x, row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            mean = torch.stack([patch for patch in near if patch is not None]).mean(dim=0)
            torch.testing.assert_close(out[:, row * COLUMNS + column], mean - at(x, row, column))


def test_plain_attention_is_softmax_of_the_tokens_with_themselves():
    mixer, x = PlainAttention(), torch.randn(B, N, D)
    assert not list(mixer.parameters())
    for row in range(B):
        for causal in (False, True):
            scores = x[row] @ x[row].T / D**0.5
            allowed = torch.ones(N, N, dtype=torch.bool).tril() if causal else torch.ones(N, N, dtype=torch.bool)
            weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
            torch.testing.assert_close(mixer(x, causal=causal)[row], weights @ x[row], rtol=1e-4, atol=1e-5)
    mask = torch.arange(N) < torch.tensor([[3], [N]])
    alone = mixer(x[:1, :3])
    torch.testing.assert_close(mixer(x, mask=mask[:, None, None])[:1, :3], alone, rtol=1e-4, atol=1e-5)


def test_a_causal_convolution_weighs_a_token_and_those_before_it():
    mixer, x = CausalConvolution(D, 5), torch.randn(B, N, D)
    out = mixer(x)
    for place in range(N):
        expected = mixer.conv.bias.expand(B, D).clone()
        for back in range(min(5, place + 1)):
            expected += x[:, place - back] * mixer.conv.weight[:, 0, 4 - back]
        torch.testing.assert_close(out[:, place], expected)


CAUSAL = {"depthwise": {"positions": "none"}, "plain_attention": {"positions": "relative"}}


def causal_model(mixer):
    torch.manual_seed(0)
    sizes = {"vocabulary": 29, "length": 13, "width": 12, "heads": 3, "depth": 2}
    model = build_model("gpt_nano", mixer=mixer, **sizes, **CAUSAL[mixer])
    return randomized(model, 0.5), torch.randint(29, (3, 11))


@pytest.mark.parametrize("mixer", CAUSAL)
@pytest.mark.parametrize("chunks", [(1,) * 11, (2, 1, 5, 3), (7, 4)])
def test_a_cache_changes_nothing_of_another_mixer(mixer, chunks):
    model, words = causal_model(mixer)
    expected, place = model(words), 0
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        decoding = model.decoding()
        for number, size in enumerate(chunks):
            found = decoding(words[:, place : place + size])
            place += size
            torch.testing.assert_close(found, expected[:, place - 1], rtol=1e-4, atol=1e-4)
            if number == 0:
                decoding.reorder(order[:, None])
                words, expected = words[order], expected[order]


def test_mixers_that_cannot_hide_later_tokens_are_refused():
    for mixer in ("fourier", "pooling", "token_mlp"):
        with pytest.raises(UserError, match=f"model.causal=true needs model.mixer=attention, not {mixer}"):
            build_model("gpt_nano", mixer=mixer, positions="none")
    with pytest.raises(UserError, match=r"model.positions=rotary needs model.mixer=attention, not depthwise"):
        build_model("gpt_nano", mixer="depthwise")


@pytest.mark.parametrize("mixer", ["depthwise", "pooling"])
@pytest.mark.parametrize("changes", [{"pool": "token"}, {"registers": 2}])
def test_a_mixer_of_the_grid_refuses_tokens_that_are_not_on_it(mixer, changes):
    with pytest.raises(UserError, match=f"model.mixer={mixer} mixes patches only; give model.pool=mean"):
        build_model("vit_nano", image_size=24, mixer=mixer, **changes)
