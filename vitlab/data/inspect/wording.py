"""The facts of a look at a folder in words, for the terminal and for a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vitlab.formatting import TIMES, plural

MOST = 20  # names in a line


def describe(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(what, how it is) of the facts of `folder.summarize` that are a line each."""
    if len(facts["splits"]) == 1:
        yield "split", "none: no train/ with val/ or test/, so a share of each class is held out (data.test_share)"
    if facts["imbalance"] is not None:
        yield "largest to smallest class", f"{facts['imbalance']:,.1f} to 1"
    if small := facts["small_classes"]:
        yield f"classes with fewer than {facts['few']} training pictures", shorten(small)
    if facts["pictures"]:
        sizes = [format_size(facts[f"{which}_size"]) for which in ("median", "smallest", "largest")]
        yield f"height {TIMES} width", "median {}, smallest {}, largest {}".format(*sizes)
        ratio = facts["aspect_ratio"]
        yield "width / height", f"median {ratio['median']:.2f}, from {ratio['min']:.2f} to {ratio['max']:.2f}"
        for name, key in (("color modes", "modes"), ("formats", "formats")):
            yield name, ", ".join(f"{kind} {count:,}" for kind, count in facts[key].items())
        turned = f"{plural(facts['rotated'], 'picture')}, turned upright when read" if facts["rotated"] else "none"
        yield "stored turned (EXIF orientation)", turned
    for skip in facts["skipped"]:
        yield f"skipped {skip['kind']}", f"{skip['count']:,}: {shorten(skip['names'], skip['count'])}"


def describe_duplicates(facts: Mapping[str, Any]) -> str:
    """How many pictures look like another one: `5 (3 across splits, 1 across classes)`."""
    pairs = facts["duplicates"]
    counts = ((sum(pair[f"across_{what}"] for pair in pairs), what) for what in ("splits", "classes"))
    across = ", ".join(f"{count:,} across {what}" for count, what in counts if count)
    return f"{len(pairs):,}" + (f" ({across})" if across else "")


def describe_pair(pair: Mapping[str, Any]) -> str:
    notes = [("identical", "same bytes"), ("across_splits", "another split"), ("across_classes", "another class")]
    return ", ".join(note for key, note in notes if pair[key])


def format_size(size: Sequence[int]) -> str:
    return f"{size[0]:,} {TIMES} {size[1]:,}"


def shorten(names: Sequence[str], count: int | None = None) -> str:
    """The first names, and how many there are besides; `count` of them in all."""
    left = (count or len(names)) - len(names[:MOST])
    return ", ".join(names[:MOST]) + (f" and {left:,} more" if left else "")
