"""The encoder-decoder: what its masks hide, which weights it shares, its size, its layers, weights of others in it."""

import re

import pytest
import torch

from vitlab.config import DescribeConfig, TrainConfig, compose
from vitlab.config.errors import UserError
from vitlab.models import build_model, counting, described_shape
from vitlab.training.load import load_weights
from vitlab.training.optim import build_optimizer, freeze

V, S, N, D = 23, 7, 5, 24
SIZES = {"width": D, "heads": 3, "depth": 2, "decoder_depth": 3, "mlp_width": 20}


def small(name="transformer_nano", **changes):
    torch.manual_seed(changes.pop("seed", 0))
    return build_model(name, vocabulary=V, length=11, **SIZES | changes).eval()


@pytest.mark.parametrize(("shared", "matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_embeddings_are_shared_as_told(shared, matrices):
    model = small(share_embeddings=shared)
    assert sum(p.shape == (V, D) for p in model.parameters()) == matrices


@pytest.mark.parametrize(
    ("name", "count"),
    [("transformer_base", 63_082_496), ("transformer_big", 214_245_376), ("transformer_iwslt", 19_252_224)],
)
def test_other_named_models_have_their_published_sizes(name, count):
    config = compose(DescribeConfig, [f"model={name}"])
    assert counting.parameters(counting.meta(config.model, **described_shape(config))) == count


@pytest.mark.parametrize("shared", ["all", "none"])
def test_each_layer_has_its_share_of_the_rate_of_the_next_up_to_the_decoders_last(shared):
    model = small(share_embeddings=shared, positions="learned")
    words = ["recipe.optimizer=adamw", "recipe.layer_decay=0.5", "recipe.lr=1"]
    optimizer = build_optimizer(model, compose(TrainConfig, words).recipe)
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    last = 5 + (shared == "none")
    for name, rate in rates.items():
        block = re.search(r"blocks\.(\d)", name)
        if ".embed." in name:
            layer = 0
        elif name == "output.weight":
            layer = last
        else:
            layer = (2 if name.startswith("text.") else 5) if block is None else 1 + int(block[1])
            layer += 2 if block is not None and name.startswith("decoder.") else 0
        assert rate == 0.5 ** (last - layer), name


def test_a_frozen_body_is_the_encoder_and_what_it_shares():
    model = small()
    freeze(model, compose(TrainConfig, ["recipe.freeze=body", "recipe.optimizer=adamw"]).recipe)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {name for name, _ in model.named_parameters() if name.startswith("decoder.")}


def test_weights_go_from_one_pair_of_languages_to_the_next_and_a_decoder_is_not_left_at_random():
    one, other = small(share_embeddings="none"), small(share_embeddings="none", seed=1)
    source, target = torch.randint(V, (2, S)), torch.randint(V, (2, N))
    load_weights(other, one.state_dict())
    assert torch.equal(one(source, target), other(source, target))
    kept = {name: value for name, value in one.state_dict().items() if not name.startswith("decoder.")}
    with pytest.raises(UserError, match=r"weights have no decoder\.embed\.tokens\.weight, .* more"):
        load_weights(other, kept)
    larger = build_model("transformer_nano", vocabulary=V + 1, length=11, share_embeddings="none", **SIZES)
    with pytest.raises(UserError, match=r"are the same in the model.*give model\.share_embeddings=none$"):
        load_weights(small(), one.state_dict())
    with pytest.raises(UserError, match=r"^init=state dict: its vocabulary has 23 tokens, the model's has 24; [^;]*$"):
        load_weights(larger, one.state_dict())
