"""The HTML pages: each is one file that opens with no network, in two themes, and runs no script but its own.

`assets` holds their templates, styles and scripts. Here is what the pages share.
"""

import base64
import contextlib
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from vitlab.data.cache import cache_root
from vitlab.files import write_text
from vitlab.reports import css_variables

ASSETS = Path(__file__).parent / "assets"


def render(
    template: str, styles: Sequence[str], scripts: Sequence[str] = (), script_data: Any = None, **values: Any
) -> str:
    """Render the document of a template that extends page.html.j2.

    `styles` and `scripts` are names of files among the assets, behind page.css and theme_button.js; the script "vega"
    is the library. Scripts run in their order at the end of the page, where `script_data` lies as JSON. The page's
    content security policy names the hash of each script, so that no other one runs.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(sorted(ASSETS.iterdir())),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    theme = source("theme.js")
    scripts = [bundle_vega() if name == "vega" else source(name) for name in ("theme_button.js", *scripts)]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (theme, *scripts)]
    return environment.get_template(template).render(
        light=css_variables("light"),
        dark=css_variables("dark"),
        css="".join(source(name) for name in ("page.css", *styles)),
        theme_js=theme,
        scripts=scripts,
        script_hashes=" ".join(f"'sha256-{digest}'" for digest in digests),
        script_data=script_data,
        **values,
    )


def source(name: str) -> str:
    """Read the text of a style or script among the assets."""
    return next(ASSETS.glob(f"*/{name}")).read_text()


@cache
def bundle_vega() -> str:
    """Bundle Vega-Embed, Vega and Vega-Lite as one script (0.9 MB), kept in the cache: bundling takes 1.5 s."""
    import vl_convert

    path = cache_root() / f"vega-{vl_convert.__version__}.js"
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8")
    text = vl_convert.javascript_bundle()
    with contextlib.suppress(OSError):
        write_text(path, text)
    return text
