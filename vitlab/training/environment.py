"""The environment of a run: versions, commit, machine."""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from vitlab.hardware import count_cores

PACKAGES = ("vitlab", "torch", "torchvision", "timm", "lightning", "wandb", "omegaconf", "numpy")


def describe_environment(accelerator: str) -> dict[str, Any]:
    return {
        **{name: find_version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name() if accelerator == "gpu" else "cpu",
        "cpu": read_cpu_name(),
        "cores": count_cores(),
        "commit": find_commit(),
    }


@cache
def find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def read_cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@cache  # of the code that this process has loaded
def find_commit() -> str | None:
    """The commit of this checkout, with + when files differ from it; None for an installed package."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(checkout), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
