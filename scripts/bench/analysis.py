"""What reading the attention of ViT-B/16 costs: memory beside keeping all maps, time beside a forward pass.

    uv run python scripts/bench/analysis.py [--quick] [--json FILE]

The quantity is the attention distance of all 144 heads, on 128 images (--quick: 32). Memory is the peak of a process
of its own (VmHWM, Linux) above that of one that only runs the model on a batch; two processes run at a time, a core
each. Time alternates batch by batch in one process and thread; that of the processor leaves out what other programs
took. A ratio of 0.9 in time means that the distances take 1.11 forward passes, that of the model included.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import torch
from rounds import Row, compare, main, make_row
from torch import Tensor

from vitlab import attention_maps, build_model
from vitlab.analysis import attention_distance
from vitlab.analysis.capture import heads

BATCH = heads.CHUNK
CONFIG = SimpleNamespace(renormalize=False)


class Trial:
    """The model and its images, the same each time."""

    def __init__(self, images: int):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = build_model("vit_b16").eval()
        self.images = torch.randn(images, 3, 224, 224)

    @torch.no_grad()
    def forward(self, images: Tensor) -> None:
        self.model(images)

    def distance(self, images: Tensor) -> None:
        attention_distance.run(self.model, images, CONFIG)

    def all_maps(self, images: Tensor) -> None:
        self.kept = list(attention_maps(self.model, images))


def peak(name: str, images: int, batch: int) -> float:
    """The peak memory in MB of a process that does `name` with all images, `batch` at a time."""
    heads.CHUNK = batch
    trial = Trial(images)
    for part in trial.images.split(batch) if name != "forward" else [trial.images[:batch]]:
        getattr(trial, name)(part)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1e3


def measure_memory(images: int) -> Row:
    works = (("distance", BATCH), ("forward", BATCH), ("all_maps", images), ("forward", images))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context, max_tasks_per_child=1) as pool:
        peaks = [pool.submit(peak, name, images, batch) for name, batch in works]
        distance, forward, maps, forward_of_all = (found.result() for found in peaks)
    return make_row("attention distance, memory", [(distance - forward, maps - forward_of_all)], floor=20, unit="MB")


def processor_seconds(work: Callable[[Tensor], None], images: Tensor) -> float:
    began = time.process_time()
    work(images)
    return time.process_time() - began


def measure(quick: bool) -> Iterator[Row]:
    yield measure_memory(32 if quick else 128)
    trial = Trial(BATCH)
    sides = [lambda work=work: processor_seconds(work, trial.images) for work in (trial.distance, trial.forward)]
    yield compare("attention distance, time of a forward pass", *sides, rounds=2 if quick else 8)


if __name__ == "__main__":
    main(__doc__, measure)
