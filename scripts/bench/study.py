"""A study of eight runs by `vitlab scale` against one script per run, one after the other, as users of timm write it.

    uv run python scripts/bench/study.py [--quick] [--json FILE]

vit_nano and resnet_nano on 100, 300, 1,000 and all digits at 16 pixels with AdamW, batches of 128, validation twice and
the test once; the script is plain PyTorch, timm and torchvision: `study.py plain vit|resnet SIZE STEPS`. Wall time of
the whole, with imports. vitlab writes its report, too; with the defaults of this machine (precision, jobs), W&B and the
analyses off.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator

from rounds import Row, main, make_row, run

SIZES = (100, 300, 1000, 1293)
STUDY = ["models=[vit_nano,resnet_nano]", "data=digits", "sizes=[100,300,1000,all]", "seeds=[0]", "wandb.mode=off"]
STUDY += ["analyses=[]", "trainer.evaluations=2", "set=[recipe=adamw,recipe.batch_size=128]"]
BATCH = 128


def measure(quick: bool) -> Iterator[Row]:
    steps = 200 if quick else 400
    out = tempfile.mkdtemp(prefix="vitlab-bench-")

    def ours() -> float:
        shutil.rmtree(out)
        return run("-m", "vitlab.cli", "scale", "quick", *STUDY, f"budget.steps={steps}", "--out", out)

    def peer() -> float:
        runs = [(model, str(size)) for model in ("vit", "resnet") for size in SIZES]
        return sum(run(__file__, "plain", *words, str(steps)) for words in runs)

    pairs = [(ours(), peer()) for _ in range(1 if quick else 3)]
    yield make_row(f"study of 8 runs, {steps} steps each", pairs, floor=2.5)
    shutil.rmtree(out)


def train_plainly(name: str, size: int, steps: int) -> None:
    """Train on some digits, evaluate on validation images halfway and at the end, and on the test images."""
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

    class Digits(Dataset):
        def __init__(self, images: np.ndarray, labels: np.ndarray, transform: v2.Transform):
            self.images, self.labels, self.transform = images, labels, transform

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return self.transform(self.images[index]), int(self.labels[index])

    @torch.no_grad()
    def evaluate(loader: DataLoader) -> float:
        model.eval()
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)
        model.train()
        return right / len(loader.dataset)

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8, 1) * 15.9375).astype(np.uint8)
    split = {"random_state": 0}
    train, test, train_labels, test_labels = train_test_split(images, labels, test_size=0.2, stratify=labels, **split)
    train, held, train_labels, held_labels = train_test_split(
        train, train_labels, test_size=0.1, stratify=train_labels, **split
    )
    end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.31], [0.32])]
    augmented = v2.Compose([v2.ToImage(), v2.Resize(16), v2.RandomCrop(16, padding=1), *end])
    plain = v2.Compose([v2.ToImage(), v2.Resize(16), *end])
    digits = Digits(train[:size], train_labels[:size], augmented)
    sampler = RandomSampler(digits, replacement=True, num_samples=steps * BATCH)
    loader = DataLoader(digits, BATCH, sampler=sampler, num_workers=2)
    validation = DataLoader(Digits(held, held_labels, plain), BATCH)
    if name == "vit":  # with as many parameters as vit_nano (136,778) and resnet_nano (19,810)
        sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2}
        model = VisionTransformer(in_chans=1, num_classes=10, class_token=False, global_pool="avg", **sizes)
    else:
        widths, stem = ((8, 16), (16, 32)), [nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
        wider = [BasicBlock(a, b, stride=2, downsample=downsample_conv(a, b, 1, stride=2)) for a, b in widths]
        model = nn.Sequential(*stem, BasicBlock(8, 8), *wider, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
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
            print(f"step {step}: validation {evaluate(validation):.3f}")
    print(f"test {evaluate(DataLoader(Digits(test, test_labels, plain), BATCH)):.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["plain"]:
        train_plainly(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main(__doc__, measure)
