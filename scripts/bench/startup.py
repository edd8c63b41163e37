"""Seconds before anything happens: each command against the bare import of what trains.

python scripts/bench/startup.py [--quick] [--json FILE]

The peer is `import torch, torchvision, timm, lightning` in a fresh interpreter, which a script for timm and Lightning
waits for before its first line of work. A row's ratio is that over the command; one of 0.5 takes twice as long. Of
`vitlab scale` the clock runs until the first run's first step is in its metrics.jsonl. Memory is the proportional share
(PSS) of all processes of a study when both of its workers train, against two interpreters with the bare imports.
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
        sides = {"imports": lambda _: {"imports": run("-c", IMPORTS)}, "start": lambda at: start(folder / str(at))}
        sides |= {name: lambda _, name=name: {name: run(*VITLAB, *commands[name])} for name in commands}
        rounds: list[dict[str, float]] = []
        for number in range(4 if quick else 8):  # the first fills caches
            found: dict[str, float] = {}
            for side in reversed(sides) if number % 2 else sides:
                found |= sides[side](number)
            rounds.append(found)
        own = measure_imports(2)
        first = "first training step of vitlab scale"
        for name in (first, *commands):
            floor = 0.5 if name == first else None
            yield make_row(name, [(one[name], one["imports"]) for one in rounds[1:]], floor=floor)
        yield make_row("memory of vitlab scale, 2 workers", [(one["memory"], own) for one in rounds[1:]], unit="MB")


def start(folder: Path) -> dict[str, float]:
    """Seconds until the first step of the quick study, and its memory in MB when both workers have done one."""
    words = ["trainer.log_every=1", "wandb.mode=off", "--jobs", "2", "--out", str(folder)]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *VITLAB, "scale", *words], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        seconds = wait_for_runs(process, folder, 1) - began
        wait_for_runs(process, folder, 2)
        return {"first training step of vitlab scale": seconds, "memory": read_memory(process.pid)}
    finally:
        process.terminate()
        process.wait()


def wait_for_runs(process: subprocess.Popen, folder: Path, count: int) -> float:
    """When so many runs of a study have done a step."""
    while sum(path.stat().st_size > 0 for path in folder.glob("*/metrics.jsonl")) < count:
        assert process.poll() is None, "the study ended before"
        time.sleep(0.02)
    return time.perf_counter()


def measure_imports(count: int) -> float:
    """MB of so many interpreters with the bare imports, which share the pages of files."""
    command = [sys.executable, "-c", f"{IMPORTS}; print(flush=True); input()"]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    for process in processes:
        process.stdout.readline()
    found = sum(read_memory(process.pid) for process in processes)
    for process in processes:
        process.communicate(b"\n")
    return found


def read_memory(pid: int) -> float:
    """MB of a process and all that it has started: pages that several share count once."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000
    children = [one for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]
    return own + sum(read_memory(int(one)) for one in children)


if __name__ == "__main__":
    main(__doc__, measure)
