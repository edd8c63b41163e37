"""Every shipped model, small: its outputs, its gradients."""

import pytest
import torch
from torch import nn

from tests.learning import randomized
from vitlab.config import DescribeConfig, compose, load, names
from vitlab.models import build_model
from vitlab.models.counting import meta


def small(name):
    """A shipped model of a size that a test can run: (model, image size, channels, classes), every number its own."""
    config = load("model", name)
    if config.kind == "vit":
        changes = {"depth": 2, "width": 36, "heads": 3, "mlp_width": 20}
        if config.stem:
            changes |= {"stem": [1, 2], "patch_size": [8, 16]}
            return build_model(name, image_size=(16, 48), channels=2, num_classes=11, **changes), (16, 48), 2, 11
        changes["patch_size"] = [5, 7]
        return build_model(name, image_size=(15, 14), channels=2, num_classes=11, **changes), (15, 14), 2, 11
    return build_model(name, image_size=(24, 40), channels=2, num_classes=11), (24, 40), 2, 11


CAPTIONS = [name for name in names("model") if load("model", name).kind == "captioner"]
TEXT = [name for name in names("model") if load("model", name).modality == "text"]
IMAGE = [name for name in names("model") if name not in CAPTIONS + TEXT]
LARGE = {"resnet50", "bit_101x1", "bit_152x2"}  # of timm, whose widths cannot be changed
SMALL = [name for name in IMAGE if name not in LARGE]


@pytest.mark.parametrize("name", SMALL)
def test_outputs_are_finite_and_every_parameter_gets_a_gradient(name):
    model, size, channels, classes = small(name)
    images = torch.randn(3, channels, *size)
    logits = model(images)
    assert logits.shape == (3, classes)
    assert logits.isfinite().all()
    randomized(model, 0.1, mean=0.1).train()  # what begins at zero would hide the gradients of what it multiplies
    model(images).square().sum().backward()
    check_gradients(model)


@pytest.mark.parametrize("name", TEXT)
def test_a_model_of_text_gives_finite_outputs_and_every_parameter_a_gradient(name):
    sizes = {"depth": 2, "width": 36}
    sizes |= {"heads": 3, "mlp_width": 20} if hasattr(load("model", name), "heads") else {}
    model = build_model(name, length=11, vocabulary=29, **sizes).eval()
    if hasattr(model, "decoder"):
        check_pairs(model)
        return
    tokens, segments = torch.randint(29, (3, 7)), torch.arange(7).gt(3).long().expand(3, 7)
    randomized(model, 0.1, mean=0.1)
    out = model(tokens, segments=segments)
    assert out.shape == (3, 7, 29 if load("model", name).causal else 36)
    assert out.isfinite().all()
    total = out.square().sum()
    if not load("model", name).causal:
        total = total + model.masked_logits(out).square().sum() + model.next_sentence_logits(out).square().sum()
    total.backward()
    check_gradients(model)


def check_pairs(model):
    sources, targets = torch.randint(29, (3, 7)), torch.randint(29, (3, 5))
    nn.init.normal_(model.decoder.embed.tokens.weight)
    out = model(sources, targets)
    assert out.shape == (3, 5, 29)
    assert out.isfinite().all()
    out.square().sum().backward()
    check_gradients(model)


@pytest.mark.parametrize("name", CAPTIONS)
def test_a_captioner_gives_finite_outputs_and_every_parameter_a_gradient(name):
    encoder = {**load("model", name).encoder, "patch_size": [5, 7]}
    sizes = {"depth": 2, "width": 36, "heads": 3, "mlp_width": 20, "encoder": encoder}
    model = build_model(name, image_size=(15, 14), channels=2, length=11, vocabulary=29, **sizes)
    images, captions = torch.randn(3, 2, 15, 14), torch.randint(29, (3, 11))
    out = model(images, captions)
    assert out.shape == (3, 11, 29)
    assert out.isfinite().all()
    randomized(model, 0.1, mean=0.1).train()
    model(images, captions).square().sum().backward()
    check_gradients(model)


def check_gradients(model):
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@pytest.mark.parametrize("name", [*TEXT, "vit_nano", "mixer_nano", "fnet_nano"])
@pytest.mark.parametrize("rate", [0, 0.3])
def test_every_dropout_follows_its_key(name, rate):
    config = compose(DescribeConfig, base={"model": {"name": name, "dropout": rate, "depth": 2}}).model
    if config.modality == "image":
        shapes = [{"image_size": (224, 224), "channels": 3, "num_classes": 5}]
    else:
        heads = ("classes", "tags") if "causal" in vars(config) else ("seq2seq",)
        shapes = [{"vocabulary": 20, "length": 8, "target_length": 8, "num_classes": 5, "head": head} for head in heads]
    for shape in shapes:
        model = meta(config, **shape)
        rates = {module.p for module in model.modules() if isinstance(module, nn.Dropout)}
        rates |= {module.dropout for module in model.modules() if isinstance(module, nn.RNNBase)}
        assert {rate} <= rates <= {0, rate}
