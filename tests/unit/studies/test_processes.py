"""The server that workers are forked from."""

import signal
import subprocess
import sys

import pytest

PRELOADED = """
import os
import torch
from vitlab.commands.executors import PRELOADED

def fail(*args):
    raise AssertionError("CUDA is touched")

for name in ("_cuda_getDeviceCount", "_cuda_init"):
    if hasattr(torch._C, name):
        setattr(torch._C, name, fail)
for module in PRELOADED:
    __import__(module)
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.slow
def test_what_the_server_imports_can_be_forked():
    """No thread is started, whose locks a fork would copy; CUDA does not survive one."""
    done = subprocess.run([sys.executable, "-c", PRELOADED], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


SERVER = """
from multiprocessing import forkserver
from vitlab.commands.executors import start_server

start_server()
status = open(f"/proc/{forkserver._forkserver._forkserver_pid}/status").read()
(blocked,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")]
print(int(blocked, 16))
"""


def test_the_server_does_not_receive_ctrl_c():
    """In a new process, in which multiprocessing has started nothing yet."""
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) & 1 << (signal.SIGINT - 1)
