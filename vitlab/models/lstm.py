"""Recurrent layers over tokens: an LSTM (Hochreiter and Schmidhuber, 1997), a GRU (Cho et al., 2014) or Elman's (1990).

Shapes: B batch, N tokens, D width.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_map_only

from vitlab.config.schema.models import LSTMConfig
from vitlab.models.text import TextModel, TokenEmbed, with_head

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}  # the last one with tanh
States = Tensor | tuple[Tensor, Tensor]  # of a GRU or an RNN (layers, B, D); of an LSTM these and its cells' states


class RecurrentState:
    """The states after `seen` tokens; None before the first."""

    def __init__(self, states: States | None = None) -> None:
        self.states = states
        self.seen = 0

    def reorder(self, rows: Tensor) -> None:
        """Keep the rows of the batch at `rows` (B,), in that order."""
        self.states = tree_map_only(Tensor, lambda state: state[:, rows].contiguous(), self.states)


class RecurrentEncoder(nn.Module):
    """Tokens (B, N) -> hidden states (B, N, D); unless causal, in both directions with half the width each.

    `cell` is a key of CELLS, and the name of the layers among the parameters.
    """

    def __init__(
        self,
        embed: TokenEmbed,
        width: int,
        depth: int,
        *,
        cell: str = "lstm",
        causal: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        if not causal and width % 2:
            raise ValueError(f"model.width={width}: a bidirectional {cell.upper()} needs an even width")
        self.embed = embed
        self.causal = causal
        self.supports_padding_mask = True
        self.residual_scale = 1.0
        self.cell = cell
        hidden = width if causal else width // 2
        self.add_module(
            cell, recurrent_layers(cell, embed.width, hidden, depth, dropout=dropout, bidirectional=not causal)
        )
        self.drop = nn.Dropout(dropout)

    @property
    def layers(self) -> nn.RNNBase:
        return self.get_submodule(self.cell)

    def new_caches(self) -> list[RecurrentState]:
        return [RecurrentState()]

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[RecurrentState] | None = None,
    ) -> Tensor:
        """Run the layers. mask bool (B, N) is False at padding, which is at the end; `new_caches` makes the caches."""
        cache = caches[0] if caches is not None else None
        x = self.embed(tokens, segments, 0 if cache is None else cache.seen)
        if mask is not None and not self.causal:  # the backward direction starts at the last real token
            packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
            hidden = run_layers(self.layers, packed, None)[0]
            x, _ = pad_packed_sequence(hidden, batch_first=True, total_length=tokens.shape[1])
            return self.drop(x)
        x, states = run_layers(self.layers, x, None if cache is None else cache.states)
        if cache is not None:
            cache.states, cache.seen = states, cache.seen + tokens.shape[1]
        return self.drop(x)


def recurrent_layers(
    cell: str, inputs: int, width: int, depth: int, *, dropout: float = 0.0, bidirectional: bool = False
) -> nn.RNNBase:
    """Build `depth` layers of a kind of cell, batch first, with dropout between them."""
    between = dropout if depth > 1 else 0.0
    return CELLS[cell](inputs, width, depth, batch_first=True, dropout=between, bidirectional=bidirectional)


def run_layers(layers: nn.RNNBase, x: Any, states: States | None) -> tuple[Any, States]:
    """Run layers on x (B, N, D) or a PackedSequence in float32; return the hidden states and the last states.

    Autocast is off on every device: CUDA's casts recurrent layers to float16 whatever type was asked for, and nothing
    scales the loss in bf16-mixed; oneDNN has no LSTM in bf16 for most processors and raises.
    """
    device = layers.weight_ih_l0.device.type
    with torch.autocast("cpu" if device == "meta" else device, enabled=False):  # meta has no autocast
        return layers(x.float(), tree_map_only(Tensor, Tensor.float, states))


def build(
    config: LSTMConfig,
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
    options = {"cell": config.cell, "causal": config.causal, "dropout": config.dropout}
    text = RecurrentEncoder(embed, config.width, config.depth, **options)
    model = with_head(text, head, partial(nn.LayerNorm, eps=1e-5), num_classes, config.pool, config.dropout)
    reset_recurrent(model)
    return model


@torch.no_grad()
def reset_recurrent(model: nn.Module) -> None:
    """Set the first weights of recurrent layers and of the embeddings beside them.

    torch's own for the layers, uniform by width, with the sum of the two biases of an LSTM's forget gate at 1
    (Jozefowicz et al., 2015); embeddings of std 1/sqrt(D). With a std of 0.02 too little would pass.
    """
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.reset_parameters()
        if isinstance(module, nn.LSTM):
            for name, bias in module.named_parameters():
                if "bias" in name:
                    bias.view(4, -1)[1].fill_(1.0 if "bias_ih" in name else 0.0)
    for module in model.modules():
        if isinstance(module, TokenEmbed):
            nn.init.normal_(module.tokens.weight, std=module.width**-0.5)
