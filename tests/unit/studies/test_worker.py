"""Workers of one study: each run is trained once, whoever is killed. Real processes and tiny runs."""

import itertools
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.integration import commands
from vitlab.cli import main
from vitlab.commands import scale
from vitlab.config import UserError
from vitlab.console import Console
from vitlab.studies.claims import hold, path_of, read_claim
from vitlab.studies.grid import compose_study
from vitlab.studies.plan import plan_study
from vitlab.studies.results import load_results
from vitlab.studies.store import StudyFiles
from vitlab.studies.worker import work

WORDS = ["data=digits", "models=[resnet_nano]", "seeds=[0]", "wandb.mode=off", "analyses=[]", "trainer.evaluations=1"]
WORDS += ["trainer.log_every=1", "trainer.checkpoint_every=0"]
DEADLINE = 300  # seconds after which something hangs, also where other programs take all cores


@pytest.fixture
def prepare(tmp_path):
    """Writes a study's folder as `vitlab scale` does before it starts workers; gives its files."""

    def write(*words):
        plan = plan_study(compose_study("quick", [*WORDS, *words]), jobs=1, console=Console())
        files = StudyFiles(tmp_path / "study")
        scale.add_runs(files, plan)
        return files

    return write


def wait_until(condition):
    end = time.monotonic() + DEADLINE
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return found


def count_logged(files, what):
    return {log.parent.name: log.read_text().count(what) for log in files.folder.glob("*/log.txt")}


def test_a_worker_takes_free_runs_from_the_smallest_on_and_leaves_failed_and_held_ones(prepare):
    files = prepare("sizes=[60,40,50,30]", "budget.steps=2")
    assert {"accelerator", "precision", "threads"} <= files.config()["settled"]["resnet_nano"].keys()
    names = [f"resnet_nano-n{size}-s0" for size in (30, 40, 50, 60)]
    files.run(names[1]).write_error("as it was elsewhere")
    with hold(files.run(names[2]).folder):
        work(files.folder, 1, lambda: False)
        assert [files.run(name).result() is not None for name in names] == [True, False, False, True]
    assert main(["work", str(files.folder), "--cores", "1"]) == 0
    assert count_logged(files, ": trained") == {name: 1 for name in names if name != names[1]}
    assert files.run(names[1]).error() == "as it was elsewhere"
    times = [files.run(name).result_path.stat().st_mtime for name in (names[0], names[3], names[2])]
    assert times == sorted(times)


def test_runs_of_larger_budgets_wait_for_smaller_ones_and_train_the_rest_alone(prepare):
    """Cooldowns begin at steps 2, 4 and 6, and each run goes on from the one before."""
    words = [
        "sizes=[40]",
        "budget.steps=[12,8,4]",
        "set=[recipe.schedule=constant,recipe.cooldown=0.5,recipe.warmup=1]",
    ]
    files = prepare(*words)
    runs = {steps: files.run(f"resnet_nano-steps-{steps}-n40-s0") for steps in (4, 8, 12)}
    asked = itertools.count()
    with hold(runs[4].folder):
        work(files.folder, 1, lambda: next(asked) > 2)
    assert not any(run.checkpoint_path.is_file() for run in runs.values())
    work(files.folder, 1, lambda: False)
    assert {steps: run.result()["shared_steps"] for steps, run in runs.items()} == {4: 0, 8: 2, 12: 4}
    plan = plan_study(compose_study("quick", [*WORDS, *words]), jobs=1, console=Console())
    assert [plan.trained_steps(spec) for spec in plan.specs] == [8, 6, 4]
    assert load_results(files.folder).effort.steps.sum() == 18


def leave_claim(run, number):
    """As a process that was killed."""
    with hold(run.folder) as held:
        gone = {**json.loads(path_of(run.folder, held.number).read_text()), "pid": 2**22 + 1}
    run.folder.mkdir(exist_ok=True)
    path_of(run.folder, number).write_text(json.dumps(gone))


def test_a_run_whose_process_dies_again_and_again_has_failed(prepare):
    """The number of its claim counts the processes; none of them is left."""
    files = prepare("sizes=[40]", "budget.steps=2", "executor.retries=1")
    run = files.run("resnet_nano-n40-s0")
    leave_claim(run, 2)
    work(files.folder, 1, lambda: False)
    assert "ended 2 times" in run.error()
    assert "executor.retries=1" in run.error()
    assert read_claim(run.folder) is None
    run.error_path.unlink()
    leave_claim(run, 1)
    work(files.folder, 1, lambda: False)
    assert run.result() is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_stopped_gives_its_run_back_and_a_later_start_counts_again(prepare, capsys, number):
    words = ["sizes=[40]", "budget.steps=60", "executor.retries=0"]
    files = prepare(*words)
    run = files.run("resnet_nano-n40-s0")

    def stop():
        wait_until(lambda: len(run.metrics()) > 5)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=stop)
    thread.start()
    assert main(["work", str(files.folder), "--cores", "1"]) == 130
    thread.join()
    assert "Traceback" not in capsys.readouterr().err
    assert (read_claim(run.folder), run.checkpoint_path.is_file(), run.result()) == (None, True, None)
    leave_claim(run, 1)
    assert read_claim(run.folder).is_dead
    plan = plan_study(compose_study("quick", [*WORDS, *words]), jobs=1, console=Console())
    scale.find_missing(files, plan, Console())  # a later start counts again
    work(files.folder, 1, lambda: False)
    assert [row["step"] for row in run.metrics() if "train/loss" in row] == [*range(1, 61)]


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed_and_give_their_runs_back(prepare):
    files = prepare("sizes=[40,60]", "budget.steps=100000")
    program = commands.Program(
        "scale", "quick", *WORDS, "sizes=[40,60]", "budget.steps=100000", "--jobs", "2", "--out", files.folder
    )
    runs = [files.run(f"resnet_nano-n{size}-s0") for size in (40, 60)]
    program.wait_for(lambda: all(run.metrics() for run in runs))
    workers = [read_claim(run.folder).owner.pid for run in runs]
    os.kill(program.process.pid, signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    program.process.join()
    assert [read_claim(run.folder) for run in runs] == [None, None]
    assert all(run.checkpoint_path.is_file() for run in runs)


def test_a_study_that_was_deleted_does_not_appear_again(tmp_path):
    with pytest.raises(UserError, match=r"holds no study\.yaml"):
        work(tmp_path / "study", 1, lambda: False)
    assert not (tmp_path / "study").exists()
