"""What is shown while runs train, and when they will have ended."""

import json
import random

import pytest

from vitlab.files import create_json, write_json
from vitlab.studies.claims import hold
from vitlab.studies.status import RunState, StatusReader, StudyStatus
from vitlab.studies.store import StudyFiles
from vitlab.training.files import Progress, RunFiles


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


def test_time_left_does_not_double_while_a_worker_takes_its_next_run():
    running = RunState("a", "vit", 10, "running", Progress(5, 10, 10.0))
    waiting = [RunState(str(number), "vit", 10) for number in range(10)]
    assert StudyStatus([running, *waiting]).seconds_left == 210
    assert StudyStatus([running, *waiting], workers=2).seconds_left == 110


def test_runs_are_shown_by_the_metric_that_the_study_is_compared_by():
    done = RunState("a", "vit", 10, "finished", result={"accuracy": 0.9, "fewshot_5@digits": 0.5})
    assert StudyStatus([done], compared_by="fewshot_5@digits").metric.value(done.result) == 0.5


def see(run, begin, end, now, steps):
    if now >= end:
        return RunState(run.run, run.variant, run.size, "finished", result={"wall_s": end - begin})
    if now < begin:
        return run
    share = (now - begin) / (end - begin)
    return RunState(run.run, run.variant, run.size, "running", Progress(round(steps * share), steps, end - now))


# ---- what the files of a run say of it

NAME = "a-n7-s0"
RESULT = {"study": "s", "run": NAME, "model": "m", "train_size": 7, "seed": 0, "accuracy": 0.5}


def read_state(folder):
    return StatusReader(StudyFiles(folder)).read_run("a", 7, 0)


def test_a_run_waits_runs_fails_runs_again_is_finished_and_is_added_to(tmp_path):
    files = RunFiles(tmp_path / NAME)
    assert read_state(tmp_path).state == "waiting"
    with hold(files.folder) as held:
        cell = read_state(tmp_path)
        assert (cell.state, cell.claim.holder, cell.progress) == ("running", str(held.owner), None)
        write_json(files.data_path, {"sha256": "", "steps": 7})
        rows = [{"step": 2, "wall_s": 1.0, "train/loss": 2.5}, {"step": 3, "wall_s": 1.5, "train/loss": 2.0}]
        rows += [{"step": 3, "validation/accuracy": 0.5}]
        files.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        progress = read_state(tmp_path).progress
        assert (progress.step, progress.steps, progress.seconds_left, progress.loss) == (3, 7, 2.0, 2.0)
        assert progress.validation == {"accuracy": 0.5}
        files.write_error("the loss is nan")
    failed = read_state(tmp_path)
    assert (failed.state, failed.error, failed.progress.step) == ("failed", "the loss is nan", 3)
    with hold(files.folder):
        assert read_state(tmp_path).state == "running"
        files.error_path.unlink()
        create_json(files.result_path, RESULT)
        assert read_state(tmp_path).state == "running", "while something is added"
    finished = read_state(tmp_path)
    assert (finished.state, finished.result) == ("finished", RESULT)
    files.write_config(dict.fromkeys(("model", "data", "task", "recipe", "seed")) | {"analyses": ["cka"], "probes": []})
    for asked, state in (([], "finished"), (["cka"], "finished"), (["cka", "rollout"], "waiting")):
        variants = {"a": {"analyses": asked, "probes": [], "task": {}}}
        assert StatusReader(StudyFiles(tmp_path), variants).read_run("a", 7, 0).state == state
