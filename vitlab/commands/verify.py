"""`vitlab verify`: train a finished run again and compare what it gives now with what it gave then."""

import itertools
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab.commands.arguments import CommandParser, non_empty_path, positive_integer, status_line
from vitlab.config import TrainConfig, UserError, compose
from vitlab.config.identity import count_parts, identity
from vitlab.console import Console
from vitlab.data.opening import open_data, progress_bar
from vitlab.formatting import plural
from vitlab.tasks.metrics import Metric, main_metric
from vitlab.training.files import Progress, RunFiles, source_of
from vitlab.training.launch import Stopping

if TYPE_CHECKING:
    from vitlab.training.run import Run

DESCRIPTION = """Train a finished run again in a temporary folder, from its config.yaml, and compare.

  vitlab verify runs/quick/vit_nano-n500-s0
  vitlab verify runs/quick/vit_nano-n500-s0 --steps 100    # compare its first steps only
The answer is one of: equal bit for bit; equal within rounding; within the interval of the seeds, of its study or of
--seeds; or the step from which it differs. What has changed since is listed. Exit code 3 if it differs.
What to expect on which machine: docs/reproducing.md"""
ROUNDING = 1e-3  # the largest relative difference of a loss, or of any validation metric, that counts as rounding
TIMES = ("wall_s", "train/images_per_s")
FEWEST = 3  # seeds of an interval
EXIT_CODES = {"equal": 0, "rounding": 0, "seeds": 0, "differs": 3}


def verify(words: Sequence[str]) -> int:
    parser = CommandParser("verify", DESCRIPTION)
    add = parser.add_argument
    add("run", type=non_empty_path, metavar="RUN")
    add("--steps", type=positive_integer, metavar="N", help="train and compare the first N steps only")
    add("--seeds", type=positive_integer, default=0, metavar="N", help="if it differs, train N other seeds to compare")
    parser.add_json()
    args = parser.parse_args(words)
    files = RunFiles(args.run)
    then, config = files.finished_result(), files.config()
    steps = args.steps if args.steps and args.steps < then["steps"] else None
    if not (rows := files.metrics()):
        raise UserError(f"{args.run}: its metrics.jsonl has no rows, so there is nothing to compare")
    if steps and steps < (first := rows[0]["step"]):
        raise UserError(f"--steps {steps}: the run's first numbers are of step {first}; give at least {first}")
    if not steps and not files.weights_path.is_file():
        raise UserError(f"{args.run}: its checkpoint is gone; --steps N compares the rows of its first steps")
    again = {**config, "analyses": [], "probes": [], "eval_on": [], "wandb": {**config["wandb"], "mode": "off"}}
    again["trainer"] = {**config["trainer"], "devices": 1, "nodes": 1, "accumulate": count_parts(config["trainer"])}
    with tempfile.TemporaryDirectory(prefix="vitlab-verify-") as folder:
        run, now = train_again(compose(TrainConfig, base=again), files, Path(folder) / "again", steps)
        changes, same = list_changes(files, then, run), identity(config, run.data_hash) == then.get("id")
        if identity(config, files.data_hash() or run.data_hash) != then.get("id"):
            changes.insert(0, "config.yaml: is not the configuration that was trained")
        document = {
            "run": str(args.run),
            "steps": steps or then["steps"],
            **compare(files, run.files, then, now, steps),
        }
        if document["verdict"] == "differs" and same and now and now["status"] == "finished":
            metric = main_metric([then])
            values = {**of_study(files, then, metric), then["seed"]: metric.value(then)}
            free = (seed for seed in itertools.count(then["seed"] + 1) if seed not in values)
            for seed in list(itertools.islice(free, args.seeds)):
                other = compose(TrainConfig, [("seed", seed)], base=again)
                values[seed] = metric.value(train_again(other, files, Path(folder) / f"seed-{seed}", None)[1] or {})
            known = [value for value in values.values() if value is not None]
            document |= place_among_seeds(metric, known, metric.value(now))
    document["changes"] = changes
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
        from vitlab.training.run import Run
        from vitlab.training.train import keep_process_settings

    refuse_other_source(source_of(config.init), files)
    console, stopping, taken = Console(stderr=True), Stopping(folder.parent), itertools.count(1)
    with keep_process_settings():
        run = Run(config, open_data(config.data, console), folder)
        with progress_bar(console) as shown, stopping:

            def report(far: Progress) -> None:
                shown(files.folder.name, far.step, far.steps)

            def stop() -> bool:
                return next(taken) == steps or stopping.requested

            try:
                return run, train_and_test(run, None, Hooks(report, stop, analyze=lambda _: None))
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
        more = f" and {len(differ) - 5} more" if len(differ) > 5 else ""
        changes.append(f"{plural(len(differ), 'installed package')}: {', '.join(differ[:5])}{more}")
    return changes


def compare(
    files: RunFiles, again: RunFiles, then: Mapping[str, Any], now: Mapping[str, Any] | None, steps: int | None
) -> dict[str, Any]:
    """Compare the rows, the weights and the test outcomes of a run with another training of it.

    now: the result of the other training, None where only its first `steps` were trained. `from_step` is the step of
    the first row that differs, `then` and `now` are its values; `began` is their relative difference, `largest` the
    largest of a loss or a validation metric in any row, None where one of the two is no number.
    """
    from vitlab.studies.stats import read_outcomes, same_outcomes
    from vitlab.training.checkpoints import read_checkpoint

    shared = then.get("shared_steps") or 0  # trained by another run, whose evaluations were at other steps
    rows = [[row for row in each.metrics() if not steps or row["step"] <= steps] for each in (files, again)]
    rows = [[row for row in some if row["step"] > shared or "train/loss" in row] for some in rows]
    found: dict[str, Any] = {"verdict": "differs", "from_step": None, "largest": 0.0}
    if different := list(find_differences(*rows)):
        step, key, a, b, began = different[0]
        shown = [size for _, key, *_, size in different if key == "train/loss" or key.startswith("validation/")]
        largest = None if None in shown else max(shown, default=0.0)
        found |= {"from_step": step, "differs": key, "then": a, "now": b, "began": began, "largest": largest}
        return {**found, "verdict": "differs" if largest is None or largest > ROUNDING else "rounding"}
    if now and len(rows[0]) != len(rows[1]):
        return {**found, "differs": f"{plural(len(rows[1]), 'row')} in place of {len(rows[0])}"}
    if now and (said := now.get("diverged")) != then.get("diverged"):
        return {**found, "differs": said or "the run then diverged"}
    if now and not said:
        found |= {"from_step": now["steps"], "compared": ["rows", "weights"]}
        states = [read_checkpoint(each.weights_path)["state_dict"] for each in (files, again)]
        if unequal := [name for name, value in states[0].items() if not value.equal(states[1][name])]:
            return {**found, "differs": f"{plural(len(unequal), 'tensor')} of the weights"}
        outcomes = [read_outcomes(each.heldout_path) for each in (files, again)]
        if outcomes[0] and not same_outcomes(*outcomes):
            return {**found, "differs": "outcomes on the test items"}
        found["compared"] += ["test outcomes"] * bool(outcomes[0])
    return {**found, "verdict": "equal", "from_step": None}


def find_differences(
    then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, str, float | None, float | None, float | None]]:
    """Yield (step, key, value then, value now, relative difference) of numbers that differ, but for times.

    A value that was not finite, and its difference, are None.
    """
    for old, new in zip(then, now, strict=False):
        for key in old:
            a, b = old[key], new.get(key)
            if key not in TIMES and a != b:
                yield old["step"], key, a, b, None if None in (a, b) else abs(a - b) / max(abs(a), abs(b))


def of_study(files: RunFiles, then: Mapping[str, Any], metric: Metric) -> dict[int, float | None]:
    """Return the metric by seed of the runs of a run's study that differ from it in the seed alone."""
    if not (files.folder.parent / "study.yaml").is_file():
        return {}
    from vitlab.studies.results import load_results

    same = ("model", "train_size", "trial")
    rows = load_results(files.folder.parent).rows
    return {row["seed"]: metric.value(row) for row in rows if all(row.get(key) == then.get(key) for key in same)}


def place_among_seeds(metric: Metric, values: Sequence[float], now: float | None) -> dict[str, Any]:
    """Tell whether a value lies where another seed would in 95% of cases: {} with fewer than 3 seeds."""
    if len(values) < FEWEST or now is None:
        return {}
    from vitlab.studies.stats import quantile

    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    margin = quantile(len(values) - 1) * deviation * math.sqrt(1 + 1 / len(values))
    low, high = mean - margin, mean + margin
    found = {"metric": metric.key, "value": now, "low": low, "high": high, "seeds": len(values)}
    return {**found, "verdict": "seeds"} if low <= now <= high else found


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the answer in a sentence, then what has changed."""
    verdict, steps = document["verdict"], document["steps"]
    if verdict == "equal":
        what = ", ".join(document.get("compared", [f"rows of {plural(steps, 'step')}"]))
        console.say(f"{document['run']}: equal bit for bit ({what})")
    else:
        said = {"rounding": "equal within rounding", "seeds": "another result, within the interval of the seeds"}
        since = f" from step {document['from_step']} on" if document["from_step"] is not None else ""
        console.say(f"{document['run']}: {said.get(verdict, 'differs')}{since if verdict == 'differs' else ''}")
        values = " {then:.9g} then, {now:.9g} now, relative {began:.1g}" if document.get("began") is not None else ""
        at = since.removesuffix(" on").replace("from", "at")
        console.say(f"  first difference{at}: {document['differs']}{values.format_map(document)}")
        if document["largest"]:
            console.say(f"  largest difference of a loss or validation metric: relative {document['largest']:.2g}")
    if "low" in document:
        console.say(
            f"  {document['metric']} {document['value']:.5g}; {document['seeds']} seeds give {document['low']:.5g} to "
            f"{document['high']:.5g} (95%)"
        )
    elif verdict == "differs" and not any(each.startswith(("config.yaml", "data=")) for each in document["changes"]):
        console.say("  other seeds may differ as much: --seeds 4 trains them and says what is usual")
    console.say(f"changed since: {'; '.join(document['changes']) or 'nothing that is recorded'}")
