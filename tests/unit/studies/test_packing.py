"""When runs that share workers end."""

import pytest

from vitlab.studies.plan import pack


@pytest.mark.parametrize(
    ("runs", "workers", "seconds"),
    [
        ([3, 3, 3], 2, 6),  # not 4.5: a run does not divide
        ([1, 1, 4], 2, 5),
        ([4, 1, 1], 2, 4),  # the longest first
    ],
)
def test_a_run_begins_when_a_worker_is_free(runs, workers, seconds):
    assert pack(runs, workers) == seconds
