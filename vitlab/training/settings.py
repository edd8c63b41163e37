"""Choose a value for each `auto` of the trainer.

- accelerator: a GPU if there is one.
- precision: bf16-mixed on a GPU with bf16 units (compute capability 8.0 and up) and on a CPU with fast bf16 matrix
  instructions (AMX, or AMD's AVX512-BF16); else 32-true, multiplied in TF32 on a GPU that has it. Other CPUs emulate
  bf16: a step of vit_nano or resnet_nano takes eight times as long as in float32. Intel CPUs with AVX512-BF16 but
  without AMX multiply bf16 at half the rate of float32: a step takes 1.2 to 1.4 times as long.
- memory_format: channels_last for models with convolutions other than a patch embedding (on a CPU a small ResNet
  trains 1.3 times as fast with it); else contiguous.
- threads: 1 below 2 million parameters (such models are no faster with two); else the cores of the run: those of the
  machine, divided by the number of processes that train at the same time.
- workers: 0 for cached images; else one per core of the run.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from vitlab.config import UserError, change
from vitlab.config.schema import TrainerConfig
from vitlab.hardware import count_cores
from vitlab.training.distributed import refuse_devices


def cpu_has_bf16() -> bool:
    """Tell whether this CPU multiplies matrices faster in bf16 than in float32."""
    has = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if has:
        fast = has.get("amx_bf16") or has.get("bf16")
        return bool(fast or (has.get("avx512_bf16") and "Intel" not in has.get("cpu_name", "")))
    return torch.cpu._is_avx512_bf16_supported()


LARGE = 2_000_000  # parameters
AUTOCAST_DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@dataclass(frozen=True)
class Machine:
    """Hold the cores of a run (None: all of this machine) and the trainer settings its study has fixed.

    With `here=False`, for another machine, `resolve` assumes that a GPU has bf16.
    """

    cores: int | None = None
    settled: Mapping[str, Any] = field(default_factory=dict)  # of the trainer's settings `per` study
    here: bool = True


HERE = Machine()


def resolve(config: TrainerConfig, model: nn.Module, *, cached: bool, machine: Machine = HERE) -> TrainerConfig:
    """Replace each `auto` of the trainer's configuration, for a model and the machine that trains it.

    Raises UserError if this machine lacks the devices or kernels.
    """
    try:
        config = change(config, machine.settled)
    except UserError as error:  # somebody has edited study.yaml
        raise UserError(f"settled of study.yaml: {error.problems[0]}; delete what is wrong there") from None
    accelerator = choose_accelerator(config.accelerator) if machine.here else config.accelerator
    if machine.here:
        refuse_devices(config, accelerator)
    if config.precision == "16-mixed" and accelerator == "cpu":
        raise UserError("trainer.precision=16-mixed: needs a GPU; choices on a CPU: auto, 32-true, bf16-mixed")
    if accelerator == "gpu":  # older ones (T4, V100) emulate bf16, slowly
        fast_bf16 = not machine.here or torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast_bf16 = cpu_has_bf16()
    share = max(1, (machine.cores or count_cores()) // config.devices)
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())  # one may embed patches
    auto = {
        "accelerator": accelerator,
        "precision": "bf16-mixed" if fast_bf16 else "32-true",
        "memory_format": "channels_last" if convolutions > 1 else "contiguous",
        "threads": 1 if sum(p.numel() for p in model.parameters()) < LARGE else share,
        "workers": 0 if cached else share,
    }
    return replace(config, **{key: value for key, value in auto.items() if vars(config)[key] == "auto"})


def choose_accelerator(accelerator: str) -> str:
    """Return `gpu` or `cpu` for trainer.accelerator. Raises UserError for `gpu` without one."""
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError("trainer.accelerator=gpu: torch sees no GPU; choices: auto, cpu")
    if accelerator == "auto":
        return "gpu" if torch.cuda.is_available() else "cpu"
    return accelerator


def evaluation_context(precision: str, accelerator: str = "auto") -> tuple[torch.device, AbstractContextManager]:
    """Return the device and the autocast context that reproduce a trained model's numbers in result.json.

    `precision` is the result's, `accelerator` is trainer.accelerator. A CPU evaluates a 16-mixed model in float32; a
    GPU multiplies float32 in TF32, from here on in this process. Raises UserError for `gpu` without one.
    """
    device = torch.device("cuda" if choose_accelerator(accelerator) == "gpu" else "cpu")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    dtype = AUTOCAST_DTYPES.get(precision)
    if device.type == "cpu" and dtype == torch.float16:
        dtype = None
    return device, torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
