"""Heads of text models: the next token, masked tokens, a class of the whole text or of each token.

Shapes: B batch, N tokens, K chosen places, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.base import Model
from vitlab.models.decoding import CachedDecoding

STD = 0.02  # of the initial weights, as in BERT and GPT-2
TO_RESIDUAL = ("mixer.proj.weight", "mlp.fc2.weight")
LONGEST_SPAN = 10  # tokens (Joshi et al., 2020, section 3.1)


class TextModel(Model):
    """The base class: a body `text`, tokens (B, N) -> hidden states (B, N, D), and a head."""

    def __init__(self, text: nn.Module):
        super().__init__()
        self.text = text

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
        """Tokens (B, N) -> hidden states (B, N, D), the input of the head."""
        return self.text(tokens, mask, segments)

    def unembed(self, hidden: Tensor) -> Tensor:
        """(..., D) -> logits (..., V) with tied embeddings (Press and Wolf, 2017)."""
        return F.linear(hidden, self.text.embed.tokens.weight)

    def no_weight_decay(self) -> set[str]:
        """Parameters without weight decay, beside norms and biases."""
        return {"text.embed.positions"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """The layer of each parameter, in the format of timm's layer-wise decay."""
        layers = [(r"^text\.\w+\.blocks\.(\d+)", None), (r"^text\.(?:lstm|gru|rnn)\.\w+_l(\d+)", None)]
        return {"stem": r"^text\.embed", "blocks": [*layers, (r"^text\.", (99999,))]}

    def part_of(self, name: str) -> str:
        """The part of the model that a parameter belongs to, for counting."""
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

    def decoding(self) -> CachedDecoding:
        """What continues texts."""
        return CachedDecoding(self, self.new_caches(), self.text.embed.length)

    def next_logits(self, tokens: Tensor, caches: Sequence[Any]) -> Tensor:
        """Tokens (B, N) after those in the caches -> logits (B, V) of the next one."""
        return self.unembed(self.text(tokens, caches=caches)[:, -1])

    def new_caches(self) -> list[Any]:
        """Empty caches, as `forward` takes them."""
        return self.text.new_caches()


class MaskedModel(TextModel):
    """The base of BERT and SpanBERT, which have `transform`, `norm` and `bias` for masked tokens."""

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Hidden states (B, N, D)."""
        return self.text(tokens, mask, segments)

    def masked_logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V): what a masked token is."""
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

    def pooled(self, hidden: Tensor) -> Tensor:
        """(B, N, D) -> (B, D): a tanh layer of the first token's hidden state."""
        return self.pooler(hidden[:, 0]).tanh()

    def next_sentence_logits(self, hidden: Tensor) -> Tensor:
        """(B, N, D) -> (B, 2): whether the second segment follows the first (0) or not (1)."""
        return self.next_sentence(self.pooled(hidden))


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
        """Hidden states left and right of the span (B, K, D), the token's place in it from 0 (B, K) -> (B, K, V).

        Section 3.2, equation 1: two layers of GELU and a norm each.
        """
        joined = torch.cat([left, right, self.places(places)], dim=-1)
        return self.unembed(self.boundary(joined)) + self.boundary_bias


class Classifier(TextModel):
    """Tokens (B, N) -> logits (B, classes) of the whole, or with `each` (B, N, classes) of every token.

    A causal body is read at its last token (Radford et al., 2018, section 3.2), another at its first through BERT's
    tanh layer (Devlin et al., 2019, section 4); with `mean` either at the mean of its tokens.
    """

    def __init__(self, text: nn.Module, num_classes: int, each: bool = False, mean: bool = False, dropout: float = 0.1):
        super().__init__(text)
        self.each = each
        self.mean = mean
        self.pooler = None if each or mean or text.causal else nn.Linear(self.width, self.width)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(self.width, num_classes)
        reset_parameters(self)

    def features(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """(B, N) -> what the head reads (B, D), or (B, N, D).

        mask bool (B, N), False where a token is padding, which is at the end.
        """
        return self.read(self.hidden(tokens, mask, segments), mask)

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """(B, N) -> (B, N, D)"""
        # padding is at the end, which a causal body does not see; attention without a mask is faster
        return self.text(tokens, None if self.text.causal else mask, segments)

    def read(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states (B, N, D) -> what the head reads (B, D), or (B, N, D)."""
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
        """(..., D) -> (..., classes)"""
        return self.head(self.drop(features))

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        return self.logits(self.features(tokens, mask, segments))


def with_head(
    text: nn.Module, head: str, norm: Callable[[int], nn.Module], num_classes: int | None, *, mean: bool = False
) -> TextModel:
    """A body with a head: next_token, masked, span, sequence (with `mean` over its tokens) or token.

    Raises ValueError for a body that sees the tokens it should predict, or a causal one for masked tokens.
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
    return Classifier(text, num_classes, each=head == "token", mean=mean)


def reset_parameters(model: nn.Module) -> None:
    """Normal of std 0.02 for matrices, zero biases; norms keep their defaults.

    The last layers of a block's two parts, which add to the residual stream, have the body's `residual_scale` of it.
    """
    scale = model.text.residual_scale
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=STD * scale if name.endswith(TO_RESIDUAL) else STD)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
