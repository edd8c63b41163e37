"""The peer of study.py: one training run as a script of plain PyTorch, timm and torchvision.

    python scripts/bench/plain_run.py vit|resnet SIZE STEPS

Trains on SIZE of scikit-learn's digits, evaluates on validation images halfway and at the end, and on the test images.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from timm.models.resnet import BasicBlock, downsample_conv
from timm.models.vision_transformer import VisionTransformer
from timm.scheduler import CosineLRScheduler
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision.transforms import v2

BATCH = 128


class Digits(Dataset):
    def __init__(self, images: np.ndarray, labels: np.ndarray, transform: v2.Transform):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images[index]), int(self.labels[index])


def make_model(name: str) -> nn.Module:
    """With as many parameters as vit_nano (136,778) and resnet_nano (19,810)."""
    if name == "vit":
        sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2}
        return VisionTransformer(in_chans=1, num_classes=10, class_token=False, global_pool="avg", **sizes)
    stages = [
        BasicBlock(8, 8),
        BasicBlock(8, 16, stride=2, downsample=downsample_conv(8, 16, 1, stride=2)),
        BasicBlock(16, 32, stride=2, downsample=downsample_conv(16, 32, 1, stride=2)),
    ]
    stem = [nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)
    model.train()
    return right / len(loader.dataset)


def main(name: str, size: int, steps: int) -> None:
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8, 1) * 15.9375).astype(np.uint8)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    train, held, train_labels, held_labels = train_test_split(
        train, train_labels, test_size=0.1, stratify=train_labels, random_state=0
    )
    end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.31], [0.32])]
    augmented = v2.Compose([v2.ToImage(), v2.Resize(16), v2.RandomCrop(16, padding=1), *end])
    plain = v2.Compose([v2.ToImage(), v2.Resize(16), *end])
    digits = Digits(train[:size], train_labels[:size], augmented)
    sampler = RandomSampler(digits, replacement=True, num_samples=steps * BATCH)
    loader = DataLoader(digits, BATCH, sampler=sampler, num_workers=2)
    validation = DataLoader(Digits(held, held_labels, plain), BATCH)
    model = make_model(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=steps, warmup_t=steps // 10, t_in_epochs=False)
    for step, (batch, targets) in enumerate(loader, 1):
        loss = F.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step_update(step)
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
        if step in (steps // 2, steps):
            print(f"step {step}: validation {evaluate(model, validation):.3f}")
    print(f"test {evaluate(model, DataLoader(Digits(test, test_labels, plain), BATCH)):.3f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
