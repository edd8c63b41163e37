"""T5 (Raffel et al., 2020) in transformers' layout: what is scaled elsewhere there.

There attention is not scaled, embeddings are not, and the tied output layer is. Here attention and embeddings are, as
in Vaswani et al. (2017), so queries are multiplied by sqrt(K), embeddings divided by sqrt(D): the same function.
Shapes: H heads, K head width, D width, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.config import UserError
from vitlab.config.schema.models import ACTIVATIONS
from vitlab.models.mixers.attention import Attention
from vitlab.models.weights.architectures import T5
from vitlab.models.weights.options import mlp_name

TIED = ("text.embed.tokens.weight", "decoder.embed.tokens.weight", "output.weight")


def seems_scaled(state: Mapping[str, Tensor]) -> bool:
    """Whether weights without a config.json have a scaled output layer: those of version 1.1 have one of their own."""
    output, shared = state.get("output.weight"), state.get("text.embed.tokens.weight")
    return output is None or shared is None or torch.equal(output, shared)


def from_t5(state: Mapping[str, Tensor], scaled: bool) -> dict[str, Tensor]:
    """Weights of a T5 in this project's names, with this project's scales; `scaled`: its output layer is, too."""
    renamed = {name: scale_queries(name, value, state) for name, value in state.items() if "embed_tokens." not in name}
    shared = state.get("text.embed.tokens.weight", state.get("encoder.embed_tokens.weight"))
    if shared is None:
        return renamed
    output, small = state.get("output.weight", shared), shared.shape[1] ** -0.5
    return {**renamed, **dict.fromkeys(TIED[:2], shared * small), "output.weight": output * small if scaled else output}


def to_t5(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of `from_t5`; a tied output layer is left out."""
    renamed = {name: scale_queries(name, value, state, back=True) for name, value in state.items() if name not in TIED}
    inputs, _, output = (state[name] for name in TIED)
    tied = {} if torch.equal(inputs, output) else {"output.weight": output}
    return {**renamed, **tied, "text.embed.tokens.weight": inputs * inputs.shape[1] ** 0.5}


def scale_queries(name: str, value: Tensor, state: Mapping[str, Tensor], back: bool = False) -> Tensor:
    """Queries, keys and values (3 * H * K, D) with queries times sqrt(K), or divided by it."""
    if not name.endswith(".qkv.weight"):
        return value
    heads = state[f"{name.partition('.')[0]}.relative.bias"].shape[1]
    inner = len(value) // 3
    factor = (inner // heads) ** (-0.5 if back else 0.5)
    return torch.cat([value[:inner] * factor, value[inner:]])


def sharing(state: Mapping[str, Tensor]) -> str:
    """The `model.share_embeddings` of weights in this project's names: version 1.1 has an output layer of its own."""
    tied = TIED[0] in state and torch.equal(state[TIED[0]], state[TIED[2]])
    return "all" if tied else "inputs"


def check_writable(model: nn.Module) -> None:
    """Raise UserError for options of an encoder-decoder that T5 does not have."""
    block, embeds = model.text.encoder.blocks[0], [body.embed.tokens.weight for body in (model.text, model.decoder)]
    mlp, mixer = mlp_name(block.mlp), type(block.mixer).__name__.lower()
    options = {
        f"model.mixer={mixer}": type(block.mixer) is not Attention,
        "positions but model.positions=relative": model.text.relative is None,
        "norm but model.norm=rmsnorm": not isinstance(block.norm1, nn.RMSNorm),
        "model.norm_first=false": not block.norm_first,
        "model.bias=true": block.mlp.fc2.bias is not None,
        f"model.mlp={mlp}": mlp not in T5.settings.activations,
        "separate embeddings of source and target": embeds[0] is not embeds[1],
    }
    if surplus := [option for option, given in options.items() if given]:
        raise UserError(
            f"transformers' {T5.model_class} has no {', no '.join(surplus)}; export to a .safetensors file instead"
        )


def describe_sizes(model: nn.Module) -> dict[str, Any]:
    """The sizes of a model in this project's terms, the MLP in transformers'."""
    block, embed = model.text.encoder.blocks[0], model.text.embed.tokens
    mlp = mlp_name(block.mlp)
    return {
        "published_vocabulary": embed.num_embeddings,
        "width": embed.embedding_dim,
        "depth": len(model.text.encoder.blocks),
        "decoder_depth": len(model.decoder.encoder.blocks),
        "heads": block.mixer.heads,
        "head_width": block.mixer.proj.in_features // block.mixer.heads,
        "mlp_width": block.mlp.fc2.in_features,
        "mlp": next(theirs for theirs, here in ACTIVATIONS.items() if here == mlp),
        "norm_eps": block.norm1.eps,
    }
