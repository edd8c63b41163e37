"""Text on the shared encoder: GPT, BERT and their kin, and the heads of all models of text.

Heads: the next token, masked tokens, a class of the whole text or of each token.

Shapes: B batch, N tokens, K chosen places, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.config import groups
from vitlab.config.schema.models import TextConfig
from vitlab.models import mixers
from vitlab.models.base import Model
from vitlab.models.decoding import Decoding
from vitlab.models.encoder import TransformerEncoder, feed_forward, make_norms, normalise
from vitlab.models.layers import RelativePositions, rotary1d, sincos1d
from vitlab.models.mixers import MixerSpec, refuse_lacking, traits_of
from vitlab.models.mixers.attention import Attention, KeyValueCache


class TokenEmbed(nn.Module):
    """Tokens (B, N) -> (B, N, D): the sum of token, position and segment embeddings.

    `positions` is "learned" or "sincos"; with another value there are no position embeddings. With "sincos" and
    "relative" token embeddings are scaled by sqrt(D) (Vaswani et al., 2017, section 3.4).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        length: int,
        *,
        positions: str = "learned",
        segments: int = 0,
        norm: Callable[[int], nn.Module] | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.length = length
        self.tokens = nn.Embedding(vocabulary, width)
        self.scale = width**0.5 if positions in ("sincos", "relative") else 1.0
        if positions == "learned":
            self.positions = nn.Parameter(torch.zeros(length, width))
        elif positions == "sincos":
            self.register_buffer("positions", sincos1d(length, width), persistent=False)
        else:
            self.positions = None
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.Identity() if norm is None else norm(width)
        self.drop = nn.Dropout(dropout)

    @property
    def width(self) -> int:
        return self.tokens.embedding_dim

    def forward(
        self, tokens: Tensor, segments: Tensor | None = None, first: int = 0, valid: Tensor | None = None
    ) -> Tensor:
        """Embed tokens and segments int64 (B, N); `first` is the first token's position, `valid` as for the encoder.

        Raises ValueError beyond `length`.
        """
        last = first + tokens.shape[1]
        if last > self.length:
            raise ValueError(f"{last} tokens, the model takes {self.length}")
        x = self.tokens(tokens) * self.scale
        if self.positions is not None:
            x = x + self.positions[first:last]
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(tokens) if segments is None else segments)
        return self.drop(normalise(self.norm, x, valid))


class TextEncoder(nn.Module):
    """Tokens (B, N) -> hidden states (B, N, D).

    `rotary` (2, length, head width) are rotary positions, `relative` is shared by all layers; `residual_scale` scales
    the initial weights of the layers that add to the residual stream.
    """

    def __init__(
        self,
        embed: TokenEmbed,
        encoder: nn.Module,
        *,
        causal: bool = False,
        rotary: Tensor | None = None,
        relative: RelativePositions | None = None,
        residual_scale: float = 1.0,
    ):
        super().__init__()
        self.embed = embed
        self.encoder = encoder
        self.causal = causal
        self.residual_scale = residual_scale
        self.register_buffer("rotary", rotary, persistent=False)
        self.relative = relative
        self.supports_padding_mask = traits_of(encoder.blocks[0].mixer).attends

    def new_caches(self) -> list[KeyValueCache]:
        """Make empty caches, one per layer."""
        return [KeyValueCache(self.embed.length) for _ in self.encoder.blocks]

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[KeyValueCache] | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Encode tokens; mask bool (B, M), False at padding; with `caches` M counts the tokens in them too.

        A decoder looks at context (B, S, D); context_mask, bool (B, S), is False at padding. A mixer without
        attention, such as Fourier's, cannot mask padding (Lee-Thorp et al., 2022).
        """
        first = 0 if caches is None else caches[0].seen
        last = first + tokens.shape[1]
        x = self.embed(tokens, segments, first, mask)
        attended = None if mask is None or not self.supports_padding_mask else mask[:, None, None, :]
        if self.relative is not None:  # hides later tokens as well
            attended = self.relative(tokens.shape[1], last, mask)
        return self.encoder(
            x,
            mask=attended,
            causal=self.causal and self.relative is None,
            rotary=None if self.rotary is None else self.rotary[:, first:last],
            caches=caches,
            valid=mask,
            context=context,
            context_mask=None if context_mask is None else context_mask[:, None, None, :],
        )


STD = 0.02  # of the initial weights, as in BERT and GPT-2
TO_RESIDUAL = ("mixer.proj.weight", "mlp.fc2.weight")
LONGEST_SPAN = 10  # tokens (Joshi et al., 2020, section 3.1)


class TextModel(Model):
    """The base class: a body `text`, tokens (B, N) -> hidden states (B, N, D), and a head."""

    def __init__(self, text: nn.Module):
        super().__init__()
        self.text = text

    def __call__(self, *inputs: Any, input_ids: Tensor | None = None, **named: Any) -> Any:
        """Call `forward`; tokens, mask and segments may have transformers' names, the mask 0 at padding."""
        inputs = inputs if input_ids is None else (input_ids, *inputs)
        if (mask := named.pop("attention_mask", None)) is not None:
            named["mask"] = mask.bool()
        if (segments := named.pop("token_type_ids", None)) is not None:
            named["segments"] = segments
        return super().__call__(*inputs, **named)

    @property
    def width(self) -> int:
        return self.text.embed.width

    @property
    def vocabulary(self) -> int:
        return self.text.embed.tokens.num_embeddings

    @property
    def sequence_length(self) -> int:
        return self.text.embed.length

    def features(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Compute hidden states (B, N, D), the input of the head, of tokens (B, N)."""
        return self.text(tokens, mask, segments)

    def unembed(self, hidden: Tensor) -> Tensor:
        """Compute logits (..., V) of (..., D) with tied embeddings (Press and Wolf, 2017)."""
        return F.linear(hidden, self.text.embed.tokens.weight)

    def no_weight_decay(self) -> set[str]:
        return {"text.embed.positions"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        layers = [(r"^text\.\w+\.blocks\.(\d+)", None), (r"^text\.(?:lstm|gru|rnn)\.\w+_l(\d+)", None)]
        return {"stem": r"^text\.embed", "blocks": [*layers, (r"^text\.", (99999,))]}

    def part_of(self, name: str) -> str:
        path = name.split(".")
        if path[0] not in ("text", "decoder"):
            return "head"
        if path[1] == "embed":
            return "positions" if path[-1] == "positions" else "embedding"
        if path[1] == "relative":
            return "positions"
        if "cross" in path and not path[-2].endswith("norm"):
            return "cross-attention"
        if "mixer" in path and not path[-2].endswith("norm"):
            return type(self.text.encoder.blocks[0].mixer).__name__.lower()
        return path[1] if path[1] in ("lstm", "gru", "rnn") else "mlp" if "mlp" in path else "norms"


class LanguageModel(TextModel):
    """Tokens (B, N) -> logits of each next token (B, N, V) (Radford et al., 2019)."""

    def __init__(self, text: nn.Module):
        super().__init__(text)
        reset_parameters(self)

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[Any] | None = None,
    ) -> Tensor:
        return self.unembed(self.text(tokens, mask, segments, caches))

    def decoding(self) -> Decoding:
        """Start the decoding that continues texts."""
        return Decoding(self, self.new_caches(), self.text.embed.length)

    def next_logits(self, tokens: Tensor, caches: Sequence[Any]) -> Tensor:
        """Read tokens (B, N) after the cached ones and return logits (B, V) of the next token."""
        return self.unembed(self.text(tokens, caches=caches)[:, -1])

    def new_caches(self) -> list[Any]:
        """Make empty caches, as `forward` takes them."""
        return self.text.new_caches()


class MaskedModel(TextModel):
    """The base of BERT and SpanBERT, which have `transform`, `norm` and `bias` for masked tokens."""

    forward = TextModel.features

    def masked_logits(self, hidden: Tensor) -> Tensor:
        """Compute logits of masked tokens from their hidden states: (..., D) -> (..., V)."""
        return self.unembed(self.norm(F.gelu(self.transform(hidden)))) + self.bias


class Bert(MaskedModel):
    """BERT (Devlin et al., 2019): hidden states, and the heads of its two pre-training tasks."""

    def __init__(self, text: nn.Module, norm: Callable[[int], nn.Module]):
        super().__init__(text)
        width = self.width
        self.pooler = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)
        self.norm = norm(width)
        self.bias = nn.Parameter(torch.zeros(self.vocabulary))
        self.next_sentence = nn.Linear(width, 2)
        reset_parameters(self)

    def next_sentence_logits(self, hidden: Tensor) -> Tensor:
        """Compute (B, 2) from (B, N, D): whether the second segment follows the first (0) or not (1)."""
        return self.next_sentence(self.pooler(hidden[:, 0]).tanh())


class SpanBert(MaskedModel):
    """SpanBERT (Joshi et al., 2020): masked tokens, and each token of a span from the two tokens beside the span."""

    def __init__(self, text: nn.Module, norm: Callable[[int], nn.Module]):
        super().__init__(text)
        width = self.width
        self.transform = nn.Linear(width, width)
        self.norm = norm(width)
        self.bias = nn.Parameter(torch.zeros(self.vocabulary))
        self.places = nn.Embedding(LONGEST_SPAN, width)
        self.boundary = nn.Sequential(
            nn.Linear(3 * width, width), nn.GELU(), norm(width), nn.Linear(width, width), nn.GELU(), norm(width)
        )
        self.boundary_bias = nn.Parameter(torch.zeros(self.vocabulary))
        reset_parameters(self)

    def boundary_logits(self, left: Tensor, right: Tensor, places: Tensor) -> Tensor:
        """Compute logits (B, K, V) from states left and right of the span (B, K, D), and places in it from 0 (B, K).

        Section 3.2, equation 1: two layers of GELU and a norm each.
        """
        joined = torch.cat([left, right, self.places(places)], dim=-1)
        return self.unembed(self.boundary(joined)) + self.boundary_bias


class Classifier(TextModel):
    """Tokens (B, N) -> logits (B, classes) of the whole, or with `each` (B, N, classes) of every token.

    A causal body is read at its last token (Radford et al., 2018, section 3.2), another at its first through BERT's
    tanh layer (Devlin et al., 2019, section 4); with `mean` either at the mean of its tokens.
    """

    def __init__(self, text: nn.Module, num_classes: int, each: bool = False, mean: bool = False, dropout: float = 0.0):
        super().__init__(text)
        self.each = each
        self.mean = mean
        self.pooler = None if each or mean or text.causal else nn.Linear(self.width, self.width)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(self.width, num_classes)
        reset_parameters(self)

    def features(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Compute the head's input (B, D), or (B, N, D), of tokens (B, N).

        mask bool (B, N) is False at padding, which is at the end.
        """
        return self.read(self.hidden(tokens, mask, segments), mask)

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Compute hidden states: (B, N) -> (B, N, D)."""
        # padding is at the end, which a causal body does not see; attention without a mask is faster
        return self.text(tokens, None if self.text.causal else mask, segments)

    def read(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Reduce hidden states (B, N, D) to the head's input (B, D), or (B, N, D) for a class of each token."""
        if self.each:
            return hidden
        if self.pooler is not None:
            return self.pooler(hidden[:, 0]).tanh()
        if self.mean and mask is not None:
            return (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        if self.mean:
            return hidden.mean(dim=1)
        if mask is None:
            return hidden[:, -1]
        last = mask.sum(dim=1) - 1
        return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[2]))[:, 0]

    def logits(self, features: Tensor) -> Tensor:
        """Apply the head: (..., D) -> (..., classes)."""
        return self.head(self.drop(features))

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        return self.logits(self.features(tokens, mask, segments))


def match_two_parts(layer: str) -> dict[str, Any]:
    """Map each parameter to its layer, for an encoder `text` and a `decoder` whose layers match the pattern `layer`.

    The decoder's layers come after the encoder's; an output that is not shared is a layer of its own.
    """
    layers = {part: [(rf"^{part}\.{layer}", None), (rf"^{part}\.", (99999,))] for part in ("text", "decoder")}
    return {"stem": r"^(?:text|decoder)\.embed", "encoder": layers["text"], "decoder": layers["decoder"]}


def with_head(
    text: nn.Module, head: str, norm: Callable[[int], nn.Module], num_classes: int | None, pool: str, dropout: float
) -> TextModel:
    """Give a body one of `vitlab.models.HEADS`; classes (of a text) and tags (of tokens) take `pool` and `dropout`.

    Raises ValueError for a body that sees the tokens it should predict, a causal one for masked tokens.
    """
    if head == "next_token":
        if not text.causal:
            raise ValueError("model.causal=false sees the tokens that it should predict; give task=masked_lm")
        return LanguageModel(text)
    if head == "seq2seq":
        raise ValueError("has no decoder that reads a source; give an encoder-decoder, such as model=transformer_nano")
    if head in ("masked", "span"):
        if text.causal:
            raise ValueError("model.causal=true does not see the tokens after a masked one; give model.causal=false")
        return Bert(text, norm) if head == "masked" else SpanBert(text, norm)
    return Classifier(text, num_classes, each=head == "tags", mean=pool == "mean", dropout=dropout)


def reset_parameters(model: nn.Module) -> None:
    """Set matrices to a normal of std 0.02, biases to zero; norms keep their defaults.

    The last layers of a block's two parts, which add to the residual stream, have `residual_scale` times that std.
    """
    scale = model.text.residual_scale
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=STD * scale if name.endswith(TO_RESIDUAL) else STD)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def build(
    config: TextConfig,
    *,
    vocabulary: int,
    length: int,
    head: str,
    num_classes: int | None = None,
    target_length: int | None = None,
) -> TextModel:
    """Build the shared encoder over tokens, with a head.

    Dropout is after a block's two parts, not on the MLP's hidden layer (Devlin et al., 2019; Radford et al., 2018).
    Post-norm (without `norm_first`), the embeddings have a norm and the encoder has no last one, as in BERT. With
    `scaled_residuals` the initial weights of the layers that add to the residual stream, two per block, are divided by
    the square root of their number (Radford et al., 2019, section 2.3).
    """
    if config.causal and config.norm == "batchnorm":
        raise ValueError(
            "model.norm=batchnorm takes its statistics over all tokens, so a causal model would see those that follow; "
            "choices for it: layernorm, rmsnorm"
        )
    text = build_body(
        config,
        vocabulary=vocabulary,
        length=length,
        depth=config.depth,
        causal=config.causal,
        segments=config.segments,
        embed_norm=not config.norm_first,
        drop_hidden=False,
        residual_scale=(2 * config.depth) ** -0.5 if config.scaled_residuals else 1.0,
    )
    norm = make_norms(config.norm, config.norm_eps)[1]
    return with_head(text, head, norm, num_classes, config.pool, config.dropout)


def build_body(
    config: TextConfig,
    *,
    vocabulary: int,
    length: int,
    depth: int,
    causal: bool,
    decoder: bool = False,
    bias: bool = True,
    segments: int = 0,
    embed_norm: bool = False,
    drop_hidden: bool = True,
    residual_scale: float = 1.0,
) -> TextEncoder:
    """Build the shared encoder over tokens; a `decoder` has cross-attention, and LayerNorm in place of BatchNorm."""
    mixing = groups.load("mixer", "attention") if decoder else config.mixer
    width, each = config.width, config.head_width or config.width // config.heads
    norm, norm_elsewhere = make_norms(config.norm, config.norm_eps)
    norm = norm_elsewhere if decoder else norm  # BatchNorm would let a token see those that follow it
    sizes = width, config.heads, each, (1, length), 0
    spec = MixerSpec(*sizes, config.dropout, norm_elsewhere, bias, config.attention_dropout, causal)
    hidden = config.mlp_width or 4 * width
    attention = {"head_width": config.head_width, "qkv_bias": bias, "proj_bias": bias, "dropout": config.dropout}
    attention["attention_dropout"] = config.attention_dropout
    encoder = TransformerEncoder(
        width,
        depth,
        mixer=partial(mixers.build, mixing, spec),
        mlp=partial(feed_forward, width, hidden, config.dropout, config.mlp, bias, drop_hidden),
        cross=partial(Attention, width, config.heads, **attention) if decoder else None,
        norm=norm,
        norm_first=config.norm_first,
        norm_last=config.norm_first,
        drop_path=config.drop_path,
    )
    mixer, positions = encoder.blocks[0].mixer, f"model.positions={config.positions}"
    refuse_lacking(
        mixing.name,
        mixer,
        hides_later={"model.causal=true": causal},
        attends={positions: config.positions == "relative", "model.bias=false": not bias}
        | {f"model.attention_dropout={config.attention_dropout:g}": config.attention_dropout > 0},
        takes_rotary={positions: config.positions == "rotary"},
    )
    embed = TokenEmbed(
        vocabulary,
        width,
        length,
        positions=config.positions,
        segments=segments,
        norm=norm if embed_norm else None,
        dropout=config.dropout,
    )
    rotary = rotary1d(length, each) if config.positions == "rotary" else None
    relative = RelativePositions(mixer.heads, causal=causal) if config.positions == "relative" else None
    return TextEncoder(embed, encoder, causal=causal, rotary=rotary, relative=relative, residual_scale=residual_scale)
