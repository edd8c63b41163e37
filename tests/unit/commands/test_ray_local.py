"""The Ray cluster that a study starts for itself: which of its processes other machines can reach."""

import ipaddress
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

START = """
import sys
from vitlab.config.schema import ExecutorConfig
from vitlab.commands.executors import connect_ray
connect_ray(ExecutorConfig())
import ray
ray.get(ray.remote(lambda: None).remote())
print("started", flush=True)
sys.stdin.read()
"""
LISTENING = "0A"  # a socket's state in /proc/net/tcp


@pytest.fixture
def cluster():
    """The process that has started the cluster and run a task on it."""
    pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # short: the path of a socket has 107 characters at most
        environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        environment |= {"RAY_TMPDIR": folder, "HOME": folder}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", START], env=environment, text=True, **pipes) as process:
            assert process.stdout.readline() == "started\n"
            yield process
            process.communicate()


def list_descendants(pid):
    """The process and all that it started, directly or not."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found


def list_sockets(pid):
    """The inodes of a process's sockets."""
    links = []
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            links.append(os.readlink(path))
        except OSError:  # it is closed by now
            continue
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def list_listening():
    """The address of each listening TCP socket of this machine, by its inode."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {row[9]: parse_address(row[1].partition(":")[0]) for row in rows if row[3] == LISTENING}


def parse_address(digits):
    """An address as the kernel writes it: words of 32 bits in the processor's order of bytes."""
    words = [bytes.fromhex(digits[start : start + 8]) for start in range(0, len(digits), 8)]
    address = ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words))
    return getattr(address, "ipv4_mapped", None) or address


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_no_process_of_a_cluster_that_is_started_here_listens_to_other_machines(cluster):
    listening = list_listening()
    found = {
        (Path(f"/proc/{pid}/comm").read_text().strip(), str(listening[inode]))
        for pid in list_descendants(cluster.pid)
        for inode in list_sockets(pid) & listening.keys()
    }
    assert {"gcs_server", "raylet"} < {name for name, _ in found}
    assert [one for one in found if not ipaddress.ip_address(one[1]).is_loopback] == []
