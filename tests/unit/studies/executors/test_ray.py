"""Runs on a real Ray cluster of two nodes with a CPU each, which these tests start; one of them dies in the last."""

import importlib.util
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from vitlab.config import UserError
from vitlab.config.schema import ExecutorConfig, RayConfig
from vitlab.studies.claims import hold
from vitlab.studies.execute import execute
from vitlab.studies.executors import ray as executor
from vitlab.studies.grid import Spec

DEADLINE = 120  # seconds after which something hangs
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    cluster.second = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def study(cluster, tmp_path):
    (tmp_path / "study.yaml").touch()
    return Study(cluster.address, tmp_path)


class Study:
    """A study's folder, and a way to run jobs of it on the cluster; keeps the events."""

    def __init__(self, address, folder):
        self.folder, self.events = folder, []
        self.config = ExecutorConfig(kind="ray", retries=1, ray=RayConfig(address=address))
        executor.check(self.config)

    def run(self, job, *names, jobs=100, notify=lambda event: None):
        def note(event):
            self.events += [event] if event.kind != "tick" else []
            notify(event)

        specs = [Spec(name, {"folder": str(self.folder)}) for name in names]
        execute(executor.build(self.config, job, jobs, self.folder), specs, self.folder, note, tick=0.05)
        return self

    def kinds(self, run):
        return [event.kind for event in self.events if event.run == run and event.kind != "progress"]

    def value(self, run, kind="done"):
        return next(event.value for event in self.events if event.run == run and event.kind == kind)

    def marks(self, pattern):
        return sorted(path.name for path in self.folder.glob(pattern))


def wait_until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


# ---- jobs


def misbehave(spec, report, stop):
    """What the run's name says."""
    kind = spec.name.partition(" ")[0]
    if kind == "user":
        raise UserError(["data.root=x: no such folder", "another"])
    if kind == "unpicklable":
        return threading.Lock()
    mark = Path(spec.config["folder"], f"{spec.name}.begun")
    if kind == "kill" or (kind == "once" and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def hold_and_return(spec, report, stop):
    with hold(Path(spec.config["folder"], spec.name)):
        return "trained"


def until_stopped(spec, report, stop):
    """A run that only a stop ends: it leaves a mark with its pid, and another when it is told to."""
    folder = Path(spec.config["folder"])
    with hold(folder / spec.name):
        (folder / f"{spec.name}.pid").write_text(str(os.getpid()))
        while not stop():
            time.sleep(0.01)
        (folder / f"{spec.name}.checkpoint").touch()


def until_moved(spec, report, stop):
    """A run that ends when it was begun twice; the first time it says on which node it is."""
    import ray

    folder = Path(spec.config["folder"])
    with hold(folder / spec.name):
        node = ray.get_runtime_context().get_node_id()
        (folder / f"{spec.name} {node}").touch()
        wait_until(lambda: len([*folder.glob(f"{spec.name} *")]) == 2 or (folder / "moved").exists())
        return node


# ---- the ordinary course, and runs that fail


def test_workers_are_kept_and_only_runs_whose_process_died_are_started_again(study):
    names = ["ok 1", "once", "ok 2", "user", "kill", "unpicklable", "ok 3", "ok 4", "ok 5"]
    study.run(misbehave, *names)
    assert {name: study.kinds(name) for name in names} == {
        **{f"ok {number}": ["started", "done"] for number in range(1, 6)},
        "once": ["retried", "started", "done"],
        "user": ["started", "failed"],
        "kill": ["retried", "started", "failed"],
        "unpicklable": ["started", "failed"],
    }
    assert study.value("user", "failed") == "data.root=x: no such folder"
    assert study.value("once", "retried") == "its process died; started again from its last checkpoint"
    assert study.value("kill", "failed") == "its process died; executor.retries=1"
    assert "pickle" in study.value("unpicklable", "failed")
    workers = {study.value(f"ok {number}") for number in range(1, 6)}
    assert len(workers) < 5, "a process is kept for several runs"
    assert os.getpid() not in workers


def test_a_run_that_another_start_trains_is_followed_and_taken_when_it_is_let_go(study):
    with hold(study.folder / "a") as held:

        def notify(event):
            if event.kind == "held":
                held.release()

        study.run(hold_and_return, "a", "b", notify=notify)
    assert study.kinds("a") == ["held", "started", "done"]
    assert study.value("b") == "trained"


# ---- stopping


def test_ctrl_c_lets_runs_write_their_checkpoint_and_leaves_the_cluster(study):
    import ray

    def notify(event):
        if len(study.marks("*.pid")) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(until_stopped, "a", "b", "c", "d", notify=notify)
    assert study.marks("*.checkpoint") == ["a.checkpoint", "b.checkpoint"]
    wait_until(lambda: ray.available_resources().get("CPU") == 2)
    assert study.marks("[cd].pid") == []
    study.run(misbehave, "ok")
    assert study.kinds("ok") == ["started", "done"]


# ---- what is refused


def test_a_node_that_does_not_see_the_folder_is_one_clear_line(study):
    (study.folder / "study.yaml").unlink()
    with pytest.raises(UserError, match=f"does not see --out {study.folder}; give a folder that all nodes"):
        study.run(misbehave, "ok")


def test_more_than_any_node_has_is_refused_with_what_the_cluster_has(study):
    study.config = replace(study.config, gpus=0.5, memory=1.0)
    with pytest.raises(UserError) as caught:
        executor.check(study.config)
    (line,) = caught.value.problems
    assert line.startswith("executor.cpus=1, executor.gpus=0.5, executor.memory=1: no node of the ray cluster has")
    assert "1 CPUs, 0 GPUs" in line
    study.config = replace(study.config, ray=replace(study.config.ray, autoscaling=True))
    executor.check(study.config)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:10001"])
def test_an_address_where_no_cluster_answers_is_one_clear_line(address, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(UserError, match=f"executor.ray.address={address}: ") as caught:
        executor.connect(address)
    assert len(caught.value.problems) == 1


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'vitlab\[ray\]'"):
        executor.check(ExecutorConfig(kind="ray"))
    assert "ray" not in vars(sys.modules["vitlab.studies.executors.ray"]), "imported by its functions alone"


# ---- a node that dies: the last test, for one node is left


def test_runs_of_a_node_that_dies_go_on_elsewhere(study, cluster):
    dead = cluster.second.node_id

    def notify(event):
        both = "started" in study.kinds("a") and "started" in study.kinds("b")
        if both and cluster.second in cluster.worker_nodes:
            cluster.remove_node(cluster.second, allow_graceful=False)
        if event.kind == "retried":
            (study.folder / "moved").touch()

    study.run(until_moved, "a", "b", notify=notify)
    (moved,) = (name for name in "ab" if "retried" in study.kinds(name))
    (stayed,) = {"a", "b"} - {moved}
    assert study.value(moved, "retried").startswith("its node died (")
    assert study.value(moved) == study.value(stayed) != dead
    assert f"{moved} {dead}" in study.marks("? *")
