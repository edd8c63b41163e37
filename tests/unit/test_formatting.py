"""Numbers as people read them, at the edges of their units."""

import math

import pytest

from vitlab.formatting import DASH, amount, duration, significant, with_prefix


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((0.42, "0.4 s"), (59.4, "59 s"), (80, "1 min 20 s"), (599, "9 min 59 s"), (600, "10 min")),
        *((3600, "1 h 00 min"), (11_100, "3 h 05 min"), (None, DASH), (math.inf, DASH)),
    ],
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown


def test_digits_and_prefixes():
    assert [significant(value) for value in (0.41234, 12.345, 999.9, 0, None)] == ["0.412", "12.3", "1,000", "0", DASH]
    assert [with_prefix(value, "FLOP") for value in (1.234e15, 999.9e3, 5)] == ["1.23 PFLOP", "1.00 MFLOP", "5.00 FLOP"]
    assert [amount(size) for size in (32_000, 0.25, 1e18)] == ["32,000", "0.25", "1e+18"]
