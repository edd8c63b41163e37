"""Start workers: `start(folder, workers, config)` for this machine, SLURM and Ray. Imports no torch.

It gives an object with `count()`, how many have not ended, those that wait for room included, and `stop()`, for Ctrl-C:
have them write their checkpoints and end, or say how to end them. A function of one's own does as well:
`executor.kind=PACKAGE.MODULE` names a module with `start`. All do the same, `vitlab work FOLDER`. Only the study's
folder says how runs go, and more may be started at any time.
"""

import atexit
import contextlib
import importlib.util
import math
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, parent_process, resource_tracker
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from vitlab.config import UserError, choices_text, first_line
from vitlab.config.schema import ExecutorConfig
from vitlab.hardware import count_cores, list_gpus, share_gpus
from vitlab.registry import implementation
from vitlab.studies.store import StudyFiles

PATIENCE = 30.0  # seconds that workers have to write a checkpoint when the study is stopped
ASK = 10.0  # seconds between two questions to SLURM
WARNING = 90  # seconds before the end of an allocation at which a worker is told to stop
# not the modules of figures, which import pandas: its pyarrow starts a thread, whose locks a fork would copy
PRELOADED = ("vitlab.studies.worker", "vitlab.reports.wandb", "vitlab.reports.figures")
PASSED = ("VITLAB_", "WANDB_", "HF_")  # how the environment variables begin that tasks of Ray are given


def find_start(kind: str) -> Callable[[Path, int, ExecutorConfig], Any]:
    """Find the function that starts workers. Raises UserError for an executor that does not exist."""
    if kind in STARTS:
        return STARTS[kind]
    if "." not in kind:
        raise UserError(f"executor={kind}: unknown; {choices_text(kind, STARTS)}, or your own as PACKAGE.MODULE")
    return implementation(__name__, kind, "start").start


def check_executor(config: ExecutorConfig) -> None:
    """Raise UserError where workers cannot be started, before anything is written."""
    if config.kind in CHECKS:
        package, check = CHECKS[config.kind]
        if importlib.util.find_spec(package) is None:
            raise UserError(f"executor={config.kind} needs the package {package}: pip install 'vitlab[{config.kind}]'")
        check(config)


def run_worker(folder: str | Path, cores: int, stop: Callable[[], bool]) -> None:
    """Run a worker; importing it takes seconds."""
    from vitlab.reports.wandb import RunReporter
    from vitlab.studies.worker import work

    work(folder, cores, stop, RunReporter)


# ---- this machine


def start_server(*modules: str) -> BaseContext:
    """Start the process that workers are forked from, unless it runs; it imports PRELOADED and `modules`.

    Importing torch takes seconds: this returns at once, so that this process and the server do it at the same time. The
    modules must not start threads or touch CUDA when they are imported. Returns the context of the workers.
    """
    if sys.platform == "linux":  # elsewhere system libraries do not survive a fork
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED, *modules])
        resource_tracker.ensure_running()  # first: starting it unblocks SIGINT
        # the path of its socket has at most 107 characters: TMPDIR may be too long for it
        with contextlib.suppress(OSError), blocked_sigint():
            forkserver.ensure_running()
            return context
    return multiprocessing.get_context("spawn")


@atexit.register
def stop_server() -> None:
    """Kill the server: while it imports, it would keep this program's stderr open for seconds."""
    server = forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


@contextlib.contextmanager
def blocked_sigint() -> Iterator[None]:
    """Keep Ctrl-C, which reaches a whole process group, from processes started in this context: the parent decides.

    A blocked signal is inherited, so that not even a process that is still importing is interrupted.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class LocalWorkers:
    """Processes of this machine. They end when their parent does, and share its GPUs round robin."""

    places: list[Any] = []  # noqa: RUF012  # the last process at each place, of all that this program has started

    def __init__(self, folder: Path, workers: int, config: ExecutorConfig):
        from torch.cuda import device_count

        context, gpus, self.processes = start_server(), list_gpus(device_count()), []
        devices = StudyFiles(folder).config()["trainer"]["devices"]
        for _ in range(workers):
            place = next((k for k, old in enumerate(self.places) if not old.is_alive()), len(self.places))
            environment = dict(os.environ)
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = share_gpus(gpus, place, devices)
            process = context.Process(target=run_here, args=(folder.absolute(), config.cpus, environment))
            with blocked_sigint():
                process.start()
            self.places[place : place + 1] = [process]
            self.processes.append(process)

    def count(self) -> int:
        return sum(process.is_alive() for process in self.processes)

    def stop(self) -> None:
        if self.count():
            print("stopping: runs write their checkpoints", file=sys.stderr)
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + PATIENCE
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()


def run_here(folder: Path, cores: int, environment: dict[str, str]) -> None:
    """Run a process of `LocalWorkers`; `environment` replaces the environment of the server, which may be older."""
    os.environ.clear()
    os.environ.update(environment)
    asked, parent = threading.Event(), parent_process()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    run_worker(folder, cores, lambda: asked.is_set() or not parent.is_alive())


# ---- SLURM, by submitit


class SlurmWorkers:
    """An array of jobs, a worker each. SLURM restarts a job that was preempted, ran out of time or lost its node."""

    def __init__(self, folder: Path, workers: int, config: ExecutorConfig):
        import submitit

        self.folder, self.asked_at, self.left = folder.absolute(), -math.inf, workers
        minutes, slurm = math.ceil(config.slurm.hours * 60), config.slurm
        parameters = {
            "partition": slurm.partition,
            "account": slurm.account,
            "qos": slurm.qos,
            "gpus_per_node": int(config.gpus) or None,
            "mem": config.memory and f"{math.ceil(config.memory * 1e9 / 2**20)}M",
            "job_name": f"vitlab-{self.folder.name}",
            "time": minutes,
            "cpus_per_task": config.cpus,
            "srun_args": [f"--cpus-per-task={config.cpus}"],  # srun does not take it from sbatch since SLURM 22.05
            "signal_delay_s": min(WARNING, minutes * 60 // 4),
            "stderr_to_stdout": True,
            "array_parallelism": workers,
        }
        configured = {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}
        # sbatch would take the variables of a job that this process is part of as options
        outside = submitit.helpers.clean_env if "SLURM_JOB_ID" in os.environ else contextlib.nullcontext
        try:
            executor = submitit.SlurmExecutor(self.folder / "slurm")
            executor.update_parameters(**parameters | config.options)
            with contextlib.redirect_stderr(open(os.devnull, "w")), outside():  # it prints what sbatch says
                os.environ.update(configured)
                jobs = executor.map_array(run_job, [self.folder] * workers, [config.cpus] * workers)
        except (submitit.core.utils.FailedJobError, ValueError, TypeError) as error:
            reasons = [line.partition("error: ")[2] or line for line in str(error).splitlines() if line.strip()]
            raise UserError(f"executor=slurm: sbatch refused the jobs: {'; '.join(reasons)}") from None
        self.job = jobs[0].job_id.partition("_")[0]

    def count(self) -> int:
        if time.monotonic() - self.asked_at > ASK:
            self.asked_at = time.monotonic()
            command = ["squeue", "--noheader", "--array", "--me", "--format=%F"]
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # it does not answer
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
                self.left = done.stdout.split().count(self.job)
        return self.left

    def stop(self) -> None:
        text = f"'vitlab status {self.folder}' says how, 'scancel {self.job}' ends them"
        print(f"The workers go on without this watcher: {text}", file=sys.stderr)


def run_job(folder: Path, cores: int) -> None:
    """Run a job: work until SLURM announces the end of the allocation; then requeue it, as it was submitted.

    Nothing is done in a handler: a run is in the middle of a step, and ends by itself. Processes that this process
    starts get the warning, too, which would kill them: it is blocked in all of them.
    """
    from submitit import JobEnvironment

    warning, noted = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"], list[int]()
    for number in (signal.SIGTERM, warning):
        signal.signal(number, lambda number, _: noted.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {warning})
    threading.Thread(target=lambda: noted.append(signal.sigwait({warning})), daemon=True).start()
    run_worker(folder, cores, lambda: bool(noted))
    if warning in noted:
        subprocess.run(["scontrol", "requeue", JobEnvironment().job_id], timeout=60, check=True)
    if noted:
        sys.exit(1)


def check_slurm(config: ExecutorConfig) -> None:
    """Raise UserError for needs that SLURM cannot allocate, and where SLURM is missing."""
    import submitit

    if submitit.SlurmExecutor.affinity() < 0:
        raise UserError(
            "executor=slurm: srun cannot be found here; start the study where jobs of a cluster are submitted, or "
            "choose another executor"
        )


# ---- Ray


class RayWorkers:
    """Tasks of Ray Core, a worker each, as many at a time as the cluster has room for."""

    def __init__(self, folder: Path, workers: int, config: ExecutorConfig):
        import ray

        needs = {"num_cpus": config.cpus, "num_gpus": config.gpus, "memory": int((config.memory or 0) * 1e9)}
        # a task that is lost is started again by `scale`, once its claim is dead
        task = ray.remote(max_retries=0, scheduling_strategy="SPREAD", **needs)(run_task)
        given = {key: value for key, value in os.environ.items() if key.startswith(PASSED)}
        self.tasks = [task.remote(str(folder.absolute()), config.cpus, given) for _ in range(workers)]

    def count(self) -> int:
        """Count the tasks left. Raises UserError for a worker that could not begin, as where the folder is unseen."""
        import ray
        from ray.exceptions import RayTaskError

        ended, self.tasks = ray.wait(self.tasks, num_returns=len(self.tasks), timeout=0) if self.tasks else ([], [])
        for task in ended:
            try:
                ray.get(task)
            except RayTaskError as error:
                if not isinstance(error.cause, KeyboardInterrupt):
                    raise UserError(f"executor=ray: {first_line(error.cause)}") from None
            except ray.exceptions.RayError:  # its node or process has died: its run is free again
                pass
        return len(self.tasks)

    def stop(self) -> None:
        import ray

        for task in self.tasks:
            ray.cancel(task)
        late = ray.wait(self.tasks, num_returns=len(self.tasks), timeout=PATIENCE)[1] if self.tasks else []
        for task in late:
            ray.cancel(task, force=True)


def run_task(folder: str, cores: int, environment: dict[str, str]) -> None:
    """Run a task of `RayWorkers`."""
    os.environ.update(environment)
    if not Path(folder, "study.yaml").is_file():
        raise UserError(f"node {socket.gethostname()} does not see --out {folder}; give a folder that all nodes share")
    stopped = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())  # so that ray.cancel asks it to stop
    try:
        run_worker(folder, cores, stopped.is_set)
    finally:
        signal.signal(signal.SIGINT, before)


def connect_ray(config: ExecutorConfig) -> None:
    """Connect this process to the cluster of executor.ray.address or RAY_ADDRESS, or start one that ends with it.

    Raises UserError.
    """
    address = os.environ.get("RAY_ADDRESS") or config.ray.address
    if address == "local":  # only this machine reaches it: Ray then takes the loopback address for its node
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray

    options: dict[str, Any] = {"log_to_driver": False}
    if address == "local":
        options |= {"num_cpus": count_cores(), "object_store_memory": 100_000_000, "include_dashboard": False}
    try:
        if not ray.is_initialized():
            ray.init(address, **options)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"executor.ray.address={address}: {first_line(error)}; start a cluster with 'ray start --head', or clear "
            "away a dead one with 'ray stop'"
        ) from None
    needs = {"CPU": config.cpus, "GPU": config.gpus, "memory": (config.memory or 0) * 1e9}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fits = any(all(node.get(key, 0) >= need for key, need in needs.items()) for node in nodes)
    if not fits and not config.ray.autoscaling:
        asked = ", ".join(f"executor.{key}={of:g}" for key in ("cpus", "gpus", "memory") if (of := vars(config)[key]))
        raise UserError(
            f"{asked}: no node of the ray cluster has so much for a run; give executor.ray.autoscaling=true where it "
            "adds nodes when runs wait"
        )


STARTS = {"local": LocalWorkers, "slurm": SlurmWorkers, "ray": RayWorkers}
CHECKS = {"slurm": ("submitit", check_slurm), "ray": ("ray", connect_ray)}  # and the package that is needed
