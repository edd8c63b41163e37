"""Training steps beside timm's models in a plain PyTorch loop.

    uv run python scripts/bench/step.py [--quick] [--json FILE]

A step is forward, backward and optimizer, of images uint8 that both sides normalise. Ours runs in `vitlab train`'s own
loop, with all its callbacks; `default` leaves each side as its users get it (timm's is float32, contiguous, AdamW),
`equal` gives ours the peer's precision, memory format and optimizer, and no clipping. The peer steps in a process of
its own, in turn with ours. Seconds are of the processor, of one thread, which leaves out what other programs took.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context

import numpy as np
import timm
import torch
import torch.nn.functional as F
from rounds import Row, main, make_row
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vitlab.config import TrainConfig, compose
from vitlab.data.base import ImageData, Split
from vitlab.training.run import plan_run, start_run
from vitlab.training.train import train

CLASSES = 1000
EQUAL = ["recipe=adamw", "recipe.clip_norm=null", "trainer.precision=32-true", "trainer.memory_format=contiguous"]


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
                step = partial(peer.submit, step_peer, number, side)
                pairs = alternate([*keys, *more], step, pixels, batch, rounds if quick else 3 * rounds)
                yield make_row(f"{name}, {side}", pairs, floor=least)


def alternate(
    keys: list[str], step: Callable[[], Future[float]], pixels: int, batch: int, rounds: int
) -> list[tuple[float, float]]:
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
        pairs.append((own, step().result()))
        stepped = time.process_time()
        return images

    held_out = Split(labels, lambda indices: images[indices])
    names = tuple(str(number) for number in range(CLASSES))
    data = ImageData("glyphs", names, (pixels, pixels), 3, Split(np.arange(CLASSES), read), held_out, held_out)
    with tempfile.TemporaryDirectory() as folder:
        train(start_run(plan_run(config, data), folder))
    return pairs[WARM:]


def draw_batch(pixels: int, batch: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (batch, 3, pixels, pixels), dtype=torch.uint8, generator=generator)
    return images, torch.randint(CLASSES, (batch,), generator=generator)


def step_peer(number: int, side: str) -> float:
    return next(step_plainly(number, side))


@cache
def step_plainly(number: int, side: str) -> Iterator[float]:
    """Run the loop that timm's users write, in the peer's process; return the seconds of each step."""
    torch.set_num_threads(1)
    _, _, make_model, pixels, batch, *_ = MODELS[number]
    model, (images, labels) = make_model().train(), draw_batch(pixels, batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    while True:
        began = time.process_time()
        inputs = (images.float() / 255 - 0.5) / 0.5
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield time.process_time() - began


if __name__ == "__main__":
    main(__doc__, measure)
