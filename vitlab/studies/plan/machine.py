"""A machine that a study is planned for: `gpu:64,memory=80,flops=989e12`. Imports no torch."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitlab.config import UserError
from vitlab.config.errors import choices_text

EXAMPLE = "gpu:64,memory=80,flops=989e12"
FORM = f"gpu:DEVICES,memory=GB,flops=PEAK[,utilisation=SHARE][,read=RATE], such as {EXAMPLE}"
BOUNDS = {  # of each key: the least and the most, and what is meant
    "memory": (1, 10_000, "gigabytes of a device, such as 80"),
    "flops": (1e11, 1e18, "operations a second of a device at its peak, such as 989e12"),
    "utilisation": (0.001, 1, "a share of that peak, such as 0.4"),
    "read": (0.1, 1e9, "examples a second that the loaders give each device, such as 3000"),
}
KINDS = ("gpu",)
MOST_DEVICES = 100_000


@dataclass(frozen=True)
class Machine:
    devices: int
    memory: float  # bytes of a device
    flops: float  # operations a second of a device, at its peak
    utilisation: float | None = None  # of that peak; none: what the model's kind usually reaches
    read: float = math.inf  # examples a second that are ready for a device


def parse_machine(text: str) -> Machine:
    """The machine of `--on`. Raises UserError with a line for each problem."""
    head, *pairs = text.split(",")
    kind, _, count = head.partition(":")
    problems, values = [], {}
    if kind not in KINDS:
        problems.append(f"unknown kind '{kind}'; {choices_text(kind, KINDS)}")
    elif not (count.isascii() and count.isdigit()) or not 1 <= int(count) <= MOST_DEVICES:
        problems.append(f"'{count}' is not a number of devices from 1 to {MOST_DEVICES:,}")
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in BOUNDS:
            problems.append(f"unknown key '{key}'; {choices_text(key, BOUNDS)}")
        elif key in values:
            problems.append(f"{key} is given twice")
        else:
            values[key] = read_number(value, *BOUNDS[key][:2])
            if values[key] is None:
                least, most, meaning = BOUNDS[key]
                problems.append(f"{key}={value}: expected {meaning} ({least:g} to {most:g})")
    problems += [f"{key} is missing: {BOUNDS[key][2]}" for key in ("memory", "flops") if key not in values]
    if problems:
        problems[-1] += f"; the form is {FORM}"
        raise UserError(f"--on {text}: {problem}" for problem in problems)
    return Machine(
        int(count), values["memory"] * 1e9, values["flops"], values.get("utilisation"), values.get("read", math.inf)
    )


def read_number(text: str, least: float, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and least <= value <= most else None


def pack(runs: Sequence[tuple[float, int]], devices: int) -> float:
    """The seconds until all runs are done: (seconds, devices that it takes) each, begun in this order.

    A run begins as soon as enough devices are free and all before it have begun: list scheduling (Graham, 1969).
    """
    free = [0.0] * devices  # when each device is free
    for seconds, width in runs:
        taken = [heapq.heappop(free) for _ in range(width)]
        for _ in taken:
            heapq.heappush(free, taken[-1] + seconds)
    return max(free)
