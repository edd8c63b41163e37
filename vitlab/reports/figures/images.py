"""Shaded cells and small pictures: drawings of analyses, the figures of one model, samples of a study's data."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
import pandas as pd
from PIL import Image

from vitlab.config import printable
from vitlab.data.base import CaptionData, TextData
from vitlab.data.split import nested_items
from vitlab.files import write_json
from vitlab.formatting import TIMES, file_stem, finite, plural, weights_name
from vitlab.reports import Look, encode_picture
from vitlab.reports.figures import COLOURS, DASHED, Figure, axis, by_look

if TYPE_CHECKING:
    from vitlab.analysis.capture import Findings
    from vitlab.config.schema import AnalysisConfig
    from vitlab.tasks.base import Task

VECTORS = 2500
LARGE, WIDEST = 30, 760  # pixels: the side of a cell at most, and of all of them together
LABEL_SIDE, TEXT_SIDE = 9, 20  # pixels: the least side that a label, and a text in a cell, has room in
LETTERS = 20  # of a class's name
BLOCK = "encoder.blocks."  # and a number: such layers are 1, 2, ... as in all figures
SHARES = ([0.0, 1 / 9, 4 / 9, 1.0], ["#ffffff", "#a8cbec", COLOURS["vit"], "#05325b"])  # a few percent are seen
DARK = 0.3  # of the shares: above it a text is white
TILE, SPACE = 84, 4  # pixels: the side of a square tile, whose area all others have, and between two
# viridis (Smith and van der Walt, 2015) at even steps, read by the colour-blind too
STEPS = (
    "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26818e 21908c 1f9f88 28ae80 3ebc74 5dc963 82d34c abdc32 d5e21a"
)
ANCHORS = np.array([list(bytes.fromhex(step)) for step in f"{STEPS} fde725".split()])
SHADES = np.stack([np.interp(np.linspace(0, 1, 256), np.linspace(0, 1, len(ANCHORS)), of) for of in ANCHORS.T], axis=1)
MOST = 8  # pictures of maps
PICTURE = 0.45  # of a tile's brightness that is the picture's
ACROSS = 7  # filters beside each other
ENDS = (-1.0, 1.0)  # of similarities
MOST_CLASSES = 50  # of a confusion matrix: more have no room for their names
OTHERS = "(other classes)"
IMAGES, CAPTIONED, TEXTS = 12, 6, 2  # samples of a size: images, images with captions, texts
EXCERPT = 400  # letters of a text
CELL = 64  # pixels: the longer side of a sample at most

Matrix = Sequence[Sequence[float | None]]


# ---- cells and tiles


def draw_cells(
    values: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    x: str,
    y: str,
    scale: str = "",
    ends: tuple[float, float] | None = None,
    texts: Sequence[Sequence[str]] = (),
) -> alt.LayerChart:
    """Draw square cells, with as many labels as there is room for, and `texts` in large ones.

    Shares in 0..1, whose shade goes with their square root, unless `ends` are the values of the lightest and the
    darkest shade. None has no shade. `scale` says what a shade means.
    """
    side = min(LARGE, WIDEST / max(len(rows), len(columns), 1))
    every = next(n * 10**k for k in range(9) for n in (1, 2, 5) if n * 10**k >= LABEL_SIDE / side)
    domain, shades = SHARES if ends is None else (list(np.linspace(*ends, 4)), SHARES[1])
    ticks = {"values": [0, 0.05, 0.2, 0.5, 1], "format": "~%"} if ends is None else {"format": "~g"}
    color = shade(domain, shades, scale, 150, **ticks)
    places = {"x": place_cells(alt.X, x, columns, every, labelAngle=-90), "y": place_cells(alt.Y, y, rows, every)}
    size = {"width": side * len(columns), "height": side * len(rows)}
    if len(rows) * len(columns) > VECTORS:
        table = np.array([[math.nan if value is None else value for value in line] for line in values], dtype=float)
        colours = np.array([list(bytes.fromhex(shade[1:])) for shade in shades], dtype=float)
        shaded = np.stack([np.interp(table, domain, channel) for channel in colours.T], axis=-1)
        shaded = np.where(np.isnan(table)[..., None], 255, shaded).round().astype(np.uint8)
        return frame_picture(shaded, places, color, domain, size)
    cells = [
        (i, j, value, texts[i][j] if texts else "")
        for i, line in enumerate(values)
        for j, value in enumerate(line)
        if value is not None
    ]
    base = alt.Chart(pd.DataFrame(cells, columns=["row", "column", "value", "text"])).encode(**places)
    layers = [base.mark_rect(stroke=COLOURS["grid"], strokeWidth=0.4).encode(color=color).properties(name="cells")]
    if texts and side >= TEXT_SIDE:
        dark = DARK if ends is None else sum(ends) / 2  # a square root is dark earlier
        ink = alt.condition(f"datum.value > {dark}", alt.value("white"), alt.value(COLOURS["ink"]))
        layers.append(base.mark_text(fontSize=9).encode(text="text:N", color=ink))
    return alt.layer(*layers).properties(**size)


def shade(domain: Sequence[float], shades: Sequence[str], title: str, length: float, **legend: Any) -> alt.Color:
    """Encode a value's shade; leave its legend out if it has no title."""
    scale = alt.Scale(domain=[*domain], range=[*shades], clamp=True, interpolate="rgb")
    shown = alt.Legend(title=title, orient="right", gradientLength=length, **legend) if title else None
    return alt.Color("value:Q", scale=scale, legend=shown)


def place_cells(channel: Any, title: str, names: Sequence[str], every: int, **options: Any) -> Any:
    """Encode rows or columns by their place, with the name of every `every`-th as label."""
    labels = [
        name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
        for name in map(printable, names)
    ]
    bare = dict.fromkeys(("labelOverlap", "grid", "ticks", "domain"), False)
    axis = alt.Axis(
        title=title or None,
        values=list(range(0, len(names), every)),
        labelExpr=f"{json.dumps(labels)}[datum.value]",
        labelLimit=0,
        **bare,
        **options,
    )
    field = "row" if channel is alt.Y else "column"
    return channel(f"{field}:O", scale=alt.Scale(domain=list(range(len(names))), padding=0), axis=axis)


def frame_picture(
    pixels: np.ndarray, places: dict[str, Any], color: alt.Color, domain: Sequence[float], size: dict[str, float]
) -> alt.LayerChart:
    """Draw an image uint8 (Y, X, 3) that fills its axes, each pixel a sharp rectangle."""
    factor = max(1, math.ceil(2 * max(size["width"] / pixels.shape[1], size["height"] / pixels.shape[0])))
    large = Image.fromarray(pixels.repeat(factor, axis=0).repeat(factor, axis=1))
    address = encode_picture(large.quantize(256, dither=Image.Dither.NONE))
    corners = pd.DataFrame({"row": [0, 0], "column": [0, 0], "value": [domain[0], domain[-1]]})
    picture = alt.Chart(pd.DataFrame({"url": [address]}), name="picture").mark_image(
        **size, align="left", baseline="top", aspect=False
    )
    axes = alt.Chart(corners, name="axes").mark_rect(opacity=0).encode(**places, color=color)
    picture = picture.encode(x=alt.value(0), y=alt.value(0), url="url:N")
    return alt.layer(axes, picture).properties(**size)


def draw_tiles(
    images: np.ndarray,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    *,
    x: str = "",
    y: str = "",
    scale: str = "",
    ends: tuple[float, float] = (0.0, 1.0),
) -> alt.LayerChart:
    """Draw small pictures uint8 (rows, columns, Y, X, 3) side by side, with the labels of rows and columns.

    `scale` says what a shade means, `ends` are the values of the darkest and the brightest; "" shows no scale.
    """
    down, across, tall, wide = images.shape[:4]
    unit = min(TILE / math.sqrt(tall * wide), WIDEST / (across * wide), WIDEST / (down * tall))
    factor = max(1, round(2 * unit))
    gap = max(1, round(SPACE * factor / unit / 2)) if unit * min(tall, wide) > 3 * SPACE else factor
    large = images.repeat(factor, axis=2).repeat(factor, axis=3)
    large = np.pad(large, ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0)), constant_values=255)
    sheet = large.swapaxes(1, 2).reshape(down * large.shape[2], across * large.shape[3], 3)
    size = {"width": sheet.shape[1] * unit / factor, "height": sheet.shape[0] * unit / factor}
    every = [max(1, math.ceil(16 / side)) for side in (tall * unit, wide * unit / 2)]
    places = {
        "x": place_cells(alt.X, x, list(columns) or [""] * across, every[1], labelAngle=0, orient="top"),
        "y": place_cells(alt.Y, y, list(rows) or [""] * down, every[0]),
    }
    shades = [f"#{bytes(anchor.tolist()).hex()}" for anchor in ANCHORS]
    domain = np.linspace(*ends, len(shades)).tolist()
    length = min(150, max(40, size["height"]))
    return frame_picture(sheet, places, shade(domain, shades, scale, length, format="~g"), domain, size)


def is_wide(images: np.ndarray) -> bool:
    """Tell whether pictures (..., Y, X, 3) are so wide that they fit better one below the other."""
    return images.shape[-2] > 3 * images.shape[-3]


def shade_values(values: np.ndarray, ends: tuple[float, float] | None = None) -> np.ndarray:
    """Shade values (..., Y, X) as uint8 (..., Y, X, 3), between `ends`, by default the least and largest value."""
    low, high = (float(values.min()), float(values.max())) if ends is None else ends
    shares = np.clip((values - low) / (high - low), 0, 1) if high > low else np.zeros_like(values, dtype=float)
    return SHADES[(255 * shares).round().astype(int)].round().astype(np.uint8)


def to_pixels(image: np.ndarray) -> np.ndarray:
    """Convert an image uint8 (C, Y, X) to uint8 (Y, X, 3); other than 3 channels become their mean, in grey."""
    if len(image) != 3:
        image = np.repeat(image.mean(axis=0, keepdims=True).round().astype(np.uint8), 3, axis=0)
    return np.moveaxis(image, 0, -1)


# ---- drawings of analyses


def matrix(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw a row and a column per layer, named where the names are short and say more than a number.

    Reads rows with "layer", "other" and "value" in 0..1, perhaps "name" and "other_name" of the two. The columns are
    the layers of the run `config.other` if there is one. A value that is None has no shade.
    """
    cells = {(row["layer"], row["other"]): row["value"] for row in found.rows}
    rows, columns = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    against = vars(config).get("other")
    values = [[cells.get((row, column)) for column in columns] for row in rows]
    texts = [["" if value is None else f"{value:.2f}" for value in line] for line in values]
    labels = []
    for side, name in (("layer", "name"), ("other", "other_name")):
        names = {row[side]: row.get(name, "") for row in found.rows}
        readable = all(text and len(text) <= LETTERS and not text.startswith(BLOCK) for text in names.values())
        labels.append([names[layer] if readable else str(layer) for layer in sorted(names)])
    words = {"x": f"layer of {weights_name(str(against))}" if against else "layer", "y": "layer", "scale": found.unit}
    yield Figure(file_stem(found.name), title, draw_cells(values, *labels, texts=texts, ends=(0.0, 1.0), **words))


def alignment(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw attention of target tokens, down, over source tokens, across.

    Reads arrays "weights" (B, H, N, S), "sources" (B, S) and "targets" (B, N); draws the last head of each pair, which
    is the mean of several heads, and each head of the first pair.
    """
    heads = [row["head"] for row in found.rows[-found.arrays["weights"].shape[1] :]]
    for pair, (weights, sources, targets) in enumerate(
        zip(*(found.arrays[name] for name in ("weights", "sources", "targets")), strict=True), 1
    ):
        sources, targets = ([token for token in tokens if token] for tokens in (sources.tolist(), targets.tolist()))
        for head, values in list(zip(heads, weights, strict=True))[0 if pair == 1 else -1 :]:
            name = {"mean": ", mean of the heads", 1: ""}.get(head if len(heads) > 1 else 1, f", head {head}")
            values = values[: len(targets), : len(sources)].astype(float)
            texts = [[f"{100 * value:.0f}" if value >= 0.005 else "" for value in row] for row in values]
            words = {"x": "source", "y": "target", "scale": "attention of the target token"}
            suffix = "" if head in ("mean", heads[-1]) else f"-head{head}"
            chart = draw_cells(values.tolist(), targets, sources, texts=texts, **words)
            yield Figure(file_stem(f"{found.name}-{pair}{suffix}"), f"{title}{name}", chart)


def attention_overlay(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw maps of attention (B, gy, gx), or the last layer of (B, layers, heads, gy, gx), over their pictures."""
    maps = found.array[:MOST]
    maps = maps[:, None] if maps.ndim == 3 else maps[:, -1]
    pairs = [(to_pixels(image), of_heads) for image, of_heads in zip(found.images[:MOST], maps, strict=False)]
    drawn = []
    for picture, of_heads in pairs:  # below the shades of each map, bilinear between patch centres
        size, grey = picture.shape[1::-1], picture.mean(axis=-1, keepdims=True)
        shown = (Image.fromarray(head.astype(np.float32)).resize(size, Image.Resampling.BILINEAR) for head in of_heads)
        over = (PICTURE * grey + (1 - PICTURE) * shade_values(np.asarray(large)) for large in shown)
        drawn.append([picture, *(values.round().astype(np.uint8) for values in over)])
    images = np.array(drawn)
    labels = [] if found.labels is None else found.labels[: len(images)]
    rows = [str(found.classes[label]) if label < len(found.classes) else "" for label in labels]
    heads = maps.shape[1]
    columns = ["picture", *(f"head {head + 1}" for head in range(heads))] if heads > 1 else ["picture", "map"]
    if heads == 1 and not is_wide(images):  # a narrow column of pairs would waste the page
        images, rows, columns = images.swapaxes(0, 1), columns, rows
    yield Figure(file_stem(found.name), title, draw_tiles(images, rows, columns, scale="within each map"))


def filters(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw filters (n, C, Y, X), each scaled by its largest absolute value: 0 is a middle grey."""
    largest = np.abs(found.array).max(axis=(1, 2, 3), keepdims=True)
    shown = (127.5 + 127.5 * found.array / np.where(largest > 0, largest, 1)).round().astype(np.uint8)
    tiles = [to_pixels(component) for component in shown]
    rows = -(-len(tiles) // ACROSS)
    columns = -(-len(tiles) // rows)  # as even rows as can be; missing tiles are white
    tiles += [np.full_like(tiles[0], 255)] * (rows * columns - len(tiles))
    sheet = np.stack(tiles).reshape(rows, columns, *tiles[0].shape)
    yield Figure(file_stem(found.name), title, draw_tiles(sheet, x="row by row, most variance first; grey is 0"))


def receptive_fields(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw a picture per layer, each from 0 to its peak: an array (n, Y, X), a row with "layer" and "grid" for each."""
    fields = np.stack([shade_values(field, (0.0, float(field.max()))) for field in found.array])
    names = [f"layer {row['layer']}, {TIMES.join(map(str, row['grid']))}" for row in found.rows]
    placed = (fields[:, None], names, ()) if is_wide(fields) else (fields[None], (), names)
    words = {"x": "what the middle unit of each layer's map sees", "scale": "share of the peak"}
    yield Figure(file_stem(found.name), title, draw_tiles(*placed, **words))


def similarity_grid(found: "Findings", config: "AnalysisConfig", title: str) -> Iterator[Figure]:
    """Draw a small map at each place, of its likeness to every place: an array (rows, columns, Y, X) in -1..1."""
    rows, columns = ([str(place + 1) for place in range(count)] for count in found.array.shape[:2])
    names = {"x": "column of the patch", "y": "row of the patch", "scale": found.unit, "ends": ENDS}
    yield Figure(file_stem(found.name), title, draw_tiles(shade_values(found.array, ENDS), rows, columns, **names))


DRAWINGS = (matrix, alignment, attention_overlay, filters, receptive_fields, similarity_grid)


# ---- one model: classes taken for others, what a confidence is worth, how alike its positions are


def plot_confusion_matrix(counts: np.ndarray, classes: Sequence[str], subject: str) -> Figure:
    """Plot shares of `counts` int (C, C): a row per true class, its images by predicted class, with their number.

    Above MOST_CLASSES only the classes that are right least often; all other predictions are one column.
    """
    title, rows = f"Predicted by true class, {subject}", list(classes)
    columns, totals = rows, counts.sum(axis=1)
    if len(rows) > MOST_CLASSES:
        accuracy = np.where(totals > 0, counts.diagonal() / np.maximum(totals, 1), np.inf)  # no images: not bad
        worst = np.lexsort((-totals, accuracy))[:MOST_CLASSES]
        title += f": the {MOST_CLASSES} worst of {len(rows):,} classes"
        rows, totals = [classes[place] for place in worst], totals[worst]
        among = counts[np.ix_(worst, worst)]
        counts, columns = np.column_stack([among, totals - among.sum(axis=1)]), [*rows, OTHERS]
    shares = [
        [n / total if total else None for n in row] for row, total in zip(counts.tolist(), totals.tolist(), strict=True)
    ]
    texts = [[f"{n}" if n else "" for n in row] for row in counts.tolist()]
    words = {"x": "predicted class", "y": "true class", "scale": "share of the true class's images"}
    return Figure("confusion_matrix", title, draw_cells(shares, rows, columns, texts=texts, **words))


def plot_reliability(bins: Sequence[Sequence[float]], error: float | None, subject: str) -> Figure:
    """Plot accuracy against confidence (Guo et al., 2017, figure 1), a point per bin that has images.

    `bins` are three rows: images, mean confidence, accuracy; `error` is the expected calibration error.
    """
    frame = pd.DataFrame(dict(zip(("images", "confidence", "accuracy"), bins, strict=True))).query("images > 0")
    frame["share of all images"] = frame.images / frame.images.sum()
    suffix = "" if finite(error) is None else f" (expected calibration error {error:.1%})"
    shown = {"accuracy": Look("vit"), "share of all images": Look("third", "square")}
    of_axis: Any = {"domain": (0, 1), "percent": True, "ticks": [i / 5 for i in range(6)]}
    base = alt.Chart().encode(
        x=axis(alt.X, "confidence", "confidence: the probability of the predicted class", **of_axis),
        y=axis(alt.Y, "share", "share of the images, dashed: perfectly calibrated", **of_axis),
    )
    look, perfect = by_look("label", shown), pd.DataFrame({"confidence": [0.0, 1.0], "share": [0.0, 1.0]})
    points = base.properties(data=frame.melt("confidence", [*shown], "label", "share"))
    chart = alt.layer(
        base.mark_line(strokeDash=DASHED, color=COLOURS["untrained"]).properties(data=perfect, name="perfect"),
        points.mark_line().encode(color=look["color"]).properties(name="lines"),
        points.mark_point().encode(**look).properties(name="points"),
    )
    seen = f"Accuracy against confidence in {plural(len(frame), 'bin')} that hold images{suffix}."
    return Figure("calibration", f"Accuracy by confidence{suffix}, {subject}", chart, alt=seen)


def plot_positions(what: str, values: Matrix, subject: str) -> Figure:
    """Plot the "table" (N, D) of position embeddings, or their Euclidean "distance" or cosine "similarity" (N, N)."""
    largest = max(abs(value) for line in values for value in line) or 1.0
    scale, ends = {
        "table": ("value", (-largest, largest)),
        "distance": ("Euclidean distance", (0.0, largest)),
        "similarity": ("cosine similarity", (-1.0, 1.0)),
    }[what]
    rows, columns = ([str(place) for place in range(count)] for count in (len(values), len(values[0])))
    x = "dimension" if what == "table" else "position"
    chart = draw_cells(values, rows, columns, x=x, y="position", scale=scale, ends=ends)
    return Figure(f"position_{what}", f"{what.title()} of position embeddings, {subject}", chart)


# ---- samples of the training sets: what each size adds to the one before


def write_samples(task: "Task", data: Any, sizes: Sequence[int], folder: Path, seed: int, choice: str) -> None:
    """Write samples.json: `[{"size", "pictures", "texts"}, ...]`, sizes in ascending order; texts include captions."""
    captioned, of_text = isinstance(data, CaptionData), isinstance(data, TextData)
    count = TEXTS if of_text else CAPTIONED if captioned else IMAGES
    samples, before = [], np.empty(0, dtype=np.int64)
    for size, items in zip(sizes, nested_items(task.train, sizes, seed, choice), strict=True):
        added, before = np.setdiff1d(items, before), items
        rows = (added if of_text else np.random.default_rng(seed).permutation(added))[:count]
        pictures, texts = [], []
        if of_text:
            texts = read_excerpts(task, data, rows)
        else:
            pictures = [encode_picture(image, CELL) for image in task.train.read(rows)]
        if captioned:
            first = data.train.targets[rows, 0]
            texts = [data.tokenizer.decode(tokens[tokens >= 0]) for tokens in first]
        samples.append({"size": size, "pictures": pictures, "texts": texts})
    write_json(folder / "samples.json", samples)


def read_excerpts(task: "Task", data: TextData, items: np.ndarray) -> list[str]:
    """Decode items to text, each up to EXCERPT letters of it."""
    if not len(items):
        return []
    decode, cut = data.tokenizer.decode, lambda text: f"{text[:EXCERPT]} ..." if len(text) > EXCERPT else text
    if task.shape["head"] == "seq2seq" and len(data.train.parts) == 2:
        pairs = ([decode(part[item]).strip() for part in data.train.parts] for item in items)
        return ["\n\u2192 ".join(map(cut, pair)) for pair in pairs]
    from vitlab.data.loader import Items  # imports torch

    inputs = task.inputs(task.prepare(Items(task.train).__getitems__(items.tolist())))
    is_word = inputs.mask & ~inputs.special
    return [cut(decode(row[keep].tolist()).strip()) for row, keep in zip(inputs.tokens, is_word, strict=True)]
