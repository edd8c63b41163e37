"""What is shown while runs train."""

import heapq
import io
import itertools
import random

import pytest
from rich.console import Console

from vitlab.studies import display
from vitlab.studies.display import Board, LiveDisplay, PlainDisplay, Row
from vitlab.studies.events import Event
from vitlab.training.progress import Progress

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


def simulate(board, costs, monkeypatch, every=10.0):
    """Run a board's rows in order on its workers; gives (seconds, runs done, estimate) of each line, and the end.

    `costs` are each model's seconds to start, of a step, of an evaluation (four) and at the end.
    """
    rng, clock, lines = random.Random(0), [0.0], []
    monkeypatch.setattr(display.time, "monotonic", lambda: clock[0])
    waiting, events, done = list(board.rows.values()), [], 0

    def begin(now):
        if not waiting:
            return
        row = waiting.pop(0)
        start, step, evaluation, end = (cost * rng.uniform(0.9, 1.1) for cost in costs[row.model])
        board.update(Event("started", row.name))
        trained = row.steps * step + 4 * evaluation
        for share in (0.02, 0.2, 0.4, 0.6, 0.8, 1.0):
            left = Progress(round(share * row.steps), row.steps, trained * (1 - share))
            heapq.heappush(events, (now + start + trained * share, row.name, Event("progress", row.name, left)))
        result = {"examples_seen": row.steps * 100, "steps": row.steps, "images_per_s": 100 / step}
        heapq.heappush(events, (now + start + trained + end, row.name + "-end", Event("done", row.name, result)))

    for _ in range(board.jobs):
        begin(0.0)
    shown = 0.0
    while events:
        now, _, event = heapq.heappop(events)
        clock[0] = now
        board.update(event)
        done += event.kind == "done"
        if event.kind == "done" or now - shown > every:
            shown = now
            lines.append((now, done, board.estimate_seconds_left()))
        if event.kind == "done":
            begin(now)
    return lines, now


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("steps", [{250: 600, 1000: 600, 5000: 600, 32000: 600}, {250: 20, 1000: 80, 4000: 310}])
def test_time_left_is_near_the_truth_and_does_not_jump(monkeypatch, jobs, steps):
    rows = [Row(f"{m}-{n}-{s}", m, steps[n]) for s in range(3) for n in steps for m in ("vit", "resnet")]
    lines, end = simulate(Board(rows, jobs), {"vit": (2, 0.03, 0.5, 2), "resnet": (2, 0.02, 0.3, 1)}, monkeypatch)
    for now, done, left in lines:
        if len(rows) / 4 <= done < len(rows) - jobs:
            assert left == pytest.approx(end - now, rel=0.25)
    shown = [(now, now + left) for now, done, left in lines if 1 < done < len(rows) - jobs]
    for (_, before), (now, after) in itertools.pairwise(shown):
        assert abs(after - before) < 0.3 * (before - now)
