"""Text on the shared encoder: a causal language model and BERT.

Shapes: B batch, N tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.encoder import TransformerEncoder, feed_forward
from vitlab.models.mixers.attention import Attention, KeyValueCache
from vitlab.models.positions import rotary1d, sincos1d

STD = 0.02  # of the first weights, as in BERT and GPT-2


class TokenEmbed(nn.Module):
    """Tokens (B, N) -> (B, N, D): a vector per token, and where there are any one per place and one per segment.

    `positions` is "learned", "sincos" (the tokens' vectors are scaled by sqrt(D) there: Vaswani et al., 2017, section
    3.4) or "none".
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
        self.scale = width**0.5 if positions == "sincos" else 1.0
        if positions == "learned":
            self.positions = nn.Parameter(torch.zeros(length, width))
        elif positions == "sincos":
            self.register_buffer("positions", sincos1d(length, width), persistent=False)
        else:
            self.positions = None
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.Identity() if norm is None else norm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, first: int = 0) -> Tensor:
        """tokens and segments int64 (B, N); `first` is the place of the first token.

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
        return self.drop(self.norm(x))


class TextEncoder(nn.Module):
    """Tokens (B, N) -> what the encoder gives of each (B, N, D).

    `rotary` (2, length, head width) are rotary positions.
    """

    def __init__(self, embed: TokenEmbed, encoder: nn.Module, *, causal: bool = False, rotary: Tensor | None = None):
        super().__init__()
        self.embed = embed
        self.encoder = encoder
        self.causal = causal
        self.register_buffer("rotary", rotary, persistent=False)

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Tensor:
        """mask bool (B, M), False where a token is padding; with `caches` M counts the tokens in them too."""
        first = 0 if caches is None else len(caches[0])
        x = self.embed(tokens, segments, first)
        return self.encoder(
            x,
            mask=None if mask is None else mask[:, None, None, :],
            causal=self.causal,
            rotary=None if self.rotary is None else self.rotary[:, first : first + tokens.shape[1]],
            caches=caches,
        )


class LanguageModel(nn.Module):
    """Tokens (B, N) -> logits of each next token (B, N, V) (Radford et al., 2019), by the tokens' own vectors."""

    def __init__(self, text: TextEncoder):
        super().__init__()
        self.text = text
        reset_parameters(self)

    def forward(
        self, tokens: Tensor, mask: Tensor | None = None, caches: Sequence[KeyValueCache] | None = None
    ) -> Tensor:
        return F.linear(self.text(tokens, mask, caches=caches), self.text.embed.tokens.weight)

    def new_caches(self) -> list[KeyValueCache]:
        """Empty caches, one per layer."""
        return [KeyValueCache() for _ in self.text.encoder.blocks]


class Bert(nn.Module):
    """BERT (Devlin et al., 2019): hidden states, and the heads of its two pre-training tasks."""

    def __init__(self, text: TextEncoder, width: int, vocabulary: int, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.text = text
        self.pooler = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)
        self.norm = norm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.next_sentence = nn.Linear(width, 2)
        reset_parameters(self)

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Hidden states (B, N, D)."""
        return self.text(tokens, mask, segments)

    def pooled(self, hidden: Tensor) -> Tensor:
        """(B, N, D) -> (B, D): a tanh layer of the first token's hidden state."""
        return self.pooler(hidden[:, 0]).tanh()

    def masked_logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V): what a masked token is, by the tokens' own vectors."""
        return F.linear(self.norm(F.gelu(self.transform(hidden))), self.text.embed.tokens.weight, self.bias)

    def next_sentence_logits(self, hidden: Tensor) -> Tensor:
        """(B, N, D) -> (B, 2): whether the second segment follows the first (0) or not (1)."""
        return self.next_sentence(self.pooled(hidden))


def reset_parameters(model: nn.Module) -> None:
    """Normal of std 0.02 for matrices, zero biases; norms as they are."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=STD)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def text_encoder(
    width: int, depth: int, heads: int, mlp_width: int | None, mlp: str, dropout: float, **options: Any
) -> TransformerEncoder:
    """The shared encoder with attention; `options` are its own."""
    return TransformerEncoder(
        width,
        depth,
        mixer=partial(Attention, width, heads, dropout=dropout),
        mlp=partial(feed_forward, width, mlp_width or 4 * width, dropout, mlp),
        **options,
    )


def language_model(
    vocabulary: int,
    *,
    length: int = 1024,
    width: int = 768,
    depth: int = 12,
    heads: int = 12,
    mlp_width: int | None = None,
    mlp: str = "gelu_tanh",
    positions: str = "learned",
    norm_eps: float = 1e-5,
    dropout: float = 0.0,
) -> LanguageModel:
    """A causal language model of GPT-2's shape; `positions` is "learned", "sincos", "rotary" or "none".

    The defaults are GPT-2's (Radford et al., 2019). Raises ValueError for sizes that do not go together.
    """
    norm = partial(nn.LayerNorm, eps=norm_eps)
    encoder = text_encoder(width, depth, heads, mlp_width, mlp, dropout, norm=norm)
    added = "none" if positions == "rotary" else positions
    rotary = rotary1d(length, width // heads) if positions == "rotary" else None
    embed = TokenEmbed(vocabulary, width, length, positions=added, dropout=dropout)
    return LanguageModel(TextEncoder(embed, encoder, causal=True, rotary=rotary))


def bert(
    vocabulary: int,
    *,
    length: int = 512,
    width: int = 768,
    depth: int = 12,
    heads: int = 12,
    mlp_width: int | None = None,
    mlp: str = "gelu",
    segments: int = 2,
    norm_eps: float = 1e-12,
    dropout: float = 0.1,
) -> Bert:
    """BERT; the defaults are the base model's (Devlin et al., 2019).

    Raises ValueError for sizes that do not go together.
    """
    norm = partial(nn.LayerNorm, eps=norm_eps)
    encoder = text_encoder(width, depth, heads, mlp_width, mlp, dropout, norm=norm, norm_first=False, norm_last=False)
    embed = TokenEmbed(vocabulary, width, length, segments=segments, norm=norm, dropout=dropout)
    return Bert(TextEncoder(embed, encoder), width, vocabulary, norm)
