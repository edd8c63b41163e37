"""Print to a terminal safely: control characters in users' names and texts are shown, not obeyed."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from rich import console
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

# control characters other than tab and newline; line separators; embeddings, overrides and isolates of bidirectional
# text; halves of surrogate pairs, which stand for undecodable bytes of file names
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
RETURNS_AROUND = re.compile(r"(\r*)(.*?)(\r*)", re.DOTALL)


def show_controls(text: str) -> str:
    """Replace control characters by their escapes, such as `\\u001b` for ESC. JSON keeps its meaning."""
    return STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class ShownControls:
    """Wrap a text stream (terminal, pipe or file) and escape control characters written to it.

    Carriage returns at either end of a text pass, because progress bars of other libraries begin with them. Rich
    writes to `rich_proxied_file`, so its own control sequences pass; `Console` escapes the controls in Rich's texts.
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
    """Escape control characters in all output of the block on stdout and stderr."""
    out, err = (ShownControls(unwrap(stream)) for stream in (sys.stdout, sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


UNLIMITED = 1000  # characters of a line


class Console(console.Console):
    """A Rich console that escapes control characters in texts but keeps those of Rich's styles, bars and tables.

    Tables in a file or a pipe are not cut to a width.
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
        """The stream behind ShownControls. Rich writes its own control sequences there, also during a live table."""
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
