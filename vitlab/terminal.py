"""Terminal output that names and texts of users cannot steer."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any

# control characters but for the tab and the end of a line; line separators, embeddings, overrides and isolates of
# bidirectional text; halves of surrogate pairs, as file names have that are not text
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
RETURNS_AROUND = re.compile(r"(\r*)(.*?)(\r*)", re.DOTALL)


def show_controls(text: str) -> str:
    """Replace control characters by their escapes, `\\u001b` for ESC. A JSON document keeps its meaning."""
    return STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class ShownControls:
    """A text stream that shows control characters, in front of the stream of a terminal, a pipe or a file.

    Carriage returns around a text pass: progress bars of other libraries begin with them. A console of Rich writes to
    `rich_proxied_file`, because its control sequences must pass; `vitlab.console.Console` shows its texts' controls.
    """

    def __init__(self, stream: IO[str]):
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        before, inner, after = RETURNS_AROUND.fullmatch(text).groups()
        self.rich_proxied_file.write(f"{before}{show_controls(inner)}{after}")
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def unwrap(stream: IO[str]) -> IO[str]:
    """Return the stream behind a ShownControls; any other stream as it is."""
    return stream.rich_proxied_file if isinstance(stream, ShownControls) else stream


@contextlib.contextmanager
def shown_controls() -> Iterator[None]:
    """Show the control characters of everything that the block prints on stdout and stderr."""
    out, err = (ShownControls(unwrap(stream)) for stream in (sys.stdout, sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def erase_line() -> None:
    """Erase the line of a terminal that was printed last on stderr."""
    print("\r\x1b[2K", end="", file=unwrap(sys.stderr), flush=True)
