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
from vitlab.reports.figures import evaluation
from vitlab.reports.figures.figure import save_figure
from vitlab.reports.pages.attention import pack_text, write_text_page
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
        shown = [pack_attention(model, tokenizer, text) for text in texts or read_validation(task)]
        paths.append(write_text_page(folder / "attention.html", f"Attention between tokens, {name}", shown, heads))
    if (table := model.text.embed.positions) is not None:
        paths += save_figure(evaluation.plot_distances(position_distances(table).tolist(), name), folder)
        paths += save_figure(evaluation.plot_similarities(position_similarities(table).tolist(), name), folder)
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
        parts = {"tokens": inputs.tokens, "segments": inputs.segments}
        parts = {name: part[row, : int(inputs.mask[row].sum())] for name, part in parts.items() if part is not None}
        if inputs.following is not None:
            count = int((inputs.following[row] != IGNORE_INDEX).sum())
            parts |= {"given": inputs.given[row, :count], "following": inputs.following[row, :count]}
        texts.append(TextInput(**{name: part[:LONGEST] for name, part in parts.items()}))
    return texts


def encode_text(model: nn.Module, tokenizer: Tokenizer, parts: Sequence[str]) -> TextInput:
    """One or two sentences with the special tokens of the model's pre-training. Raises UserError if they do not fit.

    Of an encoder-decoder they are a source and its target; a target that is not given is what the model writes.
    """
    encoded = tokenizer.encode(list(parts))
    if not all(encoded):
        raise UserError(f"{'--text' if len(parts) == 1 else '--pair'}: the text has no tokens; give some words")
    if isinstance(model, (EncoderDecoder, RecurrentEncoderDecoder)):
        source = refuse_longer([*encoded[0], tokenizer.end], model.text.embed.length, parts[0])
        start = torch.tensor([tokenizer.decoder_start])
        if len(parts) == 1:
            device = next(model.parameters()).device
            decoding = model.eval().decoding(source[None].to(device))
            (following,) = generate(decoding, start[None].to(device), model.target_length, end=tokenizer.end)
            following = following.cpu()
        else:
            following = refuse_longer([*encoded[1], tokenizer.end], model.target_length, parts[1])
        return TextInput(source, None, torch.cat([start, following[:-1]]), following)
    causal = model.text.causal
    tokens, segments = ([], []) if causal else ([tokenizer.start], [0])
    for number, part in enumerate(encoded):
        ends = [] if causal else [tokenizer.end if number == len(encoded) - 1 else tokenizer.separator]
        tokens += [*part, *ends]
        segments += [number] * len([*part, *ends])
    text = refuse_longer(tokens, model.text.embed.length, parts[0])
    return TextInput(text, torch.tensor(segments) if len(parts) > 1 else None)


def refuse_longer(tokens: Sequence[int], most: int, text: str) -> Tensor:
    """The tokens (N,), or UserError."""
    if len(tokens) > most:
        raise UserError(f"--text '{text}': has {len(tokens)} tokens, the model takes up to {most}")
    return torch.tensor(tokens)


def pack_attention(model: nn.Module, tokenizer: Tokenizer, text: TextInput) -> dict[str, Any]:
    """A text and the weights of each layer over it, as the page takes them."""
    device = next(model.parameters()).device
    tokens, segments, given, _ = (None if part is None else part[None].to(device) for part in text)
    options = {} if segments is None or model.text.embed.segments is None else {"segments": segments}
    options |= {} if given is None else {"target": given}
    maps = dict(attention_maps(model, tokens, **options)) if find_attention_layers(model) else {}
    weights = {layer: maps[layer][0].cpu() for layer in sorted(maps)}
    lists = {"tokens": text.tokens, "given": text.given, "following": text.following}
    words = {name: tokenizer.token_texts(part.tolist()) for name, part in lists.items() if part is not None}
    of_segments = None if text.segments is None else text.segments.tolist()
    if given is None:
        return pack_text(words, {"layer": [(one, "tokens", "tokens") for one in weights.values()]}, of_segments)
    cross = [weights.pop(layer) for layer in find_cross_layers(model)] or [align(model, tokens, given)[1][0].cpu()]
    encoder = len(find_attention_layers(model.text))
    own = list(weights.values())
    layers = {
        "encoder": [(one, "tokens", "tokens") for one in own[:encoder]],
        "decoder": [(one, "given", "given") for one in own[encoder:]],
        "cross-attention": [(one, "following", "tokens") for one in cross],
    }
    return pack_text(words, layers, of_segments)
