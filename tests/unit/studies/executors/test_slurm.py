"""Runs as jobs of a real SLURM of one node, which these tests start."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.slurm import one_node
from vitlab.config import StudyConfig, UserError, compose
from vitlab.files import write_json
from vitlab.studies import execute as execution
from vitlab.studies.claims import JOB, hold
from vitlab.studies.execute import execute
from vitlab.studies.executors import slurm
from vitlab.studies.grid import Spec
from vitlab.studies.launching import slurm_jobs
from vitlab.studies.launching.slurm_jobs import read_submitted
from vitlab.training.files import RunFiles

DEADLINE = 120  # seconds after which something hangs


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    with one_node(tmp_path_factory.mktemp("slurm")), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT}:{Path(__file__).parent}")  # jobs import this file
        patch.setattr(slurm, "ASK", 0.5)
        patch.setattr(execution, "LOOK", 0.1)
        yield


# ---- jobs


class Stopped(Exception):
    pass


class Counting:
    """Runs that count to `steps`, resume at the step where they were stopped, and say where they began."""

    def __call__(self, spec, report, stop):
        self.kept = lambda: None  # a job may keep what cannot be pickled
        files = RunFiles(spec.config["folder"] / spec.name)
        with hold(files.folder):
            files.write_config({"analyses": [], "probes": []})
            write_json(files.data_path, {"sha256": "", "steps": spec.config["steps"]})
            mark = files.folder / "step"
            first = int(mark.read_text()) if mark.exists() else 0
            for step in range(first + 1, spec.config["steps"] + 1):
                row = {"step": step, "wall_s": 0.05 * step, "train/loss": 1.0}
                files.metrics_path.write_text(json.dumps(row) + "\n")
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
            files.write_result({**columns, "first": first, "job": os.environ[JOB], "pid": os.getpid()})


class Watcher:
    """A study in a folder, and an executor for it."""

    def __init__(self, folder: Path, *overrides: str):
        self.folder, self.events = folder, []
        words = ["name=tests", *overrides]
        self.config = compose(
            StudyConfig, [f"executor.{word}" if word != words[0] else word for word in words]
        ).executor
        self.executor = slurm.build(self.config, Counting(), 4, folder)

    def specs(self, *names, steps=2):
        return [Spec(name, {"folder": self.folder, "steps": steps, "analyses": [], "probes": []}) for name in names]

    def run(self, specs):
        execute(self.executor, specs, self.folder, self.note, tick=0.05)

    def note(self, event):
        if event.kind not in ("tick", "progress"):
            self.events.append((event.kind, event.run, event.value))

    def result(self, name):
        return RunFiles(self.folder / name).result()

    def error(self, name):
        (error,) = [value for kind, run, value in self.events if (kind, run) == ("failed", name)]
        return error

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
    array, task = study.result("a")["job"].split("_")
    assert study.result("c")["job"] == read_submitted(tmp_path)["c"] == f"{array}_{int(task) + 1}"


def test_what_is_submitted_is_not_submitted_again_and_the_queue_takes_no_more_than_it_may(tmp_path):
    """Three jobs of which two are allowed at a time; another start while they are in the queue adds none."""
    study = Watcher(tmp_path, "slurm.submitted=2", "slurm.array=1")
    specs = study.specs("a", "b", "c", steps=20)
    first = study.executor.submit(specs)
    assert ([*first.added], [spec.name for spec in first.unsubmitted]) == (["a", "b"], ["c"])
    again = Watcher(tmp_path, "slurm.submitted=2").executor.submit(specs)
    assert (again.added, again.queued) == ({}, first.added)
    assert again.describe() == (
        "Submitted nothing: all is in the queue; 1 run not yet (executor.slurm.submitted jobs are in the queue)"
    )
    study.run(specs)
    assert {study.result(name)["first"] for name in "abc"} == {0}, "the third is submitted when there is room"
    assert len({*read_submitted(tmp_path).values()}) == 3


@pytest.mark.parametrize(("array", "submitted"), [(1, 1000), (2, 1000), (3, 4)])
def test_no_more_than_jobs_run_at_a_time_of_all_arrays_together(tmp_path, array, submitted):
    study = Watcher(tmp_path, f"slurm.array={array}", f"slurm.submitted={submitted}")
    study.executor = slurm.build(study.config, Counting(), 2, tmp_path)
    names = "abcdef"
    study.run(study.specs(*names, steps=20))
    marks = [sorted(path.stat().st_mtime for path in (tmp_path / name).glob("at *")) for name in names]
    beside = [sum(first <= begin <= last for first, *_, last in marks) for begin, *_ in marks]
    assert max(beside) == 2
    assert len({*read_submitted(tmp_path).values()}) == 6


# ---- what happens to jobs


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(["scancel", "--signal=USR2"], id="timeout"),
        pytest.param(["sbatch", "--partition=urgent", "--exclusive", "--wrap=:"], id="preempted"),
    ],
)
@pytest.mark.slow
def test_an_end_that_is_announced_stops_the_run_at_a_step_and_the_job_continues_it(tmp_path, end):
    study = Watcher(tmp_path, "slurm.cells=2")
    specs = study.specs("a", "b", steps=40)
    job = study.executor.submit(specs).added["a"]
    wait_until((tmp_path / "a" / "at 5").exists)
    subprocess.run([*end, job] if end[0] == "scancel" else [*end, "--output=/dev/null"], check=True)
    wait_until((tmp_path / "a" / "step").exists)
    # SLURM waits for two minutes before it starts a job again: it has ended by then
    wait_until(lambda: f"{job} PENDING BeginTime" in queue("%i %T %r"))
    wait_until(lambda: "srun: error: " in study.log())
    time.sleep(1)
    subprocess.run(["scontrol", "update", f"job={job}", "starttime=now"], check=True)
    study.run(specs)
    assert study.result("a")["first"] == int((tmp_path / "a" / "step").read_text()) >= 5
    assert study.result("b")["first"] == 0
    assert read_submitted(tmp_path)["a"] == job


def test_a_job_that_is_cancelled_writes_its_checkpoint_and_the_next_start_continues_it(tmp_path):
    study = Watcher(tmp_path)
    specs = study.specs("a", steps=40)
    job = study.executor.submit(specs).added["a"]
    wait_until((tmp_path / "a" / "at 5").exists)
    subprocess.run(["scancel", job], check=True)
    wait_until(lambda: job not in queue())
    study.run(specs)
    assert study.result("a")["first"] >= 5


@pytest.mark.parametrize(("name", "setup"), [("kill", ""), ("a", "slurm.setup=[exit 3]")], ids=["killed", "not begun"])
def test_a_run_whose_job_dies_is_missing_and_others_are_not(tmp_path, name, setup):
    study = Watcher(tmp_path, *([setup] if setup else []))
    study.run(study.specs(name, *([] if setup else ["b"])))
    job = read_submitted(tmp_path)[name]
    assert study.error(name).startswith(f"its job {job} ended without a result; see {tmp_path}/slurm/{job}_0_log.out")
    assert study.kinds("b") == ([] if setup else ["started", "done"])


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
        execute(study.executor, study.specs("a", steps=20), tmp_path, interrupt, tick=0.05)
    job = read_submitted(tmp_path)["a"].partition("_")[0]
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
