"""Alignment: the source tokens that each target token looks at (Bahdanau et al., 2015, figure 3).

The attention of a decoder over its source, where it predicts a token of the target: of the last layer with
cross-attention, or that of a recurrent decoder. Special tokens are no queries, and are not on the diagonal.

Below it: the texts that pages show, from validation or the user, and the attention of all layers over them.

Shapes: B pairs, S source tokens, N target tokens, H heads; of a page's text N tokens, T tokens of a target.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.analysis.capture import (
    ShowCount,
    attention_maps,
    find_attention_layers,
    in_chunks,
    run_eagerly,
)
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.data.loader import Items
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.data.split import subset
from vitlab.data.text.tokenization import Tokenizer
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.recurrent import RecurrentEncoderDecoder
from vitlab.models.text import TextModel
from vitlab.tasks.base import Task, TokenInputs
from vitlab.training.writer import TextGenerator, write_rows

UNIT = "share"
NEEDS = "a decoder that attends to a source text"


def find_cross_layers(model: nn.Module) -> list[int]:
    """Find the attention layers over a source, numbered as `attention_maps` numbers layers; [] without any."""
    cross = {module for name, module in model.named_modules() if name.rpartition(".")[2] == "cross"}
    return [number for number, layer in enumerate(find_attention_layers(model)) if layer in cross]


def applies(model: nn.Module) -> bool:
    """Tell whether the model has cross-attention to a text, or an alignment of its own."""
    return isinstance(model, TextModel) and (
        model.decoder.score is not None
        if isinstance(model, RecurrentEncoderDecoder)
        else bool(find_cross_layers(model))
    )


def align(model: nn.Module, tokens: Tensor, given: Tensor, mask: Tensor | None = None) -> tuple[int, Tensor]:
    """Return (the decoder layer's number, from 1; its attention (B, H, N, S)) for sources (B, S) and targets (B, N)."""
    if isinstance(model, RecurrentEncoderDecoder):
        with torch.no_grad(), run_eagerly(model):
            return model.decoder.layers.num_layers, model.alignment(tokens, given, mask)[:, None]
    layers = find_cross_layers(model)
    ((_, weights),) = attention_maps(model, tokens, layers[-1:], target=given, mask=mask)
    return len(layers), weights


class Alignments:
    """Measures of heads over many batches; only their sums are kept."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor | float] = {}

    def add(self, weights: Tensor, queries: Tensor, keys: Tensor, sources: Tensor) -> None:
        """Count weights (B, H, N, S) of target tokens where queries bool (B, N).

        keys bool (B, S) are the source tokens beside special ones, sources (B, S) all that may be looked at.
        """
        is_query, pairs = queries[:, None], (queries[:, 1:] & queries[:, :-1])[:, None]
        places = weights.argmax(dim=-1)
        onward = places[..., 1:] >= places[..., :-1]
        crossed = find_diagonal(queries, keys)[:, None]
        uniform = crossed.sum(dim=-1)[:, 0] / sources.sum(dim=1, keepdim=True).double()
        for name, values in {
            "tokens": is_query.sum(),
            "pairs": pairs.sum(),
            "onward": (onward & pairs).sum((0, 2)),
            "entropy": (torch.special.entr(weights).sum(dim=-1) * is_query).double().sum((0, 2)),
            "diagonal": ((weights * crossed).sum(dim=-1) * is_query).double().sum((0, 2)),
            "uniform": (uniform * queries).sum(),
        }.items():
            self.sums[name] = self.sums.get(name, 0) + values.cpu()

    def rows(self, layer: int) -> list[dict[str, Any]]:
        """Return {"layer", "head", "value", "monotone", "entropy"} of each head, from 1, and of several heads' mean.

        "monotone" is None where no target has two tokens.
        """
        shares = (self.sums[name] / self.sums[of] for name, of in MEASURES)
        measured = [[round(value, 5) if value == value else None for value in share.tolist()] for share in shares]
        heads = [*range(1, len(measured[0])), "mean"] if len(measured[0]) > 1 else [1]
        return [
            {"layer": layer, "head": head, "value": diagonal, "monotone": onward, "entropy": entropy}
            for head, diagonal, onward, entropy in zip(heads, *measured, strict=True)
        ]

    @property
    def uniform(self) -> float:
        """The share on the diagonal of attention that is uniform over all tokens."""
        return round((self.sums["uniform"] / self.sums["tokens"]).item(), 5)


MEASURES = (("diagonal", "tokens"), ("onward", "pairs"), ("entropy", "tokens"))


def find_diagonal(queries: Tensor, keys: Tensor) -> Tensor:
    """Mark the cells on the line from corner to corner of queries (B, N) x keys (B, S): bool (B, N, S)."""
    rows, columns = queries.cumsum(dim=1)[:, :, None], keys.cumsum(dim=1)[:, None]  # from 1
    height, width = queries.sum(dim=1)[:, None, None], keys.sum(dim=1)[:, None, None]
    crossed = ((rows - 1) * width < columns * height) & ((columns - 1) * height < rows * width)
    return crossed & queries[:, :, None] & keys[:, None]


def run(
    model: nn.Module,
    inputs: TokenInputs,
    config: AnalysisConfig,
    progress: ShowCount | None = None,
    token_texts: Callable[[Sequence[int]], list[str]] = lambda tokens: [str(token) for token in tokens],
) -> dict[str, Any]:
    """Return the rows of `Alignments`, and "weights" float16 (B, H, N, S) of `config.drawn` pairs, padded with zeros.

    "value" is the share of the attention on the straight line from the first to the last token, "monotone" the share of
    target tokens whose strongest source token is not before the previous target token's, "entropy" in nats. The last
    of several heads is their mean. "sources" and "targets" are the pairs' tokens, padded with "".
    """
    alignments, examples, first = Alignments(), [], 0
    drawn = set(np.linspace(0, len(inputs.tokens) - 1, config.drawn).round().astype(int).tolist())  # of all lengths
    for chunk in in_chunks(inputs, progress):
        layer, weights = align(model, chunk.tokens, chunk.given, chunk.mask)
        if weights.shape[1] > 1:
            weights = torch.cat([weights, weights.mean(dim=1, keepdim=True)], dim=1)
        special = chunk.tokens[chunk.special].unique()  # each source has the token that ends texts
        queries = (chunk.following != IGNORE_INDEX) & ~torch.isin(chunk.following, special)
        alignments.add(weights, queries, chunk.mask & ~chunk.special, chunk.mask)
        for row in (row for row in range(len(weights)) if first + row in drawn):
            source, target = chunk.tokens[row][chunk.mask[row]], chunk.following[row]
            target = target[target != IGNORE_INDEX]
            cut = weights[row, :, : len(target), : len(source)]
            examples.append((cut.cpu().numpy(), *(token_texts(part.tolist()) for part in (source, target))))
        first += len(weights)
    cuts, sources, targets = zip(*examples, strict=True)
    shape = (len(cuts), len(cuts[0]), max(map(len, targets)), max(map(len, sources)))
    arrays = {"weights": np.zeros(shape, dtype=np.float16)}
    arrays |= {
        name: np.zeros((shape[0], n), dtype="U40") for name, n in zip(("targets", "sources"), shape[2:], strict=True)
    }
    for number, (cut, source, target) in enumerate(examples):
        arrays["weights"][number, :, : len(target), : len(source)] = cut
        arrays["sources"][number, : len(source)], arrays["targets"][number, : len(target)] = source, target
    return {"rows": alignments.rows(layer), "references": {"uniform attention": alignments.uniform}, **arrays}


# ---- texts of pages


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
