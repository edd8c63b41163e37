"""Models of Hugging Face's transformers that are this project's under other names: tables of both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ACTIVATIONS = {  # in a config.json, here
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
}


@dataclass(frozen=True)
class Architecture:
    """One `model_type` of transformers: tables of (theirs, here); `{i}` in a name is the layer."""

    model_class: str
    prefix: str  # of the body's names in a model with a head
    heads: tuple[str, ...]  # what the names of heads begin with: they have no prefix
    names: tuple[tuple[str, str], ...]
    sizes: Mapping[str, str]  # keys of config.json
    fixed: Mapping[str, Any] = field(default_factory=dict)  # keys of config.json that allow one value here
    defaults: Mapping[str, Any] = field(default_factory=dict)  # keys that a config.json may lack
    activations: tuple[str, ...] = ("gelu", "gelu_tanh", "quick_gelu", "relu")
    probe: str = ""  # a name that tells a file of this architecture


ENCODER_SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_width",
    "hidden_act": "mlp",
    "layer_norm_eps": "norm_eps",
}
TEXT_SIZES = {"vocab_size": "vocabulary", "max_position_embeddings": "length", **ENCODER_SIZES}


def encoder_names(body: str, norm1: str, norm2: str) -> tuple[tuple[str, str], ...]:
    """Names of layers with BERT's parts: separate queries, keys and values, an intermediate and an output layer."""
    layer = "encoder.layer.{i}."
    return (
        (f"{layer}attention.{body}.query.", "blocks.{i}.mixer.q."),
        (f"{layer}attention.{body}.key.", "blocks.{i}.mixer.k."),
        (f"{layer}attention.{body}.value.", "blocks.{i}.mixer.v."),
        (f"{layer}attention.output.dense.", "blocks.{i}.mixer.proj."),
        (f"{layer}{norm1}.", "blocks.{i}.norm1."),
        (f"{layer}intermediate.dense.", "blocks.{i}.mlp.fc1."),
        (f"{layer}output.dense.", "blocks.{i}.mlp.fc2."),
        (f"{layer}{norm2}.", "blocks.{i}.norm2."),
    )


def inside(prefix: str, names: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((theirs, prefix + here) for theirs, here in names)


VIT = Architecture(
    model_class="ViTForImageClassification",
    prefix="vit.",
    heads=("classifier.",),
    names=(
        ("embeddings.cls_token", "cls_token"),
        ("embeddings.position_embeddings", "pos_embed"),
        ("embeddings.patch_embeddings.projection.", "patch_embed.proj."),
        *inside("encoder.", encoder_names("attention", "layernorm_before", "layernorm_after")),
        ("layernorm.", "encoder.norm."),
        ("classifier.", "head."),
        ("pooler.dense.", "pre_logits.0."),  # of a ViTModel
    ),
    sizes={**ENCODER_SIZES, "image_size": "image_size", "patch_size": "patch_size", "num_channels": "channels"},
    fixed={"qkv_bias": True},
    probe="encoder.layer.0.attention.attention.query.weight",
)
BERT = Architecture(
    model_class="BertForPreTraining",
    prefix="bert.",
    heads=("cls.",),
    names=(
        ("embeddings.word_embeddings.", "text.embed.tokens."),
        ("embeddings.position_embeddings.weight", "text.embed.positions"),
        ("embeddings.token_type_embeddings.", "text.embed.segments."),
        ("embeddings.LayerNorm.", "text.embed.norm."),
        *inside("text.encoder.", encoder_names("self", "attention.output.LayerNorm", "output.LayerNorm")),
        ("pooler.dense.", "pooler."),
        ("cls.predictions.transform.dense.", "transform."),
        ("cls.predictions.transform.LayerNorm.", "norm."),
        ("cls.predictions.bias", "bias"),
        ("cls.seq_relationship.", "next_sentence."),
    ),
    sizes={**TEXT_SIZES, "type_vocab_size": "segments"},
    fixed={
        "tie_word_embeddings": True,
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    activations=("gelu",),  # the head has the same one
    probe="encoder.layer.0.attention.self.query.weight",
)
GPT2 = Architecture(
    model_class="GPT2LMHeadModel",
    prefix="transformer.",
    heads=(),
    names=(
        ("wte.", "text.embed.tokens."),
        ("wpe.weight", "text.embed.positions"),
        ("h.{i}.ln_1.", "text.encoder.blocks.{i}.norm1."),
        ("h.{i}.attn.c_attn.", "text.encoder.blocks.{i}.mixer.qkv."),
        ("h.{i}.attn.c_proj.", "text.encoder.blocks.{i}.mixer.proj."),
        ("h.{i}.ln_2.", "text.encoder.blocks.{i}.norm2."),
        ("h.{i}.mlp.c_fc.", "text.encoder.blocks.{i}.mlp.fc1."),
        ("h.{i}.mlp.c_proj.", "text.encoder.blocks.{i}.mlp.fc2."),
        ("ln_f.", "text.encoder.norm."),
    ),
    sizes={
        "vocab_size": "vocabulary",
        "n_positions": "length",
        "n_embd": "width",
        "n_layer": "depth",
        "n_head": "heads",
        "n_inner": "mlp_width",
        "activation_function": "mlp",
        "layer_norm_epsilon": "norm_eps",
    },
    fixed={
        "tie_word_embeddings": True,
        "add_cross_attention": False,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    },
    defaults={"n_inner": None},  # four times the width
    probe="h.0.attn.c_attn.weight",
)
GPT_NEOX = Architecture(  # a causal language model with rotary positions
    model_class="GPTNeoXForCausalLM",
    prefix="gpt_neox.",
    heads=(),
    names=(
        ("embed_in.", "text.embed.tokens."),
        ("layers.{i}.input_layernorm.", "text.encoder.blocks.{i}.norm1."),
        ("layers.{i}.attention.query_key_value.", "text.encoder.blocks.{i}.mixer.qkv."),
        ("layers.{i}.attention.dense.", "text.encoder.blocks.{i}.mixer.proj."),
        ("layers.{i}.post_attention_layernorm.", "text.encoder.blocks.{i}.norm2."),
        ("layers.{i}.mlp.dense_h_to_4h.", "text.encoder.blocks.{i}.mlp.fc1."),
        ("layers.{i}.mlp.dense_4h_to_h.", "text.encoder.blocks.{i}.mlp.fc2."),
        ("final_layer_norm.", "text.encoder.norm."),
    ),
    sizes=TEXT_SIZES,
    fixed={
        "tie_word_embeddings": True,
        "use_parallel_residual": False,
        "attention_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    },
)
ESM = Architecture(  # a masked language model with rotary positions, pre-norm; written only
    model_class="EsmForMaskedLM",
    prefix="esm.",
    heads=("lm_head.",),
    names=(
        ("embeddings.word_embeddings.", "text.embed.tokens."),
        *inside("text.encoder.", encoder_names("self", "attention.LayerNorm", "LayerNorm")),
        ("encoder.emb_layer_norm_after.", "text.encoder.norm."),
        ("lm_head.dense.", "transform."),
        ("lm_head.layer_norm.", "norm."),
        ("lm_head.decoder.weight", "decoder.weight"),
        ("lm_head.bias", "bias"),
    ),
    sizes={key: value for key, value in TEXT_SIZES.items() if key != "hidden_act"},
    fixed={
        "position_embedding_type": "rotary",
        "tie_word_embeddings": False,
        "token_dropout": False,
        "emb_layer_norm_before": False,
        "pad_token_id": 0,
    },
    activations=("gelu",),
)


def t5_names(body: str, stack: str, parts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Names of T5's encoder or decoder: `parts` are those of a layer, each with a norm."""
    theirs, here = f"{body}.block.{{i}}.layer.", f"{stack}.encoder.blocks.{{i}}."
    names = {
        "mixer": [(f"SelfAttention.{part}.", f"mixer.{own}.") for part, own in zip("qkvo", T5_PARTS, strict=True)],
        "cross": [(f"EncDecAttention.{part}.", f"cross.{own}.") for part, own in zip("qkvo", T5_PARTS, strict=True)],
        "mlp": [
            (f"DenseReluDense.{part}.", f"mlp.{own}.")
            for part, own in (("wi", "fc1"), ("wi_0", "fc1_g"), ("wi_1", "fc1_x"), ("wo", "fc2"))
        ],
    }
    norms = {"mixer": "norm1.", "cross": "norm_cross.", "mlp": "norm2."}
    rules = [(f"{body}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", f"{stack}.relative.bias")]
    for place, part in enumerate(parts):
        own = [*names[part], ("layer_norm.", norms[part])]
        rules += [(f"{theirs}{place}.{one}", f"{here}{other}") for one, other in own]
    return (*rules, (f"{body}.final_layer_norm.", f"{stack}.encoder.norm."))


T5_PARTS = ("q", "k", "v", "proj")
T5 = Architecture(
    model_class="T5ForConditionalGeneration",
    prefix="",
    heads=(),
    names=(
        *t5_names("encoder", "text", ("mixer", "mlp")),
        *t5_names("decoder", "decoder", ("mixer", "cross", "mlp")),
        ("shared.", "text.embed.tokens."),
        ("lm_head.", "output."),
    ),
    sizes={
        "vocab_size": "vocabulary",
        "d_model": "width",
        "num_layers": "depth",
        "num_decoder_layers": "decoder_depth",
        "num_heads": "heads",
        "d_kv": "head_width",
        "d_ff": "mlp_width",
        "feed_forward_proj": "mlp",
        "layer_norm_epsilon": "norm_eps",
    },
    fixed={"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    defaults={"feed_forward_proj": "relu", "num_decoder_layers": None},  # as many layers as the encoder
    activations=("gelu", "relu", "geglu_tanh", "swiglu"),
    probe="encoder.block.0.layer.0.SelfAttention.q.weight",
)
READABLE = {"vit": VIT, "bert": BERT, "gpt2": GPT2, "gpt_neox": GPT_NEOX, "t5": T5}
WRITABLE = {**READABLE, "esm": ESM}
