"""The one exception for mistakes in the user's input, and its problems."""

import difflib
from collections.abc import Iterable
from enum import Enum
from typing import Any


class Absent(Enum):  # each is the same object after pickling
    NO_VALUE = "of a problem that is not of one value"
    IS_MISSING = "of a setting without a value"


NO_VALUE, IS_MISSING = Absent


class Problem(str):
    """A mistake in one line, `key=value: text`, that knows its key and value."""

    key: str
    value: Any
    text: str

    def __new__(cls, key: str, value: Any, text: str, prefix: str = "") -> "Problem":
        given = "" if value is NO_VALUE else " is missing" if value is IS_MISSING else f"={to_text(value)}"
        self = super().__new__(cls, f"{prefix}{key}{given}: {text}")
        self.key, self.value, self.text, self.prefix = key, value, text, prefix
        return self

    def __getnewargs__(self) -> tuple[str, Any, str, str]:
        return self.key, self.value, self.text, self.prefix

    def at(self, key: str) -> "Problem":
        """The same problem of another key."""
        return Problem(key, self.value, self.text)


class UserError(ValueError):
    """The user's input is wrong.

    `problems` holds one line per mistake, a `Problem` where it is a setting's; the command line prints each on stderr
    and exits with 2.
    """

    def __init__(self, problems: str | Iterable[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self):
        return UserError, (self.problems,)


def to_text(value: Any) -> str:
    """A value as the user wrote it in YAML, near enough."""
    return "null" if value is None else str(value)


def choices_text(value: str, choices: Iterable[str], limit: int = 12) -> str:
    """`did you mean 'x'? choices: a, b, c` for a value that is none of the choices."""
    choices = list(choices)
    near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.5)
    shown = ", ".join(choices[:limit]) + (f", ... ({len(choices)} in all)" if len(choices) > limit else "")
    return (f"did you mean '{near[0]}'? " if near else "") + f"choices: {shown}"


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its type where it has no message."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def printable(line: str) -> str:
    """One line, without the control characters that a value may bring."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
