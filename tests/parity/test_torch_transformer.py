"""The encoder-decoder's layers against torch.nn.Transformer's with the same weights, padding and look-ahead masks."""

import pytest
import torch
from torch import nn
from torch.nn import TransformerDecoderLayer, TransformerEncoderLayer

from vitlab.models import build_model

B, S, N, D, HEADS, HIDDEN, ENCODER, DECODER = 3, 7, 5, 12, 3, 19, 2, 3


def reference(norm_first):
    """torch's layers as in the paper: those that normalise last have no norm behind the last of them."""
    options = {"dropout": 0.0, "norm_first": norm_first, "batch_first": True, "layer_norm_eps": 1e-6}

    encoder, decoder = (
        kind(D, HEADS, HIDDEN, **options) for kind in (TransformerEncoderLayer, TransformerDecoderLayer)
    )
    norms = [nn.LayerNorm(D, eps=1e-6) if norm_first else None for _ in range(2)]
    parts = {
        "custom_encoder": nn.TransformerEncoder(encoder, ENCODER, norms[0], enable_nested_tensor=False),
        "custom_decoder": nn.TransformerDecoder(decoder, DECODER, norms[1]),
    }
    model = nn.Transformer(D, HEADS, batch_first=True, **parts)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model  # in training mode: in evaluation torch's fast path sets the states of padding to zero


def copy(block, layer):
    """Weights of torch's layer into one of ours."""
    attentions = [(block.mixer, layer.self_attn)]
    norms = [(block.norm1, layer.norm1), (block.norm2, layer.norm2)]
    if block.cross is not None:
        attentions.append((block.cross, layer.multihead_attn))
        norms[1:] = [(block.norm_cross, layer.norm2), (block.norm2, layer.norm3)]
    for own, theirs in attentions:
        own.qkv.load_state_dict({"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias})
        own.proj.load_state_dict(theirs.out_proj.state_dict())
    for own, theirs in [*norms, (block.mlp.fc1, layer.linear1), (block.mlp.fc2, layer.linear2)]:
        own.load_state_dict(theirs.state_dict())


def outputs(layers, call):
    """The output of each layer during a call, and of the whole."""
    found = []
    hooks = [layer.register_forward_hook(lambda *args: found.append(args[2])) for layer in layers]
    whole = call()
    for hook in hooks:
        hook.remove()
    return [*found, whole]


@pytest.mark.parametrize("norm_first", [False, True])
def test_each_layer_is_torchs_with_padding_and_look_ahead_masks(norm_first):
    torch.manual_seed(0)
    sizes = {"width": D, "heads": HEADS, "mlp_width": HIDDEN, "depth": ENCODER, "decoder_depth": DECODER}
    model = build_model("transformer_base", vocabulary=11, norm_first=norm_first, dropout=0.0, **sizes)
    encoder, decoder = model.text.encoder, model.decoder.encoder
    theirs = reference(norm_first)
    for own, other in ((encoder, theirs.encoder), (decoder, theirs.decoder)):
        for block, layer in zip(own.blocks, other.layers, strict=True):
            copy(block, layer)
        if norm_first:
            own.norm.load_state_dict(other.norm.state_dict())
    source, target = torch.randn(B, S, D), torch.randn(B, N, D)
    mask = torch.arange(S) < torch.tensor([S, 4, 1])[:, None]
    padding = mask[:, None, None]
    own = outputs(encoder.blocks, lambda: encoder(source, mask=padding))
    expected = outputs(theirs.encoder.layers, lambda: theirs.encoder(source, src_key_padding_mask=~mask))
    for one, other in zip(own, expected, strict=True):
        torch.testing.assert_close(one[mask], other[mask], atol=1e-5, rtol=0)

    own = outputs(decoder.blocks, lambda: decoder(target, causal=True, context=own[-1], context_mask=padding))
    earlier = nn.Transformer.generate_square_subsequent_mask(N)
    expected = outputs(
        theirs.decoder.layers,
        lambda: theirs.decoder(target, expected[-1], tgt_mask=earlier, memory_key_padding_mask=~mask),
    )
    for one, other in zip(own, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
