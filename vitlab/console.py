"""The console of Rich, and streams of a terminal that names and texts of users cannot steer."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from rich import console
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

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
    `rich_proxied_file`, because its control sequences must pass; `Console` shows its texts' controls.
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


UNLIMITED = 1000  # characters of a line


class Console(console.Console):
    """A Rich console that shows control characters of texts, and obeys control characters of styles, bars and tables.

    A file or a pipe has no width that would cut a table.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        if not self.is_terminal and "width" not in options:
            self.width = UNLIMITED

    def say(self, text: str) -> None:
        """Print a line as it is, however long."""
        self.print(escape(text), soft_wrap=True, highlight=False)

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(show_controls(text), style)

    @property
    def file(self) -> IO[str]:
        """The stream that it writes to, behind the one that shows control characters, also during a live table."""
        return unwrap(super().file)

    @file.setter
    def file(self, file: IO[str]) -> None:
        self._file = file


def tabulate(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> Table:
    """Build a table whose last `numbers` columns are numbers."""
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(header, start=numbers - len(header)):
        is_number = place >= 0
        table.add_column(escape(name), justify="right" if is_number else "left", no_wrap=is_number)
    for row in rows:
        table.add_row(*(escape(show_controls(cell)) for cell in row))
    return table
