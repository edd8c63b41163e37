"""Labels as shards have them, text, and the classes that they mean."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from vitlab.config import UserError, first_line
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.shards.scan import Scan

MOST = 1_000_000  # classes that numbers may mean


@dataclass(frozen=True)
class Classes:
    """A label is a class's name, or its number from 0. `names` is None until the training labels say."""

    names: tuple[str, ...] | None

    @classmethod
    def of(cls, config: ImageDataConfig) -> "Classes":
        """What `data.classes` says: their number, their names, or a file of names. Raises UserError."""
        given = config.classes
        if given is None:
            return cls(None)
        if isinstance(given, int) and not isinstance(given, bool) and 1 < given <= MOST:
            return cls(tuple(map(str, range(given))))
        if isinstance(given, list):
            names = tuple(map(str, given))
        elif isinstance(given, str):
            try:
                names = tuple(Path(given).expanduser().read_text().splitlines())
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"data.classes={given}: cannot read this file of names: {first_line(error)}") from None
        else:
            raise UserError(f"data.classes={given}: give how many (2 to {MOST:,}), a list of names, or a file of names")
        if len(names) < 2 or len(set(names)) < len(names):
            wrong = "fewer than two names" if len(names) < 2 else "a name twice"
            raise UserError(f"data.classes={given if isinstance(given, str) else list(names)[:5]}: {wrong}")
        return cls(names)

    def complete(self, texts: set[str]) -> "Classes":
        """With the names that training labels give: numbers up to the largest, or the labels themselves."""
        if self.names is not None:
            return self
        if not all(re.fullmatch(r"-?\d+", text) for text in texts):
            return Classes(tuple(sorted(texts)))
        numbers = [int(text) for text in texts]
        for number in (min(numbers), max(numbers)):
            if not 0 <= number < MOST:
                raise UserError(f"data.train: a label is {number}; numbers of classes are 0 to {MOST - 1:,}")
        return Classes(tuple(map(str, range(max(numbers) + 1))))

    def misfits(self, path: str, scan: Scan) -> Iterator[str]:
        """One line for each label of a shard that is none of the classes."""
        choices = f"none of the {len(self.names)} classes, {self.names[0]} to {self.names[-1]}"
        for (text, key), label in zip(scan.texts.items(), self.to_labels(scan.texts), strict=True):
            if label < 0:
                more = f"; give data.classes={int(text) + 1}, or more" if text.isdecimal() else ""
                yield f"{path}: sample {key}: label {text} is {choices}{more}"

    def to_labels(self, texts: Iterable[str]) -> np.ndarray:
        """int64: the class of each text, -1 where there is none."""
        return np.array([self.places.get(text, self.to_number(text)) for text in texts], dtype=np.int64)

    @cached_property
    def places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def to_number(self, text: str) -> int:
        return int(text) if text.isdecimal() and int(text) < len(self.names) else -1
