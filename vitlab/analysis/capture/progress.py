"""How far an analysis is, for whoever waits for it."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Part = TypeVar("Part")
Progress = Callable[[int, int], None]  # how much is done, of how much


def track_progress(parts: Sequence[Part], progress: Progress | None = None) -> Iterator[Part]:
    """The parts in turn; `progress` is told before the first and after each how many are done."""
    for done, part in enumerate(parts):
        if progress and not done:
            progress(0, len(parts))
        yield part
        if progress:
            progress(done + 1, len(parts))
