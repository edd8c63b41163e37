"""The share of a GPU's peak that training reaches: mfu, model FLOPs utilisation (Chowdhery et al., 2022, app. B)."""

import re

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


def find_peak(device: str, precision: str) -> float | None:
    """Operations a second of a device by its name; None for one that is not known. float32 runs as TF32, at half."""
    if "MIG" in device:  # a part of the chip
        return None
    name = next((name for name in PEAKS if re.search(rf"\b{name}\b", device)), None)
    return name and PEAKS[name] * (0.5 if precision == "32-true" else 1)


def compute_mfu(flops_per_s: float | None, devices: int, device: str, precision: str) -> float | None:
    """Of the operations that a step needs, those that are computed twice to save memory not counted."""
    peak = find_peak(device, precision)
    return flops_per_s / (peak * devices) if peak and flops_per_s else None
