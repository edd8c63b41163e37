"""A recurrent encoder-decoder: the encoder of Bahdanau et al. (2015), the decoder theirs or Luong et al.'s (2015).

A score says how well a state of the decoder fits each state of the encoder.

Shapes: B batch, S tokens of a source, N of a target, D width, V vocabulary; of scores N queries, M keys.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.config.schema.models import RecurrentConfig
from vitlab.models.decoding import Decoding
from vitlab.models.encoder_decoder import DecoderModel
from vitlab.models.lstm import RecurrentEncoder, RecurrentState, States, recurrent_layers, reset_recurrent, run_layers
from vitlab.models.text import TextModel, TokenEmbed, match_two_parts


@dataclass
class DecoderState:
    """The states of the layers, the context (B, S, D), its keys and mask, and input feeding's next input (B, 1, D).

    Without attention only the first states depend on the context.
    """

    layers: RecurrentState
    context: Tensor | None
    keys: Tensor | None
    mask: Tensor | None
    fed: Tensor | None

    def reorder(self, rows: Tensor) -> None:
        """Keep the rows of the batch at `rows` (B',), in that order."""
        self.layers.reorder(rows)
        for name in ("context", "keys", "mask", "fed"):
            part = vars(self)[name]
            vars(self)[name] = None if part is None else part[rows]


class AttentionDecoder(nn.Module):
    """Tokens of a target (B, N) -> the vectors (B, N, D) that the output reads.

    The layers start from the context's last states. The state of the last layer attends to the context by `score`, a
    kind of Score. After a token (Luong et al., 2015, section 3) the vector is tanh of a linear layer of the state and
    the attended context; with `input_feeding` (section 3.3) it is also an input of the next token. `before` a token
    (Bahdanau et al., 2015, section 3.1) the layers read the token and the last state's attended context, and the vector
    is the maxout of a linear layer of state, token and attended context (equation 4; appendix A.2.2 has the last state
    there). Both take tokens one by one, else all at once. With the score "none" the vectors are the states (Sutskever
    et al., 2014).
    """

    def __init__(
        self,
        embed: TokenEmbed,
        width: int,
        depth: int,
        *,
        cell: str,
        score: str,
        before: bool = False,
        input_feeding: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embed = embed
        self.before = before
        self.input_feeding = input_feeding
        self.bridge = nn.Linear(width, depth * width)
        inputs = embed.width + (width if input_feeding or before else 0)
        self.layers = recurrent_layers(cell, inputs, width, depth, dropout=dropout)
        self.score = None if score == "none" else Score(score, width)
        if self.score is not None:
            self.combine = nn.Linear(2 * width + embed.width, 2 * width) if before else nn.Linear(2 * width, width)
        self.drop = nn.Dropout(dropout)

    def begin(self, context: Tensor, mask: Tensor | None = None) -> DecoderState:
        """Make the first state of a context (B, S, D) and its mask, bool (B, S), False at padding, at the end."""
        layers = RecurrentState(self.first_states(context, mask))
        if self.score is None:
            return DecoderState(layers, None, None, None, None)
        fed = context.new_zeros(len(context), 1, context.shape[2]) if self.input_feeding else None
        return DecoderState(layers, context, self.score.keys(context), mask, fed)

    def first_states(self, context: Tensor, mask: Tensor | None) -> States:
        """Compute the first states from the context's last token (its forward half) and first one (backward half)."""
        last = context.new_full((len(context),), context.shape[1] - 1).long() if mask is None else mask.sum(dim=1) - 1
        half = context.shape[2] // 2
        forward = context[..., :half].gather(1, last[:, None, None].expand(-1, 1, half))[:, 0]
        states = self.bridge(torch.cat([forward, context[:, 0, half:]], dim=-1)).tanh()
        states = states.unflatten(-1, (self.layers.num_layers, -1)).transpose(0, 1).contiguous()
        return (states, states.clone()) if isinstance(self.layers, nn.LSTM) else states

    def forward(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, Tensor | None]:
        """Compute (vectors (B, N, D), attention (B, N, S) if any) of the next tokens; advance `state` past them."""
        x = self.embed(tokens, first=state.layers.seen)
        if self.score is None:
            return self.advance(x, state), None
        parts = x.split(1, dim=1) if self.before or self.input_feeding else [x]
        vectors, weights = zip(*(self.attend(part, state) for part in parts), strict=True)
        return torch.cat(vectors, dim=1), torch.cat(weights, dim=1)

    def advance(self, x: Tensor, state: DecoderState) -> Tensor:
        """Run the layers on inputs (B, N, ...) -> hidden states (B, N, D); advance `state` past them."""
        hidden, state.layers.states = run_layers(self.layers, x, state.layers.states)
        state.layers.seen += x.shape[1]
        return hidden

    def attend(self, x: Tensor, state: DecoderState) -> tuple[Tensor, Tensor]:
        """Run the layers on inputs (B, N, ...) and attend -> the vectors (B, N, D), and the attention (B, N, S)."""
        if self.before:
            states = state.layers.states
            queries = (states[0] if isinstance(states, tuple) else states)[-1][:, None]
        else:
            queries = hidden = self.advance(torch.cat([x, state.fed], dim=-1) if self.input_feeding else x, state)
        scores = self.score(queries, state.keys)
        if state.mask is not None:
            scores = scores.masked_fill(~state.mask[:, None], float("-inf"))
        weights = scores.softmax(dim=-1)
        found = weights @ state.context
        if self.before:
            hidden = self.advance(torch.cat([x, found], dim=-1), state)
            pairs = self.combine(self.drop(torch.cat([hidden, x, found], dim=-1)))
            return pairs.unflatten(-1, (-1, 2)).amax(dim=-1), weights
        vectors = self.combine(self.drop(torch.cat([hidden, found], dim=-1))).tanh()
        state.fed = vectors if self.input_feeding else None
        return vectors, weights


class RecurrentEncoderDecoder(DecoderModel, TextModel):
    """A source (B, S) and the target so far (B, N) -> logits of each next token of the target (B, N, V)."""

    def __init__(self, text: RecurrentEncoder, decoder: AttentionDecoder, output: nn.Linear):
        super().__init__(text)
        self.decoder = decoder
        self.output = output
        self.drop = nn.Dropout(decoder.drop.p)

    def encode(self, inputs: Tensor, mask: Tensor | None = None) -> DecoderState:
        """Encode tokens (B, S), mask bool (B, S), False at padding at the end -> the decoder's first state."""
        return self.decoder.begin(self.features(inputs, mask), mask)

    def decode(self, target: Tensor, state: DecoderState, mask: Tensor | None = None) -> Tensor:
        """Decode tokens (B, N) that follow the state's tokens -> logits (B, N, V). The state holds the mask."""
        return self.output(self.drop(self.decoder(target, state)[0]))

    def alignment(self, inputs: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute the attention (B, N, S) with which each target token finds the next one. It needs attention."""
        return self.decoder(target, self.encode(inputs, mask))[1]

    def decoding(self, inputs: Tensor, mask: Tensor | None = None) -> Decoding:
        """Start the decoding of the targets of sources (B, S)."""
        return Decoding(self, [self.encode(inputs, mask)], self.target_length)

    def next_logits(self, tokens: Tensor, caches: Sequence[DecoderState]) -> Tensor:
        """Read tokens (B, N) that follow the state's tokens; return logits (B, V) of the next token."""
        return self.decode(tokens, caches[0])[:, -1]

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return match_two_parts(r"\w+\.\w+_l(\d+)")

    def part_of(self, name: str) -> str:
        path = name.split(".")
        if "embed" in path:
            return "embedding"
        return "head" if path[0] == "output" else "encoder" if path[0] == "text" else "decoder"


def build(
    config: RecurrentConfig, *, vocabulary: int, length: int, head: str, target_length: int = 0, **_: Any
) -> RecurrentEncoderDecoder:
    """Build the model. Raises ValueError for a head of another kind of model, and for options that contradict."""
    if head != "seq2seq":
        raise ValueError("writes a target from a source; give task=translation, or a model such as lstm_nano")
    width, embedding = config.width, config.embedding or config.width
    if config.share_embeddings != "none" and embedding != width:
        raise ValueError(
            f"model.embedding={embedding}: output and embeddings share a matrix, which needs model.width={width}; give "
            "model.share_embeddings=none for another"
        )
    before = config.attend == "before"
    if config.score == "none" and (before or config.input_feeding):
        raise ValueError(
            "model.score=none has no attention; give model.attend=after model.input_feeding=false, or a score"
        )
    if before and config.input_feeding:
        raise ValueError(
            "model.input_feeding=true is for model.attend=after; with model.attend=before a state reads what was found"
        )
    embeds = {"positions": "none", "dropout": config.dropout}
    text = RecurrentEncoder(
        TokenEmbed(vocabulary, embedding, length, **embeds),
        width,
        config.depth,
        cell=config.cell,
        causal=False,
        dropout=config.dropout,
    )
    decoder = AttentionDecoder(
        TokenEmbed(vocabulary, embedding, target_length, **embeds),
        width,
        config.decoder_depth or config.depth,
        cell=config.cell,
        score=config.score,
        before=before,
        input_feeding=config.input_feeding,
        dropout=config.dropout,
    )
    output = nn.Linear(width, vocabulary, bias=False)
    if config.share_embeddings != "none":
        output.weight = decoder.embed.tokens.weight
    if config.share_embeddings == "all":
        text.embed.tokens.weight = decoder.embed.tokens.weight
    model = RecurrentEncoderDecoder(text, decoder, output)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    reset_recurrent(model)
    return model


class Score(nn.Module):
    """Fit of each query q to each key k of a context, by `kind`.

    additive: v . tanh(W q + U k) (Bahdanau et al., 2015, appendix A.1.2), in memory for B N M D numbers. dot: q . k,
    general: q W k (Luong et al., 2015, equation 8). scaled_dot: q . k / sqrt(D) (Vaswani et al., 2017, section 3.2.1).
    cosine: b cos(q, k) with a learned sharpness b > 0 (Graves et al., 2014, equations 5 and 6), first sqrt(D).
    """

    def __init__(self, kind: str, width: int):
        super().__init__()
        self.kind = kind
        if kind == "additive":
            self.query = nn.Linear(width, width)
        if kind in ("additive", "general"):
            self.key = nn.Linear(width, width, bias=False)
        if kind == "additive":
            self.sum = nn.Linear(width, 1, bias=False)
        if kind == "cosine":
            self.log_sharpness = nn.Parameter(torch.tensor(math.log(width) / 2))

    def keys(self, context: Tensor) -> Tensor:
        """Compute the part of the scores that depends on the context (B, M, D) alone, once for all queries."""
        if self.kind == "cosine":
            return F.normalize(context, dim=-1)
        return self.key(context) if self.kind in ("additive", "general") else context

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Compute scores (B, N, M) from queries (B, N, D) and the result of `keys`."""
        if self.kind == "additive":
            return self.sum((self.query(queries)[:, :, None] + keys[:, None]).tanh())[..., 0]
        if self.kind == "cosine":
            queries = self.log_sharpness.exp() * F.normalize(queries, dim=-1)
        if self.kind == "scaled_dot":
            queries = queries * queries.shape[-1] ** -0.5
        return queries @ keys.mT
