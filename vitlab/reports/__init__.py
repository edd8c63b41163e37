"""Outputs of a study: words, figures, pages, and W&B. This module holds their shared parts and imports nothing heavy.

Each family has one accent, and markers tell families apart without colour. Accents keep a CIELAB distance of at least
13 from each other under simulated protanopia, deuteranopia and tritanopia, and a contrast of at least 4 to 1 with the
paper (WCAG asks 3 to 1 of graphics).
"""

import base64
import io
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING

from vitlab.files import replacing

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

THEMES: dict[str, dict[str, str]] = {
    "light": {
        "paper": "#fcfcfb",
        "ink": "#1b1d21",
        "muted": "#5b616a",
        "grid": "#e3e4e6",
        "untrained": "#8b9098",
        "vit": "#0b63b5",
        "resnet": "#bf4b08",
        "third": "#0b8760",
        "fourth": "#7d2a6a",
        "fifth": "#4f4a10",
    },
    "dark": {
        "paper": "#131519",
        "ink": "#e9eaec",
        "muted": "#a2a8b1",
        "grid": "#2c3037",
        "untrained": "#868c95",
        "vit": "#6ab0ff",
        "resnet": "#ff9250",
        "third": "#b4efe0",
        "fourth": "#d85fa9",
        "fifth": "#f6e6a6",
    },
}
FIXED = ("vit", "resnet")  # families that keep their accent in every study
OTHERS = ("third", "fourth", "fifth")
ACCENTS = (*FIXED, *OTHERS)
SHARP = 32  # pixels: pictures up to this size are stored without loss
SCALE = 2  # pixels of the PNG per pixel of the SVG
MARKERS = ("circle", "square", "triangle", "diamond", "triangle-down", "cross", "triangle-left")


@dataclass(frozen=True)
class Look:
    """The look of a model in drawings: a key of the themes and a marker."""

    colour: str
    marker: str = "circle"


def looks(families: Mapping[str, str]) -> dict[str, Look]:
    """Choose each model's look: color for the family, marker for the model; in a single family both for the model."""
    if len(set(families.values())) == 1:
        family = next(iter(families.values()))
        first = FIXED.index(family) if family in FIXED else len(FIXED)
        return {model: group_look(first + place) for place, model in enumerate(families)}
    if len(set(families.values())) > len(OTHERS) and not {*families.values()} & {*FIXED}:
        return {model: group_look([*dict.fromkeys(families.values())].index(of)) for model, of in families.items()}
    others = sorted({family for family in families.values() if family not in FIXED})
    places = {family: place for place, family in enumerate([*FIXED, *others])}
    by_model: dict[str, Look] = {}
    members = dict.fromkeys(places, 0)
    for model, family in families.items():
        place, member = places[family], members[family]
        members[family] += 1
        key = family if family in FIXED else OTHERS[(place - len(FIXED)) % len(OTHERS)]
        by_model[model] = Look(key, MARKERS[(place + member) % len(MARKERS)])
    return by_model


def group_look(place: int) -> Look:
    """Return the look of group number `place`: the first 35 groups differ in color or marker."""
    return Look(ACCENTS[place % len(ACCENTS)], MARKERS[(place + place // len(ACCENTS)) % len(MARKERS)])


def css_variables(theme: str) -> str:
    """Format the theme as CSS custom properties: `--paper:#fcfcfb;...`."""
    return "".join(f"--{key}:{value};" for key, value in THEMES[theme].items())


def follow_parent() -> None:
    """Make a drawing process ignore Ctrl-C, which its parent handles, and end when its parent ends."""

    def wait() -> None:
        parent_process().join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=wait, daemon=True).start()


def encode_picture(picture: "np.ndarray | Image.Image", most: int | None = None) -> str:
    """Encode an image, or an array uint8 (C, Y, X), as a data: URL; its longer side gets at most `most` pixels."""
    from PIL import Image

    file = io.BytesIO()
    if not isinstance(picture, Image.Image):  # a greyscale file is a third as large
        picture = Image.fromarray(picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0))
    if most is not None:
        picture.thumbnail((most, most))
    kind = "PNG" if most is None or max(picture.size) <= SHARP else "JPEG"
    picture.save(file, kind, quality=85, optimize=True)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def write_chart(description: str, title: str, stem: Path) -> list[Path]:
    """Write a Vega-Lite chart (`description`: JSON) as `<stem>.svg` and `<stem>.png`; return their paths."""
    import vl_convert
    from PIL import Image, PngImagePlugin

    svg = vl_convert.vegalite_to_svg(description)
    drawn = io.BytesIO(vl_convert.svg_to_png(svg, scale=SCALE))
    pixels = Image.open(drawn, formats=["PNG"]).convert("RGB")
    named = PngImagePlugin.PngInfo()
    named.add_itxt("Title", title)
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("svg", "png")]
    with replacing(paths[0]) as file:
        file.write(svg.encode())
    with replacing(paths[1]) as file:
        pixels.save(file, format="PNG", pnginfo=named)
    return paths
