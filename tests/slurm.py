"""A real SLURM of one node, started by the tests that need one: its two daemons, without munge."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CONF = """ClusterName=tests
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName={host} CPUs=4 RealMemory=4000 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


@contextlib.contextmanager
def one_node(folder: Path) -> Iterator[None]:
    """Its commands (sbatch, squeue, ...) work in this process and those that it starts. Skips where it cannot run."""
    for program in ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol"):
        if shutil.which(program) is None:
            pytest.skip(f"needs SLURM, of which there is no {program} here (Debian: apt install slurm-wlm)")
    if os.getuid() != 0:
        pytest.skip("needs root: slurmd starts jobs")
    path = folder / "slurm.conf"
    for name in ("state", "spool"):
        (folder / name).mkdir()
    path.write_text(CONF.format(host=socket.gethostname(), folder=folder, ports=find_ports(2)))
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv("SLURM_CONF", str(path))
        for daemon in ("slurmctld", "slurmd"):
            log = stack.enter_context((folder / f"{daemon}.out").open("w"))
            process = subprocess.Popen([daemon, "-D"], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        stack.callback(subprocess.run, ["scancel", "--user=root", "--signal=KILL"], capture_output=True)
        end = time.monotonic() + 60
        while "idle" not in subprocess.run(["sinfo", "-ho%t"], capture_output=True, text=True).stdout:
            assert time.monotonic() < end, (folder / "slurmctld.log").read_text()
            time.sleep(0.2)
        yield


def find_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]
