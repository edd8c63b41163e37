"""A look at a folder of pictures as one page: counts, sizes, examples of each class, copies side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import printable
from vitlab.data.images import decode
from vitlab.data.look import Look, describe, describe_duplicates, describe_pair, suggest
from vitlab.files import write_text
from vitlab.formatting import plural
from vitlab.reports import encode_picture
from vitlab.reports.pages import render

CLASSES, EXAMPLES, PAIRS = 12, 6, 30  # shown, of each class, and of copies
SIDE = 96  # pixels of a thumbnail's longer side


def write_data_page(path: Path, look: Look, facts: Mapping[str, Any]) -> Path:
    """Write the page of a look and its facts (`data.look.summarize`), about a megabyte; return its path.

    Names of files and classes are shown with their control characters, as text.
    """
    classes, pairs = list(facts["classes"].items()), facts["duplicates"]
    left, name = len(classes) - CLASSES, printable(look.root.resolve().name)
    suggested = [("suggested", suggest(facts))] if suggest(facts) else []
    text = render(
        "data_look.html.j2",
        styles=["looks.css"],
        title=f"{name}: a look at the data",
        name=name,
        about=["a look at the data"],
        heading=f"{plural(facts['pictures'], 'picture')} in {plural(len(classes), 'class', 'classes')}",
        problems=[printable(problem) for problem in facts["problems"]],
        facts=[(printable(what), printable(text)) for what, text in [*describe(facts), *suggested]],
        splits=list(facts["splits"]),
        counts=[[printable(label), *(f"{n:,}" for n in numbers.values())] for label, numbers in classes],
        examples=[
            draw(look.root, list_examples(look, label), [label], facts["bits"]) for label, _ in spread(classes, CLASSES)
        ],
        more_classes=plural(left, "class", "classes") if left > 0 else "",
        duplicates=describe_duplicates(facts),
        pairs=[
            draw(look.root, both, [*both, describe_pair(pair)], facts["bits"])
            for pair in pairs[:PAIRS]
            for both in [(pair["first"], pair["second"])]
        ],
        more_pairs=max(0, len(pairs) - PAIRS),
        unreadable=[(printable(file["reason"]), printable(file["path"])) for file in facts["unreadable"]],
    )
    write_text(path, text)
    return path


def list_examples(look: Look, label: str) -> list[str]:
    """List paths of pictures of a class, spread over its files, of the first split that has any."""
    paths: dict[str, list[str]] = {}
    for picture, (part, name) in zip(look.pictures, look.places, strict=True):
        if name == label:
            paths.setdefault(part, []).append(picture.path)
    return spread(next((paths[part] for part in look.listed if part in paths), []), EXAMPLES)


def draw(root: Path, paths: Sequence[str], lines: Sequence[str], bits: int) -> tuple[list[tuple[str, str]], list[str]]:
    """Draw pictures side by side, each (data address, path), with the lines of text below them."""
    pictures = [(draw_thumbnail(root / path, bits), printable(path)) for path in paths]
    return pictures, [printable(line) for line in lines]


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """Choose at most `most` of the items, evenly spread, the first and the last among them."""
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, min(most, len(items)))]


def draw_thumbnail(path: Path, bits: int) -> str:
    """Draw a thumbnail of a picture, upright, as a data address, sides up to SIDE; "" if it cannot be read now."""
    try:
        with decode.open_image(path) as image:
            image.draft(None, (2 * SIDE, 2 * SIDE))
            return encode_picture(decode.flatten(decode.upright(image, 4 * SIDE, bits), "RGB"), SIDE)
    except Exception:  # Pillow's readers raise a dozen types; the file has changed since it was read
        return ""
