"""The one exception for mistakes in the user's input, and words for its lines."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST = 1000  # characters of a line


class UserError(ValueError):
    """A mistake in the user's input.

    `problems` holds one line per mistake, `key=value: what is wrong` if it is a setting's; the command line prints
    each on stderr and exits with 2.
    """

    def __init__(self, problems: str | Iterable[str]):
        self.problems = list(map(cut_middle, [problems] if isinstance(problems, str) else problems))
        super().__init__("\n".join(self.problems))

    def __reduce__(self):
        return UserError, (self.problems,)


def raise_all(problems: Iterable[str]) -> None:
    """Raise UserError with these lines, if there are any."""
    if found := list(problems):
        raise UserError(found)


@contextmanager
def collecting(problems: list[str], before: str = "") -> Iterator[None]:
    """Collect the lines of a UserError that ends the block, `before` in front of each, as problems."""
    try:
        yield
    except UserError as error:
        problems += [f"{before}{line}" for line in error.problems]


def key_of(problem: str) -> str:
    """Return the key that a problem's line begins with."""
    return re.split("[=:]| is missing", problem, maxsplit=1)[0]


def to_text(value: Any) -> str:
    """Write a value nearly as the user wrote it in YAML."""
    return "null" if value is None else str(value)


def choices_text(value: str, choices: Iterable[str], limit: int = 12) -> str:
    """Suggest a choice for a value that is none of them: `did you mean 'x'? choices: a, b, c`."""
    choices = list(choices)
    near = difflib.get_close_matches(str(value), choices, n=limit, cutoff=0.5)
    listed = list(dict.fromkeys([*near, *choices])) if len(choices) > 3 * limit else choices  # near ones first
    shown = ", ".join(listed[:limit]) + (f", ... ({len(choices)} in all)" if len(choices) > limit else "")
    return (f"did you mean '{near[0]}'? " if near else "") + f"choices: {shown}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's type if it has none."""
    return cut_middle(next((line for line in str(error).splitlines() if line.strip()), type(error).__name__))


def cut_middle(line: str, most: int = LONGEST) -> str:
    """Cut the middle of a line's long words if it is over `most` characters, and then the line's own middle:
    the key, the problem and the fix stay.
    """
    if len(line) > most == LONGEST:
        line = re.sub(r"\S{301,}", lambda word: cut_middle(word[0], 300), line)
    side = most // 2 - 20
    return f"{line[:side]} ... {len(line) - 2 * side:,} more ... {line[-side:]}" if len(line) > most else line


def printable(line: str) -> str:
    """Return a line with its control characters escaped, newlines too."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def parse_json(kind: type[T], text: str, source: str, advice: str) -> T:
    """Parse JSON into a dataclass or another type that pydantic knows; fields that the type does not name are ignored.

    Raises UserError, with the place within the file `source`, for text that is no JSON, too deep, or of another type.
    """
    from pydantic import TypeAdapter, ValidationError  # takes 0.2 s

    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first, *others = error.errors(include_url=False, include_input=False)
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")[:80]
        more = f" (and {len(others)} more)" if others else ""
        raise UserError(f"{source}: {place}{': ' if place else ''}{first['msg']}{more}; {advice}") from None
