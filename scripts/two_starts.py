"""Do two starts of one study at once share it? And who takes over the run of a process that was killed, after how long?

python scripts/two_starts.py [--times 20] [--takeovers 3] [--seed 0] [--steps 60]

Each time `vitlab scale` is started twice, at moments up to 3 s apart: both must come to their end with the same
results.csv, and each run must have been begun once and trained once. Then one of two starts is killed -9 with all its
processes while they train: the seconds until the other has claimed the run. The start that is killed shares the
processes of this machine, or is as on another host: in a namespace of its own (`unshare`, as root), where nobody sees
its processes.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from kill_cells import BEGUN, differences, finish, list_logged, read_table, start, train_undisturbed

from vitlab.studies.claims import Claim, read_claim

ANOTHER_HOST = ["unshare", "--pid", "--fork", "--mount-proc"]


def share(folder: Path, words: list[str], expected: list[dict[str, str]]) -> tuple[str, list[str]]:
    """Two starts to their end: how many runs each has trained, and what is not as it must be."""
    first = start(folder, words, "first")
    time.sleep(random.uniform(0, 3))
    second = start(folder, words, "second")
    for process in (first, second):
        finish(process, folder)
    found = [*differences(folder, expected)]
    found += [f"{run}: begun {times} times" for run, times in list_logged(folder, BEGUN).items() if times != 1]
    logs = [log.read_text().splitlines()[-1] for log in folder.glob("*-n*-s*/log.txt")]
    processes = [line.partition(": ")[0].rsplit(" ", 1)[-1] for line in logs]
    counts = sorted(processes.count(one) for one in {*processes})
    return f"{' and '.join(map(str, counts))} runs", found


def take_over(folder: Path, words: list[str], expected: list[dict[str, str]], within: list[str]) -> tuple[float, list]:
    """Seconds from the kill of a start to the other's claim of its run, and what is not as it must be in the end."""
    first, second = start(folder, words, "first", within), start(folder, words, "second")
    while not all(sort_claims(folder, second)):  # both train
        if first.poll() is not None or second.poll() is not None:
            sys.exit(f"{folder}: a start ended before both had begun; give more --steps")
        time.sleep(0.1)
    time.sleep(random.uniform(0, 5))
    while not (theirs := sort_claims(folder, second)[0]):  # between two runs
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    killed = time.monotonic()
    first.wait()
    for run, claim in theirs.items():
        while (now := read_claim(run)) is not None and now.owner == claim.owner:
            time.sleep(0.05)
    seconds = time.monotonic() - killed
    finish(second, folder)
    return seconds, [*differences(folder, expected)]


def sort_claims(folder: Path, second: subprocess.Popen) -> tuple[dict[Path, Claim], dict[Path, Claim]]:
    """The claims of runs that train: those of the first start, and those of the second."""
    here = list_group(second.pid)
    found = {run: claim for run in folder.glob("*-n*-s*") if (claim := read_claim(run)) and claim.owner}
    own = {run: claim for run, claim in found.items() if claim.owner.is_visible and claim.owner.pid in here}
    return {run: claim for run, claim in found.items() if run not in own}, own


def list_group(group: int) -> list[int]:
    """The processes of a group."""
    done = subprocess.run(["ps", "-o", "pid=", "-g", str(group)], capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--takeovers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/two_starts"))
    args = parser.parse_args()
    random.seed(args.seed)
    words = [f"budget.steps={args.steps}", "--jobs", "1"]
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    train_undisturbed(args.folder / "alone", words)
    expected, failed = read_table(args.folder / "alone"), 0

    def tell(folder: Path, text: str, found: list[str]) -> None:
        nonlocal failed
        failed += bool(found)
        print(f"{text}; {'; '.join(found) or 'the same results, each run trained once'}", flush=True)
        if not found:
            shutil.rmtree(folder)

    for number in range(args.times):
        folder = args.folder / f"shared-{number}"
        said, found = share(folder, words, expected)
        tell(folder, f"two starts {number + 1}: {said}", found)
    for number in range(args.takeovers):
        for of, within in (("of this host", []), ("as if of another host", ANOTHER_HOST)):
            folder = args.folder / f"taken-{number}-{len(within)}"
            seconds, found = take_over(folder, words, expected, within)
            tell(folder, f"takeover {number + 1}, {of}: claimed {seconds:.1f} s after the kill", found)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
