"""Views of a text model: a page of its attention, and its position embeddings as heat maps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.analysis.capture.attention import attention_maps, find_attention_layers
from vitlab.analysis.position_similarity import position_distances, position_similarities
from vitlab.config import UserError
from vitlab.data.loader import Items
from vitlab.data.text.tokenization import Tokenizer
from vitlab.reports.figures import position_embeddings
from vitlab.reports.figures.backends import matplotlib_backend
from vitlab.reports.pages.token_attention import TokenAttention, write_token_attention
from vitlab.tasks.base import Task

TextInput = tuple[Tensor, Tensor | None]  # a text's tokens (N,), and its segments (N,)

SHOWN = 4  # held-out texts on the page if the user gives none
LONGEST = 64  # tokens of each: the page grows with their square


def write_views(
    model: nn.Module,
    task: Task,
    tokenizer: Tokenizer,
    texts: Sequence[TextInput],
    heads: Sequence[dict[str, Any]],
    name: str,
    folder: Path,
) -> list[Path]:
    """Write the views of a text model, of which `has_views` is true; gives their paths.

    `texts` are shown, by default some held-out ones; `heads` are rows of the analysis head_patterns.
    """
    paths = []
    if find_attention_layers(model):
        shown = [compute_attention(model, tokenizer, *text) for text in texts or read_held_out(task)]
        paths.append(
            write_token_attention(folder / "attention.html", f"Attention between tokens, {name}", shown, heads)
        )
    table = getattr(model.text.embed, "positions", None)
    if table is not None:
        paths += matplotlib_backend.save(
            position_embeddings.plot_distances(position_distances(table).tolist(), name), folder
        )
        paths += matplotlib_backend.save(
            position_embeddings.plot_similarities(position_similarities(table).tolist(), name), folder
        )
    return paths


def has_views(model: nn.Module) -> bool:
    """Whether a text model has attention or position embeddings to draw."""
    return bool(find_attention_layers(model)) or getattr(model.text.embed, "positions", None) is not None


def read_held_out(task: Task) -> list[TextInput]:
    """Some held-out texts."""
    numbers = list(range(min(SHOWN, len(task.test))))
    inputs = task.inputs(task.prepare(Items(task.test).__getitems__(numbers)))
    texts = []
    for row in numbers:
        count = min(int(inputs.mask[row].sum()), LONGEST)
        texts.append((inputs.tokens[row, :count], None if inputs.segments is None else inputs.segments[row, :count]))
    return texts


def encode_text(model: nn.Module, tokenizer: Tokenizer, parts: Sequence[str]) -> TextInput:
    """One or two sentences with the special tokens of the model's pre-training. Raises UserError if they do not fit."""
    encoded = tokenizer.encode(list(parts))
    if not all(encoded):
        raise UserError(f"{'--text' if len(parts) == 1 else '--pair'}: the text has no tokens; give some words")
    if model.text.causal:
        tokens = [token for part in encoded for token in part]
        segments = [number for number, part in enumerate(encoded) for _ in part]
    else:
        tokens, segments = [tokenizer.start], [0]
        for number, part in enumerate(encoded):
            tokens += [*part, tokenizer.end if number == len(encoded) - 1 else tokenizer.separator]
            segments += [number] * (len(part) + 1)
    if len(tokens) > model.text.embed.length:
        raise UserError(
            f"--text '{parts[0]}': has {len(tokens)} tokens, the model takes up to {model.text.embed.length}"
        )
    return torch.tensor(tokens), torch.tensor(segments) if len(parts) > 1 else None


def compute_attention(
    model: nn.Module, tokenizer: Tokenizer, tokens: Tensor, segments: Tensor | None
) -> TokenAttention:
    device = next(model.parameters()).device
    options = {} if segments is None or model.text.embed.segments is None else {"segments": segments[None].to(device)}
    weights = [weights[0].cpu() for _, weights in attention_maps(model, tokens[None].to(device), **options)]
    return TokenAttention(
        tokenizer.token_texts(tokens.tolist()), weights, None if segments is None else segments.tolist()
    )
