"""`vitlab scale --executor ray` on a real Ray cluster of two nodes: Ctrl-C, a node that dies, and the same results."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.integration import commands
from tests.integration.test_scale import table
from vitlab.commands import executors
from vitlab.config import UserError
from vitlab.config.schema import ExecutorConfig, RayConfig
from vitlab.studies.status import StatusReader
from vitlab.studies.store import StudyFiles

STUDY = ["quick", "data=digits", "sizes=[60,150]", "seeds=[0]", "budget.steps=120", "trainer.checkpoint_every=0.2"]
STUDY += ["trainer.evaluations=1", "trainer.threads=1", "set=[recipe.batch_size=16]", "wandb.mode=off", "analyses=[]"]
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        cluster.second = cluster.add_node(**NODE)
        yield cluster
        cluster.shutdown()


def list_training(folder):
    """The runs that have come past a step, of those that train."""
    if not (folder / "runs.json").exists():
        return set()
    return {run.run for run in StatusReader(StudyFiles(folder)).read().of_state("running") if run.progress}


@pytest.mark.slow
def test_a_study_that_is_stopped_and_loses_a_node_gives_what_this_machine_gives(cluster, tmp_path):
    here = tmp_path / "here"
    commands.succeed("scale", *STUDY, "--jobs", "2", "--out", here)

    folder = tmp_path / "ray"
    words = ["scale", *STUDY, "--executor", "ray", f"executor.ray.address={cluster.address}", "--out", "ray"]
    program = commands.Program(*words)
    program.wait_for(lambda: list_training(folder))
    program.signal(signal.SIGINT)
    done = program.end()
    assert done.returncode == 130, done.stderr
    assert all(node.any_processes_alive() for node in cluster.list_all_nodes()), "the cluster stays"
    left = [log.parent.name for log in folder.glob("*/log.txt") if ": stopped" in log.read_text()]
    assert left
    assert all((folder / run / "checkpoints" / "last.ckpt").is_file() for run in left)

    program = commands.Program(*words)
    program.wait_for(lambda: list_training(folder))
    cluster.remove_node(cluster.second, allow_graceful=False)
    done = program.end()
    assert done.returncode == 0, done.stderr
    assert table(folder) == table(here)
    assert "[33m(raylet)" not in done.stdout, "ray's own lines"
    for run in left:
        assert (folder / run / "log.txt").read_text().count(": trained") == 1


@pytest.mark.slow
def test_what_no_node_has_is_refused_and_variables_reach_the_workers(cluster, tmp_path, monkeypatch):
    import ray

    config = ExecutorConfig("ray", cpus=9, memory=0.5, ray=RayConfig(cluster.address))
    with pytest.raises(UserError, match=r"executor\.cpus=9, executor\.memory=0\.5: no node"):
        executors.check_executor(config)
    executors.check_executor(replace(config, ray=RayConfig(cluster.address, autoscaling=True)))

    def look(*given):
        executors.run_worker = lambda folder, *_: Path(folder, "seen").write_text(" ".join(os.environ))
        executors.run_task(*given)  # of the worker's process

    monkeypatch.setattr(executors, "run_task", look)
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("OTHERS", "1")
    (tmp_path / "study.yaml").touch()
    workers = executors.RayWorkers(tmp_path, 1, ExecutorConfig("ray"))
    ray.get(workers.tasks)
    ray.shutdown()
    seen = (tmp_path / "seen").read_text().split()
    assert ("HF_TOKEN" in seen, "OTHERS" in seen) == (True, False)
