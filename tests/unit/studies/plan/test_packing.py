"""When runs that share devices end."""

import pytest

from vitlab.studies.plan.machine import pack


@pytest.mark.parametrize(
    ("runs", "devices", "seconds"),
    [
        ([(3, 1), (3, 1), (3, 1)], 2, 6),  # not 4.5: a run does not divide
        ([(1, 1), (1, 1), (4, 1)], 2, 5),
        ([(4, 1), (1, 1), (1, 1)], 2, 4),  # the longest first
        ([(5, 1), (2, 2)], 2, 7),  # two devices at once: one of them waits
        ([(2, 4), (3, 2), (3, 2)], 4, 5),
    ],
)
def test_a_run_begins_when_enough_devices_are_free(runs, devices, seconds):
    assert pack(runs, devices) == seconds
