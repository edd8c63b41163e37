"""Every shipped model: its size, its outputs, its gradients, what it costs."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import GPT2Config

import vitlab
from tests.configurations import roundtrip, train
from vitlab.config import DescribeConfig, TrainConfig, UserError, compose, load, names
from vitlab.data.base import ImageData
from vitlab.models import build_model, counting, described_shape
from vitlab.training.finished import LoadedRun
from vitlab.training.load import compare_classes, load_weights, refuse_misfit


def on_meta(name, image_size=(224, 224), num_classes=1000, channels=3, **changes):
    size = list(image_size)
    config = compose(DescribeConfig, base={"model": {"name": name, **changes}, "image_size": size}).model
    return counting.meta(config, num_classes=num_classes, image_size=image_size, channels=channels)


@pytest.mark.parametrize("name", names("model"))
def test_the_parts_sum_to_the_whole(name):
    size = ["image_size=48"] if load("model", name).kind == "captioner" else []  # its patches do not divide 224
    config = compose(DescribeConfig, [f"model={name}", *size])
    model = counting.meta(config.model, **described_shape(config))
    parts = counting.parts(model)
    assert sum(parts.values()) == counting.parameters(model)
    assert all(parts.values())


def test_operations_of_vit_b16_are_the_published_ones():
    by_part, training = counting.flops(on_meta("vit_b16"), {"image_size": (224, 224), "channels": 3})
    forward = sum(by_part.values())
    assert forward == pytest.approx(2 * 17.56e9, rel=0.001)  # 17.56 billion multiply-adds
    assert training == 3 * forward - 2 * 196 * 768 * 768  # no gradient of the images


def test_operations_of_a_resnet_are_those_of_its_convolutions():
    model = on_meta("resnet_nano", (12, 20), num_classes=11, channels=2, layers=[1, 2], widths=[5, 7])
    stem = 2 * 12 * 20 * 9 * 2 * 5
    first = 2 * 2 * 12 * 20 * 9 * 5 * 5
    second = 2 * 6 * 10 * (9 * 5 * 7 + 9 * 7 * 7 + 5 * 7) + 2 * 2 * 6 * 10 * 9 * 7 * 7
    forward = stem + first + second + 2 * 7 * 11
    by_part, training = counting.flops(model, {"image_size": (12, 20), "channels": 2})
    assert (sum(by_part.values()), training) == (forward, 3 * forward - stem)


def test_a_grouped_convolution_costs_three_times_its_forward_pass_to_train():
    """torch's own formula takes its backward pass for that of a full convolution, 100 times as much for some models."""
    groups, channels, size = 5, 10, 7
    with torch.device("meta"):
        model = nn.Sequential(
            nn.Conv2d(3, channels, 1), nn.Conv2d(channels, channels, 3, padding=1, groups=groups), nn.Flatten()
        )
    point = 2 * size * size * 3 * channels
    grouped = 2 * size * size * 9 * channels * channels // groups
    forward, training = counting.flops(model, {"image_size": (size, size), "channels": 3})
    assert (sum(forward.values()), training) == (point + grouped, 2 * point + 3 * grouped)


def test_only_timms_own_errors_say_that_images_do_not_fit():
    """A bug of a user's module, or of a loss, keeps its type and its traceback."""
    shape = {"image_size": (17, 17), "channels": 3}
    with torch.device("meta"):
        mine = nn.Sequential(nn.Flatten(), nn.Linear(5, 2))
    with pytest.raises(UserError, match=r"VGG does not take image_size=\(17, 17\) channels=3: Given input size"):
        counting.flops(on_meta("timm:vgg11", (17, 17)), shape)
    with pytest.raises(RuntimeError, match="must have same reduction dim"):
        counting.flops(mine, shape)
    theirs, shape = on_meta("timm:resnet18", (32, 32)), {"image_size": (32, 32), "channels": 3}
    with pytest.raises(TypeError, match="unsupported operand"):
        counting.flops(theirs, shape, lambda model: model(*counting.inputs(shape)) + None)


@pytest.mark.parametrize("name", ["vit_nano", "deit_ti16_distilled", "resnet_nano", "timm:resnet18"])
def test_without_classes_a_model_gives_the_features_that_its_head_would_read(name):
    sizes = {"depth": 1} if name == "deit_ti16_distilled" else {}
    model = build_model(name, num_classes=7, image_size=32, **sizes).eval()
    bare = build_model(name, num_classes=0, image_size=32, **sizes).eval()
    report = vitlab.load_weights(bare, model.state_dict())
    assert (report.missing, report.new) == ([], [])
    images = torch.randn(2, 3, 32, 32)
    features = bare(images)
    assert features.ndim == 2
    torch.testing.assert_close(vitlab.extract_features(model, images), features)
    torch.testing.assert_close(vitlab.extract_features(bare, images), features)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize(("size", "is_small"), [((28, 64), True), ((65, 64), False)])
def test_small_images_get_a_small_stem(name, size, is_small):
    model = on_meta(name, size, channels=2)
    stem = model.conv1
    assert stem.in_channels == 2
    assert (stem.kernel_size, stem.stride) == (((3, 3), (1, 1)) if is_small else ((7, 7), (2, 2)))
    assert isinstance(model.maxpool, nn.Identity) is is_small
    last = model.forward_features(torch.zeros(1, 2, *size, device="meta"))
    reduction = 8 if is_small else 32
    assert last.shape[-2:] == tuple(-(-side // reduction) for side in size)


def test_the_stem_can_be_chosen():
    assert on_meta("resnet18", (32, 32), stem="imagenet").conv1.stride == (2, 2)
    assert on_meta("resnet18", (128, 128), stem="small").conv1.stride == (1, 1)
    assert on_meta("timm:resnet18", (32, 32)).conv1.stride == (2, 2), "a bare timm model is left as it is"
    with pytest.raises(UserError, match=r"model\.stem=small: resnetv2_50x1_bit has no stem"):
        on_meta("bit_50x1", (32, 32), stem="small")


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("timm:resnet19", {}, "model=timm:resnet19: timm has no such model; did you mean 'resnet18'"),
        ("timm:resnet18.no_such_tag", {}, "Invalid pretrained tag"),
        ("timm:resnet18", {"options": {"no_such_option": 1}}, "timm cannot build resnet18: .*no_such_option"),
        (
            "resnet_nano",
            {"layers": [1, 1]},
            r"model.layers=\[1, 1\] and model.widths=\[.*\]: give one of each per stage",
        ),
        ("timm:vit_tiny_patch16_224", {"options": {"num_heads": 0}}, "timm cannot build vit_tiny_patch16_224"),
        ("vit_nano", {"width": 2**20, "mlp_width": 2**20, "heads": 1, "patch_size": 4}, "vit_nano: cannot be built"),
    ],
)
def test_a_model_that_cannot_be_built_is_the_users_mistake(name, changes, says):
    with pytest.raises(UserError, match=says):
        build_model(name, image_size=24, **changes)


def test_images_of_another_shape_than_the_runs_are_the_users_mistake():
    says = r"data=other: has image_size=\[12, 8\], but the run's model was trained with \[8, 12\]"
    shape, classes = {"num_classes": 3, "image_size": (8, 12), "channels": 1}, ("a", "b", "c")
    run = LoadedRun(Path(), compose(TrainConfig), nn.Identity(), shape, classes, {}, [])
    with pytest.raises(UserError, match=says):
        refuse_misfit(run, ImageData("other", classes, (12, 8), 1, None, None))


def test_texts_may_be_shorter_than_the_runs_but_not_longer_nor_in_other_tokens():
    shape = {"length": 31, "vocabulary": 97, "head": "next_token"}
    run = LoadedRun(Path(), compose(TrainConfig), nn.Identity(), shape, (), {}, [])
    for length, vocabulary, says in ((31, 97, ""), (7, 97, ""), (32, 97, "length=32"), (31, 89, "vocabulary=89")):
        data = SimpleNamespace(name="other", shape={"length": length, "vocabulary": vocabulary})
        with pytest.raises(UserError, match=says) if says else nullcontext():
            refuse_misfit(run, data)
    assert compare_classes(run, data) == ""


def test_a_small_resnet_trains_in_channels_last():
    """oneDNN's own strided 1x1 convolution writes past its workspace there, and crashes at 48 pixels."""
    model = build_model("resnet_nano", num_classes=3, image_size=48).to(memory_format=torch.channels_last)
    model(torch.randn(128, 3, 48, 48)).sum().backward()


SIZES = {"vocabulary": 29, "width": 24, "heads": 3, "depth": 1}


def test_a_causal_model_has_no_batch_norm():
    with pytest.raises(UserError, match=r"model\.norm=batchnorm takes its statistics over all tokens.*layernorm"):
        vitlab.build_model("gpt_nano", length=7, norm="batchnorm", **SIZES)
    model = vitlab.build_model("transformer_nano", length=7, norm="batchnorm", **SIZES)
    kinds = {(name.partition(".")[0], type(part).__name__) for name, part in model.named_modules()}
    norms = {(place, kind) for place, kind in kinds if "Norm" in kind}
    assert norms == {("text", "TokenBatchNorm"), ("decoder", "LayerNorm")}, "of its encoder alone"


def test_fewer_learned_positions_than_the_model_reads_are_refused_and_change_nothing():
    source, target = (vitlab.build_model("gpt_nano", length=n, positions="learned", **SIZES) for n in (7, 9))
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(UserError, match=r"it has positions for 7 tokens, the model takes 9; give data\.length=7"):
        load_weights(target, source.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


def test_a_folder_that_is_called_like_a_named_model_is_meant_by_its_path(tmp_path):
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 50, "n_positions": 16}
    GPT2Config(**sizes, bos_token_id=1, eos_token_id=1, architectures=["GPT2LMHeadModel"]).save_pretrained("gpt2")
    words = ["data=pydoc", "task=causal_lm"]
    named, folder = train("model=gpt2", *words), train("model=./gpt2", *words)
    assert (named.model.depth, named.init.weights) == (12, None)
    for config in (folder, roundtrip(folder)):
        assert (config.model.depth, config.init.weights) == (2, "gpt2")
