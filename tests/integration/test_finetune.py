"""`init=`: fine-tuning a run on another data set; `vitlab export`."""

import json
import re
import shlex

import pytest
import timm
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import ViTConfig, ViTForImageClassification

import vitlab as api
from tests.integration.commands import PLAIN, succeed, vitlab
from vitlab.config import TrainConfig, compose, resolved
from vitlab.config.identity import identity
from vitlab.training.finished import read_checkpoint

VIT = [*PLAIN, "model=vit_nano", "model.pool=token"]
GLYPHS = ["data=glyphs", "data.train_images=400", "data.test_images=80", "data.image_size=16", *VIT[1:]]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A run on 16 px glyphs of 36 classes; digits have 10."""
    folder = tmp_path_factory.mktemp("pretrained") / "glyphs"
    succeed("train", *GLYPHS, "budget.steps=12", "--out", folder)
    return folder


def test_a_run_begins_with_another_runs_weights_and_a_new_head(pretrained, tmp_path):
    words = [*VIT, f"init={pretrained}", "recipe.lr=1e-9", "budget.steps=3"]
    done = succeed("train", *words, "--out", tmp_path / "fine")
    assert "new: head.weight, head.bias" in done.stderr
    before, after = (
        read_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]
        for folder in (pretrained, tmp_path / "fine")
    )
    for name, value in after.items():
        if "head" in name:
            assert value.abs().max() < 1e-6, name
        else:
            torch.testing.assert_close(value, before[name], rtol=0, atol=1e-6)
    report = json.loads((tmp_path / "fine" / "init.json").read_text())
    assert (report["new"], report["missing"], report["unused"]) == (["head.weight", "head.bias"], [], [])
    result = json.loads((tmp_path / "fine" / "result.json").read_text())
    assert result["id"] != json.loads((pretrained / "result.json").read_text())["id"]


def test_a_source_that_changed_is_not_taken_for_the_old_one(pretrained, tmp_path):
    source = tmp_path / "vit.safetensors"
    succeed("export", pretrained, source)
    words = ["train", *VIT, f"init={source}", "budget.steps=2", "--out", tmp_path / "fine"]
    assert vitlab(*words).returncode == vitlab(*words).returncode == 0
    result = (tmp_path / "fine" / "result.json").read_bytes()
    state = load_file(source)
    save_file({name: value + 1 for name, value in state.items()}, source)
    done = vitlab(*words)
    assert done.returncode == 2
    assert f"init={source}: has changed since" in done.stderr
    assert (tmp_path / "fine" / "result.json").read_bytes() == result


def test_a_study_says_at_once_that_a_source_fits_only_some_models(pretrained, tmp_path):
    words = ["models=[vit_nano,resnet_nano]", "data=digits", "sizes=[50]", "budget.steps=2", f"set=[init={pretrained}]"]
    done = vitlab("scale", *words, "--out", tmp_path / "study")
    assert done.returncode == 2
    assert "none of its parameters is one of the model's" in done.stderr
    assert not [*tmp_path.glob("study/*-s0")]


def test_a_run_is_exported_with_what_one_must_know(pretrained, tmp_path):
    run = api.load_run(pretrained)
    images = torch.randn(3, 1, 16, 16)
    expected = run.model(images)
    path = tmp_path / "new" / "vit.safetensors"
    assert succeed("export", pretrained, path).stdout == f"{path}\n"
    assert "blocks.0.attn.qkv.weight" in load_file(path)
    model = api.build_model("vit_nano", num_classes=36, image_size=16, channels=1, pool="token").eval()
    api.load_weights(model, path)
    assert torch.equal(model(images), expected)
    done = vitlab("export", pretrained, tmp_path / "folder")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'folder'}\n"), done.stderr
    theirs = ViTForImageClassification.from_pretrained(tmp_path / "folder").eval()
    torch.testing.assert_close(theirs(images).logits, expected, rtol=1e-5, atol=1e-5)
    assert [theirs.config.id2label[index] for index in range(36)] == list(run.classes)
    hub = tmp_path / "hub"
    assert succeed("export", pretrained, hub, "--format", "hub").stdout == f"{hub}\n"
    torch.testing.assert_close(timm.create_model(f"local-dir:{hub}", pretrained=True).eval()(images), expected)
    card = ModelCard.load(hub / "README.md")
    assert (card.data.library_name, card.data.tags) == ("timm", ["vitlab", "classification"])
    (command,) = re.findall(r"^    vitlab (train .*)", card.text, re.MULTILINE)
    again = compose(TrainConfig, shlex.split(command)[1:])
    assert identity(resolved(again), "") == identity(resolved(run.config), "")
    processor = json.loads((tmp_path / "folder" / "preprocessor_config.json").read_text())
    assert (processor["image_mean"], processor["size"]) == ([0.29], {"height": 16, "width": 16})


def test_a_hugging_face_folder_is_a_model_that_is_analysed_and_fine_tuned(tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 12}
    shape = {"image_size": 16, "patch_size": 4, "num_channels": 1, "num_labels": 7}
    theirs, folder = ViTForImageClassification(ViTConfig(**sizes, **shape)), tmp_path / "vit-tiny"
    theirs.save_pretrained(folder)
    counts = json.loads(vitlab("describe", f"model={folder}", "--json").stdout)
    assert (counts["params"], counts["image_size"], counts["num_classes"]) == (theirs.num_parameters(), [16, 16], 7)
    words = ["train", f"model={folder}", *PLAIN, "budget.steps=2"]
    succeed(*words, "recipe.lr=1e-9", "--out", tmp_path / "run")
    run = api.load_run(tmp_path / "run")
    assert (run.config.recipe.name, run.config.init.weights) == ("vit_finetune", str(folder))
    assert run.shape["image_size"] == (16, 16)
    state = load_file(folder / "model.safetensors")
    torch.testing.assert_close(run.model.pos_embed, state["vit.embeddings.position_embeddings"], rtol=0, atol=1e-6)
    wrong = vitlab(*words, "model.heads=2", "--out", tmp_path / "wrong")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "heads=4, this one heads=2" in wrong.stderr
    assert not (tmp_path / "wrong").exists()
    without = vitlab("analyze", folder, "attention_distance")
    assert (without.returncode, "give data=NAME" in without.stderr) == (2, True)
    words = ["data=glyphs", "data.train_images=60", "attention_distance", "--out", tmp_path / "out"]
    succeed("analyze", folder, *words)
    rows = json.loads((tmp_path / "out" / "attention_distance.json").read_text())["rows"]
    assert {(row["layer"], row["head"]) for row in rows} == {(layer, head) for layer in (1, 2) for head in (1, 2, 3, 4)}


def test_a_wrong_export_is_one_line(pretrained):
    done = vitlab("export", pretrained, "vit.pkl")
    assert done.returncode == 2
    assert (
        done.stderr == "vitlab: vit.pkl: give a file that ends in .safetensors or .onnx, or a folder for transformers\n"
    )
