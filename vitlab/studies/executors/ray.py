"""Runs on a Ray cluster, each a task of Ray Core. Imports no torch.

Its files say how a run ends, so a task that is lost with its node is started again: it continues from the last
checkpoint, on any node that sees the folder.
"""

import contextlib
import importlib.util
import ipaddress
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitlab.config import UserError, first_line
from vitlab.config.schema import ExecutorConfig
from vitlab.formatting import plural
from vitlab.hardware import count_cores
from vitlab.studies.events import Event, Job, do, summarize_error
from vitlab.studies.grid import Spec

LOOK = 1.0  # seconds between two looks at the cluster
PATIENCE = 30.0  # seconds that runs have to write a checkpoint when the study is stopped
OBJECTS = 100_000_000  # bytes of the object store of a cluster that is started here: specs and results are small
PASSED = ("VITLAB_", "WANDB_", "HF_")  # how the environment variables begin that workers are given


class RayExecutor:
    """At most `jobs` runs at a time, and as many as the cluster has room for."""

    reports = False

    def __init__(self, config: ExecutorConfig, job: Job, jobs: int, study: Path):
        import ray

        self.config, self.jobs, self.folder = config, jobs, study.absolute()
        # what is lost is started again by `execute`, once its claim is dead; a process that has touched a GPU sees no
        # other one, so ray ends it with its task, and keeps those without
        task = ray.remote(max_retries=0, scheduling_strategy="SPREAD", **list_needs(config))(work)
        given = {key: value for key, value in os.environ.items() if key.startswith(PASSED)}
        self.submit = lambda spec: task.remote(job, spec, self.folder, os.getcwd(), given)
        self.tasks: dict[Any, str] = {}  # the run of each task
        self.room, self.looked_at = 0, -math.inf

    def can_start(self, spec: Spec) -> bool:
        if time.monotonic() - self.looked_at > LOOK:
            self.room = min(self.jobs, max(1, 2 * count_places(self.config)))  # some ahead: for nodes that join
            self.looked_at = time.monotonic()
        return len(self.tasks) < self.room

    def start(self, spec: Spec) -> None:
        self.tasks[self.submit(spec)] = spec.name

    def wait(self, seconds: float) -> list[Event]:
        """What the tasks that have ended say. Raises UserError for a node that does not see the study's folder."""
        import ray

        if not self.tasks:
            time.sleep(seconds)
            return []
        list_nodes()
        ready, _ = ray.wait(list(self.tasks), timeout=seconds)
        return [self.read_end(task, self.tasks.pop(task)) for task in ready]

    def read_end(self, task: Any, run: str) -> Event:
        import ray
        from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayError, WorkerCrashedError

        try:
            event = ray.get(task)
        except (NodeDiedError, ObjectLostError, OutOfMemoryError, WorkerCrashedError) as error:
            reasons = {NodeDiedError: "its node died", OutOfMemoryError: "ray ended it: its node was short of memory"}
            return Event("killed", run, reasons.get(type(error), "its process died"))
        except RayError as error:
            return Event("failed", run, summarize_error(getattr(error, "cause", None) or error))
        if event.kind == "unseen":
            raise UserError(
                f"executor=ray: node {event.value} does not see --out {self.folder}; give a folder that all nodes of "
                "the cluster share"
            )
        return event

    def stop(self) -> None:
        """End tasks: one that trains writes its checkpoint first."""
        import ray

        tasks = [*self.tasks]
        for task in tasks:
            ray.cancel(task)
        late = ray.wait(tasks, num_returns=len(tasks), timeout=PATIENCE)[1] if tasks else []
        for task in late:
            ray.cancel(task, force=True)

    def close(self) -> None:
        """The cluster goes on."""


def check(config: ExecutorConfig) -> None:
    """Raise UserError unless runs can be started on a cluster, which may be started here."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("executor=ray: ray is not installed; pip install 'vitlab[ray]'")
    if config.gpus > 1 and not config.gpus.is_integer():
        raise UserError(
            f"executor.gpus={config.gpus:g}: Ray shares one GPU, or gives whole ones; give 0 to 1, or 2, 3, ..."
        )
    connect(config.ray.address)
    if not count_places(config) and not config.ray.autoscaling:
        needs = ", ".join(
            f"executor.{key}={vars(config)[key]:g}" for key in ("cpus", "gpus", "memory") if vars(config)[key]
        )
        nodes = Counter(map(describe_resources, list_nodes()))
        has = "; ".join(f"{plural(number, 'node')} of {resources}" for resources, number in nodes.items())
        raise UserError(
            f"{needs}: no node of the ray cluster has so much for a run; it has {has}; give "
            "executor.ray.autoscaling=true where it adds nodes when runs wait"
        )


def build(config: ExecutorConfig, job: Job, jobs: int, study: Path) -> RayExecutor:
    connect(config.ray.address)
    return RayExecutor(config, job, jobs, study)


def connect(address: str) -> None:
    """Connect this process to a cluster, unless it is; with "auto" and where none runs, start one that ends with it.

    Raises UserError.
    """
    import ray
    from ray._private.services import canonicalize_bootstrap_address

    if ray.is_initialized():
        return
    if "://" in address:
        raise UserError(f"executor.ray.address={address}: Ray Client is not supported; give HOST:PORT, or auto")
    options = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    try:
        # not ray.init("auto"): that also takes a cluster that another program has started for itself
        if cluster_address := canonicalize_bootstrap_address(None if address == "auto" else address):
            host, _, port = cluster_address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()  # ray would try for minutes
            print(f"ray: connecting to the cluster at {cluster_address}", file=sys.stderr)
            ray.init(cluster_address, **options)
        else:
            print("ray: no cluster is here; starting one for this study", file=sys.stderr)
            options |= {"num_cpus": count_cores(), "object_store_memory": OBJECTS, "include_dashboard": False}
            with node_on_loopback():
                ray.init("local", **options)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"executor.ray.address={address}: {first_line(error)}; start a cluster with 'ray start --head', or clear "
            "away a dead one with 'ray stop'"
        ) from None
    if not cluster_address and not ipaddress.ip_address(address_here := ray.util.get_node_ip_address()).is_loopback:
        ray.shutdown()
        raise UserError(
            f"executor=ray: ray {ray.__version__} opens the cluster that it starts here to the network, at "
            f"{address_here}; give executor.ray.address of a cluster that is protected"
        )
    # what becomes of runs is told here in a line each: ray's own lines would stand between those of results
    ray._private.worker._worker_logs_enabled = False
    print(f"ray: {describe_resources(ray.cluster_resources())}", file=sys.stderr)


@contextlib.contextmanager
def node_on_loopback() -> Iterator[None]:
    """Inside, `ray.init` starts a cluster that only this machine reaches.

    Each server of Ray (GCS, raylet, workers, agents) listens on all interfaces unless its node's address is the
    loopback one. Ray takes that where it has no clusters of several machines, as on macOS, and replaces it when it is
    given as `_node_ip_address`.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def describe_resources(resources: dict[str, float]) -> str:
    parts = [f"{resources.get(key, 0):g} {key}s" for key in ("CPU", "GPU")]
    return ", ".join([*parts, f"{resources.get('memory', 0) / 1e9:.0f} GB"])


def list_needs(config: ExecutorConfig) -> dict[str, float]:
    """What a run takes, as ray's options name it; memory in bytes."""
    return {"num_cpus": config.cpus, "num_gpus": config.gpus, "memory": int((config.memory or 0) * 1e9)}


def count_places(config: ExecutorConfig) -> int:
    """How many runs the nodes of the cluster have room for, if nobody else uses it."""
    needs = {key: need for key, need in zip(("CPU", "GPU", "memory"), list_needs(config).values(), strict=True) if need}
    return sum(min(int(node.get(key, 0) / need) for key, need in needs.items()) for node in list_nodes())


def list_nodes() -> list[dict[str, float]]:
    """What each node of the cluster has. Raises UserError when that of this machine has died: tasks would not end."""
    import ray

    nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    if ray.get_runtime_context().get_node_id() not in nodes:
        raise UserError(
            "executor=ray: the cluster's node on this machine has died; start it again, and the same command continues "
            "the study"
        )
    return [*nodes.values()]


def work(job: Job, spec: Spec, folder: Path, home: str, environment: dict[str, str]) -> Event:
    """A task: one run, in a worker that ray keeps. Gives the event of its end.

    Relative paths of its configuration are below `home`, where the study was started.
    """
    os.environ.update(environment)
    if os.path.isdir(home):
        os.chdir(home)
    if not (folder / "study.yaml").is_file():
        return Event("unseen", spec.name, socket.gethostname())
    stopped = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())  # so that ray.cancel asks it to stop
    try:
        return do(job, spec, lambda _: None, stopped.is_set)
    finally:
        signal.signal(signal.SIGINT, before)
