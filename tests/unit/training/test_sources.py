"""Sources of weights: files, the hub and its cache; nothing is unpickled."""

import json
import os
import pickle
import re
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from transformers import ViTConfig, ViTForImageClassification, ViTModel

from tests.learning import randomized
from tests.unit.models.test_weights import same, vit
from vitlab.commands.analyze import source_config
from vitlab.config import TrainConfig, UserError, compose
from vitlab.models import build_model
from vitlab.models.base import as_model
from vitlab.models.export import export_weights
from vitlab.models.timm_adapter import pretrained_cfg
from vitlab.models.weights import first_convolution
from vitlab.training.files import source_problems
from vitlab.training.finished import read_checkpoint
from vitlab.training.load import load_subject, load_weights, read_weights


def test_files_in_every_format_and_wrapping(tmp_path):
    source = vit(image_size=(16, 16))
    state = export_weights(source)
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pth")
    torch.save({"model": {f"module.{name}": value for name, value in state.items()}, "epoch": 3}, tmp_path / "c.pt")
    torch.save({"state_dict": {f"model.{k}": v for k, v in source.state_dict().items()}}, tmp_path / "d.ckpt")
    torch.save({"model": {}, "model_ema": state}, tmp_path / "e.bin")
    for path in tmp_path.iterdir():
        target = vit(image_size=(16, 16), seed=2)
        load_weights(target, path)
        assert same(source, target), path.name


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module.model.{name}",
        lambda name: f"model._orig_mod.{name}",
        lambda name: name.replace("blocks.0.", "blocks.0._orig_mod."),
        lambda name: f"module.backbone.{name}",  # DINO's students
        lambda name: f"teacher.backbone.{name}",
        lambda name: f"module.base_encoder.{name}",  # MoCo v3
        lambda name: f"net.{name}",
        lambda name: f"model.net.{name}",
        lambda name: f"model.{name}",  # Lightning
        lambda name: f"module.encoder_q.{name}",  # MoCo
        lambda name: f"encoder.{name}",  # SimMIM
    ],
)
def test_prefixes_of_wrappers_and_training_scripts_are_left_out(rename, tmp_path):
    source, target = vit(image_size=(16, 16)), vit(image_size=(16, 16), seed=2)
    state = {rename(name): value for name, value in export_weights(source).items()}
    others = {"criterion.weight": torch.zeros(3)} if rename("") else {}
    if "encoder_q" in rename(""):  # a slow copy
        others |= {name.replace("encoder_q", "encoder_k"): value + 1 for name, value in state.items()}
    torch.save({"model": {**state, **others, "n_averaged": torch.tensor(3)}}, tmp_path / "a.pth")
    report = load_weights(target, tmp_path / "a.pth")
    assert same(source, target)
    assert ("criterion.weight" in report.advice) == bool(others)
    if others:
        both = state | {f"student.{name}": value for name, value in export_weights(source).items()}
        torch.save(both, tmp_path / "b.pth")
        with pytest.raises(UserError, match=r"b\.pth: holds several models, .*student\."):
            read_weights(str(tmp_path / "b.pth"))


def test_a_file_without_weights_of_its_own_names_what_it_holds(tmp_path):
    state, path = export_weights(vit()), tmp_path / "dino.pth"
    torch.save({"teacher": state, "student": state, "optimizer": {"state": {}}, "args": Namespace(lr=1)}, path)
    with pytest.raises(UserError, match=r"dino.pth: contains no weights but teacher, student, optimizer, args; save"):
        read_weights(str(path))
    for content in ({"epoch": 3}, {"model": {}}, [state["cls_token"]], 3, {}, {"model": "vit", "net": state}):
        torch.save(content, path)
        with pytest.raises(UserError, match=r"init=.*dino\.pth: "):
            read_weights(str(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="a pipe, socket or device"):
        read_weights(str(path))


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize("read", [read_weights, read_checkpoint])
def test_nothing_is_unpickled(read, tmp_path):
    torch.save({"state_dict": Bomb()}, tmp_path / "last.ckpt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Bomb()))
    for bad in tmp_path.iterdir():
        with pytest.raises(UserError, match=re.escape(bad.name)):
            read(str(bad) if read is read_weights else bad)


def test_a_source_that_is_not_there_is_said_before_anything_else(tmp_path):
    assert list(source_problems(None)) == list(source_problems("timm:x")) == []
    assert "no such file or folder; give timm:NAME" in next(source_problems(f"{tmp_path}/nothing"))
    assert "holds neither a run (checkpoints/last.ckpt) nor" in next(source_problems(str(tmp_path)))
    with pytest.raises(UserError, match="timm has no such model; did you mean 'vit_base_patch16_224'"):
        read_weights("timm:vit_base_patch16_244")


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """A hub cache in its true format, as huggingface_hub leaves it, with random weights."""

    def put(name, model):
        cfg = pretrained_cfg(name)
        revision = "0" * 40
        folder = tmp_path / f"models--{cfg.hf_hub_id.rstrip('/').replace('/', '--')}"
        if cfg.hf_hub_id.endswith("/"):
            folder = tmp_path / f"models--timm--{name}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text(revision)
        snapshot = folder / "snapshots" / revision
        snapshot.mkdir(parents=True)
        save_file(model.state_dict(), snapshot / "model.safetensors")
        (snapshot / "config.json").write_text(json.dumps({"architecture": name.partition(".")[0]}))

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return put


def test_timms_weights_come_from_the_hub_cache(hub_cache):
    name = "test_vit2.r160_in1k"  # timm's own small model: register token, LayerScale, mean pooling before the norm
    theirs = randomized(timm.create_model(name), 0.1)
    hub_cache(name, theirs)
    mine = build_model(
        "vit_ti16", image_size=160, depth=8, width=64, heads=2, mlp_width=192, pool="mean", registers=1,
        layer_scale=1e-5, fc_norm=True,
    ).eval()  # fmt: skip
    report = load_weights(mine, f"timm:{name}", mean=[0.5], std=[0.5])
    assert not [*report.missing, *report.unused, *report.new, *report.resized], report
    cfg = pretrained_cfg(name)
    means = ",".join(format(value, "g") for value in cfg.mean)
    assert (f"trained with data.mean=[{means}]" in str(report)) == (tuple(cfg.mean) != (0.5, 0.5, 0.5))
    assert not load_weights(mine, f"timm:{name}", mean=list(cfg.mean), std=list(cfg.std)).advice
    images = torch.randn(2, 3, 160, 160)
    torch.testing.assert_close(mine(images), theirs(images), rtol=1e-5, atol=1e-5)


def test_a_resnet_of_timm_takes_its_weights_for_other_channels_and_classes(hub_cache):
    name = "test_resnet.r160_in1k"
    theirs = randomized(timm.create_model(name), 0.1)
    hub_cache(name, theirs)
    mine = build_model("timm:test_resnet", num_classes=7, image_size=40, channels=1).eval()
    report = load_weights(mine, f"timm:{name}")
    assert (report.new, report.missing, report.unused) == (["fc.weight", "fc.bias"], [], [])
    assert report.resized == [f"{first_convolution(mine)[0]} (16x3x3x3 -> 16x1x3x3)"]
    grey = torch.randn(2, 1, 40, 40)
    mine.fc, theirs.fc = nn.Identity(), nn.Identity()
    torch.testing.assert_close(mine(grey), theirs(grey.expand(2, 3, 40, 40)), rtol=1e-4, atol=1e-4)


def test_a_model_of_timm_is_looked_into_with_the_weights_of_a_file(tmp_path):
    theirs = randomized(timm.create_model("test_vit"), 0.1)
    save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    source = f"timm:test_vit={tmp_path}/weights.safetensors"
    subject = load_subject(source, *source_config(source, ["data=digits", "data.image_size=96"], ("data",)))
    assert torch.equal(subject.model.head.weight, theirs.head.weight), "a head of 10 classes would be random"
    assert torch.equal(subject.model.blocks[1].attn.qkv.weight, theirs.blocks[1].attn.qkv.weight)
    assert subject.model.pos_embed.shape[1] == 37, "6 x 6 patches and the class token"
    assert subject.name == "timm:test_vit=weights.safetensors", "its weights need not be those that timm has"
    assert subject.folder == Path("runs/timm-test_vit=weights.safetensors/analysis")
    save_file(timm.create_model("test_vit", num_classes=7).state_dict(), tmp_path / "weights.safetensors")
    subject = load_subject(source, *source_config(source, ["data=digits", "data.image_size=96"], ("data",)))
    assert not as_model(subject.model).classifies, "its head is of 7 classes"
    with pytest.raises(UserError, match="no such file 'none'"):
        source_config("timm:test_vit=none", ["data=digits"], ("data",))


@pytest.mark.parametrize("named", [ViTForImageClassification, ViTModel])
def test_a_hugging_face_folder_of_other_classes_keeps_its_head_or_has_none(named, tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    theirs = named(ViTConfig(**sizes, image_size=16, patch_size=8, num_channels=1, num_labels=7))
    theirs.save_pretrained(tmp_path)
    subject = load_subject(str(tmp_path), *source_config(str(tmp_path), ["data=digits"], ("data",)))
    assert as_model(subject.model).classifies is (named is ViTForImageClassification)
    if named is ViTForImageClassification:
        assert torch.equal(subject.model.head.weight, theirs.classifier.weight)


@pytest.mark.parametrize(
    ("get", "says"),
    [
        (lambda: read_weights("timm:test_vit.r160_in1k"), "init=timm:.* give a file of weights or a run's folder"),
        (
            lambda: build_model("timm:test_vit", image_size=160, pretrained=True),
            "give model.pretrained=false for random",
        ),
    ],
)
def test_without_a_network_pretrained_weights_fail_within_seconds_and_name_the_way_out(
    get, says, monkeypatch, tmp_path
):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path))  # empty
    start = time.monotonic()
    with pytest.raises(UserError, match=f"{says}|local cache {tmp_path}.* {says}") as caught:
        get()
    assert time.monotonic() - start < 20  # the hub's client alone takes more than a minute
    (line,) = caught.value.problems
    assert "http://127.0.0.1:9 is not reachable" in line
    assert not constants.HF_HUB_OFFLINE, "the next call looks for the network again"


def test_a_model_of_timm_reads_images_as_timm_normalizes_them(tmp_path):
    for number in range(20):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((32, 32, 3), 10 * number, dtype=np.uint8)).save(path)
    words = ["data=imagefolder", f"data.root={tmp_path}", "data.image_size=32", "data.cache=never"]
    base = {"model": {"name": "timm:test_vit", "pretrained": False}}
    config = compose(TrainConfig, words, base)
    subject = load_subject("timm:test_vit", config, {"data"})
    assert (subject.task.images.mean, subject.data.image_size) == ([0.5, 0.5, 0.5], (160, 160))
    own = load_subject("timm:test_vit", config, {"data", "data.mean", "data.image_size"})
    assert (own.task.images.mean, own.data.image_size) == (list(config.data.mean), (32, 32))
    assert own.task.images.mean != subject.task.images.mean
