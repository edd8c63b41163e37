"""Text on the shared encoder: GPT, BERT and their kin.

Shapes: B batch, N tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.config import groups
from vitlab.config.schema.models import TextConfig
from vitlab.models import build_model, mixers
from vitlab.models.encoder import TransformerEncoder, feed_forward, make_norms, normalise
from vitlab.models.heads import Bert, LanguageModel, TextModel, with_head
from vitlab.models.mixers import MixerSpec, refuse_lacking, traits_of
from vitlab.models.mixers.attention import KeyValueCache
from vitlab.models.positions import RelativePositions, rotary1d, sincos1d


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
        """tokens and segments int64 (B, N); `first` is the position of the first token, `valid` as for the encoder.

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

    `rotary` (2, length, head width) are rotary positions, `relative` those of all layers; `residual_scale` scales the
    initial weights of the layers that add to the residual stream.
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
        """Empty caches, one per layer."""
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
        """mask bool (B, M), False where a token is padding; with `caches` M counts the tokens in them too.

        A decoder looks at context (B, S, D); context_mask, bool (B, S), is False at padding. A mixer without
        attention, such as Fourier's, cannot mask padding (Lee-Thorp et al., 2022).
        """
        first = 0 if caches is None else len(caches[0])
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


def language_model(vocabulary: int, *, length: int = 1024, dropout: float = 0.0, **sizes: Any) -> LanguageModel:
    """A causal language model of GPT-2's sizes (Radford et al., 2019); `sizes` are other fields of model=gpt2.

    Raises UserError, a ValueError, for sizes that do not go together.
    """
    sizes = {"dropout": dropout, "attention_dropout": dropout, **sizes}
    return build_model("gpt2", vocabulary=vocabulary, length=length, **sizes)


def bert(vocabulary: int, *, length: int = 512, **sizes: Any) -> Bert:
    """BERT of the base model's sizes (Devlin et al., 2019); `sizes` are other fields of model=bert_base.

    Raises UserError, a ValueError, for sizes that do not go together.
    """
    return build_model("bert_base", vocabulary=vocabulary, length=length, **sizes)


def build(
    config: TextConfig,
    *,
    vocabulary: int,
    length: int,
    head: str,
    num_classes: int | None = None,
    target_length: int | None = None,
) -> TextModel:
    """The shared encoder over tokens, with a head.

    Dropout is after a block's two parts, not on the MLP's hidden layer (Devlin et al., 2019; Radford et al., 2018).
    Post-norm (without `norm_first`), the embeddings have a norm and the encoder has no last one, as in BERT. With
    `scaled_residuals` the initial weights of the layers that add to the residual stream, two per block, are divided by
    the square root of their number (Radford et al., 2019, section 2.3).
    """
    norm, norm_elsewhere = make_norms(config.norm, config.norm_eps)
    if config.causal and config.norm == "batchnorm":
        raise ValueError(
            "model.norm=batchnorm takes its statistics over all tokens, so a causal model would see those that follow; "
            "choices for it: layernorm, rmsnorm"
        )
    text = build_body(
        config,
        vocabulary=vocabulary,
        length=length,
        norm=norm,
        depth=config.depth,
        causal=config.causal,
        segments=config.segments,
        embed_norm=not config.norm_first,
        drop_hidden=False,
        residual_scale=(2 * config.depth) ** -0.5 if config.scaled_residuals else 1.0,
    )
    return with_head(text, head, norm_elsewhere, num_classes, mean=config.pool == "mean")


def build_body(
    config: TextConfig,
    *,
    vocabulary: int,
    length: int,
    norm: Callable[[int], nn.Module],
    depth: int,
    causal: bool,
    cross: Callable[[], nn.Module] | None = None,
    bias: bool = True,
    segments: int = 0,
    embed_norm: bool = False,
    drop_hidden: bool = True,
    residual_scale: float = 1.0,
) -> TextEncoder:
    """Tokens through the shared encoder; with `cross`, the layers' cross-attention, a decoder."""
    mixing = config.mixer if cross is None else groups.load("mixer", "attention")
    width, each = config.width, config.head_width or config.width // config.heads
    _, norm_elsewhere = make_norms(config.norm, config.norm_eps)
    sizes = width, config.heads, each, (1, length), 0
    spec = MixerSpec(*sizes, config.dropout, norm_elsewhere, bias, config.attention_dropout, causal)
    hidden = config.mlp_width or 4 * width
    encoder = TransformerEncoder(
        width,
        depth,
        mixer=partial(mixers.build, mixing, spec),
        mlp=partial(feed_forward, width, hidden, config.dropout, config.mlp, bias, drop_hidden),
        cross=cross,
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
