"""What control groups leave of a machine, by files as Linux writes them."""

import math
import os

import pytest

from vitlab import hardware

FILES = {
    "none": ({}, math.inf),
    "version 2": (
        {
            "proc/self/cgroup": "0::/job/step\n",
            "sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
            "sys/fs/cgroup/job/cpu.max": "250000 100000\n",
        },
        2.5,
    ),
    "version 1, in a container that shows its group as the root": (
        {
            "proc/self/cgroup": "4:memory:/docker/5a5b\n3:cpuset:/\n2:cpu,cpuacct:/docker/5a5b\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000\n",
        },
        3.0,
    ),
    "version 1 without limits": (
        {
            "proc/self/cgroup": "2:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        math.inf,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_quota_is_that_of_the_tightest_group(name, tmp_path, monkeypatch):
    files, cores = FILES[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(hardware, "ROOT", tmp_path)
    for affinity in (1, 2, 64):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, n=affinity: set(range(n)), raising=False)
        assert hardware.count_cores() == min(affinity, cores if cores == math.inf else int(cores))


def test_gpus_are_shared_round_robin_one_or_several_a_run(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = hardware.list_gpus(3)
    assert [hardware.share_gpus(gpus, place, 1) for place in range(4)] == ["0", "1", "2", "0"]
    assert [hardware.share_gpus(gpus, place, 2) for place in range(3)] == ["0,1", "2,0", "1,2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert hardware.list_gpus(0) == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert [hardware.share_gpus(hardware.list_gpus(2), place, 1) for place in range(3)] == ["2", "3", "2"]


def test_srun_says_which_of_its_processes_this_is(monkeypatch):
    for name, value in {"STEP_ID": 0, "PROCID": 3, "STEP_NUM_TASKS": 4, "LOCALID": 1, "NODEID": 2}.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    assert hardware.find_launched() == hardware.Launched("srun", 3, 4, 1, 2)
