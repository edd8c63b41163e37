"""What is shown while runs train."""

import io

import pytest
from rich.console import Console

from vitlab.studies.display import Board, LiveDisplay, PlainDisplay, Row
from vitlab.studies.events import Event

WHY = "worker exited unexpectedly (SIGKILL: out of memory?); started again, alone"


@pytest.mark.parametrize("kind", [PlainDisplay, LiveDisplay])
def test_a_run_that_is_tried_again_is_said_in_a_line_and_counts_as_not_done(kind):
    board = Board([Row("a", "vit", 10), Row("b", "vit", 10)], jobs=1)
    out = io.StringIO()
    with kind(board, Console(file=out, width=200)) as display:
        display.notify(Event("started", "a"))
        display.notify(Event("retried", "a", WHY))
        assert board.rows["a"].state == "waiting"
        assert board.rows["a"].done_steps == 0
        for name in "ba":
            display.notify(Event("started", name))
            display.notify(Event("done", name, {"accuracy": 0.5}))
    assert f"a: {WHY}\n" in out.getvalue()
    assert board.describe() == "2 of 2 runs done"
