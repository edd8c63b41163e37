"""Views of a text model: a page of its attention, and its position embeddings as heat maps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitlab.analysis.alignment import align, find_cross_layers
from vitlab.analysis.capture.attention import attention_maps, find_attention_layers
from vitlab.analysis.position_similarity import position_distances, position_similarities
from vitlab.config import UserError
from vitlab.data.loader import Items
from vitlab.data.sequences.blocks import IGNORE_INDEX
from vitlab.data.subset import examples
from vitlab.data.text.tokenization import Tokenizer
from vitlab.models.decoding.generate import generate
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.recurrent import RecurrentEncoderDecoder
from vitlab.reports.figures import position_embeddings
from vitlab.reports.figures.figure import save_figure
from vitlab.reports.pages.token_attention import TargetAttention, TokenAttention, write_token_attention
from vitlab.tasks.base import Task


class TextInput(NamedTuple):
    """A text's tokens (N,) and segments (N,); of a source also what a decoder reads and predicts of its target (T,)."""

    tokens: Tensor
    segments: Tensor | None = None
    given: Tensor | None = None
    following: Tensor | None = None


SHOWN = 4  # validation texts on the page if the user gives none
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
    """Write the views of a text model for which `has_views` is true; gives their paths.

    `texts` are shown, by default some of validation; `heads` are rows of the analysis head_patterns.
    """
    paths = []
    if has_attention(model):
        shown = [compute_attention(model, tokenizer, text) for text in texts or read_validation(task)]
        paths.append(
            write_token_attention(folder / "attention.html", f"Attention between tokens, {name}", shown, heads)
        )
    table = model.text.embed.positions
    if table is not None:
        paths += save_figure(position_embeddings.plot_distances(position_distances(table).tolist(), name), folder)
        paths += save_figure(position_embeddings.plot_similarities(position_similarities(table).tolist(), name), folder)
    return paths


def has_attention(model: nn.Module) -> bool:
    """Whether a text model has attention between tokens, a recurrent decoder's too."""
    return bool(find_attention_layers(model)) or isinstance(model, RecurrentEncoderDecoder)


def has_views(model: nn.Module) -> bool:
    """Whether a text model has attention or position embeddings to draw."""
    return has_attention(model) or model.text.embed.positions is not None


def read_validation(task: Task) -> list[TextInput]:
    """Some validation texts, of every class alike."""
    numbers = list(examples(task.validation.labels, SHOWN))
    inputs = task.inputs(task.prepare(Items(task.validation).__getitems__(numbers)))
    texts = []
    for row in range(len(numbers)):
        count = min(int(inputs.mask[row].sum()), LONGEST)
        text = TextInput(inputs.tokens[row, :count], None if inputs.segments is None else inputs.segments[row, :count])
        if inputs.following is not None:
            count = min(int((inputs.following[row] != IGNORE_INDEX).sum()), LONGEST)
            text = text._replace(given=inputs.given[row, :count], following=inputs.following[row, :count])
        texts.append(text)
    return texts


def encode_text(model: nn.Module, tokenizer: Tokenizer, parts: Sequence[str]) -> TextInput:
    """One or two sentences with the special tokens of the model's pre-training. Raises UserError if they do not fit.

    Of an encoder-decoder they are a source and its target; a target that is not given is what the model writes.
    """
    encoded = tokenizer.encode(list(parts))
    if not all(encoded):
        raise UserError(f"{'--text' if len(parts) == 1 else '--pair'}: the text has no tokens; give some words")
    if isinstance(model, (EncoderDecoder, RecurrentEncoderDecoder)):
        return encode_pair(model, tokenizer, encoded, parts[0])
    if model.text.causal:
        tokens = [token for part in encoded for token in part]
        segments = [number for number, part in enumerate(encoded) for _ in part]
    else:
        tokens, segments = [tokenizer.start], [0]
        for number, part in enumerate(encoded):
            tokens += [*part, tokenizer.end if number == len(encoded) - 1 else tokenizer.separator]
            segments += [number] * (len(part) + 1)
    if len(tokens) > model.text.embed.length:
        raise too_long(parts[0], len(tokens), model.text.embed.length)
    return TextInput(torch.tensor(tokens), torch.tensor(segments) if len(parts) > 1 else None)


def too_long(text: str, count: int, most: int) -> UserError:
    return UserError(f"--text '{text}': has {count} tokens, the model takes up to {most}")


def encode_pair(model: nn.Module, tokenizer: Tokenizer, parts: Sequence[Sequence[int]], name: str) -> TextInput:
    """A source's tokens, and those of a target or else the ones that the model writes; framed as in training."""
    source = torch.tensor([*parts[0], tokenizer.end])
    if len(source) > model.text.embed.length:
        raise too_long(name, len(source), model.text.embed.length)
    start = torch.tensor([tokenizer.decoder_start])
    if len(parts) == 1:
        device = next(model.parameters()).device
        decoding = model.eval().decoding(source[None].to(device))
        (following,) = generate(decoding, start[None].to(device), model.target_length, end=tokenizer.end)
        following = following.cpu()
    else:
        following = torch.tensor([*parts[1], tokenizer.end])
    if len(following) > model.target_length:
        raise too_long(tokenizer.decode(parts[1]), len(following), model.target_length)
    return TextInput(source, None, torch.cat([start, following[:-1]]), following)


def compute_attention(model: nn.Module, tokenizer: Tokenizer, text: TextInput) -> TokenAttention:
    device = next(model.parameters()).device
    tokens, segments, given, following = (None if part is None else part[None].to(device) for part in text)
    options = {} if segments is None or model.text.embed.segments is None else {"segments": segments}
    options |= {} if given is None else {"target": given}
    layers = find_attention_layers(model)
    maps = dict(attention_maps(model, tokens, **options)) if layers else {}
    weights = [maps[layer][0].cpu() for layer in sorted(maps)]
    target = None
    if given is not None:
        cross, encoder = find_cross_layers(model), len(find_attention_layers(model.text))
        looked = [weights[layer] for layer in cross] or [align(model, tokens, given)[1][0].cpu()]
        decoder_layers = [weights[layer] for layer in range(encoder, len(weights)) if layer not in cross]
        read, wrote = (tokenizer.token_texts(part[0].tolist()) for part in (given, following))
        target, weights = TargetAttention(read, wrote, decoder_layers, looked), weights[:encoder]
    shown = tokenizer.token_texts(text.tokens.tolist())
    return TokenAttention(shown, weights, None if text.segments is None else text.segments.tolist(), target=target)
