"""Texts that a text model reads, from validation or the user, and the attention of its layers over them.

Shapes: N tokens, T tokens of a target, H heads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitlab.analysis.alignment import align, find_cross_layers
from vitlab.analysis.capture import attention_maps, find_attention_layers
from vitlab.config import UserError
from vitlab.data.loader import Items
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.data.split import subset
from vitlab.data.text.tokenization import Tokenizer
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.recurrent import RecurrentEncoderDecoder
from vitlab.tasks.base import Task
from vitlab.training.writer import TextGenerator, write_rows

SHOWN = 4  # validation texts if the user gives none
LONGEST = 64  # tokens of each: a page grows with their square

Words = dict[str, list[str]]
Layers = dict[str, list[tuple[Tensor, str, str]]]
Measured = tuple[Words, Layers, list[int] | None]


class TextInput(NamedTuple):
    """A text's tokens (N,) and segments (N,); for a source also the tokens (T,) a decoder reads and predicts."""

    tokens: Tensor
    segments: Tensor | None = None
    given: Tensor | None = None
    following: Tensor | None = None


def read_validation(task: Task) -> list[TextInput]:
    """Read some validation texts, drawn evenly from the classes."""
    numbers = list(subset(task.validation.labels, SHOWN, seed=0))
    inputs = task.inputs(task.prepare(Items(task.validation).__getitems__(numbers)))
    texts = []
    for row in range(len(numbers)):
        count = int(inputs.mask[row].sum())
        parts = {"tokens": inputs.tokens[row, :count]}
        parts |= {} if inputs.segments is None else {"segments": inputs.segments[row, :count]}
        if inputs.following is not None:
            count = int((inputs.following[row] != IGNORE_INDEX).sum())
            parts |= {"given": inputs.given[row, :count], "following": inputs.following[row, :count]}
        texts.append(TextInput(**{name: part[:LONGEST] for name, part in parts.items()}))
    return texts


def encode_text(model: nn.Module, tokenizer: Tokenizer, parts: Sequence[str]) -> TextInput:
    """Encode a text or a pair with the special tokens of pre-training. Raises UserError if they do not fit.

    For an encoder-decoder they are a source and its target; the model writes a target that is not given.
    """

    def check_length(tokens: Sequence[int], most: int, text: str) -> Tensor:
        if len(tokens) > most:
            raise UserError(f"--text '{text}': has {len(tokens)} tokens, the model takes up to {most}")
        return torch.tensor(tokens)

    encoded = tokenizer.encode(list(parts))
    if not all(encoded):
        raise UserError(f"{'--text' if len(parts) == 1 else '--pair'}: the text has no tokens; give some words")
    if isinstance(model, (EncoderDecoder, RecurrentEncoderDecoder)):
        source = check_length([*encoded[0], tokenizer.end], model.text.embed.length, parts[0])
        if len(parts) == 1:
            writer = TextGenerator(model.eval(), tokenizer)
            (following,) = write_rows(writer, [source.tolist()], model.target_length, {})
            following = following.cpu()
        else:
            following = check_length([*encoded[1], tokenizer.end], model.target_length, parts[1])
        start = torch.tensor([tokenizer.decoder_start])
        return TextInput(source, None, torch.cat([start, following[:-1]]), following)
    causal = model.text.causal
    tokens, segments = ([], []) if causal else ([tokenizer.start], [0])
    for number, part in enumerate(encoded):
        ends = [] if causal else [tokenizer.end if number == len(encoded) - 1 else tokenizer.separator]
        tokens += [*part, *ends]
        segments += [number] * len([*part, *ends])
    text = check_length(tokens, model.text.embed.length, parts[0])
    return TextInput(text, torch.tensor(segments) if len(parts) > 1 else None)


def measure_attention(model: nn.Module, tokenizer: Tokenizer, text: TextInput) -> Measured:
    """Measure a text's attention: (the tokens in each list, each layer's weights by part of the model, the segments).

    A layer is its weights (H, queries, keys) and the names of the lists of queries and keys.
    """
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
        return words, {"layer": [(one, "tokens", "tokens") for one in weights.values()]}, of_segments
    cross = [weights.pop(layer) for layer in find_cross_layers(model)] or [align(model, tokens, given)[1][0].cpu()]
    encoder = len(find_attention_layers(model.text))
    own = list(weights.values())
    layers = {
        "encoder": [(one, "tokens", "tokens") for one in own[:encoder]],
        "decoder": [(one, "given", "given") for one in own[encoder:]],
        "cross-attention": [(one, "following", "tokens") for one in cross],
    }
    return words, layers, of_segments
