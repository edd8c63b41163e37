"""What the rules of `auto` rest on: training speed under each setting, side by side in one run.

    uv run python scripts/bench/settings.py

Prints images a second and the ratio to the first line of each group. Rounds alternate between the settings, and the
fastest of each counts, so that a disturbance hits all alike. About two minutes on 2 cores.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from vitlab import build_model

ROUNDS, STEPS = 5, 4


@dataclass(frozen=True)
class Setting:
    label: str
    model: str
    image_size: int
    batch: int
    overrides: dict[str, Any]
    bf16: bool = False
    channels_last: bool = False
    threads: int = 1


def vit(label: str, width: int, **options: Any) -> Setting:
    overrides = {"width": width, "heads": width // 16, "mlp_width": 2 * width, "patch_size": 4}
    return Setting(label, "vit_nano", 32, 64, overrides, **options)


GROUPS = {
    "ViT, 64 wide": [vit("fp32", 64), vit("bf16", 64, bf16=True)],
    "ViT, 192 wide": [vit("fp32", 192), vit("bf16", 192, bf16=True)],
    "ViT, 384 wide": [vit("fp32", 384), vit("bf16", 384, bf16=True)],
    "ResNet of widths 8, 16, 32": [
        Setting("fp32 contiguous", "resnet_nano", 24, 128, {}),
        Setting("fp32 channels_last", "resnet_nano", 24, 128, {}, channels_last=True),
        Setting("fp32 channels_last, 2 threads", "resnet_nano", 24, 128, {}, channels_last=True, threads=2),
    ],
    "ResNet-18, 32 pixels": [
        Setting("fp32 contiguous", "resnet18", 32, 32, {}),
        Setting("fp32 channels_last", "resnet18", 32, 32, {}, channels_last=True),
        Setting("bf16 channels_last", "resnet18", 32, 32, {}, bf16=True, channels_last=True),
    ],
}


class Trial:
    """A model in one setting, with its best time for a step."""

    def __init__(self, setting: Setting):
        self.setting = setting
        size = setting.image_size
        self.model = build_model(setting.model, num_classes=10, image_size=size, channels=3, **setting.overrides)
        self.images, self.labels = torch.randn(setting.batch, 3, size, size), torch.arange(setting.batch) % 10
        if setting.channels_last:
            self.model.to(memory_format=torch.channels_last)
            self.images = self.images.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.seconds = float("inf")
        self.step()

    def step(self) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.setting.bf16):
            loss = F.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def round(self) -> None:
        torch.set_num_threads(self.setting.threads)
        for _ in range(STEPS):
            started = time.perf_counter()
            self.step()
            self.seconds = min(self.seconds, time.perf_counter() - started)


def main() -> None:
    torch.set_num_threads(1)
    for title, settings in GROUPS.items():
        trials = [Trial(setting) for setting in settings]
        for _ in range(ROUNDS):
            for trial in trials:
                trial.round()
        print(title)
        for trial in trials:
            speed, ratio = trial.setting.batch / trial.seconds, trials[0].seconds / trial.seconds
            print(f"  {trial.setting.label:30} {speed:7.0f} images/s  {ratio:.2f}")


if __name__ == "__main__":
    main()
