"""Attention distance against a double loop."""

import math
from dataclasses import replace

import pytest
import torch

from tests.learning import randomized
from vitlab.analysis import capture
from vitlab.analysis.capture import Patches, attention_maps
from vitlab.analysis.heads import attention_distance, reference_distances, run_attention_distance
from vitlab.config import load
from vitlab.models import build_model

B, HEADS, GRID, PATCH = 2, 3, (5, 7), (11, 13)


def random_weights(tokens):
    return torch.rand(B, HEADS, tokens, tokens, dtype=torch.float64).softmax(dim=-1)


def place(index, grid=GRID, patch=PATCH):
    row, column = divmod(index, grid[1])
    return row * patch[0], column * patch[1]


def brute_force(weights, grid, patch, prefix, renormalize):
    """Image by image, head by head, query by query, key by key."""
    images, heads = weights.shape[:2]
    queries = keys = range(grid[0] * grid[1])
    found = []
    for head in range(heads):
        total = 0.0
        for image in range(images):
            for query in queries:
                row = [weights[image, head, prefix + query, prefix + key].item() for key in keys]
                left = sum(row) if renormalize else 1.0
                at = place(query, grid, patch)
                total += sum(w / left * math.dist(at, place(k, grid, patch)) for k, w in zip(keys, row, strict=True))
        found.append(total / images / len(queries))
    return torch.tensor(found, dtype=torch.float64)


# ---- any weights


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize(("grid", "patch"), [(GRID, PATCH), ((7, 5), (13, 11)), ((1, 7), (3, 2)), ((3, 3), (16, 16))])
def test_any_weights_give_what_a_double_loop_gives(grid, patch, prefix, renormalize):
    weights = random_weights(grid[0] * grid[1] + prefix)
    found = attention_distance(weights, grid, patch, prefix, renormalize)
    torch.testing.assert_close(found, brute_force(weights, grid, patch, prefix, renormalize))


# ---- references


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize(("grid", "patch"), [(GRID, PATCH), ((1, 7), (3, 2)), ((2, 2), (6, 6))])
def test_references_are_what_such_heads_measure(grid, patch, prefix, renormalize):
    patches = grid[0] * grid[1]
    uniform = torch.full((1, 1, patches + prefix, patches + prefix), 1 / (patches + prefix), dtype=torch.float64)
    near = torch.zeros_like(uniform)
    for query in range(patches):
        (row, column), keys = divmod(query, grid[1]), range(patches)
        around = [k for k in keys if abs(k // grid[1] - row) <= 1 and abs(k % grid[1] - column) <= 1]
        for key in around:
            near[..., prefix + query, prefix + key] = 1 / len(around)
    assert reference_distances(Patches(grid, patch, prefix), renormalize) == {
        "uniform attention": pytest.approx(brute_force(uniform, grid, patch, prefix, renormalize).item(), abs=2e-5),
        "3 x 3 neighborhood": pytest.approx(brute_force(near, grid, patch, prefix, renormalize).item(), abs=2e-5),
    }


# ---- of a model


SIZE = (10, 21)


def model(**changes):
    made = build_model(
        "vit_nano", image_size=SIZE, num_classes=3, depth=2, width=33, heads=3, patch_size=[5, 7], **changes
    )
    return randomized(made)


@pytest.mark.parametrize("pool", ["mean", "token"])
@pytest.mark.parametrize("renormalize", [False, True])
def test_rows_hold_every_head_of_every_layer_averaged_over_all_images(pool, renormalize, monkeypatch):
    monkeypatch.setattr(capture, "CHUNK", 3)  # 7 images come in chunks of 3, 3 and 1
    config = load("analysis", "attention_distance")
    config = replace(config, renormalize=renormalize)
    made, images = model(pool=pool), torch.randn(7, 3, *SIZE)
    rows = run_attention_distance(made, images, config)["rows"]
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in (1, 2) for head in (1, 2, 3)]
    prefix = 1 if pool == "token" else 0
    expected = torch.cat(
        [attention_distance(w, (2, 3), (5, 7), prefix, renormalize) for _, w in attention_maps(made, images)]
    )
    assert [row["value"] for row in rows] == pytest.approx(expected.tolist(), abs=2e-5)
    assert len({row["value"] for row in rows}) == 6, "every head has its own"
