"""CKA against its definition and against values that are known."""

import json
from itertools import permutations
from types import SimpleNamespace

import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.learning import randomized
from tests.unit.reports.few_runs import FOUR, RESNET
from vitlab.analysis import layers as module
from vitlab.analysis.capture import find_layers
from vitlab.analysis.layers import compute_gram, hsic, load_other, minibatch_cka, run_cka
from vitlab.cli import main
from vitlab.config import UserError
from vitlab.models import build_model
from vitlab.training.finished import load_run

N, CONFIG = 11, SimpleNamespace(batch=5, other=None)


def vit(**changes):
    made = build_model(
        "vit_nano", image_size=(10, 21), num_classes=3, depth=3, width=33, heads=3, patch_size=[5, 7], **changes
    )
    return randomized(made, 0.3)


def resnet():
    made = build_model("resnet_nano", image_size=(10, 21), num_classes=3, layers=[2, 1], widths=[5, 7])
    return randomized(made, 0.5)


def images(n=N):
    return torch.randn(n, 3, 10, 21)


def linear_cka(x, y):
    return minibatch_cka([(compute_gram(x)[None], compute_gram(y)[None])]).item()


# ---- the measure


def test_the_estimate_is_the_mean_over_all_quadruples():
    """What makes it unbiased: no image meets itself (Song et al., 2012)."""
    n = 6
    x, y = torch.randn(n, 3, dtype=torch.float64), torch.randn(n, 4, dtype=torch.float64)
    k, l = x @ x.T, y @ y.T  # noqa: E741
    terms = [
        k[i, j] * (l[i, j] + l[q, r] - l[i, q] - l[j, r])  # the kernel of the U-statistic, up to relabelling
        for i, j, q, r in permutations(range(n), 4)
    ]
    assert hsic(k[None], l[None]).item() == pytest.approx(sum(terms).item() / len(terms))


@pytest.mark.parametrize("images_shape", [(N, 13), (N, 3, 5, 7)])
def test_a_layer_is_wholly_like_itself_scaled_and_moved(images_shape):
    x = torch.randn(images_shape)
    for y in (x, 7 * x, -x, x + 100 * torch.randn(images_shape[1:])):
        assert linear_cka(x, y) == pytest.approx(1, abs=1e-5)


# ---- of models


def outputs(model, x):
    found = []
    handles = [
        part.register_forward_hook(lambda *a: found.append(a[2].flatten(1))) for part in find_layers(model).values()
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize(("make", "depth"), [(vit, 3), (resnet, 3)])
def test_the_rows_compare_all_layers_over_all_images(make, depth):
    model, x = make(), images()
    rows = run_cka(model, x, CONFIG)
    pairs = [(row["layer"], row["other"]) for row in rows]
    assert pairs == [(a, b) for a in range(1, depth + 1) for b in range(1, depth + 1)]
    called = list(find_layers(model))
    assert all((row["name"], row["other_name"]) == (called[row["layer"] - 1], called[row["other"] - 1]) for row in rows)
    value = {pair: row["value"] for pair, row in zip(pairs, rows, strict=True)}
    assert all(value[a, a] == pytest.approx(1, abs=1e-4) for a in range(1, depth + 1))
    assert all(value[a, b] == pytest.approx(value[b, a]) for a, b in pairs)
    parts = x.split([6, 5])  # 11 images, at least 5 in a batch
    grams = [torch.stack([compute_gram(features) for features in outputs(model, part)]) for part in parts]
    expected = minibatch_cka((k, k) for k in grams)
    assert list(value.values()) == pytest.approx(expected.flatten().tolist(), abs=2e-5)
    assert len(set(value.values())) > depth
    assert json.loads(json.dumps(rows)) == rows


def test_a_runs_layers_are_compared_with_another_runs(few_runs, tmp_path):
    vit_run, resnet_run = (few_runs.run(name).folder for name in (FOUR, RESNET))
    for source, against, out in ((vit_run, resnet_run, "one"), (resnet_run, vit_run, "other")):
        assert main(["analyze", str(source), "cka", f"cka.other={against}", "--out", str(tmp_path / out)]) == 0
    one, other = (json.loads((tmp_path / out / "cka.json").read_text())["rows"] for out in ("one", "other"))
    names = {row["other_name"] for row in one}
    assert names == {row["name"] for row in other} == set(find_layers(load_run(resnet_run).model))
    assert len(one) == 5 * len(names)
    turned = {(row["other"], row["layer"]): row["value"] for row in other}
    assert [turned[row["layer"], row["other"]] for row in one] == pytest.approx([row["value"] for row in one], abs=1e-4)
    assert f"layer of {RESNET}" in (tmp_path / "one" / "cka.svg").read_text()


def test_the_key_of_another_run_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cka\.other: .*none"):
        load_other(str(tmp_path / "none"), images())


@pytest.mark.parametrize(("channels", "side"), [(1, 0), (0, 1)])
def test_another_run_was_trained_for_such_images(channels, side, few_runs):
    folder, shape = few_runs.run(FOUR).folder, load_run(few_runs.run(FOUR).folder).shape
    height, width = shape["image_size"]
    with pytest.raises(UserError, match="was trained for"):
        load_other(str(folder), torch.zeros(4, shape["channels"] + channels, height, width + side))


def test_a_models_layers_are_compared_with_those_of_timms_pretrained_one(monkeypatch):
    made = build_model("timm:resnet18", num_classes=3, image_size=(10, 21))
    monkeypatch.setattr(module, "build_model", lambda **asked: made if asked.pop("pretrained") else None)
    rows = run_cka(vit(), images(), SimpleNamespace(batch=5, other="timm:resnet18"))
    assert list(dict.fromkeys(row["other_name"] for row in rows)) == list(find_layers(made))
    assert len(rows) == 3 * 8


def test_another_model_of_timm_has_a_files_weights_and_its_own_normalization(tmp_path):
    theirs, file = timm.create_model("test_resnet").eval(), tmp_path / "weights.safetensors"
    save_file(theirs.state_dict(), file)
    pixels = torch.rand(4, 3, 32, 32)
    cfg, prepared = theirs.pretrained_cfg, SimpleNamespace(mean=[0.4], std=[0.3])
    other = load_other(f"timm:test_resnet={file}", (pixels - 0.4) / 0.3, prepared)
    mean, std = (torch.tensor(cfg[key]).view(-1, 1, 1) for key in ("mean", "std"))
    torch.testing.assert_close(other((pixels - 0.4) / 0.3), theirs((pixels - mean) / std), rtol=1e-3, atol=1e-4)
