"""Features of frozen networks: each picture goes through each network once."""

import numpy as np
import pytest
import timm
from PIL import Image
from safetensors.torch import save_file

from vitlab.advice import backbones
from vitlab.config import UserError
from vitlab.data import cache


@pytest.fixture
def network(tmp_path):
    """timm:NAME=FILE of a small network with random weights."""
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "weights.safetensors")
    return f"timm:test_resnet={tmp_path / 'weights.safetensors'}"


def write_pictures(folder, count, first=0):
    folder.mkdir(exist_ok=True)
    for number in range(first, first + count):
        pixels = np.random.default_rng(number).integers(0, 255, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return [f"{number}.png" for number in range(first, first + count)]


def test_each_picture_is_computed_once(network, tmp_path, monkeypatch):
    """Also after a crash, after others are added, and when files are renamed."""
    monkeypatch.setattr(cache, "EVERY", -1)
    backbone, seen = backbones.open_backbone(network, 24), []

    def embed(pictures):
        seen.append(len(pictures))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return backbone.embed(pictures)

    counted = backbones.Backbone(backbone.name, backbone.key, backbone.size, backbone.channels, embed)
    paths = write_pictures(tmp_path / "photos", 70)
    digests = [f"{place:016x}" for place in range(70)]

    def compute(paths, digests):
        return backbones.compute_features(
            tmp_path / "f", counted, tmp_path / "photos", paths, digests, 16, lambda *_: None
        )

    with pytest.raises(KeyboardInterrupt):
        compute(paths, digests)
    whole = compute(paths, digests)
    assert sum(seen) - seen[1] == 70, "but for the batch that was cut off each once"
    more = write_pictures(tmp_path / "photos", 10, 70)
    grown = compute(more + paths, [f"{place:016x}" for place in range(70, 80)] + digests)
    assert sum(seen) - seen[1] == 80
    np.testing.assert_array_equal(grown[10:], whole)
    (tmp_path / "photos" / "0.png").rename(tmp_path / "photos" / "zero.png")
    compute(["zero.png", *paths[1:]], digests)
    assert sum(seen) - seen[1] == 80


def test_a_damaged_file_of_features_is_computed_again(network, tmp_path):
    backbone, paths = backbones.open_backbone(network, 24), write_pictures(tmp_path / "photos", 3)
    given = tmp_path / "f", backbone, tmp_path / "photos", paths, ["00", "01", "02"], 16
    before = backbones.compute_features(*given, lambda *_: None)
    file = tmp_path / "f" / f"{backbone.key}.safetensors"
    file.write_bytes(file.read_bytes()[:40])
    np.testing.assert_array_equal(backbones.compute_features(*given, lambda *_: None), before)


def test_other_weights_have_features_and_a_name_of_their_own(network, tmp_path):
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "other.safetensors")
    other = backbones.open_backbone(f"timm:test_resnet={tmp_path / 'other.safetensors'}", 24)
    one = backbones.open_backbone(network, 24)
    assert other.key != one.key
    assert (other.name, one.name) == ("test_resnet=other.safetensors", "test_resnet=weights.safetensors")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("timm:no_such_net", "timm has no such model"),
        ("timm:test_resnet=gone.safetensors", "no such file 'gone.safetensors'"),
        ("no/such/run", "no/such/run"),
    ],
)
def test_mistakes_are_named(source, says):
    with pytest.raises(UserError, match=says):
        backbones.open_backbone(source, 32)


def test_color_histograms_are_shares():
    pixels = np.zeros((2, 3, 4, 4), np.uint8)
    pixels[1, 0] = 255
    found = backbones.count_colors(pixels)
    np.testing.assert_allclose((found**2).sum(axis=1), 1)
    assert found[0].argmax() == 0
    assert found[1].argmax() == 48
