"""The ResNet of the cifar study beside a plain PyTorch script of the same network, with its accuracy.

    uv run python scripts/bench/cifar.py FOLDER [--steps 300]

FOLDER has CIFAR-10 as train/CLASS and test/CLASS. Both sides train on 45,000 of its pictures, in batches of 128 that
they flip and shift, and test on 10,000. `users`: the script has torchvision's folder and transforms, a DataLoader, SGD
in float32; vitlab has its own recipe. `equal`: the script keeps the pictures in memory, augments whole batches, and has
vitlab's precision and memory format; vitlab has the script's SGD. vitlab validates once, as the study does. Seconds of
the processor, with imports and reading; one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from rounds import ENVIRONMENT, make_row
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import vitlab
from vitlab.training.settings import cpu_has_bf16

MEAN, STD, BATCH, ITEMS = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616], 128, 45_000
KEYS = ["model=resnet_nano", "model.widths=[32,64,128]", "data=imagefolder", "data.image_size=32", "analyses=[]"]
KEYS += [f"data.mean={MEAN}", f"data.std={STD}", f"recipe.batch_size={BATCH}", "wandb.mode=off", "trainer.threads=1"]
KEYS += ["trainer.evaluations=1"]
SGD = ["recipe.optimizer=sgd", "recipe.lr=0.1", "recipe.momentum=0.9", "recipe.weight_decay=5e-4"]
SGD += ["recipe.nesterov=true", "recipe.clip_norm=null"]


def train_plainly(folder: str, steps: int, equal: bool) -> float:
    """Train and test as a script does; return the accuracy."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    finish = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    moves = [v2.RandomHorizontalFlip(), v2.RandomCrop(32, padding=4)]
    train = ImageFolder(f"{folder}/train", v2.ToImage() if equal else v2.Compose([*moves, *finish]))
    test = ImageFolder(f"{folder}/test", v2.Compose(finish))
    subset = Subset(train, torch.randperm(len(train))[:ITEMS].tolist())
    model = vitlab.build_model("resnet_nano", num_classes=10, image_size=32, widths=[32, 64, 128])
    model = model.to(memory_format=torch.channels_last if equal else torch.contiguous_format)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    warmup = steps // 10
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / (steps - warmup))
    )
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=equal and cpu_has_bf16())
    sampler = RandomSampler(subset, num_samples=steps * BATCH)
    for images, labels in draw_in_memory(subset, steps) if equal else DataLoader(subset, BATCH, sampler=sampler):
        with autocast:
            loss = F.cross_entropy(model(images).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.inference_mode(), autocast:
        return sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(test, 500)) / len(test)


def draw_in_memory(subset: Subset, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    images, labels = next(iter(DataLoader(subset, len(subset))))
    padded, at, mean = F.pad(images, [4] * 4), torch.arange(32), torch.tensor(MEAN).view(1, 3, 1, 1)
    for _ in range(steps):
        chosen, (top, left) = torch.randint(len(images), (BATCH,)), torch.randint(9, (2, BATCH, 1))
        columns = torch.where(torch.rand(BATCH, 1) < 0.5, left + at, left + 31 - at)
        batch = padded[chosen[:, None, None], :, (top + at)[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        yield (batch.float() / 255 - mean) / torch.tensor(STD).view(1, 3, 1, 1), labels[chosen]


def measure(*words: str) -> tuple[float, str]:
    """Run a command of Python; return its seconds of the processor and its last line."""
    before = os.times()
    done = subprocess.run([sys.executable, *words], env=ENVIRONMENT, check=True, capture_output=True, text=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--plain", choices=["users", "equal"], help="only this side of the script")
    args = parser.parse_args()
    if args.plain:
        print(train_plainly(args.folder, args.steps, args.plain == "equal"))
        sys.exit()
    for side, floor in (("users", 1.0), ("equal", 1.0)):
        with tempfile.TemporaryDirectory() as out:
            keys = [
                *KEYS,
                *(SGD if side == "equal" else []),
                f"data.root={args.folder}",
                f"budget.steps={args.steps}",
                "--out",
                out,
            ]
            ours, _ = measure("-m", "vitlab.cli", "train", *keys)
            accuracy = json.loads(Path(out, "result.json").read_text())["accuracy"]
        peer, said = measure(__file__, args.folder, "--steps", str(args.steps), "--plain", side)
        print(make_row(f"ResNet, {args.steps} steps, {side}", [(ours, peer)], floor))
        print(f"    accuracy {accuracy:.1%}, the script's {float(said):.1%}", flush=True)
