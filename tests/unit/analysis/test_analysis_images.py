"""What analyses do to images, and where they put them: t-SNE, shuffled patches, occlusion."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from vitlab.analysis import capture
from vitlab.analysis.pictures import embedding, occlude_patches, run_embedding, run_robustness, shuffle_patches
from vitlab.config import UserError
from vitlab.models import build_model
from vitlab.models.base import before_head

B, C, SIZE = 5, 3, (10, 20)


def generator():
    return torch.Generator().manual_seed(3)


def cells(images, grid):
    """The patches of each image, one by one."""
    height, width = images.shape[2] // grid, images.shape[3] // grid
    return [
        [image[:, r * height : (r + 1) * height, c * width : (c + 1) * width] for r in range(grid) for c in range(grid)]
        for image in images
    ]


# ---- shuffling


@pytest.mark.parametrize("grid", [1, 2, 5])
def test_shuffled_images_hold_the_same_patches_elsewhere(grid):
    images = torch.randn(B, C, *SIZE)
    found = shuffle_patches(images, grid, generator())
    orders = []
    for before, after in zip(cells(images, grid), cells(found, grid), strict=True):
        order = [next(i for i, cell in enumerate(before) if torch.equal(cell, moved)) for moved in after]
        assert sorted(order) == list(range(grid * grid))
        orders.append(tuple(order))
    if grid == 1:
        assert torch.equal(found, images)
    if grid == 5:
        assert len(set(orders)) == B, "each image in an order of its own"
    assert torch.equal(shuffle_patches(images, grid, generator()), found)


# ---- occlusion


@pytest.mark.parametrize(("share", "hidden"), [(0, 0), (0.3, 8), (0.5, 12), (1, 25)])
def test_a_share_of_the_patches_is_hidden_and_the_rest_is_untouched(share, hidden):
    images = torch.randn(B, C, *SIZE)
    found = occlude_patches(images, 5, share, generator())
    chosen = set()
    for before, after in zip(cells(images, 5), cells(found, 5), strict=True):
        gone = [not cell.any() for cell in after]
        assert sum(gone) == hidden
        assert all(torch.equal(a, b) for a, b, g in zip(before, after, gone, strict=True) if not g)
        chosen.add(tuple(gone))
    assert (len(chosen) > 1) == (0 < share < 1)


# ---- robustness of models that recognise something known


class Bright(nn.Module):
    """Class 1 where the mean pixel is above 1/2, or where that of the upper left patch of `cells` x `cells` is."""

    def __init__(self, cells=1):
        super().__init__()
        self.stem = nn.Conv2d(C, 1, 1)
        self.cells = cells

    def forward(self, x):
        x = x[:, :, : x.shape[2] // self.cells, : x.shape[3] // self.cells]
        mean = x.mean(dim=(1, 2, 3))
        return torch.stack([torch.full_like(mean, 0.5), mean], dim=1)


def config(**changes):
    return SimpleNamespace(**{"grids": None, "shares": [0.4, 0.6, 1.0], "seed": 0, **changes})


def values(rows, kind):
    return {row["strength"]: row["value"] for row in rows if row["kind"] == kind}


def test_a_bag_of_pixels_survives_shuffling_and_half_of_the_occlusion():
    images = torch.ones(B, C, *SIZE)
    rows = run_robustness(Bright(), images, config())["rows"]
    assert values(rows, "shuffle") == {1: 1.0, 2: 1.0, 5: 1.0, 10: 1.0}
    assert values(rows, "occlusion") == {0: 1.0, 0.4: 1.0, 0.6: 0.0, 1.0: 0.0}
    assert json.loads(json.dumps(rows)) == rows


def test_a_model_that_reads_one_place_fails_as_often_as_the_place_is_moved(monkeypatch):
    """The bright patch, one of four, stays in place by chance one time in four."""
    monkeypatch.setattr(capture, "CHUNK", 7)
    images = torch.zeros(400, C, *SIZE)
    images[:, :, :5, :10] = 1
    rows = run_robustness(Bright(cells=2), images, config(grids=[2], shares=[0.25]))["rows"]
    assert values(rows, "shuffle")[2] == pytest.approx(1 / 4, abs=0.07)
    assert values(rows, "occlusion")[0.25] == pytest.approx(3 / 4, abs=0.07)


class Means(Bright):
    """An output for each channel: its mean, above or below 1/2."""

    def forward(self, x):
        return x.mean(dim=(2, 3)) - 0.5


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("of", "scale", "unit"), [("labels", None, "share"), ("measures", (1e6, 7.0), "R2")])
def test_several_labels_and_numbers_are_measured_by_map_and_r2(of, scale, unit, known):
    images = torch.rand(B, C, 1, 1).expand(B, C, *SIZE).contiguous()
    logits = Means()(images).double()
    truth = (logits > 0).float() if of == "labels" else 1e6 + 7 * logits[:, 0]
    found = run_robustness(Means(), images, config(), targets=truth if known else None, of=of, scale=scale)
    assert found["unit"] == unit
    assert values(found["rows"], "shuffle") == pytest.approx(dict.fromkeys((1, 2, 5, 10), 1.0), abs=1e-4)
    hidden = {"labels": truth.mean(dim=0)[truth.any(dim=0)].mean()} if of == "labels" else {}  # at random
    hidden |= {"measures": 1 - (truth - 1e6 + 3.5).square().mean() / truth.var(correction=0)} if not hidden else {}
    assert values(found["rows"], "occlusion")[1.0] == pytest.approx(hidden[of].item(), abs=1e-3)


@pytest.mark.parametrize("chosen", [[3], [2, 3], []])
def test_grids_that_do_not_divide_the_images_are_refused(chosen):
    with pytest.raises(UserError, match=r"10 x 20 pixels can be cut into \[2, 5, 10\] patches along a side"):
        run_robustness(Bright(), torch.zeros(1, C, *SIZE), config(grids=chosen))


# ---- t-SNE


def test_planted_clusters_stay_together():
    centres = 20 * torch.randn(3, 17)
    labels = np.arange(40) % 3
    found = embedding((centres[labels] + torch.randn(40, 17)).numpy(), perplexity=10)
    assert found.shape == (40, 2)
    apart = np.linalg.norm(found[:, None] - found[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    assert (labels[apart.argmin(axis=1)] == labels).all()


@pytest.mark.parametrize("name", ["vit_nano", "resnet_nano", "timm:resnet18"])
def test_points_are_of_what_the_models_head_reads(name, monkeypatch):
    monkeypatch.setattr(capture, "CHUNK", 4)
    model = build_model(name, image_size=16, num_classes=3)
    images = torch.randn(11, 3, 16, 16)
    options = SimpleNamespace(perplexity=3.0, seed=0)
    points = run_embedding(model, images, options)["points"]
    with torch.no_grad():
        features = before_head(model.eval())(images)
    np.testing.assert_allclose(points, embedding(features.numpy(), 3.0), rtol=0.05, atol=0.5)
