"""Measures of attention heads, a number or a name each: distance, spread over tokens, type, pattern.

Shapes: B images or texts, H heads, N tokens, M keys, P patches (of `PATTERNS`: patterns), n queries of a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.analysis.capture import (
    Analysis,
    AttentionCall,
    Patches,
    ShowCount,
    attention_maps,
    average_per_head,
    find_attention_layers,
    find_patches,
    has_patches,
    in_chunks,
    takes_images,
    track_progress,
    visit_attention,
)
from vitlab.config.schema import AnalysisConfig
from vitlab.models.text import TextModel
from vitlab.tasks.base import TokenInputs


def attention_distance(
    weights: Tensor,
    grid_size: Sequence[int],
    patch_size: Sequence[int] | int,
    prefix_tokens: int = 1,
    renormalize: bool = False,
) -> Tensor:
    """Measure how far each head looks, in pixels: (H,) for weights (B, H, N, N); Dosovitskiy et al., 2021, fig. 7, 11.

    The distance between the query's patch and the key's, weighted by the attention, averaged over queries, then over
    images (appendix D.7). The rows and columns of the `prefix_tokens` first tokens are dropped. The authors' code
    leaves the rest unchanged (the default); `renormalize` divides each row by its remaining sum. grid_size is (rows,
    columns), patch_size (height, width) or a side. Raises ValueError when the sizes do not fit the weights.
    """
    rows, columns = grid_size
    height, width = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    tokens = prefix_tokens + rows * columns
    if weights.ndim != 4 or weights.shape[-2:] != (tokens, tokens):
        raise ValueError(
            f"weights of shape {tuple(weights.shape)}: a grid of {rows} x {columns} patches and {prefix_tokens} "
            f"prefix tokens needs (B, heads, {tokens}, {tokens})"
        )
    distances = patch_distances((rows, columns), (height, width)).to(weights)
    distances_of_queries = query_distances(weights[:, :, prefix_tokens:], distances, prefix_tokens, renormalize)
    return distances_of_queries.mean(dim=(0, 2))


def query_distances(weights: Tensor, distances: Tensor, prefix_tokens: int, renormalize: bool) -> Tensor:
    """Measure how far each query looks, in pixels: (B, H, n) for weights (B, H, n, N) and distances (n, P)."""
    weights = weights[..., prefix_tokens:]
    totals = (weights * distances).sum(dim=-1)
    return totals / weights.sum(dim=-1) if renormalize else totals


def patch_distances(grid_size: tuple[int, int], patch_size: tuple[int, int]) -> Tensor:
    """Compute the Euclidean distances between the patches of a grid, in pixels: (P, P), row by row."""
    axes = [torch.arange(n, dtype=torch.float64) * side for n, side in zip(grid_size, patch_size, strict=True)]
    places = torch.cartesian_prod(*axes)
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist").float()


def reference_distances(places: Patches, renormalize: bool = False) -> dict[str, float]:
    """Measure known attention on this grid, in pixels: uniform over all tokens, uniform over 3 x 3 patches.

    The uniform one looks at the prefix tokens too, so that it loses their share where nothing is renormalized. The 3 x
    3 patches surround the query's own patch; at an edge the grid has fewer of them.
    """
    rows, columns = places.grid_size
    cells = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).float()
    near = (torch.cdist(cells, cells, p=float("inf")) < 1.5).float()
    distances = patch_distances(places.grid_size, places.patch_size)
    share = 1.0 if renormalize else len(cells) / places.tokens
    references = {
        "uniform attention": share * distances.mean(),
        "3 x 3 neighborhood": ((near * distances).sum(dim=1) / near.sum(dim=1)).mean(),
    }
    return {name: round(value.item(), 5) for name, value in references.items()}


def run_attention_distance(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: ShowCount | None = None
) -> dict[str, Any]:
    """Return "rows" {"layer", "head", "value"}, one per head and counted from 1, and "references" {name: pixels}.

    images (B, C, Y, X) as the model takes them. Raises UserError for a model without attention over patches.
    """
    places = find_patches(model)
    # a query that is no patch is as far as 0 from all: its row is dropped
    distances = torch.zeros(places.tokens, places.tokens - places.prefix, device=images.device)
    distances[places.prefix :] = patch_distances(places.grid_size, places.patch_size)

    def reduction(weights: Tensor, queries: slice) -> Tensor:
        return query_distances(weights, distances[queries].to(weights), places.prefix, config.renormalize)

    rows = average_per_head(model, images, reduction, places.prefix, progress)
    return {"rows": rows, "references": reference_distances(places, config.renormalize)}


def query_entropies(weights: Tensor) -> Tensor:
    """Compute -sum_k w log w (B, H, n) for weights (B, H, n, M); a weight of 0 adds nothing.

    It tells over how many tokens a head spreads (Clark et al., 2019, section 3.3; Zhai et al., 2023): 0 where a query
    looks at one key, log M where it looks evenly at all M keys that it may look at. In a causal model query i has i + 1
    keys, so uniform attention over N tokens has the mean of log 1 .. log N, and a padded text has fewer keys than a
    full text. So compare heads of one model; between models that see other numbers of keys, compare shares of the
    value that uniform attention has in each.
    """
    return torch.special.entr(weights).sum(dim=-1)


def run_attention_entropy(
    model: nn.Module, inputs: Tensor | TokenInputs, config: AnalysisConfig, progress: ShowCount | None = None
) -> dict[str, Any]:
    """Return "rows" {"layer", "head", "value"}, one per head and counted from 1, and "references" {name: nats}.

    The inputs are images (B, C, Y, X) as the model takes them, tokens (B, N), or a `TokenInputs`, whose padding is
    neither query nor key; an encoder-decoder is measured at its encoder. There is no reference where layers differ in
    their number of keys. Raises UserError for a model without attention.
    """
    reduction = lambda weights, _: query_entropies(weights)  # noqa: E731
    shown = inputs if isinstance(inputs, TokenInputs) else inputs[:1]  # all images have the same number of tokens
    uniform = {row["value"] for row in average_per_head(model, shown, reduction, uniform=True)}
    return {
        "rows": average_per_head(model, inputs, reduction, progress=progress),
        "references": {"uniform attention": uniform.pop()} if len(uniform) == 1 else {},
    }


TYPES = ("row", "column", "local", "global", "sink")


class Totals:
    """Sums over queries, for the scores of heads; `like` (B, H, ...) gives the numbers of images and heads.

    A head looks along rows, along columns, nearby, everywhere, or at a sink. Local and global heads are as in Raghu
    et al., 2021; sinks are tokens that all queries look at, whatever they are: registers, the class token (Darcet et
    al., 2024), one patch. The scores are this project's own.
    """

    def __init__(self, grid_size: Sequence[int], prefix_tokens: int, like: Tensor):
        rows, columns = self.grid_size = tuple(grid_size)
        places, dtype = torch.arange(rows * columns, device=like.device), torch.float64
        # from each patch to each column and to each row of the grid: (P, columns) and (P, rows)
        self.across = (places % columns).unsqueeze(1).sub(torch.arange(columns, device=like.device)).abs().float()
        self.down = (places // columns).unsqueeze(1).sub(torch.arange(rows, device=like.device)).abs().float()
        self.prefix = prefix_tokens
        self.moved = torch.zeros(2, *like.shape[:2], device=like.device, dtype=dtype)
        self.received = torch.zeros(*like.shape[:2], rows * columns, device=like.device, dtype=dtype)

    def add(self, weights: Tensor, queries: slice) -> None:
        """Add the weights (B, H, n, N) of some of the N queries."""
        start, stop = (max(place - self.prefix, 0) for place in (queries.start, queries.stop))
        chosen = slice(start, stop)  # of the patches
        weights = weights[:, :, weights.shape[2] - (stop - start) :, self.prefix :]
        grids = weights.unflatten(-1, self.grid_size)
        self.moved[0] += torch.einsum("bhqc,qc->bh", grids.sum(dim=-2), self.across[chosen].to(weights))
        self.moved[1] += torch.einsum("bhqr,qr->bh", grids.sum(dim=-1), self.down[chosen].to(weights))
        self.received += weights.sum(dim=2)

    def scores(self) -> Tensor:
        """Compute the scores (B, H, 5) of each head's types, in the order of `TYPES`; they sum to 1.

        The patches' queries alone count. `sink` is the attention to the prefix tokens and to the one patch that gets
        most, beyond its even share. The rest is shared out by how far the heads look across and down: with x and y the
        mean distance in columns and in rows, over that of uniform attention and at most 1, row x (1 - y), column
        (1 - x) y, local (1 - x) (1 - y), global x y.
        """
        patches = self.received.shape[-1]
        seen = self.received.sum(dim=-1)  # of the attention of as many queries as patches

        def spread(moved: Tensor, even: Tensor) -> Tensor:
            # where nothing goes to patches, or the grid is one patch wide, nothing moves
            return (moved / (seen * even.mean()).clamp(min=1e-12)).clamp(max=1)

        x, y = spread(self.moved[0], self.across), spread(self.moved[1], self.down)
        share = self.received.amax(dim=-1) / seen.clamp(min=1e-12)
        patch_sink = ((share - 1 / patches) / max(1 - 1 / patches, 1e-12)).clamp(0, 1)
        other = seen / patches * (1 - patch_sink)
        kinds = [other * part for part in (x * (1 - y), (1 - x) * y, (1 - x) * (1 - y), x * y)]
        return torch.stack([*kinds, 1 - other], dim=-1)


def run_head_types(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: ShowCount | None = None
) -> list[dict[str, Any]]:
    """Return one row {"layer", "head", "type", "value", "row", "column", "local", "global", "sink"} per head.

    Both counted from 1; "type" has the highest score, "value" is that score. Raises UserError for a model without
    attention over patches.
    """
    places = find_patches(model)
    sums: dict[int, Tensor] = {}
    for chunk in in_chunks(images, progress):

        def visit(layer: int, call: AttentionCall) -> None:
            totals = Totals(places.grid_size, places.prefix, call.q)
            for queries, weights in call.blocks():
                totals.add(weights, queries)
            sums[layer] = sums.get(layer, 0) + totals.scores().sum(dim=0)

        visit_attention(model, chunk, visit)
    rows = []
    for layer in sorted(sums):
        for head, scores in enumerate((sums[layer] / len(images)).tolist(), 1):
            named = {name: round(score, 5) for name, score in zip(TYPES, scores, strict=True)}
            kind = max(named, key=named.__getitem__)
            rows.append({"layer": layer + 1, "head": head, "type": kind, "value": named[kind], **named})
    return rows


SEQUENCES = 16  # looked at together

PATTERNS = {
    "next token": "attention to the token that follows",
    "previous token": "attention to the token before",
    "same token": "attention to other places that hold the same token, special tokens aside",
    "same sentence": "attention between the words of one segment, where there are words of another to attend to",
    "null": "attention to the special tokens, in a causal model to the first token",
}
LABEL = 0.5  # a head is named after a pattern when half of its attention beyond uniform follows it
PART = 0.25  # a head without such a pattern is mixed when two of the narrow ones have a quarter each
BROAD = "same sentence"  # holds most of what the narrow patterns do: names a head only when none of them does


@dataclass(frozen=True)
class Targets:
    """The keys and queries by which patterns are measured in one batch."""

    tokens: Tensor  # bool (B, N): those that are no padding
    keys: Tensor  # bool (P, B, N, N): for each query the keys of the pattern
    queries: Tensor  # bool (P, B, N): the queries that have a choice
    uniform: Tensor  # float64 (P, B, N): the mass under uniform attention


def pattern_targets(
    tokens: Tensor, mask: Tensor, special: Tensor, segments: Tensor | None = None, causal: bool = False
) -> Targets:
    """Find the keys of each of `PATTERNS` for tokens (B, N).

    mask bool (B, N) is False at padding, special bool (B, N) is True at tokens such as [CLS] and [SEP], segments
    (B, N) tell the sentences; without them none is in another sentence. In a causal model a query attends to no
    later key.
    """
    mask, words = mask.bool(), mask.bool() & ~special.bool()
    allowed = mask[:, :, None] & mask[:, None, :]
    if causal:
        allowed = allowed.tril()
    place = torch.arange(tokens.shape[1], device=tokens.device)
    ahead = place[None, :] - place[:, None]
    others = words[:, :, None] & words[:, None, :] & (ahead != 0) & allowed
    same_segment = torch.ones_like(allowed) if segments is None else segments[:, :, None] == segments[:, None, :]
    sinks = mask & (mask.cumsum(1) == 1) if causal else mask & special.bool()
    keys = torch.stack(
        [
            allowed & (ahead == 1),
            allowed & (ahead == -1),
            others & (tokens[:, :, None] == tokens[:, None, :]),
            others & same_segment & (others & ~same_segment).any(-1, keepdim=True),
            allowed & sinks[:, None, :],
        ]
    )
    wanted, possible = keys.sum(-1), allowed.sum(-1)
    return Targets(mask, keys, (wanted > 0) & (wanted < possible), wanted.double() / possible.clamp(min=1))


class HeadPatterns:
    """Scores that tell which known pattern each attention head follows, over many batches; only sums are kept.

    Vig, 2019, arXiv 1906.05714; Clark et al., 2019, arXiv 1906.04341. A pattern names the keys that a query attends to.
    Its mass is the share of the attention that these keys get, over the queries that have a choice: at least one such
    key, and one other key. Its score is the mass beyond the mass of uniform attention over the allowed keys,
    (mass - uniform) / (1 - uniform), as in Cohen's kappa: 0 for uniform attention (and below it), 1 when all
    attention follows the pattern. Padding is neither query nor key.
    """

    def __init__(self):
        self.sums: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # layer -> mass (P, H), uniform (P,), queries (P,)

    def add(self, layer: int, weights: Tensor, targets: Targets) -> None:
        """Count a batch's weights (B, H, N, N) of one layer; `targets` serve all layers of the batch."""
        # a row of padding may hold NaN: it had no key to attend to
        weights = weights.masked_fill(~targets.tokens[:, None, :, None], 0.0).float()
        sums = []
        for keys, queries in zip(targets.keys, targets.queries, strict=True):
            mass = torch.einsum("bhqk,bqk->bhq", weights, keys.to(weights)).double()
            sums.append((mass * queries[:, None]).sum((0, 2)))
        uniform = (targets.uniform * targets.queries).sum((1, 2))
        counted = [torch.stack(sums), uniform, targets.queries.sum((1, 2))]
        before = self.sums.get(layer, (0, 0, 0))
        self.sums[layer] = tuple(old + new.cpu() for old, new in zip(before, counted, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """Return one row {"layer", "head", "label", "score", "scores", "mass"} per head, counted from 1.

        "scores" and "mass" have a value in 0..1 per pattern, None where no query could follow it: in a causal model
        "next token", without a second segment "same sentence". "score" is the label's score; for "mixed" and "none" the
        largest score.
        """
        rows = []
        for layer, (masses, uniform, queries) in sorted(self.sums.items()):
            for head, mass in enumerate(masses.T):
                score = ((mass - uniform) / (queries - uniform)).clamp(0, 1).tolist()
                share = (mass / queries).clamp(0, 1).tolist()
                scores, shares = (
                    {name: round(x, 5) if n else None for name, x, n in zip(PATTERNS, values, queries, strict=True)}
                    for values in (score, share)
                )
                label, best = head_label(scores)
                row = {"layer": layer + 1, "head": head + 1, "label": label, "score": best}
                rows.append(row | {"scores": scores, "mass": shares})
        return rows


def head_label(scores: dict[str, float | None]) -> tuple[str, float]:
    """Name the leading pattern with its score; "mixed" or "none" with the largest score if none reaches `LABEL`."""
    defined = {name: score for name, score in scores.items() if score is not None}
    if not defined:
        return "none", 0.0
    narrow = {name: score for name, score in defined.items() if name != BROAD}
    for some in (narrow, defined):
        leader = max(some, key=some.get, default=None)
        if leader is not None and some[leader] >= LABEL:
            return leader, some[leader]
    return "mixed" if sum(score >= PART for score in narrow.values()) >= 2 else "none", max(defined.values())


def run_head_patterns(
    model: nn.Module, inputs: TokenInputs, config: AnalysisConfig, progress: ShowCount | None = None
) -> list[dict[str, Any]]:
    """Return the rows of `HeadPatterns` over all sequences, with "value" = "score"; an encoder-decoder's encoder."""
    patterns = HeadPatterns()
    for part in track_progress(inputs.split(SEQUENCES), progress):
        targets = pattern_targets(part.tokens, part.mask, part.special, part.segments, model.text.causal)
        for layer, weights in attention_maps(model.text, part.tokens, **part.options):
            patterns.add(layer, weights, targets)
    return [{**row, "value": row["score"]} for row in patterns.rows()]


ANALYSES = {
    "attention_distance": Analysis("pixels", "attention over a grid of patches", has_patches, run_attention_distance),
    "attention_entropy": Analysis(
        "nats",
        "attention that vitlab knows, over images or texts",
        lambda model: (
            bool(find_attention_layers(model.text if isinstance(model, TextModel) else model))
            and (isinstance(model, TextModel) or takes_images(model))
        ),
        run_attention_entropy,
    ),
    "head_types": Analysis("share", "attention over a grid of patches", has_patches, run_head_types),
    "head_patterns": Analysis(
        "score",
        "attention over the tokens of a text",
        lambda model: isinstance(model, TextModel) and bool(find_attention_layers(model.text)),
        run_head_patterns,
    ),
}
