"""An LSTM over tokens (Hochreiter and Schmidhuber, 1997).

Shapes: B batch, N tokens, D width.
"""

from collections.abc import Sequence
from functools import partial

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vitlab.models.heads import TextModel, with_head
from vitlab.models.text import TokenEmbed


class RecurrentState:
    """The hidden and cell states (layers, B, D) after `seen` tokens."""

    def __init__(self) -> None:
        self.states: tuple[Tensor, Tensor] | None = None
        self.seen = 0

    def __len__(self) -> int:
        return self.seen

    def reorder(self, rows: Tensor) -> None:
        """Keep the rows of the batch at `rows` (B,), in that order."""
        if self.states is not None:
            self.states = tuple(state[:, rows].contiguous() for state in self.states)


class LSTMEncoder(nn.Module):
    """Tokens (B, N) -> hidden states (B, N, D); unless causal, in both directions with half the width each."""

    def __init__(self, embed: TokenEmbed, width: int, depth: int, *, causal: bool = True, dropout: float = 0.0):
        super().__init__()
        if not causal and width % 2:
            raise ValueError(f"model.width={width}: a bidirectional LSTM needs an even width")
        self.embed = embed
        self.causal = causal
        self.heeds_mask = True
        hidden = width if causal else width // 2
        between = dropout if depth > 1 else 0.0
        self.lstm = nn.LSTM(width, hidden, depth, batch_first=True, dropout=between, bidirectional=not causal)
        self.drop = nn.Dropout(dropout)

    def new_caches(self) -> list[RecurrentState]:
        return [RecurrentState()]

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[RecurrentState] | None = None,
    ) -> Tensor:
        """mask bool (B, N), False where a token is padding, which is at the end; caches from `new_caches`."""
        cache = caches[0] if caches is not None else None
        x = self.embed(tokens, segments, 0 if cache is None else len(cache))
        if mask is not None and not self.causal:  # the backward direction starts at the last real token
            packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
            x, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1])
            return self.drop(x)
        x, states = self.lstm(x, None if cache is None else cache.states)
        if cache is not None:
            cache.states, cache.seen = states, cache.seen + tokens.shape[1]
        return self.drop(x)


def build(
    config: DictConfig,
    *,
    vocabulary: int,
    length: int,
    head: str,
    num_classes: int | None = None,
    target_length: int | None = None,
) -> TextModel:
    embed = TokenEmbed(
        vocabulary, config.width, length, positions="none", segments=config.segments, dropout=config.dropout
    )
    text = LSTMEncoder(embed, config.width, config.depth, causal=config.causal, dropout=config.dropout)
    model = with_head(text, head, partial(nn.LayerNorm, eps=1e-5), num_classes)
    text.lstm.reset_parameters()  # torch's own, uniform by width: std 0.02 would pass on too little
    open_forget_gates(text.lstm)
    nn.init.normal_(embed.tokens.weight, std=config.width**-0.5)  # std 0.02 would be too small an input
    return model


@torch.no_grad()
def open_forget_gates(lstm: nn.LSTM) -> None:
    """Set the sum of the forget gate's two biases to 1 (Jozefowicz et al., 2015)."""
    for name, bias in lstm.named_parameters():
        if "bias" in name:
            gate = bias.view(4, -1)[1]
            gate.fill_(1.0 if "bias_ih" in name else 0.0)
