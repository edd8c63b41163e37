"""Training on tar shards: memory on 0.2 GB and on 2 GB of them, and what a run that is killed and resumed has seen.

    uv run python scripts/bench/shards.py /tmp/shards

Writes the shards with webdataset's ShardWriter, JPEGs of noise with 288 x 288 pixels, 100 kB each. vit_nano, images of
24 pixels, one thread, decoded at each read, with 0 and with 2 workers; as many steps on both sets, one epoch of the
larger. Memory is what all processes of a run hold at a time, pages that they share counted once (PSS), and the sum of
the largest resident set (VmHWM) of each, of which there are more with workers: of training, validation and test. Then a
run on the smaller set is stopped by kill -9 and by Ctrl-C at random steps and goes on; each class is one sample, so its
targets say what it saw. About five minutes on two cores of an AMD EPYC.
"""

import io
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

SMALL, TIMES, EACH = 2_000, 10, 500  # samples of the smaller set, how often the larger one, samples of a shard
TEST = 100  # samples
PICTURES, SIDE = 256, 288  # different ones; the rest are copies under other keys
BATCH, EPOCHS, KILLS = 100, 3, 4
COUNTING = """
import sys
from vitlab.cli import main
from vitlab.training.module import TrainingModule
step = TrainingModule.training_step
def count(self, batch, batch_idx):
    with open(sys.argv[1], "a") as file:
        print(self.global_step, *batch[1].tolist(), file=file)
    return step(self, batch, batch_idx)
TrainingModule.training_step = count
sys.exit(main(sys.argv[2:]))
"""


def write_shards(folder: Path, count: int) -> str:
    """Write `count` samples unless they are there, of the smaller set each a class of its own; gives their pattern."""
    import webdataset
    from PIL import Image

    if not folder.is_dir():
        folder.mkdir(parents=True)
        generator = np.random.default_rng(0)
        pictures = []
        for _ in range(PICTURES):
            file = io.BytesIO()
            Image.fromarray(generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(file, "JPEG", quality=95)
            pictures.append(file.getvalue())
        with webdataset.ShardWriter(f"{folder}/%06d.tar", maxcount=EACH, verbose=0) as writer:
            for k in range(count):
                writer.write({"__key__": f"{k:08d}", "cls": k % SMALL, "jpg": pictures[k % PICTURES]})
    return f"{folder}/{{000000..{-(-count // EACH) - 1:06d}}}.tar"


def list_words(shards: str, test: str, steps: int, workers: int, out: Path) -> list[str]:
    """Of a training with few held-out samples."""
    return [
        *("train", "data=webdataset", f"data.train={shards}", f"data.classes={SMALL}", "data.cache=never"),
        *(f"data.test={test}", f"data.validation={test}", "data.image_size=24"),
        *("trainer.threads=1", "trainer.evaluations=1", "trainer.checkpoint_every=1", f"trainer.workers={workers}"),
        *("analyses=[]", "wandb.mode=off", f"recipe.batch_size={BATCH}", f"budget.steps={steps}", "--out", str(out)),
    ]


def measure(words: list[str]) -> tuple[int, int, float]:
    """Run the program: (largest resident sets added up, the largest sum of proportional ones, in MB; seconds)."""
    process = subprocess.Popen([sys.executable, "-m", "vitlab.cli", *words], stdout=subprocess.DEVNULL)
    started, peaks, shares = time.monotonic(), {}, 0
    while process.poll() is None:
        share = 0
        for pid in family(process.pid):
            peaks[pid] = max(peaks.get(pid, 0), read_kb(f"/proc/{pid}/status", "VmHWM"))
            share += read_kb(f"/proc/{pid}/smaps_rollup", "Pss")
        shares = max(shares, share)
        time.sleep(0.5)
    assert process.returncode == 0, process.returncode
    return sum(peaks.values()) // 1024, shares // 1024, time.monotonic() - started


def family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        below = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in read_children(task)]
    except OSError:
        return []
    return [pid, *(found for child in below for found in family(child))]


def read_children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def read_kb(path: str, field: str) -> int:
    try:
        return next((int(line.split()[1]) for line in Path(path).read_text().splitlines() if line.startswith(field)), 0)
    except OSError:  # it has just ended
        return 0


def kill_and_resume(words: list[str], log: Path) -> None:
    """Stop a run after a random number of steps, each time by another signal, and let it end."""
    log.touch()
    for kill in range(KILLS + 1):
        process = subprocess.Popen([sys.executable, "-c", COUNTING, str(log), *words], stdout=subprocess.DEVNULL)
        if kill < KILLS:
            until = len(log.read_text().splitlines()) + random.randrange(2, EPOCHS * SMALL // BATCH // KILLS)
            while process.poll() is None and len(log.read_text().splitlines()) < until:
                time.sleep(0.05)
            process.send_signal((signal.SIGKILL, signal.SIGINT)[kill % 2])
        process.wait()
    assert process.returncode == 0, process.returncode


def main(folder: Path) -> None:
    os.environ["VITLAB_CACHE"] = str(folder / "cache")
    steps = TIMES * SMALL // BATCH
    patterns = {count: write_shards(folder / str(count), count) for count in (SMALL, TIMES * SMALL)}
    test, now = write_shards(folder / str(TEST), TEST), int(time.time())
    for count, shards in patterns.items():
        size = sum(path.stat().st_size for path in (folder / str(count)).iterdir())
        for workers in (0, 2):
            words = list_words(shards, test, steps, workers, folder / f"run-{count}-{workers}-{now}")
            resident, share, took = measure(words)
            print(
                f"{size / 1e9:.2f} GB, {workers} workers: PSS {share} MB, VmHWM {resident} MB, {took:.0f} s", flush=True
            )
    random.seed(0)
    log = folder / f"seen-{now}"
    kill_and_resume(list_words(patterns[SMALL], test, EPOCHS * SMALL // BATCH, 2, folder / f"killed-{now}"), log)
    rows = [list(map(int, line.split())) for line in log.read_text().splitlines()]
    last = {step: targets for step, *targets in rows}  # a step that was lost with a kill is made again
    stream = np.concatenate([last[step] for step in range(len(last))]).reshape(EPOCHS, SMALL)
    seen = [dict(Counter(Counter(epoch.tolist()).values())) for epoch in stream]
    print(f"stopped {KILLS} times, {len(rows) - len(last)} of {len(last)} steps made twice")
    print(f"each epoch, {{times seen: samples}}: {', '.join(map(str, seen))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
