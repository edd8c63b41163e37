"""Does a study survive kills? One of 12 runs, with a worker killed -9 at a random moment, against an undisturbed one.

python scripts/kill_runs.py [key=value ...] [--times 5] [--seed 0] [--steps 150]

`key=value` and options like `--until=2` are given to `vitlab scale`, such as "tune={recipe.lr: [0.001, 0.01]}". The
study must come to its end all the same: results.csv must be that of the undisturbed study on this machine, but for
times, and no run may have been trained twice to its end. The folders stay for a look where that is not so.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitlab.studies.claims import Claim, read_claim
from vitlab.studies.store import StudyFiles

STUDY = ["models=[vit_nano,resnet_nano]", "data=digits", "sizes=[100,200,400]", "seeds=[0,1]", "wandb.mode=off"]
STUDY += ["analyses=[]", "trainer.threads=1", "trainer.evaluations=2", "trainer.log_every=10"]
STUDY += ["trainer.checkpoint_every=0.5", "set=[recipe.batch_size=16]", "executor.retries=2"]
TIMES = ("wall_s", "images_per_s", "probe_s")  # columns of results.csv that no two studies share
PATIENCE = 1200  # seconds after which a study hangs
BEGUN = (": training", ": continuing")  # how lines of log.txt end


def start(folder: Path, words: list[str]) -> subprocess.Popen:
    """`vitlab scale`; what it prints goes to a file beside the folder."""
    command = [sys.executable, "-m", "vitlab.cli", "scale", "quick", *STUDY, *words, "--out", str(folder)]
    with folder.with_name(f"{folder.name}.txt").open("a") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


def finish(process: subprocess.Popen, folder: Path) -> None:
    code = process.wait(PATIENCE)
    if code:
        sys.exit(f"{folder}: exit code {code}; see {folder}.txt")


def wait_for_claims(folder: Path, process: subprocess.Popen) -> list[Claim]:
    """Wait for runs that train, and return their claims; none when the study has ended."""
    while process.poll() is None:
        claims = map(read_claim, folder.glob("*-n*-s*"))
        if training := [claim for claim in claims if claim and claim.owner and not claim.is_dead]:
            return training
        time.sleep(0.02)
    return []


def read_table(folder: Path) -> list[dict[str, Any]]:
    """Read the results of all runs, without times."""
    return [
        {key: value for key, value in row.items() if key not in TIMES} for row in StudyFiles(folder).finished_rows()
    ]


def list_logged(folder: Path, what: str | tuple[str, ...]) -> dict[str, int]:
    """Count how often each run was begun or continued, or trained to its end, by its log."""
    logs = sorted(folder.glob("*-n*-s*/log.txt"))
    return {log.parent.name: sum(line.endswith(what) for line in log.read_text().splitlines()) for log in logs}


def differences(folder: Path, expected: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the differences of a study that has ended from the expected one."""
    table = read_table(folder)
    if len(table) != len(expected):
        yield f"{len(table)} rows in results.csv, not {len(expected)}"
    for row, should in zip(table, expected, strict=False):
        keys = [key for key in {**row, **should} if row.get(key) != should.get(key)]
        yield from (f"{should['run']}: {key} {row.get(key)}, not {should.get(key)}" for key in keys)
    for run, times in list_logged(folder, ": trained").items():
        if times != 1:
            yield f"{run}: trained {times} times to its end"


def count_finished(folder: Path) -> int:
    return len(list(folder.glob("*-n*-s*/result.json")))


def wait_for_moment(folder: Path, process: subprocess.Popen, runs: int) -> str:
    """Wait until a random number of runs has finished, and a moment more; says which."""
    wait_for_claims(folder, process)
    finished, seconds = random.randrange(runs), random.uniform(0, 2)
    while count_finished(folder) < finished and process.poll() is None:
        time.sleep(0.02)
    time.sleep(seconds)
    return f"{seconds:.1f} s after run {finished} of {runs}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="key=value")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/kill_runs"))
    args, options = parser.parse_known_intermixed_args()
    random.seed(args.seed)
    words = [*args.words, *options, f"budget.steps={args.steps}", "--jobs", "2"]
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)

    alone = args.folder / "undisturbed"
    process = start(alone, words)
    wait_for_claims(alone, process)
    began = time.monotonic()
    finish(process, alone)
    expected = read_table(alone)
    print(f"undisturbed on this machine: {len(expected)} runs, {time.monotonic() - began:.0f} s", flush=True)
    failed = 0
    for number in range(args.times):
        folder = args.folder / str(number)
        process, began = start(folder, words), time.monotonic()
        moment = wait_for_moment(folder, process, len(expected))
        killed = "nothing (all runs had ended)"
        if claims := wait_for_claims(folder, process):
            killed = f"process {(pid := random.choice(claims).owner.pid)}"
            os.kill(pid, signal.SIGKILL)
        finish(process, folder)
        found = [*differences(folder, expected)]
        failed += bool(found)
        again = sum(list_logged(folder, BEGUN).values()) - len(expected)
        print(
            f"{number + 1}: killed {killed}, {moment}; all in {time.monotonic() - began:.0f} s, "
            f"{again} runs continued; {'; '.join(found) or 'the same results, each run trained once'}",
            flush=True,
        )
        if not found:
            shutil.rmtree(folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
