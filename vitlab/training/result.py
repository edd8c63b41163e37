"""What a run that is trained says of itself."""

import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from vitlab.config import identity, resolved
from vitlab.formatting import round_numbers
from vitlab.tasks.metrics import list_metrics
from vitlab.training import budgets, environment
from vitlab.training.run import Run

SIZED_BY = {"image": "example"}  # how results name the unit of a training set's size
# dense bfloat16 operations a second, from NVIDIA's data sheets; the first name that fits counts
PEAKS = {
    "B200": 2250e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}


def make_result(run: Run, metrics: dict[str, Any]) -> dict[str, Any]:
    """The row of results.csv, with the run's identity, settings and environment."""
    config = run.config
    examples = run.last_step * config.recipe.batch_size
    speed = metrics.get("images_per_s")
    about = environment.describe_environment(run.settings.accelerator)
    devices = run.settings.devices * run.settings.nodes
    flops_per_s = speed and speed * run.prepared.flops_per_example
    mfu = compute_mfu(flops_per_s, devices, about["device"], run.settings.precision)
    result = {
        "study": config.study,
        "run": run.files.folder.resolve().name,
        "model": config.variant,
        "family": run.prepared.family,
        "data": config.data.name,
        "train_size": run.prepared.train_size,
        "train_items": len(run.prepared.indices),
        "unit": SIZED_BY.get(run.task.train.unit, run.task.train.unit),
        "seed": config.seed,
        "budget": budgets.format_budget(config.budget),
        "steps": run.last_step,
        "examples_seen": examples,
        "params": run.prepared.params,
        "train_flops": run.prepared.flops_per_example * examples,
        "error": find_error(metrics),
        **metrics,
        **({"mfu": mfu} if mfu else {}),
        "precision": run.settings.precision,
        "status": "finished",
        "id": identity(resolved(config), run.contents),
        "settings": asdict(run.settings),
        "environment": about,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return round_numbers(result)


def find_error(metrics: dict[str, Any]) -> float | None:
    """The share of wrong answers, or what stands for it: 1 - mAP, RMSE over the targets' standard deviation."""
    measured = ((metric, metrics.get(metric.key)) for metric in list_metrics() if metric.gives_error)
    return next((metric.to_error(value) for metric, value in measured if value is not None), None)


def find_peak(device: str, precision: str) -> float | None:
    """Operations a second of a device by its name; None for one that is not known. float32 runs as TF32, at half."""
    if "MIG" in device:  # a part of the chip
        return None
    name = next((name for name in PEAKS if re.search(rf"\b{name}\b", device)), None)
    return name and PEAKS[name] * (0.5 if precision == "32-true" else 1)


def compute_mfu(flops_per_s: float | None, devices: int, device: str, precision: str) -> float | None:
    """The share of a GPU's peak that training reaches: model FLOPs utilisation (Chowdhery et al., 2022, app. B).

    Operations that are computed twice to save memory do not count.
    """
    peak = find_peak(device, precision)
    return flops_per_s / (peak * devices) if peak and flops_per_s else None
