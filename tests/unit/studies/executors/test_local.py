"""Worker processes: kept from run to run, replaced when they die, gone when their parent is. Real ones throughout."""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from vitlab.config import UserError
from vitlab.files import create_json
from vitlab.hardware import list_gpus
from vitlab.studies.claims import hold
from vitlab.studies.events import Event
from vitlab.studies.execute import execute
from vitlab.studies.executors.local import LocalExecutor
from vitlab.studies.grid import Spec
from vitlab.studies.launching.processes import start_server
from vitlab.training.files import RunFiles

DEADLINE = 300  # seconds after which something hangs, also where other programs take all cores


def specs(*names, **config):
    return [Spec(name, config) for name in names]


def run(job, todo, jobs=1, notify=None, gpus=(), retries=1):
    """Every event but ticks, in order."""
    events = []

    def note(event):
        if event.kind != "tick":
            events.append(event)
        if notify:
            notify(event)

    with tempfile.TemporaryDirectory() as folder:
        execute(LocalExecutor(job, jobs, Path(folder), gpus), todo, Path(folder), note, retries=retries)
    return events


def kinds(events, run):
    return [event.kind for event in events if event.run == run]


def value(events, run):
    return next(event.value for event in events if event.run == run and event.kind in ("done", "failed"))


def alive(pid):
    """Whether a process runs; one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


# ---- jobs: functions of this file, for the workers import them by name


def say_pid(spec, report, stop):
    return os.getpid()


def report_three(spec, report, stop):
    for step in range(3):
        report((spec.name, step))
    return spec.config["answer"]


def misbehave(spec, report, stop):
    """What the run's name says."""
    kind = spec.name.partition(" ")[0]
    if kind == "raise":
        raise ValueError("first line\nsecond line")
    if kind == "user":
        raise UserError(["data.root=x: no such folder", "another"])
    if kind == "silent":
        raise KeyError
    if kind == "pipe":
        raise BrokenPipeError("of the job's own")
    if kind == "exit":
        os._exit(7)
    if kind == "sysexit":
        sys.exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "once":
        mark = Path(spec.config["folder"], spec.name)
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if kind == "unpicklable":
        return lambda: None
    return os.getpid()


def until_stopped(spec, report, stop):
    """A run that only a stop ends: it says its pid and, when it is told to, leaves a mark and returns."""
    Path(spec.config["folder"], f"{spec.name}.pid").write_text(str(os.getpid()))
    report("training")
    while not stop():
        time.sleep(0.01)
    Path(spec.config["folder"], f"{spec.name}.checkpoint").touch()
    return "never heard"


def report_until_stopped(spec, report, stop):
    Path(spec.config["folder"], f"{spec.name}.pid").write_text(str(os.getpid()))
    while spec.name == "busy" and not stop():
        report("training")
        time.sleep(0.01)


# ---- the ordinary course


def test_the_next_run_starts_before_anything_else_is_done():
    seen = []
    run(say_pid, specs("a", "b"), notify=seen.append)
    ended = next(place for place, event in enumerate(seen) if event.kind == "done")
    following = seen[ended + 1]
    assert (following.kind, following.run) == ("started", "b"), "a tick, at which a report may be drawn, comes later"


def test_a_process_is_kept_from_run_to_run():
    events = run(say_pid, specs("a", "b", "c", "d"))
    pids = {value(events, name) for name in "abcd"}
    assert len(pids) == 1
    assert pids != {os.getpid()}
    assert not alive(pids.pop()), "and ends with the study"


def test_runs_begin_in_order_and_tell_start_progress_and_result():
    events = run(report_three, specs("a", "b", answer=42))
    expected = []
    for name in "ab":
        expected += [Event("started", name), *(Event("progress", name, (name, step)) for step in range(3))]
        expected.append(Event("done", name, 42))
    assert events == expected


# ---- runs that fail


def test_a_job_that_raises_fails_alone_in_one_line_and_its_process_goes_on():
    events = run(misbehave, specs("ok 1", "raise", "user", "silent", "pipe", "ok 2"))
    assert {event.run: event.value for event in events if event.kind == "failed"} == {
        "raise": "ValueError: first line",
        "user": "data.root=x: no such folder",
        "silent": "KeyError",
        "pipe": "BrokenPipeError: of the job's own",
    }
    assert value(events, "ok 1") == value(events, "ok 2")


def test_a_process_that_exits_takes_only_its_own_run_with_it():
    events = run(misbehave, specs("ok 1", "exit", "ok 2", "sysexit", "ok 3", "unpicklable", "ok 4", "ok 5"))
    for name, code in (("exit", 7), ("sysexit", 3), ("unpicklable", 1)):
        assert kinds(events, name) == ["started", "failed"]
        assert value(events, name) == f"worker exited unexpectedly (exit code {code})"
    pids = [value(events, f"ok {i}") for i in range(1, 6)]
    assert len({*pids}) == 4, "it is replaced each time"
    assert pids[3] == pids[4]


def test_a_run_whose_process_is_killed_is_tried_once_more_after_the_others(tmp_path):
    events = run(misbehave, specs("ok 1", "once", "ok 2", folder=str(tmp_path)))
    assert kinds(events, "once") == ["started", "retried", "started", "done"]
    assert [event.run for event in events if event.kind == "started"] == ["ok 1", "once", "ok 2", "once"]
    (retry,) = [event.value for event in events if event.kind == "retried"]
    assert retry == "worker exited unexpectedly (SIGKILL: out of memory?); started again from its last checkpoint"


def test_a_run_that_was_killed_trains_alone_and_no_oftener_than_allowed(tmp_path):
    """Those that train beside it note how many they are."""
    names = ["kill", *(f"ok {i}" for i in range(8))]
    events = run(count_neighbours, specs(*names, folder=str(tmp_path)), jobs=3, retries=2)
    assert kinds(events, "kill") == ["started", "retried", "started", "retried", "started", "failed"]
    beside = [int(line) for line in (tmp_path / "beside").read_text().splitlines()]
    assert beside[1:] == [0, 0]
    assert {kinds(events, name)[-1] for name in names[1:]} == {"done"}


def count_neighbours(spec, report, stop):
    folder = Path(spec.config["folder"])
    if spec.name == "kill":
        with (folder / "beside").open("a") as file:
            file.write(f"{len(list(folder.glob('* trains')))}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    mark = folder / f"{spec.name} trains"
    mark.touch()
    time.sleep(0.2)
    mark.unlink()


def test_workers_share_the_gpus_that_the_user_has_named_round_robin(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a, 3")
    gpus = list_gpus(2)
    events = run(see_gpus, specs("a", "b", "c", folder=str(tmp_path)), jobs=3, gpus=gpus)
    assert sorted(value(events, name) for name in "abc") == ["3", "MIG-a", "MIG-a"]


def see_gpus(spec, report, stop):
    """Waits for its neighbours, so that each run is another worker's."""
    Path(spec.config["folder"], spec.name).touch()
    wait_until(lambda: len(os.listdir(spec.config["folder"])) == 3)
    return os.environ["CUDA_VISIBLE_DEVICES"]


def test_what_another_start_trains_or_has_seen_fail_is_not_started(tmp_path):
    """The run that is trained elsewhere is waited for, and given to a worker once it is free."""
    folder = tmp_path / "study"
    RunFiles(folder / "failed").write_error("as it was there")
    held, events = contextlib.ExitStack(), []
    held.enter_context(hold(folder / "held"))

    def notify(event):
        events.append(event)
        if event == Event("done", "free", "done"):
            held.close()

    with held:
        execute(LocalExecutor(say_done, 2, folder), specs("failed", "held", "free"), folder, notify)
    assert [(event.kind, event.value) for event in events if event.run == "failed"] == [("failed", "as it was there")]
    assert kinds(events, "held") == ["held", "started", "done"]


def say_done(spec, report, stop):
    return "done"


def test_two_starts_of_a_study_run_every_cell_once_also_when_a_worker_is_killed(tmp_path):
    """Two executors at once, four workers; the first run that begins kills its process."""
    todo, heard = specs(*(f"cell {number}" for number in range(40)), folder=str(tmp_path)), ([], [])
    starts = [
        threading.Thread(target=execute, args=(LocalExecutor(train_once, 2, tmp_path), todo, tmp_path, events.append))
        for events in heard
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join(DEADLINE)
    assert not any(start.is_alive() for start in starts)
    assert sorted((tmp_path / "trained").read_text().split("\n")[:-1]) == sorted(spec.name for spec in todo)
    for events in heard:
        assert {event.run for event in events if event.kind == "done"} == {spec.name for spec in todo}
    (retried,) = [event for events in heard for event in events if event.kind == "retried"]
    assert "SIGKILL" in retried.value


def train_once(spec, report, stop):
    study = Path(spec.config["folder"])
    with hold(study / spec.name):
        if (study / spec.name / "result.json").exists():
            return "was there"
        time.sleep(0.01)
        with contextlib.suppress(FileExistsError):
            (study / "killed").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        with (study / "trained").open("a") as file:
            file.write(f"{spec.name}\n")
        result = {"study": "s", "run": spec.name, "model": "m", "train_size": 1, "seed": 0}
        create_json(study / spec.name / "result.json", result)
    return "trained"


# ---- stopping


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_ctrl_c_or_an_error_lets_runs_write_their_checkpoint_and_is_raised_again(tmp_path, error):
    trained = set()

    def notify(event):
        if event.kind == "progress":
            trained.add(event.run)
        if trained == {"a", "b"}:
            raise error

    with pytest.raises(error):
        run(until_stopped, specs("a", "b", "never", folder=str(tmp_path)), jobs=2, notify=notify)
    assert {p.name for p in tmp_path.iterdir()} == {"a.pid", "b.pid", "a.checkpoint", "b.checkpoint"}
    for name in "ab":
        assert not alive(int((tmp_path / f"{name}.pid").read_text()))


def test_workers_end_when_their_parent_is_killed(tmp_path):
    """One that trains cannot report any more; one that waits for work sees the closed pipe."""
    folder = tmp_path / "pids"
    folder.mkdir()
    parent = start_server().Process(target=start_study, args=(folder,))
    parent.start()
    wait_until(lambda: (folder / "ended").exists() and len([p for p in folder.glob("*.pid") if p.read_text()]) == 2)
    pids = [int(p.read_text()) for p in folder.glob("*.pid")]
    assert all(alive(pid) for pid in pids)
    parent.kill()
    wait_until(lambda: not any(alive(pid) for pid in pids))


def start_study(folder):
    """Of a run that trains and one that ends at once, in a process of its own."""
    start_server([__name__])

    def note(event):
        if event.kind == "done":
            (folder / "ended").touch()

    executor = LocalExecutor(report_until_stopped, 2, folder / "study")
    execute(executor, specs("busy", "idle", folder=str(folder)), folder / "study", note)
