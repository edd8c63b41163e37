"""Starts the processes of a run on several devices of this machine, or joins those that torchrun or srun started."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import wait

from lightning.pytorch.plugins.environments import SLURMEnvironment
from torch import distributed

from vitlab.config import UserError
from vitlab.config.schema import TrainerConfig
from vitlab.hardware import Launched
from vitlab.training.devices.group import ALONE, DeviceLost, Group, lost_another

PORTS = (15000, 25000)  # on which the first process of a step of SLURM is met
MEETING = timedelta(minutes=5)  # in which all processes of a launcher must have begun
GRACE = 20.0  # seconds in which the first notices by itself that another has died


@contextlib.contextmanager
def meet_launched(launched: Launched) -> Iterator[Group]:
    """The processes that a launcher started, as the first of them sees them."""
    try:
        with dismissing(join_launched(launched)) as group:
            yield group
    except Exception as error:
        if lost_another(error):
            raise DeviceLost("the process of another device has ended") from error
        raise


def join_launched(launched: Launched) -> Group:
    """Join the processes that a launcher started."""
    if launched.by == "srun":
        nodes, job, step = (os.environ[f"SLURM_{name}"] for name in ("STEP_NODELIST", "JOB_ID", "STEP_ID"))
        port = PORTS[0] + (int(job) * 10 + int(step)) % (PORTS[1] - PORTS[0])  # the same for all of them
        os.environ |= {"MASTER_ADDR": SLURMEnvironment.resolve_root_node_address(nodes), "MASTER_PORT": str(port)}
        os.environ |= {"RANK": str(launched.rank), "WORLD_SIZE": str(launched.size)}
    group = Group(launched.rank, launched.size, launched.local_rank, launched.node)
    group.join(next(distributed.rendezvous("env://", timeout=MEETING))[0])
    return group


@contextlib.contextmanager
def dismissing(group: Group) -> Iterator[Group]:
    """Dismisses the others at the end, unless an error has interrupted what they do: then they notice."""
    try:
        yield group
    except BaseException:
        if not group.busy:
            group.order(None)
        raise
    group.order(None)
    distributed.destroy_process_group()


@contextlib.contextmanager
def start_group(trainer: TrainerConfig) -> Iterator[Group]:
    """The processes of a run while it lasts, as the first of them, which starts the others on this machine, sees them.

    Raises DeviceLost when one of them fails, UserError for several machines.
    """
    if trainer.nodes > 1:
        raise UserError(
            f"trainer.nodes={trainer.nodes}: start a process for each device with torchrun, or with srun "
            f"--nodes={trainer.nodes} --ntasks-per-node={trainer.devices} vitlab train ..."
        )
    size = trainer.devices
    if size == 1:
        yield ALONE
        return
    store = distributed.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    others = [Other(Group(rank, size, rank), store.port) for rank in range(1, size)]
    watch = threading.Thread(target=end_with, args=(others,), daemon=True)
    try:
        watch.start()
        group = Group(0, size)
        group.join(store)
        with dismissing(group):
            yield group
        for other in others:
            other.process.join(GRACE)
    except Exception as error:
        if lost_another(error):
            for other in others:
                if line := other.describe_end():
                    raise DeviceLost(line, killed=(other.process.exitcode or 0) < 0) from error
        raise
    finally:
        for other in others:
            other.close()
        if distributed.is_initialized():
            distributed.destroy_process_group()


class Other:
    """A process for another device, and the pipe on which it says why it failed."""

    def __init__(self, group: Group, port: int):
        from vitlab.training.devices import following

        self.group, self.closed = group, False
        self.connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        if sys.platform == "linux":
            context.set_forkserver_preload([following.__name__])
        self.process = context.Process(
            target=following.main, args=(group, port, theirs, dict(os.environ)), name=f"device {group.rank}"
        )
        # Ctrl-C reaches a whole process group, and the first decides; a blocked signal is inherited
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def describe_end(self) -> str | None:
        """Why it has failed, in a line; None where it has not."""
        name = f"device {self.group.rank} of {self.group.size}"
        with contextlib.suppress(EOFError, OSError):
            if self.connection.poll(1.0):
                return f"{name} failed: {self.connection.recv()}"
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None or code == 0:
            return None
        cause = f"by {signal.Signals(-code).name}{': out of memory?' if code == -signal.SIGKILL else ''}"
        return f"{name} was ended {cause}" if code < 0 else f"{name} ended with code {code}"

    def close(self) -> None:
        self.closed = True
        self.connection.close()
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def end_with(others: list[Other]) -> None:
    """End this program when another device's process has failed, and it hangs: NCCL waits for the dead for ever."""
    wait([other.process.sentinel for other in others])
    deadline = threading.Event()
    deadline.wait(GRACE)
    if not any(other.closed for other in others) and (lost := [o for o in others if o.process.exitcode]):
        print(f"vitlab: device {lost[0].group.rank} has failed; the run ends", file=sys.stderr, flush=True)
        os._exit(1)
