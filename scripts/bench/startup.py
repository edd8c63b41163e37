"""Seconds before anything happens: each command against the bare import of what trains.

python scripts/bench/startup.py [--quick] [--json FILE]

The peer is `import torch, torchvision, timm, lightning` in a fresh interpreter, which a script for timm and Lightning
waits for before its first line of work. A row's ratio is that over the command; one of 0.5 takes twice as long. Of
`vitlab scale` the clock runs until the first run's first step is in its metrics.jsonl.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rounds import ENVIRONMENT, Row, main, make_row, run

IMPORTS = "import torch, torchvision, timm, lightning"
VITLAB = ("-m", "vitlab.cli")
TINY = ["sizes=[50]", "seeds=[0]", "budget.steps=2", "analyses=[]", "wandb.mode=off"]


def measure(quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = ["scale", *TINY, "--out", f"{folder}/finished"]
        commands = {
            "vitlab scale, all runs finished": study,
            "vitlab status": ["status", f"{folder}/finished"],
            "vitlab report": ["report", f"{folder}/finished"],
            "vitlab describe model=vit_b16": ["describe", "model=vit_b16"],
            "vitlab list models": ["list", "models"],
        }
        run(*VITLAB, *study)
        first = "first training step of vitlab scale"
        sides = {"imports": lambda _: run("-c", IMPORTS), first: lambda number: start(folder / str(number))}
        sides |= {name: lambda _, words=words: run(*VITLAB, *words) for name, words in commands.items()}
        rounds: list[dict[str, float]] = []
        for number in range(4 if quick else 8):  # the first fills caches
            rounds.append({side: sides[side](number) for side in (reversed(sides) if number % 2 else sides)})
        for name in (first, *commands):
            pairs = [(one[name], one["imports"]) for one in rounds[1:]]
            yield make_row(name, pairs, floor=0.5 if name == first else None)


def start(folder: Path) -> float:
    """Seconds until a run of the quick study has done its first step."""
    words = ["trainer.log_every=1", "wandb.mode=off", "--jobs", "2", "--out", str(folder)]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *VITLAB, "scale", *words], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        while not any(path.stat().st_size for path in folder.glob("*/metrics.jsonl")):
            assert process.poll() is None, "the study ended before"
            time.sleep(0.02)
        return time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main(__doc__, measure)
