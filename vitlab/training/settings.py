"""What `auto` means: accelerator, precision, memory format, threads, by written rules.

- accelerator: a GPU when there is one.
- precision: bf16-mixed on a GPU that has it, and on a CPU with bf16 matrix instructions from 2 million parameters up
  (a ViT of 64 wide is slower in bf16 there); else 32-true.
- memory_format: channels_last for models with convolutions other than a patch embedding (a small ResNet trains 1.3
  times as fast in it on a CPU); else contiguous. `scripts/bench_settings.py` measures both.
- threads: 1 below 2 million parameters (such models gain nothing from a second), else the cores shared among the
  runs that train at a time.
- workers: 0 for cached images, else one per core of the run.
"""

import os
from dataclasses import asdict, dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from vitlab.config import UserError

LARGE = 2_000_000  # parameters


@dataclass(frozen=True)
class Settings:
    accelerator: str
    precision: str
    memory_format: str
    threads: int
    workers: int
    compile: bool
    deterministic: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resolve(config: DictConfig, model: nn.Module, *, cached: bool, jobs: int = 1) -> Settings:
    """The trainer's configuration with each `auto` replaced, for a model and `jobs` runs at a time."""
    parameters = sum(p.numel() for p in model.parameters())
    gpu = torch.cuda.is_available()
    accelerator = ("gpu" if gpu else "cpu") if config.accelerator == "auto" else config.accelerator
    if accelerator == "gpu" and not gpu:
        raise UserError("trainer.accelerator=gpu: torch sees no GPU; choices: auto, cpu")
    has_bf16 = torch.cuda.is_bf16_supported() if accelerator == "gpu" else cpu_has_bf16()
    fast_bf16 = has_bf16 and (accelerator == "gpu" or parameters >= LARGE)
    precision = ("bf16-mixed" if fast_bf16 else "32-true") if config.precision == "auto" else config.precision
    if precision == "16-mixed" and accelerator == "cpu":
        raise UserError("trainer.precision=16-mixed: only on a GPU; choices here: auto, 32-true, bf16-mixed")
    convolutions = sum(isinstance(m, nn.Conv2d) for m in model.modules()) > 1
    best = "channels_last" if convolutions else "contiguous"
    memory_format = best if config.memory_format == "auto" else config.memory_format
    share = max(1, cores() // jobs)
    threads = (1 if parameters < LARGE else share) if config.threads == "auto" else config.threads
    workers = (0 if cached else share) if config.workers == "auto" else config.workers
    return Settings(
        accelerator, precision, memory_format, threads, workers, bool(config.compile), bool(config.deterministic)
    )


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bf16 matrices in hardware (AVX512-BF16 or AMX)."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if capabilities:
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))
    return torch.cpu._is_avx512_bf16_supported()
