"""A ViT that a decoder looks at: what it writes, also token by token, and weights from and into other models."""

import pytest
import torch
from safetensors.torch import save_file

from vitlab.config import UserError, load, resolved
from vitlab.models import build_model
from vitlab.training.load import load_encoder

SIZES = {"depth": 2, "width": 20, "heads": 2, "mlp_width": 28}


def captioner(seed=0, **encoder):
    torch.manual_seed(seed)
    given = resolved(
        load("model", {"name": "vit_nano", "depth": 2, "width": 36, "heads": 3, "patch_size": 5, **encoder})
    )
    sizes = {"image_size": (10, 15), "channels": 2, "vocabulary": 29, "length": 11}
    return build_model("vit_caption_nano", **sizes, **SIZES, encoder=given).eval()


def vit(seed=1, **changes):
    torch.manual_seed(seed)
    sizes = {"depth": 2, "width": 36, "heads": 3, "patch_size": 5, "image_size": (10, 15), "channels": 2}
    return build_model("vit_nano", num_classes=7, **{**sizes, **changes})


def test_written_token_by_token_it_is_the_same():
    model, images, captions = captioner(), torch.randn(3, 2, 10, 15), torch.randint(29, (3, 7))
    decoding = model.decoding(images)
    steps = torch.stack([decoding(captions[:, [place]]) for place in range(7)], dim=1)
    logits = model(images, captions)
    torch.testing.assert_close(steps, logits, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(images.roll(1, 0), captions)[:, 0], logits[:, 0], atol=1e-3), "it sees the picture"


def test_a_vit_becomes_the_encoder_of_a_captioner_and_the_other_way_round(tmp_path):
    source, target = vit(), captioner()
    save_file(source.state_dict(), tmp_path / "vit.safetensors")
    report = load_encoder(target, tmp_path / "vit.safetensors")
    images = torch.randn(3, 2, 10, 15)
    torch.testing.assert_close(target.image.tokens(images), source.eval().tokens(images))
    assert all(name.startswith("head.") for name in report.unused)
    save_file(
        {k: v for k, v in captioner(seed=5).state_dict().items() if k != "output.weight"}, tmp_path / "c.safetensors"
    )
    load_encoder(source, tmp_path / "c.safetensors")
    assert torch.equal(
        source.encoder.blocks[1].mixer.qkv.weight, captioner(seed=5).image.encoder.blocks[1].mixer.qkv.weight
    )
    other = vit(width=24)
    save_file(other.state_dict(), tmp_path / "narrow.safetensors")
    with pytest.raises(UserError, match=r"init\.encoder=.* does not fit into"):
        load_encoder(target, tmp_path / "narrow.safetensors")
