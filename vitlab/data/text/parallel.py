"""Two files: line n of one is a translation of line n of the other, as WMT and IWSLT are shipped."""

from pathlib import Path

from vitlab.config import UserError
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.split import choose_by_hash
from vitlab.data.text.types import Corpus, Examples
from vitlab.files import read_utf8
from vitlab.formatting import plural

VERSION = 1  # of the reading
PREFIXES = {"train": "", "validation": "validation_", "test": "test_"}  # of the keys of each split's two files


def fingerprint(config: TextDataConfig) -> list:
    paths = [vars(config)[f"{prefix}{side}"] for prefix in PREFIXES.values() for side in ("source", "target")]
    return [VERSION, *(stat_files(Path(path).expanduser()) for path in paths if path)]


def read(config: TextDataConfig) -> Corpus:
    """The pairs of the files, each line one text. Without test files a share of the pairs is held out, by a hash of
    their texts. Raises UserError, which names every file that is wrong.
    """
    problems: list[str] = []
    splits: dict[str, list[tuple[str, str]]] = {}
    for split, prefix in PREFIXES.items():
        keys = [f"data.{prefix}{side}" for side in ("source", "target")]
        paths = [vars(config)[key.removeprefix("data.")] for key in keys]
        if not any(paths):
            continue
        if not all(paths):
            missing, given = keys if paths[1] else keys[::-1]
            problems.append(f"{missing} is missing: {given} is given, and each of its lines needs the other language's")
            continue
        try:
            splits[split] = read_pairs(keys, [Path(path).expanduser() for path in paths], config.skip_empty)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    if "test" not in splits:
        held = choose_by_hash([repr(pair) for pair in dict.fromkeys(splits["train"])], config.test_share)
        splits["test"] = [pair for pair in splits["train"] if repr(pair) in held]
        splits["train"] = [pair for pair in splits["train"] if repr(pair) not in held]
    examples = {split: Examples((*zip(*pairs, strict=True),) or ((), ())) for split, pairs in splits.items()}
    return Corpus(examples["train"], examples["test"], validation=examples.get("validation"))


def read_pairs(keys: list[str], paths: list[Path], skip_empty: bool) -> list[tuple[str, str]]:
    """The pairs of two files that the keys name. Raises UserError."""
    problems: list[str] = []
    sides: list[list[str]] = []
    for key, path in zip(keys, paths, strict=True):
        try:
            lines = [line.strip() for line in read_utf8(path, key).removesuffix("\n").split("\n")]
        except UserError as error:
            problems += error.problems
            continue
        empty = [number for number, line in enumerate(lines, 1) if not line]
        if empty and not skip_empty:
            which = f"line {empty[0]} is empty" + (f", and {len(empty) - 1} more" if len(empty) > 1 else "")
            problems.append(
                f"{key}={path}: {which}; write what is missing, or leave such pairs out by data.skip_empty=true"
            )
        sides.append(lines)
    if len(sides) == 2 and len(sides[0]) != len(sides[1]):
        lengths = f"{plural(len(sides[0]), 'line')}, {keys[1]}={paths[1]} has {len(sides[1])}"
        problems.append(f"{keys[0]}={paths[0]} has {lengths}; line n of one must be line n of the other")
    if problems:
        raise UserError(problems)
    return [pair for pair in zip(*sides, strict=True) if all(pair)]
