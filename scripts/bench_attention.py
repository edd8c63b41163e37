"""What reading the attention of ViT-B/16 on 128 images costs: time beside a forward pass, memory beside all maps.

    uv run python scripts/bench_attention.py

The quantity is the attention distance of all 144 heads. Memory is the peak of a process of its own (VmHWM, Linux)
above that of one that only runs the model on the same batches. Time alternates between the two, batch by batch, in
one process and thread; that of the processor leaves out what other programs took. About eight minutes on one core.
"""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from omegaconf import OmegaConf
from torch import Tensor

from vitlab import attention_maps, build_model
from vitlab.analysis import attention_distance
from vitlab.analysis.capture import heads

IMAGES, BATCH = 128, heads.CHUNK
CONFIG = OmegaConf.create({"renormalize": False})


class Trial:
    """The model and its images, the same each time."""

    def __init__(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = build_model("vit_b16").eval()
        self.images = torch.randn(IMAGES, 3, 224, 224)

    @torch.no_grad()
    def forward(self, images: Tensor) -> None:
        self.model(images)

    def distance(self, images: Tensor) -> None:
        attention_distance.run(self.model, images, CONFIG)

    def all_maps(self, images: Tensor) -> None:
        self.kept = list(attention_maps(self.model, images))


def peak(name: str, batch: int) -> int:
    """The peak memory in bytes of a process that does `name` with all images, `batch` at a time."""
    heads.CHUNK = batch
    trial = Trial()
    for images in trial.images.split(batch):
        getattr(trial, name)(images)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def alone(name: str, batch: int) -> int:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(peak, name, batch).result()


def seconds(work: Callable[[Tensor], None], images: Tensor) -> tuple[float, float]:
    """By the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work(images)
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    trial = Trial()
    trial.forward(trial.images[:2])
    times = [(seconds(trial.forward, images), seconds(trial.distance, images)) for images in trial.images.split(BATCH)]
    print(f"{IMAGES} images in batches of {BATCH}, one thread")
    for place, clock in enumerate(("by the clock", "of the processor")):
        forward, reduced = (sum(pair[which][place] for pair in times) for which in (0, 1))
        print(f"  {clock:16}  forward pass {forward:.1f} s; distances {reduced:.1f} s, {reduced / forward:.2f} x")
    del trial
    layers, per_layer, tokens, bytes_each = 12, 12, 197, 4
    maps = IMAGES * layers * per_layer * tokens**2 * bytes_each
    print(f"all maps in float32: {maps / 1e6:.0f} MB; peak memory above that of the forward pass alone:")
    for batch in (BATCH, IMAGES):
        before = alone("forward", batch)
        for name in ["distance"] if batch < IMAGES else ["distance", "all_maps"]:
            added = alone(name, batch) - before
            print(f"  {name:9} {batch:3} images at a time: {added / 1e6:6.0f} MB, {added / maps:6.1%} of all maps")


if __name__ == "__main__":
    main()
