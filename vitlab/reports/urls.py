"""Relative addresses and file names made of names that a user chose."""

import re
from urllib.parse import quote


def link(*parts: str) -> str:
    """An address relative to the study folder. Quoted whole, so that no name can be read as a scheme or a query."""
    return "/".join(quote(part, safe="") for path in parts for part in path.split("/") if part)


def folder_link(name: str) -> str:
    return f"{link(name)}/"


def file_stem(text: str) -> str:
    """A file name without a suffix that every file system takes, of at most 150 letters."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:150].strip("._") or "figure"
