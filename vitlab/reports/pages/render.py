"""What every page shares: one file that opens with no network, in two themes, and runs no script but its own."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

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


def data_address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def sha256(text: str) -> str:
    """Of a script, as the page's content security policy wants it: no other script runs."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
