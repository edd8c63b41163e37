"""`vitlab verify`: train a finished run again and compare what it gives now with what it gave then."""

import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from operator import ne
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitlab.commands.arguments import CommandParser, non_empty_path, positive_integer, status_line
from vitlab.config import TrainConfig, UserError, compose
from vitlab.config.identity import count_parts, identity
from vitlab.console import Console
from vitlab.data.opening import open_data, progress_bar
from vitlab.files import read_json
from vitlab.formatting import cut_names, plural
from vitlab.training.files import RETRAINED, Progress, RunFiles, source_of
from vitlab.training.launch import Stopping

if TYPE_CHECKING:
    from vitlab.training.run import Run

DESCRIPTION = """Train a finished run again in a temporary folder, from its config.yaml, and compare.

  vitlab verify runs/quick/vit_nano-n500-s0
  vitlab verify runs/quick/vit_nano-n500-s0 --steps 100    # compare its first steps only
Compared are the rows of metrics.jsonl, the result, the weights, the outcomes on the test items and generated texts.
The answer is one of: equal bit for bit; equal within rounding; cannot be verified, as a file is gone or damaged; or
the step from which it differs. What has changed since is listed. Exit code 3 for the last two answers.
What to expect on which machine: docs/reproducing.md"""
ROUNDING = 1e-3  # the largest relative difference of a number that counts as rounding
RATE = "train/lr"  # follows from the step and the configuration: its rounding is of a last digit
RATE_ROUNDING = 1e-9
TIMES = ("wall_s", "train/images_per_s")
# keys of a result that say where and when: `list_changes` compares the settings and the environment
CIRCUMSTANCES = {"run", "id", "settings", "environment", "precision", "finished_at", "wandb", "shared_steps"}
CIRCUMSTANCES |= {"wall_s", "images_per_s", "probe_s", "mfu"}
DERIVED = ("by_class",)  # counts of items, which rounding may move
EXIT_CODES = {"equal": 0, "rounding": 0, "incomplete": 3, "differs": 3}


class Difference(NamedTuple):
    """A value that differs; `size` is the relative difference, None if rounding cannot be the cause."""

    step: int
    name: str
    then: Any = None
    now: Any = None
    size: float | None = None

    @property
    def is_rounding(self) -> bool:
        return self.size is not None and self.size <= (RATE_ROUNDING if self.name == RATE else ROUNDING)


def verify(words: Sequence[str]) -> int:
    parser = CommandParser("verify", DESCRIPTION)
    add = parser.add_argument
    add("run", type=non_empty_path, metavar="RUN")
    add("--steps", type=positive_integer, metavar="N", help="train and compare the first N steps only")
    parser.add_json()
    args = parser.parse_args(words)
    files = RunFiles(args.run)
    then, config = files.finished_result(), files.config()
    if not isinstance(then.get("steps"), int):
        raise UserError(f"{files.result_path}: steps: missing or of another type; {RETRAINED}")
    steps = args.steps if args.steps and args.steps < then["steps"] else None
    if not (rows := files.metrics()):
        raise UserError(f"{args.run}: its metrics.jsonl has no rows, so there is nothing to compare")
    if steps and steps < (first := rows[0]["step"]):
        raise UserError(f"--steps {steps}: the run's first numbers are of step {first}; give at least {first}")
    again = {**config, "analyses": [], "probes": [], "eval_on": [], "wandb": {**config["wandb"], "mode": "off"}}
    again["trainer"] = {**config["trainer"], "devices": 1, "nodes": 1, "accumulate": count_parts(config["trainer"])}
    with tempfile.TemporaryDirectory(prefix="vitlab-verify-") as folder:
        run, now = train_again(compose(TrainConfig, base=again), files, Path(folder) / "again", steps)
        changes = list_changes(files, then, run)
        if identity(config, files.data_hash() or run.data_hash) != then.get("id"):
            changes.insert(0, "config.yaml: is not the configuration that was trained")
        same = identity(config, run.data_hash) == then.get("id")
        document = {
            "run": str(args.run),
            "steps": steps or then["steps"],
            **compare(files, run.files, then, now, steps, same=same),
            "changes": changes,
        }
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        show(document, Console())
    return EXIT_CODES[document["verdict"]]


def train_again(
    config: TrainConfig, files: RunFiles, folder: Path, steps: int | None
) -> "tuple[Run, dict[str, Any] | None]":
    """Train a configuration in a new folder; return the run and its result, None where it ends after `steps`."""
    with status_line("loading torch, lightning and timm"):
        from vitlab.studies.experiment import train_and_test
        from vitlab.training.load import refuse_other_source
        from vitlab.training.loop import Diverged, Hooks, Interrupted
        from vitlab.training.run import plan_run, start_run
        from vitlab.training.train import keep_process_settings

    refuse_other_source(source_of(config.init), files)
    console, stopping = Console(stderr=True), Stopping(folder.parent)
    with keep_process_settings():
        run = start_run(plan_run(config, open_data(config.data, console)), folder)
        with progress_bar(console) as shown, stopping:

            def report(far: Progress) -> None:
                shown(f"{files.folder.name} {far.note}".rstrip(), far.step, far.steps)

            last = [0]  # the steps with rows

            def stop() -> bool:
                return bool(steps and last[-1] >= steps) or stopping.requested

            try:
                log = lambda row: last.append(row["step"])  # noqa: E731
                train_and_test(run, None, Hooks(report, stop, analyze=lambda _: None, log=log))
                return run, None if steps else run.files.result()
            except Interrupted:
                if stopping.requested:
                    print("vitlab: stopped; nothing is kept", file=sys.stderr)
                    raise SystemExit(130) from None
                return run, None
            except Diverged as error:
                return run, {"status": "diverged", "diverged": str(error)}


def list_changes(files: RunFiles, then: Mapping[str, Any], run: "Run") -> list[str]:
    """List what has changed since a run was trained: data, settings, versions, machine, installed packages."""
    from vitlab.training.run import SETTINGS, describe_environment

    changes = []
    if files.data_hash() not in (None, run.data_hash):
        changes.append(f"data={run.config.data.name}: other contents")
    settings = {key: vars(run.settings)[key] for key in SETTINGS}
    pairs = ("settings", settings), ("environment", describe_environment(run.settings.accelerator))
    for name, now in pairs:
        before = then.get(name) or {}
        changes += [f"{key} {before[key]} -> {now[key]}" for key in now if key in before and before[key] != now[key]]
    before, now = ({*each.packages()} for each in (files, run.files))
    if before and before != now:
        differ = sorted({package.partition("==")[0] for package in before ^ now})
        changes.append(f"{plural(len(differ), 'installed package')}: {cut_names(differ, 5)}")
    return changes


def compare(
    files: RunFiles,
    again: RunFiles,
    then: Mapping[str, Any],
    now: Mapping[str, Any] | None,
    steps: int | None = None,
    *,
    same: bool = True,
) -> dict[str, Any]:
    """Compare a run and its result with another training; `now` is None where that ended after `steps`: compare rows.

    Rounding shows in the rows first: where all rows are equal, everything else must be equal to the last bit. Only with
    the `same` identity may a difference be rounding. Returns `verdict`, a key of EXIT_CODES; the parts `compared`;
    files `missing`, gone or damaged; `left_out`, numbers that this training does not give again; `from_step` of the
    first difference; the `largest` relative one, None if it cannot be rounding. If anything differs: `differs`, `then`,
    `now` and `began` are name, values and size of the first difference, `largest_of` the name of the largest.
    """
    found: dict[str, Any] = {"from_step": None, "largest": 0.0, "compared": ["rows"], "missing": [], "left_out": []}
    shared = then.get("shared_steps") or 0  # trained by another run, whose evaluations were at other steps
    rows = [[row for row in each.metrics() if not steps or row["step"] <= steps] for each in (files, again)]
    rows = [[row for row in some if row["step"] > shared or "train/loss" in row] for some in rows]
    differences = list(compare_rows(*rows))
    if now and (said := now.get("diverged")) != then.get("diverged"):
        differences.append(Difference(rows[1][-1]["step"] if rows[1] else 0, said or "the run then diverged"))
    is_exact = not differences
    is_equal = is_exact or (same and all(each.is_rounding for each in differences))
    if now and is_equal:
        skipped = {*(() if is_exact else DERIVED)}
        found["left_out"] = [key for key in then if key not in CIRCUMSTANCES and (key in skipped or key not in now)]
        others = list(compare_values(then["steps"], {key: then.get(key) for key in now}, now, CIRCUMSTANCES | skipped))
        found["compared"].append("result")
        parts = {"weights": again.weights_path, "test outcomes": again.heldout_path}
        parts |= {"generated texts": again.generated_path, "tokenizer": again.tokenizer_path}
        for part, path in parts.items():
            name = path.relative_to(again.folder)
            if not path.is_file() or "diverged" in now:
                continue  # such a run leaves none
            if not (files.folder / name).is_file():
                found["missing"].append(f"{name} is gone")
            elif part == "weights" and not is_exact:  # rounding moves those without a gradient far: the bias of keys
                found["left_out"].append(part)
            else:
                try:
                    others += compare_part(part, files.folder / name, path, then["steps"])
                    found["compared"].append(part)
                except UserError:
                    found["missing"].append(f"{name} is damaged")
        is_equal = not others if is_exact else all(each.is_rounding for each in others)
        differences += others
    if differences:
        first, largest = differences[0], max(differences, key=lambda each: math.inf if each.size is None else each.size)
        found |= {"from_step": first.step, "differs": first.name, "then": first.then, "now": first.now}
        found |= {"began": first.size, "largest": largest.size, "largest_of": largest.name}
    verdict = "incomplete" if found["missing"] else "rounding" if differences else "equal"
    return {"verdict": verdict if is_equal else "differs", **found}


def compare_rows(then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Yield the differences of rows, but for times."""
    places = [[(row["step"], "train/loss" in row) for row in rows] for rows in (then, now)]
    by_place = dict(zip(places[1], now, strict=True))
    for place, old in zip(places[0], then, strict=True):
        yield from compare_values(place[0], old, by_place.get(place, old), TIMES)
    counts = [Counter(some) for some in places]
    if counts[0] != counts[1]:
        step, _ = min(place for place in counts[0] | counts[1] if counts[0][place] != counts[1][place])
        yield Difference(step, f"{plural(len(now), 'row')} in place of {len(then)}")


def compare_values(
    step: int, then: Mapping[str, Any], now: Mapping[str, Any], skipped: Container[str]
) -> Iterator[Difference]:
    """Yield the differences of numbers and texts by key. Only floats can differ by rounding."""
    for key in dict.fromkeys([*then, *now]):
        old, new = then.get(key), now.get(key)
        if key not in skipped and old != new:
            is_float = isinstance(old, float) and isinstance(new, float)
            yield Difference(step, key, old, new, abs(old - new) / max(abs(old), abs(new)) if is_float else None)


def compare_part(part: str, then: Path, now: Path, step: int) -> Iterator[Difference]:
    """Yield the difference of a part of a run, read from its file. Raises UserError for a damaged file."""
    import numpy as np

    from vitlab.studies.outcomes import read_outcomes
    from vitlab.training.finished import read_checkpoint

    if part == "weights":
        old, new = (read_checkpoint(path)["state_dict"] for path in (then, now))
        same = [name for name in old.keys() & new.keys() if old[name].dtype == new[name].dtype]
        if count := len(old.keys() | new.keys()) - sum(old[name].equal(new[name]) for name in same):
            yield Difference(step, f"{plural(count, 'tensor')} of the weights")
    elif part == "test outcomes":
        old, new = (read_outcomes(path) for path in (then, now))
        alike, moved = old.key == new.key and np.array_equal(old.counts, new.counts), None
        if not (alike and np.array_equal(old.means, new.means)):
            if alike and old.means.shape == new.means.shape:
                moved = float(np.abs(old.means - new.means).sum() / max(np.abs(x.means).sum() for x in (old, new)))
            yield Difference(step, "outcomes on the test items", size=moved)
    else:
        old, new = (read_json(path) for path in (then, now))
        if old != new:
            is_list = isinstance(old, list) and len(old) == len(new)
            moved = sum(map(ne, old, new)) / len(new) if is_list else None
            yield Difference(step, f"{part} ({then.name})", size=moved)


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the answer in a sentence, then what has changed."""
    verdict, compared = document["verdict"], document["compared"]
    what = f"rows of {plural(document['steps'], 'step')}" if compared == ["rows"] else ", ".join(compared)
    equal = f"equal {'within rounding' if 'differs' in document else 'bit for bit'} ({what})"
    answers = {"differs": f"differs from step {document['from_step']} on"}
    answers["incomplete"] = f"cannot be verified; the rest is {equal}"
    console.say(f"{document['run']}: {answers.get(verdict, equal)}")
    if lacking := [*document["missing"], *document["left_out"]]:
        console.say(f"  not compared: {cut_names(lacking, 8)}")
    if "differs" in document:
        has_values = document["then"] != document["now"] and document["differs"] != "by_class"
        values = " {then} then, {now} now" * has_values + ", relative {began:.1g}" * bool(document["began"])
        console.say(f"  first difference at step {{from_step}}: {{differs}}{values}".format_map(document))
        if document["largest"] != document["began"]:
            size = f"relative {document['largest']:.2g}" if document["largest"] else "which is no rounding"
            console.say(f"  largest difference: {document['largest_of']}, {size}")
    console.say(f"changed since: {'; '.join(document['changes']) or 'nothing that is recorded'}")
