"""When runs of different length end that share devices. Imports no torch."""

import heapq
from collections.abc import Sequence


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
