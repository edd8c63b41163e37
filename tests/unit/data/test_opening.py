"""What a person sees while a data set is opened."""

import io

import pytest
from rich.console import Console

from vitlab.data import opening
from vitlab.data.opening import progress_bar


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(opening.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_few_lines_a_minute_with_the_time_left(clock):
    log = io.StringIO()
    with progress_bar(Console(file=log, width=40)) as progress:
        for done in range(601):
            progress("indexing train shards", done, 600)
            clock[0] += 0.125
        clock[0] += 10
        progress("checking and unpacking", 0, None)
    assert log.getvalue().splitlines() == [
        "indexing train shards: 24 of 600, 1 min 12 s left",
        "indexing train shards: 184 of 600, 52 s left",
        "indexing train shards: 344 of 600, 32 s left",
        "indexing train shards: 504 of 600, 12 s left",
        "checking and unpacking",
    ]
