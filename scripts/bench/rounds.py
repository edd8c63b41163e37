"""Shared by the benchmarks of this folder: alternating rounds of two sides, a table of ratios, its options.

Each prints, and with --json writes, rows of `name, ours, peer, ratio, spread, floor`. Both sides do the same work, one
after the other in each round and in turn first, so that a disturbance hits both alike. The ratio is the median over the
rounds: peer/ours for seconds and bytes, ours/peer for rates, so more is better; spread is its smallest and largest.
The exit code is 1 where a ratio is below its floor.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Row:
    name: str
    ours: float  # medians over the rounds
    peer: float
    unit: str  # "s", "MB", or a rate such as "images/s"
    ratio: float
    spread: tuple[float, float]
    floor: float | None

    def __str__(self) -> str:
        low, high = self.spread
        floor = "" if self.floor is None else f"  floor {self.floor:g}{'' if self.ratio >= self.floor else '  BELOW'}"
        figures = f"{self.ours:>10,.4g} {self.peer:>10,.4g} {self.unit:9}"
        return f"{self.name:52} {figures} {self.ratio:6.2f}x ({low:.2f} to {high:.2f}){floor}"


def compare(
    name: str,
    ours: Callable[[], float],
    peer: Callable[[], float],
    rounds: int,
    floor: float | None = None,
    unit: str = "s",
) -> Row:
    """A row of `rounds` rounds of two sides that each measure themselves, after one that is not counted."""
    sides, pairs = {"ours": ours, "peer": peer}, []
    for number in range(rounds + 1):
        order = [*sides] if number % 2 else [*sides][::-1]
        found = {side: sides[side]() for side in order}
        pairs.append((found["ours"], found["peer"]))
    return make_row(name, pairs[1:], floor, unit)


def make_row(name: str, pairs: list[tuple[float, float]], floor: float | None = None, unit: str = "s") -> Row:
    """A row of the pair (ours, peer) of each round."""
    ratios = [own / peer if unit.endswith("/s") else peer / own for own, peer in pairs]
    own, peer = map(statistics.median, zip(*pairs, strict=True))
    return Row(name, own, peer, unit, statistics.median(ratios), (min(ratios), max(ratios)), floor)


def run(*words: str) -> float:
    """Time a command of Python, from cached bytecode, in seconds."""
    began = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([sys.executable, *words], env=ENVIRONMENT, check=True, **quiet)
    return time.perf_counter() - began


def main(about: str, measure: Callable[[bool], Iterator[Row]]) -> None:
    """Run the command; `measure(quick)` yields its rows as they come."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under five minutes on two cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file, too")
    args = parser.parse_args()
    print(f"{'':52} {'ours':>10} {'peer':>10} {'':9} ratio (spread)")
    rows = []
    for row in measure(args.quick):
        print(row, flush=True)
        rows.append(row)
        if args.json:
            args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    sys.exit(any(row.floor is not None and row.ratio < row.floor for row in rows))
