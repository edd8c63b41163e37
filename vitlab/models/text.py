"""Text on the shared encoder: GPT, BERT and their kin.

Shapes: B batch, N tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.models.encoder import NORMS, TransformerEncoder, feed_forward
from vitlab.models.heads import Bert, LanguageModel, TextModel, with_head
from vitlab.models.mixers import MixerSpec
from vitlab.models.mixers.attention import Attention, KeyValueCache
from vitlab.models.positions import rotary1d, sincos1d
from vitlab.registry import implementation


class TokenEmbed(nn.Module):
    """Tokens (B, N) -> (B, N, D): the sum of token, position and segment embeddings.

    `positions` is "learned", "sincos" (token embeddings are scaled by sqrt(D): Vaswani et al., 2017, section 3.4) or
    "none".
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
        """tokens and segments int64 (B, N); `first` is the position of the first token.

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
    """Tokens (B, N) -> hidden states (B, N, D).

    `rotary` (2, length, head width) are rotary positions; `residual_scale` scales the initial weights of the
    layers that add to the residual stream.
    """

    def __init__(
        self,
        embed: TokenEmbed,
        encoder: nn.Module,
        *,
        causal: bool = False,
        rotary: Tensor | None = None,
        residual_scale: float = 1.0,
    ):
        super().__init__()
        self.embed = embed
        self.encoder = encoder
        self.causal = causal
        self.residual_scale = residual_scale
        self.register_buffer("rotary", rotary, persistent=False)
        self.heeds_mask = isinstance(encoder.blocks[0].mixer, Attention)

    def new_caches(self) -> list[KeyValueCache]:
        """Empty caches, one per layer."""
        return [KeyValueCache() for _ in self.encoder.blocks]

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Tensor:
        """mask bool (B, M), False where a token is padding; with `caches` M counts the tokens in them too.

        A mixer without attention, such as Fourier's, cannot mask padding (Lee-Thorp et al., 2022).
        """
        first = 0 if caches is None else len(caches[0])
        x = self.embed(tokens, segments, first)
        return self.encoder(
            x,
            mask=None if mask is None or not self.heeds_mask else mask[:, None, None, :],
            causal=self.causal,
            rotary=None if self.rotary is None else self.rotary[:, first : first + tokens.shape[1]],
            caches=caches,
        )


def transformer(
    vocabulary: int,
    length: int,
    *,
    width: int,
    depth: int,
    heads: int,
    mlp_width: int | None = None,
    mlp: str = "gelu_tanh",
    mixer: Callable[[], nn.Module] | None = None,
    causal: bool = True,
    positions: str = "learned",
    segments: int = 0,
    norm: Callable[[int], nn.Module] = nn.LayerNorm,
    norm_first: bool = True,
    dropout: float = 0.0,
    drop_path: float = 0.0,
    scaled_residuals: bool = False,
) -> TextEncoder:
    """The shared encoder over tokens; `mixer` makes one layer's, attention when not given; `positions` also "rotary".

    With `scaled_residuals` the initial weights of the layers that add to the residual stream, two per block, are
    divided by the square root of their number (Radford et al., 2019, section 2.3). Without `norm_first` the embeddings
    have a norm and the encoder has no last one, as in BERT. Raises ValueError for
    sizes that do not go together.
    """
    encoder = TransformerEncoder(
        width,
        depth,
        mixer=mixer or partial(Attention, width, heads, dropout=dropout),
        mlp=partial(feed_forward, width, mlp_width or 4 * width, dropout, mlp),
        norm=norm,
        norm_first=norm_first,
        norm_last=norm_first,
        drop_path=drop_path,
    )
    rotary = rotary1d(length, width // heads) if positions == "rotary" else None
    embed = TokenEmbed(
        vocabulary,
        width,
        length,
        positions="none" if positions == "rotary" else positions,
        segments=segments,
        norm=None if norm_first else norm,
        dropout=dropout,
    )
    scale = (2 * depth) ** -0.5 if scaled_residuals else 1.0
    return TextEncoder(embed, encoder, causal=causal, rotary=rotary, residual_scale=scale)


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
    sizes = {"width": width, "depth": depth, "heads": heads, "mlp_width": mlp_width, "mlp": mlp}
    norm = partial(nn.LayerNorm, eps=norm_eps)
    options = {"positions": positions, "norm": norm, "dropout": dropout, "scaled_residuals": True}
    return LanguageModel(transformer(vocabulary, length, **sizes, **options))


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
    sizes = {"width": width, "depth": depth, "heads": heads, "mlp_width": mlp_width, "mlp": mlp}
    norm = partial(nn.LayerNorm, eps=norm_eps)
    kind = {"causal": False, "segments": segments, "norm": norm, "norm_first": False}
    return Bert(transformer(vocabulary, length, **sizes, **kind, dropout=dropout), norm)


def build(config: DictConfig, *, vocabulary: int, length: int, head: str, num_classes: int | None = None) -> TextModel:
    norm = partial(NORMS[config.norm], eps=config.norm_eps)
    attends = config.mixer.kind == "attention"
    if not attends and (config.causal or config.positions == "rotary"):
        given = "model.causal=true" if config.causal else "model.positions=rotary"
        raise ValueError(f"{given} needs model.mixer=attention, not {config.mixer.name}")
    head_width = config.width // config.heads
    spec = MixerSpec(config.width, config.heads, head_width, (1, length), 0, config.dropout, norm)
    mixers = implementation("vitlab.models.mixers", config.mixer.kind, "build")
    options = {key: config[key] for key in ("width", "depth", "heads", "mlp_width", "mlp", "causal", "positions")}
    options |= {key: config[key] for key in ("segments", "norm_first", "dropout", "drop_path", "scaled_residuals")}
    mixer = partial(mixers.build, config.mixer, spec)
    text = transformer(vocabulary, length, **options, mixer=mixer, norm=norm)
    return with_head(text, head, norm, num_classes, mean=config.pool == "mean")
