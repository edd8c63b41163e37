"""Seconds from `vitlab scale` to its first training step, and to the first step of a run in every worker.

python scripts/bench_startup.py [--times 3] [key=value ...]

The first start is not counted: it fills caches. PYTHONPATH chooses the version of vitlab.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measure(words: list[str]) -> tuple[float, float]:
    """Seconds until the first and until the second run has done a step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "vitlab.cli", "scale", "trainer.log_every=1", "wandb.mode=off", "--jobs", "2"]
        began = time.perf_counter()
        process = subprocess.Popen([*command, *words, "--out", f"{folder}/study"], stderr=subprocess.DEVNULL)
        seconds: list[float] = []
        try:
            while len(seconds) < 2:
                assert process.poll() is None, "it ended before"
                stepped = [path for path in Path(folder).glob("study/*/metrics.jsonl") if path.stat().st_size]
                seconds += [time.perf_counter() - began] * (len(stepped) - len(seconds))
                time.sleep(0.01)
        finally:
            process.terminate()
            process.wait()
    return seconds[0], seconds[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("words", nargs="*", metavar="key=value")
    args = parser.parse_args()
    measure(args.words)
    for _ in range(args.times):
        print("first step after {:.1f} s, in both workers after {:.1f} s".format(*measure(args.words)))
