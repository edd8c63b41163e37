"""Training steps beside timm's models in a plain PyTorch loop, and what the training loop adds to a step.

    uv run python scripts/bench/step.py [--quick] [--json FILE]

A step is forward, backward and optimizer, of images uint8 that both sides normalise. Ours runs in `vitlab train`'s own
loop, with all its callbacks; `default` leaves each side as its users get it (timm's is float32, contiguous, AdamW),
`equal` gives ours the peer's precision, memory format and optimizer, and no clipping. The peer steps in a process of
its own, in turn with ours.

The last row is of a ViT of 3,716 weights: the milliseconds a step that whole trainings (loop, logging, evaluations,
checkpoint) take above a loop written by hand on the same batches, ours against Lightning's Trainer with a module that
does the same. All are processor time of one thread, which leaves out what other programs took.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import lightning.pytorch as L
import numpy as np
import timm
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from rounds import Row, main, make_row
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vitlab.config import TrainConfig, compose
from vitlab.data.base import ImageData, Split
from vitlab.data.opening import open_data
from vitlab.training.run import Run, prepare
from vitlab.training.train import Endless, Hooks, train

CLASSES = 1000
EQUAL = ["recipe=adamw", "recipe.clip_norm=null", "trainer.precision=32-true", "trainer.memory_format=contiguous"]
TINY = ["model=vit_nano", "model.depth=1", "model.width=16", "model.heads=2", "model.mlp_width=32"]


def small_timm_vit() -> nn.Module:
    return VisionTransformer(img_size=32, patch_size=4, embed_dim=192, depth=12, num_heads=3, num_classes=CLASSES)


def timm_resnet() -> nn.Module:
    """With the stem of small images (He et al., 2016, section 4.2)."""
    model = timm.create_model("resnet18", num_classes=CLASSES)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return model


# name, our keys, the peer, pixels, images of a step, rounds, floor of default against default
MODELS: list[tuple[str, list[str], Callable[[], nn.Module], int, int, int, float]] = [
    ("S/16 at 224", ["model=vit_s16"], lambda: timm.create_model("vit_small_patch16_224"), 224, 8, 5, 2.0),
    ("192 wide at 32, patch 4", ["model=vit_ti16", "model.patch_size=4"], small_timm_vit, 32, 32, 6, 1.5),
    ("ResNet-18 at 32", ["model=resnet18"], timm_resnet, 32, 32, 8, 1.8),
]
WARM = 3  # rounds that are not counted; the loop reads a batch ahead


def measure(quick: bool) -> Iterator[Row]:
    with ProcessPoolExecutor(1, get_context("spawn")) as peer:
        for number, (name, keys, _, pixels, batch, rounds, floor) in enumerate(MODELS):
            for side, more, least in (("default", [], floor), ("equal", EQUAL, 0.97)):
                peer.submit(PlainSteps.begin, number).result()
                pairs = alternate([*keys, *more], peer, pixels, batch, rounds if quick else 3 * rounds)
                yield make_row(f"{name}, {side}", pairs, floor=least)
    yield compare_frameworks(steps=300 if quick else 1000, rounds=4 if quick else 8)


def alternate(keys: list[str], peer: Executor, pixels: int, batch: int, rounds: int) -> list[tuple[float, float]]:
    """Seconds of (our, the peer's) step in each round: the peer steps where our training reads its next batch."""
    fixed = ["data=glyphs", f"data.image_size={pixels}", "data.augment.shift=0", f"recipe.batch_size={batch}"]
    fixed += [f"budget.steps={rounds + WARM}", "trainer.evaluations=1", "trainer.workers=0", "trainer.threads=1"]
    config = compose(TrainConfig, [*fixed, "wandb.mode=off", "analyses=[]", *keys])
    images, labels = (tensor.numpy() for tensor in draw_batch(pixels, batch))
    pairs: list[tuple[float, float]] = []
    stepped = 0.0

    def read(indices: np.ndarray) -> np.ndarray:
        nonlocal stepped
        own = time.process_time() - stepped
        pairs.append((own, peer.submit(PlainSteps.step).result()))
        stepped = time.process_time()
        return images

    held_out = Split(labels, lambda indices: images[indices])
    names = tuple(str(number) for number in range(CLASSES))
    data = ImageData("glyphs", names, (pixels, pixels), 3, Split(np.arange(CLASSES), read), held_out, held_out)
    with tempfile.TemporaryDirectory() as folder:
        train(Run(prepare(config, data), folder))
    return pairs[WARM:]


def draw_batch(pixels: int, batch: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (batch, 3, pixels, pixels), dtype=torch.uint8, generator=generator)
    return images, torch.randint(CLASSES, (batch,), generator=generator)


class PlainSteps:
    """The loop that timm's users write; one at a time in a process."""

    loop: Iterator[float]

    @classmethod
    def begin(cls, number: int) -> None:
        torch.set_num_threads(1)
        _, _, make_model, pixels, batch, *_ = MODELS[number]
        cls.loop = step_plainly(make_model().train(), *draw_batch(pixels, batch))

    @classmethod
    def step(cls) -> float:
        return next(cls.loop)


def step_plainly(model: nn.Module, images: Tensor, labels: Tensor) -> Iterator[float]:
    """Seconds of the processor of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    while True:
        began = time.process_time()
        inputs = (images.float() / 255 - 0.5) / 0.5
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield time.process_time() - began


class Tiny:
    """The same training of a tiny model: by hand, by Lightning alone, by this program."""

    def __init__(self, steps: int):
        torch.set_num_threads(1)
        keys = ["data=glyphs", "train_size=2000", "recipe=adamw", "recipe.batch_size=32", f"budget={{steps: {steps}}}"]
        self.config = compose(TrainConfig, [*TINY, *keys, "trainer.threads=1", "wandb.mode=off", "analyses=[]"])
        self.steps, self.every = steps, math.ceil(steps / self.config.trainer.evaluations)
        self.data = open_data(self.config.data)

    def batches(self, run: Run) -> Iterator[tuple[Tensor, Tensor]]:
        """The training's, read as a script of a few lines reads them."""
        generator = np.random.default_rng(0)
        while True:
            order = generator.permutation(run.prepared.indices)
            yield from (read(run.task.train, order[k : k + 32]) for k in range(0, len(order) - 31, 32))

    def held_out(self, run: Run) -> list[tuple[Tensor, Tensor]]:
        split = run.task.validation
        return [read(split, np.arange(k, min(k + 256, len(split)))) for k in range(0, len(split), 256)]

    def ours(self, run: Run) -> None:
        train(run, Hooks(progress=lambda progress: None, stop=lambda: False))

    def bare(self, run: Run) -> None:
        model, task, generator = run.model.train(), run.task, torch.Generator().manual_seed(0)
        optimizer, schedule = plain_optimizer(model, self.steps)
        held_out = self.held_out(run)
        for step, batch in zip(range(1, self.steps + 1), self.batches(run), strict=False):
            images, labels = task.prepare(batch, generator)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % self.every == 0 or step == self.steps:
                model.eval()
                with torch.inference_mode():
                    for images, labels in map(task.prepare, held_out):
                        outputs = model(images)
                        F.cross_entropy(outputs, labels).item(), (outputs.argmax(1) == labels).float().mean().item()
                model.train()

    def lightning(self, run: Run) -> None:
        options = {"accelerator": "cpu", "max_steps": self.steps, "max_epochs": -1, "gradient_clip_val": 1.0}
        options |= {"val_check_interval": self.every, "check_val_every_n_epoch": None, "num_sanity_val_steps": 0}
        options |= {"log_every_n_steps": self.config.trainer.log_every, "logger": CSVLogger(run.files.folder)}
        options |= {"enable_progress_bar": False, "enable_model_summary": False}
        trainer = L.Trainer(**options, default_root_dir=run.files.folder)
        held_out = DataLoader(self.held_out(run), batch_size=None)
        trainer.fit(PlainModule(run, self.steps), Endless(self.batches(run)), held_out)


def read(split: Split, indices: np.ndarray) -> tuple[Tensor, Tensor]:
    images = np.require(split.read(indices), requirements="W")
    return torch.from_numpy(images), torch.from_numpy(split.labels[indices])


def plain_optimizer(model: nn.Module, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


class PlainModule(L.LightningModule):
    """As Lightning's users write it."""

    def __init__(self, run: Run, steps: int):
        super().__init__()
        self.model, self.task, self.steps = run.model, run.task, steps
        self.random = torch.Generator().manual_seed(0)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        images, labels = self.task.prepare(batch, self.random)
        loss = F.cross_entropy(self.model(images), labels)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        images, labels = self.task.prepare(batch)
        outputs = self.model(images)
        found = {"loss": F.cross_entropy(outputs, labels), "accuracy": (outputs.argmax(1) == labels).float().mean()}
        self.log_dict({f"validation/{name}": value for name, value in found.items()}, batch_size=len(labels))

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer, schedule = plain_optimizer(self.model, self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def compare_frameworks(steps: int, rounds: int) -> Row:
    """Milliseconds a step above the loop by hand."""
    tiny, pairs = Tiny(steps), []
    sides = [tiny.bare, tiny.ours, tiny.lightning]
    for number in range(rounds + 1):
        found: dict[Any, float] = {}
        for side in sides if number % 2 else reversed(sides):
            with tempfile.TemporaryDirectory() as folder:
                run = Run(prepare(tiny.config, tiny.data), folder)
                began = time.process_time()
                side(run)
                found[side] = (time.process_time() - began) / steps * 1e3
        pairs.append((found[tiny.ours] - found[tiny.bare], found[tiny.lightning] - found[tiny.bare]))
    return make_row("above a bare loop, a step of a tiny ViT", pairs[1:], unit="ms")  # the first is not counted


if __name__ == "__main__":
    main(__doc__, measure)
