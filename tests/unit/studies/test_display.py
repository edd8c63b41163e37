"""What is shown while runs train, and when they will have ended."""

import io
import random

import pytest

from vitlab.console import Console
from vitlab.studies.status import Display, RunState, StudyStatus
from vitlab.training.files import Progress


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_that_ends_and_one_whose_result_is_gone_are_said_in_a_line(terminal):
    out = io.StringIO()
    with Display(Console(file=out, width=200, force_terminal=terminal)) as display:
        waiting, running = RunState("a", "vit", 10), RunState("b", "vit", 10, "running", Progress(5, 10, 3.0))
        done = RunState("b", "vit", 10, "finished", result={"accuracy": 0.5, "wall_s": 6.0})
        assert not display.show(StudyStatus([waiting, running]))
        assert display.show(StudyStatus([waiting, done]))
        assert not display.show(StudyStatus([waiting, done]))
        assert not display.show(StudyStatus([waiting, RunState("b", "vit", 10)]))
    assert "1 finished run whose result was deleted or damaged since: b\n" in out.getvalue()
    if not terminal:
        assert out.getvalue().startswith("b: accuracy 50.0% in 6 s; 2 runs: 1 finished, 1 waiting\n")


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("steps", [{250: 600, 1000: 600, 5000: 600, 32000: 600}, {250: 20, 1000: 80, 4000: 310}])
def test_time_left_is_near_the_truth(jobs, steps):
    """Of runs that workers take in order, each some percent faster or slower than others of its model."""
    rng, pace = random.Random(0), {"vit": 0.03, "resnet": 0.02}
    runs = [
        (f"{m}-{n}-{s}", m, n, 4 + steps[n] * pace[m] * rng.uniform(0.9, 1.1))
        for s in range(3)
        for n in steps
        for m in pace
    ]
    free, spans = [0.0] * jobs, []
    for name, model, size, seconds in runs:
        begin = min(free)
        free[free.index(begin)] = begin + seconds
        spans.append((RunState(name, model, size), begin, begin + seconds))
    for now in (share * max(free) for share in (0.4, 0.5, 0.6, 0.7, 0.8)):
        status = StudyStatus([see(run, begin, end, now, steps[run.size]) for run, begin, end in spans])
        assert status.seconds_left == pytest.approx(max(free) - now, rel=0.3)


def see(run, begin, end, now, steps):
    if now >= end:
        return RunState(run.run, run.variant, run.size, "finished", result={"wall_s": end - begin})
    if now < begin:
        return run
    share = (now - begin) / (end - begin)
    return RunState(run.run, run.variant, run.size, "running", Progress(round(steps * share), steps, end - now))
