"""The effective receptive field of networks whose gradient is known, and how far a model of text reaches."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.learning import randomized
from vitlab import models
from vitlab.analysis.layers import effective_size, measure_reach, receptive_fields, run_token_reach
from vitlab.config import TrainConfig, compose
from vitlab.models import build_model
from vitlab.models.text import TextModel
from vitlab.tasks.base import TokenInputs

SIZE = (17, 23)
MIDDLE = (17 // 2, 23 // 2)


class Stack(nn.Module):
    """3x3 convolutions of ones."""

    def __init__(self, depth, stride=1, width=1):
        super().__init__()
        before = [2] + [width] * (depth - 1)
        self.blocks = nn.Sequential(*(nn.Conv2d(n, width, 3, padding=1, stride=stride, bias=False) for n in before))
        for block in self.blocks:
            nn.init.ones_(block.weight)

    def forward(self, x):
        return self.blocks(x)


def trinomial(depth):
    """The coefficients of (1 + z + z^2)^depth: how many paths lead so far aside."""
    row = [1]
    for _ in range(depth):
        row = [sum(row[max(0, i - 2) : i + 1]) for i in range(len(row) + 2)]
    return torch.tensor(row, dtype=torch.float64)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_stack_of_3x3_convolutions_sees_trinomially_and_no_farther(depth, width):
    (field,), _ = receptive_fields(Stack(depth, width=width), torch.randn(5, 2, *SIZE), [depth - 1])
    paths = trinomial(depth)
    expected = torch.zeros(SIZE, dtype=torch.float64)
    rows, columns = (slice(m - depth, m + depth + 1) for m in MIDDLE)
    expected[rows, columns] = paths.outer(paths) / paths.max() ** 2
    torch.testing.assert_close(field, expected, rtol=1e-5, atol=1e-7)
    assert (field > 0).sum() == (2 * depth + 1) ** 2, "the theoretical field"


def test_the_size_is_the_side_of_the_square_above_the_papers_share():
    field = torch.zeros(SIZE)
    field[3:7, 2:11] = 2.0
    assert effective_size(field) == 6
    assert effective_size(torch.zeros(SIZE)) == 0, "of a unit that reads nothing"
    field[0, 0], field[0, 1] = 2 * 0.0454, 2 * 0.0456
    assert effective_size(field) == pytest.approx(37**0.5)


# ---- of models


def vit(**changes):
    options = {"depth": 2, "width": 33, "heads": 3, "patch_size": [5, 7], **changes}
    made = build_model("vit_nano", image_size=(15, 35), num_classes=3, **options)
    return randomized(made, 0.3)


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_a_vit_that_mixes_nothing_sees_the_patch_in_the_middle(pool):
    made = vit(pool=pool)
    for block in made.encoder.blocks:
        nn.init.zeros_(block.mixer.proj.weight)
    fields, _ = receptive_fields(made, torch.randn(3, 3, 15, 35), [0, 1])
    assert fields.shape == (2, 15, 35)
    for field in fields:
        seen = field > 0
        assert seen[5:10, 14:21].all()
        assert seen.sum() == 5 * 7


def test_the_size_of_the_gradient_is_that_of_the_whole_jacobian():
    """Over many random directions the mean square is the sum over the output's channels."""
    made, x = vit(depth=1), torch.randn(1, 3, 15, 35)
    (field,), _ = receptive_fields(made, x.expand(400, -1, -1, -1), [0])
    pixels = x.clone().requires_grad_()
    unit = made.encoder.blocks[0](made.embed(pixels))[0, 7]  # of 3 x 5 patches
    squares = sum(torch.autograd.grad(u, pixels, retain_graph=True)[0].square().sum(dim=(0, 1)) for u in unit)
    expected = (squares / squares.max()).sqrt()
    torch.testing.assert_close(field.float(), expected, rtol=0.2, atol=0.02)


@pytest.mark.parametrize(("size", "last"), [(32, [1, 1]), (64, [2, 2]), (96, [3, 3])])
def test_the_middle_unit_of_a_strided_map_lies_over_its_stride_times_its_place(size, last):
    """ResNet-18 with ImageNet's stem: a map of 1 x 1 sees the upper left corner, one of 2 x 2 the middle."""
    made, chosen = build_model("timm:resnet18", image_size=size, num_classes=3), [1, 7]
    images = torch.randn(5, 3, size, size)
    fields, grids = receptive_fields(made, images, chosen)
    assert grids == [[size // 4] * 2, last]
    for field, stride, grid in zip(fields, (4, 32), grids, strict=True):
        mass = field.square() / field.square().sum()
        centre = (mass.sum(dim=1) * torch.arange(size)).sum().item()
        place = stride * (grid[0] // 2)
        assert centre == pytest.approx(place, abs=3.5)  # over a corner the half beyond the picture is missing


def test_reach_is_the_spread_of_a_field_in_pixels():
    field = torch.zeros(9, 12)
    field[4, 5] = 1
    assert measure_reach(field) == 0
    field[3:6, 4:7] = 1  # two thirds of a squared pixel along each axis
    assert measure_reach(field) == pytest.approx((4 / 3) ** 0.5)


# ---- of texts


class Looks(nn.Module):
    """The state of each token is the sum of its embedding and twice that of the token `back` places before it."""

    causal = True

    def __init__(self, back):
        super().__init__()
        self.embed, self.back = nn.Embedding(50, 8), back

    def forward(self, tokens, mask=None, segments=None):
        x = self.embed(tokens)
        return x + 2 * nn.functional.pad(x, (0, 0, self.back, 0))[:, : x.shape[1]]


def texts(*lengths, longest=64):
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return TokenInputs.of(torch.randint(0, 50, mask.shape), mask, None, ())


def test_shares_and_reach_of_a_known_model_of_text():
    rows = run_token_reach(TextModel(Looks(back=10)), texts(64, 40), SimpleNamespace(seed=0))
    shares = {row["distance"]: row["value"] for row in rows if row["value"]}
    assert shares == {0: pytest.approx(1 / 3, abs=1e-4), 8: pytest.approx(2 / 3, abs=1e-4)}
    assert rows[0]["reach"] == pytest.approx((2 / 3 * 100) ** 0.5, abs=1e-4)
    assert sum(row["value"] for row in rows) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", ["gpt_nano", "lstm_nano", "rnn_nano", "bert_nano"])
def test_it_looks_into_each_kind_of_model_of_text(name):
    task, head = ("masked_lm", "masked") if name == "bert_nano" else ("causal_lm", "next_token")
    config = compose(TrainConfig, [f"task={task}", f"model={name}", "model.width=32"])
    model = models.build(config.model, vocabulary=50, length=64, head=head)
    rows = run_token_reach(model, texts(64, 64), SimpleNamespace(seed=0))
    assert len(rows) == 16
    assert 0 < rows[0]["reach"] < 64
    far = sum(row["value"] for row in rows if row["distance"] > 36)
    assert (far > 0) == (name in ("gpt_nano", "lstm_nano")), "an RNN forgets, BERT is read in its middle"
