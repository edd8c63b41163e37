"""Runs as jobs of a real SLURM of one node, which these tests start."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.slurm import one_node
from vitlab.config import StudyConfig, UserError, compose
from vitlab.studies.cells import CellReader
from vitlab.studies.executors import slurm, slurm_jobs
from vitlab.studies.executors.slurm_jobs import Submitted, read_submitted
from vitlab.studies.grid import Spec
from vitlab.training.files import RunFiles
from vitlab.training.lease import hold
from vitlab.training.progress import Progress

DEADLINE = 120  # seconds after which something hangs


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    with one_node(tmp_path_factory.mktemp("slurm")), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT}:{Path(__file__).parent}")  # jobs import this file
        patch.setattr(slurm, "ASK", 0.5)
        patch.setattr(slurm, "LOOK", 0.1)
        yield


# ---- jobs


class Stopped(Exception):
    pass


class Counting:
    """Runs that count to `steps`, resume at the step where they were stopped, and say where they began."""

    def __call__(self, spec, report, stop):
        self.kept = lambda: None  # a job may keep what cannot be pickled
        files = RunFiles(spec.config["folder"] / spec.name)
        with hold(files.folder, expired=spec.expired) as lease:
            files.write_config({"analyses": [], "probes": []})
            mark = files.folder / "step"
            first = int(mark.read_text()) if mark.exists() else 0
            for step in range(first + 1, spec.config["steps"] + 1):
                lease.progress = {"step": step, "steps": spec.config["steps"]}
                report(Progress(step, spec.config["steps"]))
                (files.folder / f"at {step}").touch()
                time.sleep(0.05)
                if stop():
                    mark.write_text(str(step))
                    raise Stopped
                if spec.name.startswith("kill"):
                    os.kill(os.getpid(), signal.SIGKILL)
            if spec.name.startswith("wrong"):
                files.write_error("a wrong configuration")
                raise ValueError("a wrong configuration")
            columns = {"study": "s", "run": spec.name, "model": "m", "train_size": 1, "seed": 0}
            files.write_result({**columns, "first": first, "job": os.environ["VITLAB_WHERE"], "pid": os.getpid()})


class Watcher:
    """A study in a folder, and an executor for it."""

    def __init__(self, folder: Path, *overrides: str):
        self.folder, self.events = folder, []
        words = ["name=tests", *overrides]
        self.config = compose(
            StudyConfig, [f"executor.{word}" if word != words[0] else word for word in words]
        ).executor
        self.executor = slurm.build(self.config, Counting(), 4, CellReader(folder))

    def specs(self, *names, steps=2):
        return [Spec(name, {"folder": self.folder, "steps": steps, "analyses": [], "probes": []}) for name in names]

    def run(self, specs):
        self.executor.run(specs, self.note, tick=0.05)

    def note(self, event):
        if event.kind not in ("tick", "progress"):
            self.events.append((event.kind, event.run, event.value))

    def result(self, name):
        return RunFiles(self.folder / name).result()

    def kinds(self, name):
        return [kind for kind, run, _ in self.events if run == name]

    def log(self):
        return "".join(path.read_text() for path in sorted((self.folder / "slurm").glob("*_log.out")))


def wait_until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def queue(columns="%i"):
    return subprocess.run(["squeue", "-hr", f"-o{columns}"], capture_output=True, text=True).stdout.splitlines()


# ---- the ordinary course


def test_runs_that_share_an_allocation_share_a_process_and_one_that_fails_takes_no_other_with_it(tmp_path):
    study = Watcher(tmp_path, "slurm.cells=3")
    study.run(study.specs("a", "wrong", "b", "c"))
    assert study.kinds("a") == ["started", "done"]
    assert study.kinds("wrong") == ["started", "failed"]
    assert study.result("a")["pid"] == study.result("b")["pid"] != study.result("c")["pid"]
    array, task = study.result("a")["job"].split()[2].split("_")
    assert study.result("c")["job"].startswith(f"SLURM job {array}_{int(task) + 1} on ")
    assert read_submitted(tmp_path)["c"].job == f"{array}_{int(task) + 1}"


def test_what_is_submitted_is_not_submitted_again_and_the_queue_takes_no_more_than_it_may(tmp_path):
    """Three jobs of which two are allowed at a time; another start while they are in the queue adds none."""
    study = Watcher(tmp_path, "slurm.cells=1", "slurm.submitted=2", "slurm.array=1")
    specs = study.specs("a", "b", "c", steps=20)
    first = study.executor.submit(specs)
    assert len(first.added) == 2
    assert first.unsubmitted == 1
    again = Watcher(tmp_path, "slurm.cells=1", "slurm.submitted=2").executor.submit(specs)
    assert again.added == []
    assert again.live == {"a": first.added[0], "b": first.added[1]}
    assert again.describe() == (
        "Submitted nothing: all is in the queue; 1 run not yet (executor.slurm.submitted jobs are in the queue)"
    )
    study.run(specs)
    assert {study.result(name)["first"] for name in "abc"} == {0}
    assert len({one.job for one in read_submitted(tmp_path).values()}) == 3
    assert not [event for event in study.events if event[0] == "retried"]


# ---- what happens to jobs


@pytest.mark.parametrize(
    ("requeued", "end"),
    [
        pytest.param(False, ["scancel", "--signal=USR2"], id="resubmitted"),
        pytest.param(True, ["scancel", "--signal=USR2"], id="requeued", marks=pytest.mark.slow),
        pytest.param(
            True,
            ["sbatch", "--partition=urgent", "--exclusive", "--wrap=:"],
            id="preempted",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_end_that_is_announced_stops_the_run_at_a_step_and_has_it_continued(tmp_path, requeued, end):
    """By the same job where the cluster requeues, else by one that this one submits: nobody watches."""
    study = Watcher(tmp_path, "slurm.cells=2", "slurm.options=" + ("{}" if requeued else "{no-requeue: true}"))
    specs = study.specs("a", "b", steps=40)
    (job,) = study.executor.submit(specs).added
    wait_until((tmp_path / "a" / "at 5").exists)
    subprocess.run([*end, job] if end[0] == "scancel" else [*end, "--output=/dev/null"], check=True)
    wait_until((tmp_path / "a" / "step").exists)
    if requeued:  # SLURM waits for two minutes before it starts a job again: it has ended by then
        wait_until(lambda: f"{job} PENDING BeginTime" in queue("%i %T %r"))
        wait_until(lambda: "srun: error: " in study.log())
        time.sleep(1)
        subprocess.run(["scontrol", "update", f"job={job}", "starttime=now"], check=True)
    wait_until(lambda: study.result("b"))
    assert study.result("a")["first"] == int((tmp_path / "a" / "step").read_text()) >= 5
    assert study.result("b")["first"] == 0
    assert (read_submitted(tmp_path)["a"].job == job) == requeued
    assert read_submitted(tmp_path)["a"].lost == 0


def test_a_job_that_is_cancelled_writes_its_checkpoint_and_is_submitted_again(tmp_path):
    study = Watcher(tmp_path)
    specs = study.specs("a", steps=40)

    def cancel():
        wait_until((tmp_path / "a" / "at 5").exists)
        subprocess.run(["scancel", read_submitted(tmp_path)["a"].job], check=True)

    thread = threading.Thread(target=cancel)
    thread.start()
    study.run(specs)
    thread.join()
    assert study.kinds("a") == ["started", "retried", "done"]
    (why,) = [value for kind, _, value in study.events if kind == "retried"]
    assert "(CANCELLED)" in why
    assert study.result("a")["first"] >= 5
    assert read_submitted(tmp_path)["a"].lost == 0, "it stopped in order"


def test_a_run_that_kills_its_process_is_given_up_after_its_retries_and_the_others_are_not(tmp_path):
    study = Watcher(tmp_path, "slurm.cells=3", "retries=1")
    study.run(study.specs("a", "kill", "b"))
    assert [kind for kind in study.kinds("kill") if kind != "started"] == ["retried", "failed"]
    assert study.kinds("a") == ["started", "done"]
    assert study.kinds("b") == ["retried", "started", "done"]
    assert read_submitted(tmp_path)["b"].lost == 0, "it had not begun"
    error = study.events[[event[:2] for event in study.events].index(("failed", "kill"))][2]
    assert error.startswith("its jobs were lost 2 times, the last was ")
    assert "(FAILED); see " in error


def test_a_job_that_cannot_start_is_given_up(tmp_path):
    study = Watcher(tmp_path, "retries=1", "slurm.setup=[exit 3]")
    study.run(study.specs("a"))
    assert study.kinds("a") == ["retried", "started", "failed"]


def test_a_cluster_that_refuses_says_why_in_one_line_and_nothing_counts_as_submitted(tmp_path):
    study = Watcher(tmp_path, "slurm.partition=nowhere")
    with pytest.raises(UserError) as refused:
        study.run(study.specs("a"))
    (line,) = refused.value.problems
    assert line.startswith("executor=slurm: sbatch refused the jobs: invalid partition specified: nowhere")
    assert read_submitted(tmp_path) == {}
    assert not list((tmp_path / "slurm").glob("*.pkl"))


def test_a_cluster_that_does_not_answer_is_said_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "nowhere.conf"))  # squeue looks for it for a minute
    monkeypatch.setattr(slurm_jobs, "ANSWER", 0.5)
    with pytest.raises(UserError, match=r"^executor=slurm: squeue does not answer on this host"):
        slurm.check(Watcher(tmp_path / "study").config)


# ---- a watcher


def test_ctrl_c_ends_the_watcher_and_says_how_to_end_the_jobs(tmp_path, capsys):
    study = Watcher(tmp_path)

    def interrupt(event):
        if event.kind == "started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.executor.run(study.specs("a", steps=20), interrupt, tick=0.05)
    job = read_submitted(tmp_path)["a"].job
    assert f"'scancel {job}' ends them" in capsys.readouterr().err
    wait_until(lambda: study.result("a"))


# ---- what is wrong


def test_a_machine_without_slurm_and_settings_that_it_cannot_meet_are_one_line_each(tmp_path, monkeypatch):
    words = ("gpus=0.5", "slurm.options={time: 10, output: x, constraint: [a], exclusive: true}")
    config = Watcher(tmp_path, *words).config
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError) as wrong:
        slurm.check(config)
    for line, start in zip(
        wrong.value.problems,
        (
            "executor.slurm.options.time: give executor.slurm.hours",
            "executor.slurm.options.output: is set by vitlab",
            "executor.slurm.options.constraint=['a']: give a text",
            "executor.gpus=0.5: SLURM allocates whole GPUs",
            "executor=slurm: sbatch and srun and squeue cannot be found here",
            "executor=slurm needs the package submitit: pip install 'vitlab[slurm]'",
        ),
        strict=True,
    ):
        assert line.startswith(start)


@pytest.mark.parametrize(("cells", "expected"), [(2, ["ab", "cd"]), ("auto", ["ab", "c", "d"]), (4, ["abcd"])], ids=str)
def test_allocations_are_worth_their_start(cells, expected):
    seconds = {"a": 300, "b": 100, "c": 400, "d": None}
    missing = [(Spec(name, {}, seconds=seconds[name]), Submitted(name, "", "")) for name in "abcd"]
    assert ["".join(spec.name for spec, _ in group) for group in slurm.pack(missing, cells)] == expected
