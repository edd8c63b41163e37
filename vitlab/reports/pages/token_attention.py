"""The attention between the tokens of a few texts as one interactive page that works offline.

After BertViz (Vig, 2019, arXiv 1906.05714): all heads at once, and one head as a heat map.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vitlab.analysis.head_patterns import PATTERNS
from vitlab.config import printable
from vitlab.files import write_text
from vitlab.formatting import DASH, finite, plural
from vitlab.reports.figures.theme import FIXED, OTHERS
from vitlab.reports.pages.quantize import quantize_rows
from vitlab.reports.pages.render import render, source

SCRIPTS = ("theme_button.js", "table.js", "packed.js", "token_map.js", "token_attention.js")
ACCENTS = dict(zip(PATTERNS, FIXED + OTHERS, strict=True))
SHOWN = 60  # letters of a text's name


@dataclass(frozen=True)
class TargetAttention:
    """A target of n tokens: those that a decoder read, those that it predicted of each, and the weights of its layers.

    `own` are those of self-attention (heads, n, n), `cross` those over a source of N tokens (heads, n, N).
    """

    given: Sequence[str]
    following: Sequence[str]
    own: Sequence[ArrayLike]
    cross: Sequence[ArrayLike]


@dataclass(frozen=True)
class TokenAttention:
    """One text: its tokens (N), the weights of each layer (heads, N, N), each token's segment, a name to choose it by.

    The rows of the weights are queries. Without a name the text is named after its tokens. The source of a target has
    that too.
    """

    tokens: Sequence[str]
    weights: Sequence[ArrayLike]
    segments: Sequence[int] | None = None
    name: str = ""
    target: TargetAttention | None = None


def write_token_attention(
    path: str | Path, title: str, texts: Sequence[TokenAttention], heads: Sequence[Mapping[str, Any]] = ()
) -> Path:
    """Write the page of one or more texts, all of one model; return its path.

    `heads` are the labels of the heads: rows of `vitlab.analysis.head_patterns.HeadPatterns`. A weight in the page is
    off by at most 1/510 of its query's largest; a text takes 4/3 bytes per layer, head, query and key.
    """
    path = Path(path)
    write_text(path, render_page(title, texts, heads))
    return path


def render_page(title: str, texts: Sequence[TokenAttention], heads: Sequence[Mapping[str, Any]] = ()) -> str:
    """The whole document."""
    packed_texts = [pack_text(text) for text in texts]
    counts = [layer["heads"] for layer in packed_texts[0]["layers"]]
    label_rows = [format_label_row(row) for row in heads]
    labels = {(row["layer"], row["head"]): row for row in label_rows}
    short, spoken = name_layers(texts[0])
    labelled = [[labels.get((layer, head)) for head in range(1, n + 1)] for layer, n in enumerate(counts, 1)]
    return render(
        "token_attention.html.j2",
        styles=["token_attention.css"],
        scripts=[source(name) for name in SCRIPTS],
        script_data={"texts": packed_texts, "names": spoken},
        title=printable(title),
        size=f"{plural(len(counts), 'layer')}, {plural(max(counts), 'head')} each",
        names=[text["name"] for text in packed_texts],
        layers=list(zip(short, labelled, strict=True)),
        spoken=spoken,
        most_heads=max(counts),
        patterns=PATTERNS,
        accents=ACCENTS,
        rows=label_rows,
        label_names=list(dict.fromkeys(row["label"] for row in label_rows)),
    )


def name_layers(text: TokenAttention) -> tuple[list[str], list[str]]:
    """What the layers are called in a table and in a sentence: numbers, or with a target the parts of the model."""
    if text.target is None:
        numbers = [str(number) for number in range(1, len(text.weights) + 1)]
        return numbers, [f"Layer {number}" for number in numbers]
    parts = {"encoder": text.weights, "decoder": text.target.own, "cross": text.target.cross}
    short = [f"{part} {number}" for part, layers in parts.items() for number in range(1, len(layers) + 1)]
    return short, [name.replace("cross", "cross-attention").capitalize() for name in short]


def pack_text(text: TokenAttention) -> dict[str, Any]:
    """A text in the form that the script reads: tokens by the names that the layers call queries and keys."""
    tokens = [show_blanks(token) for token in text.tokens]
    segments = None if text.segments is None else [int(segment) for segment in text.segments]
    name = printable(text.name) or " ".join(tokens)
    packed: dict[str, Any] = {
        "name": name if len(name) <= SHOWN else f"{name[: SHOWN - 1]}\N{HORIZONTAL ELLIPSIS}",
        "tokens": tokens,
        "segments": segments if segments and len(set(segments)) > 1 else None,
        "layers": [pack_layer(layer, "tokens", "tokens") for layer in text.weights],
    }
    if text.target is not None:
        packed["given"], packed["following"] = (
            [show_blanks(token) for token in part] for part in (text.target.given, text.target.following)
        )
        packed["layers"] += [pack_layer(layer, "given", "given") for layer in text.target.own]
        packed["layers"] += [pack_layer(layer, "following", "tokens") for layer in text.target.cross]
    return packed


def show_blanks(token: str) -> str:
    """A token with visible blanks and control characters."""
    return printable(token).replace(" ", "\N{OPEN BOX}") or "\N{EMPTY SET}"


def pack_layer(weights: ArrayLike, queries: str, keys: str) -> dict[str, Any]:
    """Weights (heads, queries, keys), each query's row scaled by its own largest weight.

    The first query of a causal model has a single key of weight 1, which would darken all others.
    """
    weights = np.asarray(weights, np.float64)
    return {"heads": len(weights), "queries": queries, "keys": keys, **quantize_rows(weights)}


def format_label_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A head's label and scores for the template: each number with its text."""
    scores = [finite(row["scores"].get(pattern)) for pattern in PATTERNS]
    return {
        "layer": int(row["layer"]),
        "head": int(row["head"]),
        "label": str(row["label"]),
        "score": f"{row['score']:.2f}",
        "cells": [(DASH, "") if score is None else (f"{score:.2f}", score) for score in scores],
    }
