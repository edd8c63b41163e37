"""Judge runs of other programs as a study: guess what is model, size, seed and metric, and say what else varies."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from vitlab.config import UserError, choices_text, raise_all
from vitlab.formatting import cut_names, finite, plural
from vitlab.studies.readers import (
    EACH_RUN,
    NAMES,
    RISING,
    SHARES,
    SPLITS,
    Logged,
    describe_metric,
    parse,
    pick,
    read_sources,
    tail,
)
from vitlab.studies.results import MARGIN, Results, RunResults
from vitlab.studies.status import StudyStatus
from vitlab.studies.store import StudyFiles
from vitlab.tasks.metrics import main_metric
from vitlab.training.files import RunFiles

ROLES = ("model", "size", "seed")
NOTHING = "none"


def load_others(
    sources: Sequence[str | Path],
    *,
    model: str | None = None,
    size: str | None = None,
    seed: str | None = None,
    metric: str | None = None,
    lower_is_better: bool | None = None,
    chance: float | None = None,
    ignore: str | None = None,
    reader: str | None = None,
    out: str | Path = "",
) -> Results:
    """Load runs of other programs, or of several studies, as a study whose files go to `out`. Raises UserError.

    A key that is not given is guessed; several are joined by commas. `config["read_as"]` says what was read,
    `config["notes"]` what to know of it.
    """
    runs, problems, notes = read_sources(sources, reader), list[str](), list[str]()
    asked = {"model": model, "size": size, "seed": seed}
    keys = {role: choose_keys(role, asked[role], runs, problems) for role in ROLES}
    averaged = {*choose_keys("ignore", ignore, runs, problems)} if ignore else set()
    averaged |= {*choose_keys("seed", None, runs, [])} if seed == NOTHING else set()  # runs are counted
    ours = metric is None and lower_is_better is None and all(run.row for run in runs)
    measures = [] if ours else choose_measures(metric, runs, problems)
    raise_all(problems)
    if ours:
        said = describe_tested(runs)
    else:
        runs, said = measure(runs, measures, lower_is_better, notes)
    used = place(runs, keys)
    keys = {role: [key for key in of if key in used] for role, of in keys.items()}  # others were no run's first
    divide(runs, used, bool(keys["seed"]), averaged, notes)
    runs = drop_copies(runs, keys["seed"], notes)
    for run in runs:
        data = next((value for key, value in run.settings.items() if tail(key) in NAMES["data"]), run.source)
        run.row |= {"run": run.run, "data": data}
        run.row |= {} if chance is None else {"chance": chance}
        run.row |= {"source": run.source, "family": None} if len(sources) > 1 else {}
    counts = f"{plural(len(runs), 'run')} of {plural(len(sources), 'source')}"
    read_as = {role: " or ".join(keys[role]) or NOTHING for role in ROLES} | {"metric": said, "runs": counts}
    config = {"name": Path(sources[0]).resolve().stem, "read_as": read_as, "notes": notes}
    config["margin"] = min(run.row.pop("margin", MARGIN) for run in runs)
    rows, files = [run.row for run in runs], {run.run: hold(run, ours) for run in runs}
    found = Results(rows, config, StudyFiles(out), files, outcomes=None if ours else {})
    found.status = StudyStatus([])
    return found


def choose_keys(role: str, asked: str | None, runs: Sequence[Logged], problems: list[str]) -> list[str]:
    """List the settings that tell the role of a run: those asked for, or by their names; a run's first one counts."""
    known = Counter(key for run in runs for key in run.settings)
    if asked:
        wanted = [key.strip() for key in asked.split(",") if key.strip() != NOTHING]
        problems += [f"--{role} {key}: no run has it; {choices_text(key, known)}" for key in wanted if key not in known]
        return wanted

    def rank(key: str) -> tuple[bool, int, int]:
        return len({str(run.settings.get(key)) for run in runs}) == 1, NAMES[role].index(tail(key)), -known[key]

    found = sorted((key for key in known if tail(key) in NAMES[role]), key=rank)
    return [key for key in found if role != "size" or any(read_size(run.settings.get(key)) for run in runs)]


def choose_measures(asked: str | None, runs: Sequence[Logged], problems: list[str]) -> list[str]:
    """List the logged numbers that are compared, the first that a run has counts: one measure on one split.

    The measure is the first in MEASURED that every source and half of the runs have, on test rather than validation.
    """
    known = Counter(key for run in runs for key in (run.settings | run.values if asked else run.values))
    if asked:
        wanted = [key.strip() for key in asked.split(",")]
        problems += [f"--metric {key}: no run has it; {choices_text(key, known)}" for key in wanted if key not in known]
        return wanted
    groups: dict[tuple[int, int], list[str]] = {}
    for key in known:
        where, what = describe_metric(key)
        if what is not None and where < SPLITS["train"]:
            groups.setdefault((where, what), []).append(key)
    if not groups:
        problems.append(f"metric: none is named as one on held-out data; give --metric KEY; {choices_text('', known)}")
        return []
    having = {group: [run.source for run in runs if {*of} & {*run.values}] for group, of in groups.items()}
    most = max(len({*sources}) for sources in having.values())
    counts = {group: len(sources) for group, sources in having.items() if len({*sources}) == most}
    best = min(group for group, count in counts.items() if 2 * count >= max(counts.values()))
    return sorted(groups[best], key=known.get, reverse=True)


def describe_runs(runs: Sequence[Logged], what: str) -> str:
    return f"{plural(len(runs), 'run')} {what}: {cut_names([run.run for run in runs], 8)}"


def describe_tested(runs: Sequence[Logged]) -> str:
    """Describe the metric that vitlab measured on test items. Raises UserError if not all have the same of both."""
    metric, tested = main_metric([run.row for run in runs]), dict[tuple[Any, ...], dict[str, Any]]()
    several = len({run.source for run in runs}) > 1
    for run in runs:
        if (own := main_metric([run.row])).value(run.row) is not None:
            items = own.key, RunFiles(run.path).data_hash(), run.row.get("holdout"), run.row.get("test_items")
            tested.setdefault(items, {})[run.source if several else run.run] = run
    if len(tested) > 1:
        names = " and ".join(cut_names([*of], 3) for of in tested.values())
        text = f"{names}: not the same metric, data and test items, so no differences between them"
        raise UserError(f"{text}; report each alone, or compare a number that they logged by --metric KEY")
    return f"{metric.name} on test items ({'higher' if metric.higher_is_better else 'lower'} is better)"


def measure(
    runs: list[Logged], keys: Sequence[str], lower_is_better: bool | None, notes: list[str]
) -> tuple[list[Logged], str]:
    """Set each run's metric; return the runs that have it, and its words. Raises UserError.

    The column is accuracy for shares, loss for what falls and stays above 0, else score or cost.
    """
    what = describe_metric(keys[0])[1]
    rises = (what is None or what < len(RISING)) if lower_is_better is None else not lower_is_better
    if left := [run for run in runs if not pick(run.settings | run.values, keys)[0]]:
        notes.append(describe_runs(left, f"without {' or '.join(keys)} left out"))
    runs, percent = [run for run in runs if run not in left], []
    known: dict[str, list[float]] = {}
    for run in runs:
        run.row = {"value": finite(pick(run.settings | run.values, keys)[1])}
        known.setdefault(run.source, []).extend([] if run.row["value"] is None else [run.row["value"]])
    if lost := [run for run in runs if run.row["value"] is None]:
        notes.append(describe_runs(lost, f"ended without a finite {keys[0]}"))
    if len(lost) == len(runs):
        raise UserError(f"metric {' or '.join(keys)}: no run has a finite value; give another --metric")
    low, high = (choose(value for values in known.values() for value in values) for choose in (min, max))
    is_share = rises and what is not None and what < len(SHARES) and low >= 0 and high <= 100
    if is_share:
        percent = [source for source, values in known.items() if max(values, default=0) > 1]
    if mixed := [source for source in percent if any(0 < value <= 1 for value in known[source])]:
        raise UserError(f"{mixed[0]}: {keys[0]} has values up to 1 and above; give all as shares or all in percent")
    column = "accuracy" if is_share else "score" if rises else "loss" if low > 0 else "cost"
    for run in runs:
        value = run.row.pop("value")
        value = math.nan if value is None else value / 100 if run.source in percent else value
        run.row |= {column: value, "metric": column, "metric_name": keys[0]}
        run.row |= {"error": 1 - value} if column == "accuracy" else {}
    scale = f", in percent in {cut_names(percent, 3)}" if percent else ""
    return runs, f"{' or '.join(keys)} ({'higher' if rises else 'lower'} is better{scale})"


def read_size(value: Any) -> float | None:
    """Read a size above 0: a number, or `10%`."""
    number = parse(str(value).removesuffix("%"))
    number = number / 100 if str(value).endswith("%") and finite(number) else number
    return number if (finite(number) or 0) > 0 else None


def place(runs: Sequence[Logged], keys: Mapping[str, Sequence[str]]) -> set[str]:
    """Set each run's model, size and seed; return the settings that told them. Raises UserError with all problems."""
    problems, used = [], set()
    for run in runs:
        for role in ROLES:
            key, value = pick(run.settings, keys[role])
            run.row[role] = read_size(value) if role == "size" and keys[role] else value
            used.add(key)
    for role in ROLES:
        if keys[role] and (lost := [run for run in runs if run.row[role] in (None, "")]):
            text = f"--{role} {keys[role][0]}: {describe_runs(lost, f'without a {role}')}"
            problems.append(f"{text}; correct them, or give another --{role} KEY, or none")
    raise_all(problems)
    if keys["size"] and len({str(pick(run.settings, keys["size"])[1]).endswith("%") for run in runs}) == 2:
        raise UserError(f"--size {keys['size'][0]}: some are in percent, some are not; give all in one unit")
    sizes, seeds = ([run.row[role] for run in runs] for role in ("size", "seed"))
    shares = bool(keys["size"]) and max(sizes) <= 1
    unit = ("hundredth" if shares else "example") if keys["size"] else "data set"
    places = {seed: n for n, seed in enumerate(sorted({*seeds}, key=str))}
    for run in runs:
        size, seed = run.row.pop("size") or 1, run.row["seed"]
        run.row |= {"model": str(run.row["model"] or ""), "train_size": parse(round(size * (100 if shares else 1), 6))}
        seed = seed if all(isinstance(one, int) for one in seeds) else places[seed]
        run.row = {"unit": unit, **run.row, "seed": seed}
    return used


def divide(runs: Sequence[Logged], used: set[str], seeds_known: bool, averaged: set[str], notes: list[str]) -> None:
    """Name models by what else varies among runs of one model and size, so that these are not averaged; note the rest.

    A setting that follows the model, the size or the seed, or that has another text in each run, tells no runs apart.
    """
    known: dict[str, set[str]] = {}
    for run in runs:
        known.setdefault(run.source, set()).update(run.settings.keys() - used)
    values = {  # of settings that a source does not log, nothing is known: None
        key: [parse(run.settings.get(key, NOTHING)) if key in known[run.source] else None for run in runs]
        for key in dict.fromkeys(key for run in runs for key in run.settings if key not in used)
    }
    models, cells = [run.row["model"] for run in runs], [(run.row["model"], run.row["train_size"]) for run in runs]

    def follows(by: Sequence[Any], key: str) -> bool:
        pairs = {(of, value) for of, value in zip(by, values[key], strict=True) if value is not None}
        return len(pairs) == len({of for of, _ in pairs})

    groups, named, found = cells, list[str](), dict[str, list[str]]()
    for key, of_runs in sorted(values.items(), key=lambda item: (item[0] != "source", len({*item[1]}))):
        different = {*of_runs} - {None}
        each = len(different) == len(runs) - of_runs.count(None) and all(isinstance(one, str) for one in different)
        finer = [(*group, value) for group, value in zip(groups, of_runs, strict=True)]
        if len(different) < 2:
            continue
        if key in averaged:
            said = "averaged over"
        elif follows(cells, key):
            said = "differ with the model or size"
        elif seeds_known and follows([run.row["seed"] for run in runs], key):
            said = "differ with the seed"
        elif each or tail(key).split("_")[-1] in EACH_RUN:
            said = "differ from run to run"
        elif len({*finer}) > len({*groups}):
            groups, named, said = (
                finer,
                [*named, key],
                "differ within a model, which is divided by them (--ignore KEY averages)",
            )
        else:
            said = f"differ with {', '.join(named)}"
        found.setdefault(said, []).append(key)
    within = {key: Counter(model for model, _ in {*zip(models, values[key], strict=True)}) for key in named}
    for n, run in enumerate(runs):
        own = [key for key in named if within[key][models[n]] > 1 and values[key][n] is not None]
        run.row["model"] = (
            " ".join(filter(None, [models[n], *(f"{tail(key)}={values[key][n]}" for key in own)])) or "all"
        )
    notes += [f"{said}: {cut_names(names, 8)}" for said, names in found.items()]


def drop_copies(runs: Sequence[Logged], seeds: Sequence[str], notes: list[str]) -> list[Logged]:
    """Leave out runs that are there twice, and count the runs of a model and size where no seed is known.

    Raises UserError for runs of the same model, size and seed with other values.
    """
    kept: dict[tuple[Any, ...], list[Logged]] = {}
    copies, again = [], []
    for run in runs:
        of_cell = kept.setdefault(tuple(run.row[key] for key in ("model", "train_size", "seed")), [])
        same = any(str(one.values) == str(run.values) and (seeds or one.settings == run.settings) for one in of_cell)
        (copies if same else again if of_cell and seeds else of_cell).append(run)
    if again:
        text = f"--seed {seeds[0]}: {describe_runs(again, 'with the model, size and seed of another')}"
        raise UserError(f"{text}; tell them apart by --model KEY, or count them by --seed none")
    if copies:
        notes.append(describe_runs(copies, "left out as copies"))
    for of_cell in kept.values():
        for n, run in enumerate(of_cell):
            run.row["seed"] = run.row["seed"] if seeds else n
    return [run for of_cell in kept.values() for run in of_cell]


def hold(run: Logged, ours: bool) -> RunResults:
    """Hold a run as the pages read one: as vitlab wrote it, or its settings and the time of its file (of none: now)."""
    found = RunResults(RunFiles(run.path))
    if ours:
        return found
    written = datetime.fromtimestamp(run.path.stat().st_mtime if run.path.exists() else time.time()).isoformat()
    found.result = {"settings": run.settings, "finished_at": written}
    return found
