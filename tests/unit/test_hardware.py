"""What control groups leave of a machine, by files as Linux writes them."""

import math
import os
import subprocess
import sys

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


def test_less_than_a_core_is_one(tmp_path, monkeypatch):
    for path, text in {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(hardware, "ROOT", tmp_path)
    assert hardware.count_cores() == 1


def test_gpus_are_shared_round_robin_one_or_several_a_run(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = hardware.list_gpus(3)
    assert [hardware.share_gpus(gpus, place, 1) for place in range(4)] == ["0", "1", "2", "0"]
    assert [hardware.share_gpus(gpus, place, 2) for place in range(3)] == ["0,1", "2,0", "1,2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert hardware.list_gpus(0) == []


def test_memory_that_was_freed_is_not_taken_from_the_system_again():
    """By the page faults of 64 MB that a process fills after it has freed as many."""
    pytest.importorskip("resource")
    faults = """if True:
        import resource, sys
        from vitlab import hardware
        if not hardware.keep_freed_memory():
            print("not here")
            sys.exit()
        bytearray(64_000_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        bytearray(64_000_000)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    said = subprocess.run([sys.executable, "-c", faults], capture_output=True, text=True, check=True).stdout.strip()
    if said == "not here":
        pytest.skip("another C library than glibc")
    assert int(said) < 100  # else 15,625
