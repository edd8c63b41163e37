"""What every page shares: one file that opens with no network, in two themes, and runs no script but its own."""

import base64
import hashlib
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from PIL import Image

from vitlab.reports.figures.theme import css_variables

ASSETS = Path(__file__).parent / "assets"


def render(template: str, styles: Sequence[str], scripts: Sequence[str], script_data: Any, **values: Any) -> str:
    """The document of a template that extends page.html.j2.

    `styles` are names of files among the assets, behind page.css; `scripts` are JavaScript, run in their order at the
    end of the page, where `script_data` lies as JSON.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(sorted(ASSETS.iterdir())),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    theme = source("theme.js")
    return environment.get_template(template).render(
        light=css_variables("light"),
        dark=css_variables("dark"),
        css="".join(source(name) for name in ("page.css", *styles)),
        theme_js=theme,
        scripts=scripts,
        script_hashes=" ".join(f"'sha256-{sha256(script)}'" for script in (theme, *scripts)),
        script_data=script_data,
        **values,
    )


def source(name: str) -> str:
    """The text of a style or script among the assets."""
    return next(ASSETS.glob(f"*/{name}")).read_text()


@cache
def bundle_vega() -> str:
    """Vega-Embed with Vega and Vega-Lite as one script (0.9 MB)."""
    import vl_convert

    return vl_convert.javascript_bundle()


def pack_chart(chart: dict[str, Any]) -> dict[str, Any]:
    """A chart each of whose datasets is a list of values for each column; charts.js unpacks it."""
    return {**chart, "datasets": {name: pack_points(points) for name, points in chart["datasets"].items()}}


def pack_points(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Texts are places in `words`, since many points have the same; numbers have five digits."""
    words: dict[str, int] = {}
    columns = {
        key: [
            words.setdefault(value, len(words))
            if isinstance(value := point.get(key), str)
            else float(f"{value:.5g}")
            if isinstance(value, float)
            else value
            for point in points
        ]
        for key in dict.fromkeys(key for point in points for key in point)
    }
    texts = [key for key in columns if any(isinstance(point.get(key), str) for point in points)]
    return {"columns": columns, "words": list(words), "texts": texts}


def data_address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def draw_picture(image: np.ndarray) -> str:
    """The data address of an image uint8 (C, Y, X); a single channel is a greyscale file, which is a third as large."""
    file = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(file, "PNG", optimize=True)
    return data_address(file.getvalue(), "image/png")


def sha256(text: str) -> str:
    """Of a script, as the page's content security policy wants it: no other script runs."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
