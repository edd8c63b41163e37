"""Ctrl-C and SIGTERM while a run trains. Imports no torch."""

import os
import signal
from typing import Any


class Stopping:
    """A block in which the first Ctrl-C or SIGTERM asks training to end at its next step; the second ends at once."""

    def __init__(self) -> None:
        self.requested = False
        self.before: dict[int, Any] = {}

    def asked(self) -> bool:
        return self.requested

    def __enter__(self) -> "Stopping":
        self.before = {number: signal.signal(number, self.handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: Any) -> None:
        if self.requested:  # not KeyboardInterrupt: Lightning turns that into an exit code of its own
            os._exit(130)
        self.requested = True
