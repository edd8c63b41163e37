"""Format numbers, names and links for a person to read."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

DASH = "\N{EN DASH}"  # stands where there is no number
TIMES = "\N{MULTIPLICATION SIGN}"
LONG = 1e7  # from here on sizes have three digits
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


def finite(value: Any) -> float | None:
    """Return a finite number as a float; return None for NaN, infinity, a bool, text or None."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: Any) -> str:
    """Format a rounded number: `32,000`."""
    number = finite(value)
    return DASH if number is None else f"{number:,.0f}"


def amount(size: float) -> str:
    """Format a size: `32,000`, `84M`, `2.83B`, `0.25`, `1e+18`; huge sizes and small fractions get four digits."""
    for value, letter in ((1e9, "B"), (1e6, "M")):
        if LONG <= size < 1e12 and size >= 0.9995 * value:
            return f"{size / value:.3g}{letter}"
    full = 1000 <= size < 1e12 or (size < 1000 and math.isclose(size, round(size), rel_tol=1e-9))
    return f"{size:,.0f}" if full else f"{size:,.4g}"


def significant(value: Any, digits: int = 3) -> str:
    """Format a number with `digits` significant digits: `0.412`, `12.3`, `1,230`."""
    number = finite(value)
    if number is None:
        return DASH
    if number == 0:
        return "0"
    rounded = float(f"{number:.{digits - 1}e}")  # 999.9 has the digits of 1000
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{number:,.{decimals}f}" if decimals <= 6 else f"{number:.{digits - 1}e}"


def with_prefix(value: Any, unit: str) -> str:
    """Format a number with a metric prefix and its unit: `1.23 PFLOP` for 1.23e15 and FLOP."""
    number = finite(value)
    if number is None:
        return DASH
    step = min(len(PREFIXES) - 1, max(0, math.floor(math.log10(abs(number)) / 3))) if number else 0
    if f"{abs(number) / 1000**step:.3g}" == "1e+03" and step + 1 < len(PREFIXES):
        step += 1  # 999.9 k is 1 M
    return f"{significant(number / 1000**step)} {PREFIXES[step]}{unit}"


def count(value: Any) -> str:
    """Format a count, such as of parameters: `46.1k`, `22.1M`."""
    return with_prefix(value, "").replace(" ", "") if finite(value) is not None else DASH


def duration(seconds: Any) -> str:
    """Format seconds: `0.4 s`, `42 s`, `1 min 20 s`, `12 min`, `3 h 05 min`."""
    number = finite(seconds)
    if number is None:
        return DASH
    rounded, minutes = round(number), round(number / 60)
    if rounded < 60:
        return f"{number:.1f} s" if number < 0.95 else f"{rounded} s"
    if rounded < 600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def plural(number: int, noun: str, many: str = "") -> str:
    """Format a number of things: `1 run`, `12 runs`; `many` is an irregular plural."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"


def cut_names(names: Sequence[str], most: int, count: int | None = None) -> str:
    """List the first `most` names and count the rest: `a, b and 3 more`. `count` is the number of all names."""
    left = (count or len(names)) - len(names[:most])
    return ", ".join(names[:most]) + (f" and {left:,} more" if left else "")


def cut_lines(lines: Sequence[str], most: int, rest: str = "", start: str = "... ") -> list[str]:
    """Return the first `most` lines; count the rest in a line `... and 3 more`."""
    return [*lines[:most], *([f"{start}and {len(lines) - most:,} more{rest}"] if len(lines) > most else [])]


def round_numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """Round the floats of a result for writing: accuracy and error to six decimals, others to six significant digits.

    Most floats come from float32, which has seven digits: 0.4425, not 0.4424999952316284.
    """
    floats = {key: value for key, value in result.items() if isinstance(value, float)}
    shares = {key: round(value, 6) for key, value in floats.items() if key in ("accuracy", "error")}
    return {**result, **{key: float(f"{value:.6g}") for key, value in floats.items()}, **shares}


def link(*parts: str) -> str:
    """Build an address relative to the study folder; quoting keeps a name from acting as a scheme or a query."""
    return "/".join(quote(os.fsencode(part), safe="") for path in parts for part in path.split("/") if part)


def folder_link(name: str) -> str:
    return f"{link(name)}/"


def weights_name(source: str) -> str:
    """Name a run by its folder, `timm:NAME=FILE` by its file: the architecture's name would pass for its weights'."""
    return os.path.basename(source.rpartition("=")[2] if source.startswith("timm:") else source)


def file_stem(text: str) -> str:
    """Turn a text into a file stem of at most 150 letters that is valid on every file system."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:150].strip("._") or "figure"
