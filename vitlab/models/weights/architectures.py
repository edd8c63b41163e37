"""Models of Hugging Face's transformers that are this project's under other names: tables of both."""

from dataclasses import dataclass

from vitlab.config.schema import models as huggingface
from vitlab.config.schema.models import Settings


@dataclass(frozen=True)
class Architecture:
    """One `model_type` of transformers: tables of (theirs, here); `{i}` in a name is the layer."""

    model_class: str
    prefix: str  # of the body's names in a model with a head
    heads: tuple[str, ...]  # what the names of heads begin with: they have no prefix
    names: tuple[tuple[str, str], ...]
    settings: Settings  # its config.json
    probe: str = ""  # a name that tells a file of this architecture


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
    settings=huggingface.VIT,
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
    settings=huggingface.BERT,
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
    settings=huggingface.GPT2,
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
    settings=huggingface.GPT_NEOX,
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
    settings=huggingface.ESM,
)


def t5_names(body: str, stack: str, parts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Names of T5's encoder or decoder: `parts` are those of a layer, each with a norm."""
    theirs, here = f"{body}.block.{{i}}.layer.", f"{stack}.encoder.blocks.{{i}}."
    names = {
        "mixer": [(f"SelfAttention.{part}.", f"mixer.{ours}.") for part, ours in zip("qkvo", T5_PARTS, strict=True)],
        "cross": [(f"EncDecAttention.{part}.", f"cross.{ours}.") for part, ours in zip("qkvo", T5_PARTS, strict=True)],
        "mlp": [
            (f"DenseReluDense.{part}.", f"mlp.{ours}.")
            for part, ours in (("wi", "fc1"), ("wi_0", "fc1_g"), ("wi_1", "fc1_x"), ("wo", "fc2"))
        ],
    }
    norms = {"mixer": "norm1.", "cross": "norm_cross.", "mlp": "norm2."}
    rules = [(f"{body}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", f"{stack}.relative.bias")]
    for place, part in enumerate(parts):
        ours = [*names[part], ("layer_norm.", norms[part])]
        rules += [(f"{theirs}{place}.{name}", f"{here}{other}") for name, other in ours]
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
    settings=huggingface.T5,
    probe="encoder.block.0.layer.0.SelfAttention.q.weight",
)
READABLE = {"vit": VIT, "bert": BERT, "gpt2": GPT2, "gpt_neox": GPT_NEOX, "t5": T5}
WRITABLE = {**READABLE, "esm": ESM}
