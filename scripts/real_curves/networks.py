"""vitlab's small ViT and ResNet, trained in a plain loop for the same number of steps at every size."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import vitlab

STEPS = {"vit_nano": 400, "resnet_nano": 150}
BATCH = 64


def make_vit_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=8e-3, betas=(0.9, 0.95), weight_decay=0.05)


def make_resnet_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)


class Network:
    """A classifier of pictures in 0..1, (N, side * side)."""

    def __init__(self, name: str, side: int, classes: int, make_optimizer, seed: int, **overrides):
        self.name, self.side, self.classes, self.overrides = name, side, classes, overrides
        self.make_optimizer, self.seed = make_optimizer, seed

    def fit(self, pictures: np.ndarray, labels: np.ndarray) -> None:
        steps = STEPS[self.name]
        torch.manual_seed(self.seed)
        shape = {"num_classes": self.classes, "image_size": self.side, "channels": 1}
        self.model = vitlab.build_model(self.name, **shape, **self.overrides).train()
        optimizer = self.make_optimizer(self.model)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, optimizer.param_groups[0]["lr"], total_steps=steps, pct_start=0.1, cycle_momentum=False
        )
        inputs, targets = self.prepare(pictures), torch.from_numpy(labels)
        for _ in range(steps):
            batch = torch.randint(len(inputs), (BATCH,))
            F.cross_entropy(self.model(inputs[batch]), targets[batch]).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()

    def prepare(self, pictures: np.ndarray) -> torch.Tensor:
        return (torch.from_numpy(pictures).view(-1, 1, self.side, self.side) - 0.3) / 0.3

    @torch.no_grad()
    def predict(self, pictures: np.ndarray) -> np.ndarray:
        self.model.eval()
        return torch.cat([self.model(part).argmax(1) for part in self.prepare(pictures).split(500)]).numpy()


def networks(side: int, classes: int) -> dict:
    return {
        "vit_nano": lambda seed: Network("vit_nano", side, classes, make_vit_optimizer, seed, depth=1),
        "resnet_nano": lambda seed: Network("resnet_nano", side, classes, make_resnet_optimizer, seed),
    }
