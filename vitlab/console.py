"""The console of Rich as this program uses it."""

from collections.abc import Iterable, Sequence
from typing import IO, Any

from rich import console
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from vitlab.terminal import show_controls, unwrap

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
