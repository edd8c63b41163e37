"""Judge runs of other programs as a study: find columns by exact names or the user's keys, guess nothing."""

import math
import os
import shlex
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from vitlab.config import UserError, choices_text, raise_all
from vitlab.formatting import cut_names, finite, plural
from vitlab.studies.readers import (
    FREE,
    NAMES,
    RISING,
    SHARES,
    SPLITS,
    STEPS,
    Logged,
    as_plain,
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
LARGEST = 1e100  # value of a metric; squares stay finite
MOST_MODELS = 150  # all pairs are compared


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
    where: str | None = None,
    name: str | None = None,
    reader: str | None = None,
    out: str | Path = "",
) -> Results:
    """Load runs of other programs, or of several studies, as a study whose files go to `out`. Raises UserError.

    Find the keys that are not given by exact names (docs/others.md). `name` is a pattern of runs' and folders' names.
    `config["read_as"]` says how columns were read, `config["notes"]` lists remarks.
    """
    asked = {"model": model, "size": size, "seed": seed, "metric": metric}
    (runs, notes), problems = read_sources(sources, reader, name), list[str]()
    ours = metric is None and lower_is_better is None and all(run.row for run in runs)
    for key, _, value in (one.partition("=") for one in (where or "").split(",") if one):
        has = sorted({str(run.settings[key]) for run in runs if key in run.settings})
        known, choices = (value, has) if has else (key, [*dict.fromkeys(key for run in runs for key in run.settings)])
        problems += [] if value in has else [f"--where {key}={value}: no run has it; {choices_text(known, choices)}"]
        runs = [run for run in runs if str(run.settings.get(key)) == value]
    raise_all(problems)
    keys = {role: choose_keys(role, of, runs, problems) for role, of in asked.items() if not ours or role != "metric"}
    ignored = choose_keys("ignore", ignore or NOTHING, runs, problems)
    raise_all(problems)

    def ask(problem: str, **words: Any) -> None:
        """Raise UserError with the columns and the command to type."""
        words = (
            {role: ",".join(of) or NOTHING for role, of in keys.items()} | {"ignore": ignore, "where": where} | words
        )
        words |= {"name": name, "reader": reader, "chance": chance}
        typed = [word for key, value in words.items() if value is not None for word in (f"--{key}", str(value))]
        typed += [] if lower_is_better is None else [f"--{'' if lower_is_better else 'no-'}lower-is-better"]
        command = shlex.join(["vitlab", "report", *map(str, sources), *typed])
        columns = dict.fromkeys(key for run in runs for key in run.settings | run.values)
        raise UserError(f"{problem}; columns: {cut_names([*columns], 16)}; type: {command}")

    lacking = [role for role, of in keys.items() if not of and asked[role] is None]
    if {"model", "metric"} & {*lacking}:
        text = f"{', '.join(lacking)}: no column has a known name, or two have; write a column for KEY, or none"
        ask(text, **dict.fromkeys(lacking, "KEY"))
    if ours:
        said = describe_tested(runs)
    else:
        runs, said = measure(runs, keys["metric"], lower_is_better, notes)
    set_roles(runs, keys, asked)
    if "source" not in (*keys["model"], *ignored):
        several = Counter(of_model for of_model, _ in {(run.row["model"], run.source) for run in runs})
        for run in runs if len({run.source for run in runs}) < len(runs) else ():  # else a source is a run
            run.row["model"] += f" source={run.source}" if several[run.row["model"]] > 1 else ""
    if (count := len({run.row["model"] for run in runs})) > MOST_MODELS:
        text = f"{count:,} models, and all pairs of {MOST_MODELS} at most are compared; give a part of the runs"
        raise UserError(f"{text}, or a --model KEY with fewer values")
    known = {*ignored, *(key for of in keys.values() for key in of)}
    told = list(dict.fromkeys(key for run in runs for key in run.settings if tail(key) in NAMES["data"]))
    for run in runs:
        run.row |= {"run": run.run, "data": pick(run.settings, told)[1] or run.source}
        run.row |= {} if chance is None else {"chance": chance}
        run.row |= {"source": run.source, "family": None} if len(sources) > 1 else {}
    for of in ([key] for key in told if key not in known):
        found = dict.fromkeys(str(value) for run in runs if (value := pick(run.settings, of)[1]) is not None)
        if len(found) > 1:
            text = (
                f"{of[0]}: runs on {cut_names([*found], 4)} are not compared; report one by --where, or ignore {of[0]}"
            )
            ask(text, where=",".join(filter(None, [where, f"{of[0]}={next(iter(found))}"])))
    varied = list_varied(runs, known)
    runs, again, found = count_runs(runs, bool(keys["seed"]), seed == NOTHING, "size" in lacking)
    notes += found
    if varied := varied if any(tail(key) not in STEPS for key in varied) else list_varied(runs, known):
        text = f"runs of one model and size differ in {cut_names(varied, 8)}; make these models of their own"
        of_role = {"ignore": ignored} if all(tail(key) in STEPS for key in varied) else {"model": keys["model"]}
        words = {role: ",".join([*of, *varied]) for role, of in of_role.items()}
        ask(f"{text}, or give one as --seed, or average by --ignore", **words)
    if again:
        text = describe_runs(again, "with the model, size and seed, or all values, of another")
        ask(f"{text}; tell them apart by KEY, or none counts them", **dict.fromkeys(["seed", *lacking], "KEY"))
    if ends := [key for key in list_varied(runs, known, "train_size") if tail(key) in STEPS]:
        notes.append(f"models of one size end at different {', '.join(ends)}")
    counts = f"{plural(len(runs), 'run')} of {plural(len(sources), 'source')}"
    read_as = {role: " or ".join(keys[role]) or NOTHING for role in ROLES} | {"metric": said, "runs": counts}
    config = {"name": str(as_plain(Path(os.path.realpath(sources[0])).stem)), "read_as": read_as, "notes": notes}
    config["margin"] = min(run.row.pop("margin", MARGIN) for run in runs)
    files = {run.run: RunResults(RunFiles(run.path)) for run in runs}
    for run in () if ours else runs:
        written = datetime.fromtimestamp(run.path.stat().st_mtime if run.path.exists() else time.time()).isoformat()
        files[run.run].result = {"settings": run.settings, "finished_at": written}
    found = Results([run.row for run in runs], config, StudyFiles(out), files, outcomes=None if ours else {})
    found.status = StudyStatus([])
    return found


def choose_keys(role: str, asked: str | None, runs: Sequence[Logged], problems: list[str]) -> list[str]:
    """List the columns to read a role from: the user's columns, or the first with a known name that a run has."""
    known = [*dict.fromkeys(key for run in runs for key in run.settings | (run.values if role == "metric" else {}))]
    if asked:
        wanted = [key.strip() for key in asked.split(",") if key.strip() != NOTHING]
        problems += [f"--{role} {key}: no run has it; {choices_text(key, known)}" for key in wanted if key not in known]
        return wanted
    if role == "metric":
        return find_measures(runs)
    named = [key for key in known if tail(key) in NAMES[role]]
    named.sort(key=lambda key: (NAMES[role].index(tail(key)), key.count(".") + key.count("/"), key.endswith("_")))
    firsts = dict.fromkeys(pick(run.settings, [f"name.{role}", *named])[0] for run in runs)
    return list(filter(None, firsts))


def find_measures(runs: Sequence[Logged]) -> list[str]:
    """List the columns of the first known measure that all runs have: test before validation, then as in MEASURED.

    Return [] if a run has two different values of this measure.
    """
    groups: dict[tuple[int, int], dict[str, dict[float, str]]] = {}
    for run in runs:
        for key, value in run.values.items():
            where, what = describe_metric(key)
            if what is not None and where < SPLITS["train"] and (run.alone or where < SPLITS[""]):
                groups.setdefault((where, what), {}).setdefault(run.run, {}).setdefault(value, key)
    whole = min((group for group, of in groups.items() if len(of) == len(runs)), default=None)
    found = [[*of_run.values()] for of_run in groups.get(whole, {}).values()]
    return [] if any(len(names) > 1 for names in found) else list(dict.fromkeys(name for (name,) in found))


def describe_runs(runs: Sequence[Logged], what: str) -> str:
    return f"{plural(len(runs), 'run')} {what}: {cut_names([run.run for run in runs], 8)}"


def describe_tested(runs: Sequence[Logged]) -> str:
    """Describe the metric that vitlab measured on test items. Raises UserError unless all runs share both."""
    metric, tested = main_metric([run.row for run in runs]), dict[tuple[Any, ...], dict[str, Any]]()
    several = len({run.source for run in runs}) > 1
    for run in runs:
        if (own := main_metric([run.row])).value(run.row) is not None:
            left = run.settings.get("task.long") == "leave_out"  # by length: as many items may be other ones
            room = str([run.settings.get(f"data.{key}") for key in ("length", "target_length")] if left else None)
            sha = RunFiles(run.path).data_hash()
            items = own.key, sha, run.row.get("holdout"), run.row.get("test_items"), room
            tested.setdefault(items, {})[run.source if several else run.run] = run
    if len(tested) > 1:
        names = " and ".join(cut_names([*of], 3) for of in tested.values())
        text = f"{names}: not the same metric, data and test items, so no differences between them"
        raise UserError(f"{text}; report each alone, or compare a number that they logged by --metric KEY")
    return f"{metric.name} on test items ({'higher' if metric.higher_is_better else 'lower'} is better)"


def measure(
    runs: list[Logged], keys: Sequence[str], lower_is_better: bool | None, notes: list[str]
) -> tuple[list[Logged], str]:
    """Set each run's metric; return the runs that have it, and its description. Raises UserError.

    Name the column accuracy for shares, score for other rising metrics, loss for falling ones above 0, else cost.
    """
    kinds = {describe_metric(key)[1] for key in keys}
    what = kinds.pop()
    if kinds:
        raise UserError(f"--metric {','.join(keys)}: are not one metric; give the names of one")
    if what is None and lower_is_better is None:
        raise UserError(f"--metric {keys[0]}: is no known name; add --lower-is-better or --no-lower-is-better")
    rises = what < len(RISING) if lower_is_better is None else not lower_is_better
    if left := [run for run in runs if not pick(run.settings | run.values, keys)[0]]:
        notes.append(describe_runs(left, f"without {' or '.join(keys)} left out"))
    runs, percent = [run for run in runs if run not in left], []
    known: dict[str, list[float]] = {}
    for run in runs:
        value = finite(pick(run.settings | run.values, keys)[1])
        run.row = {"value": None if value is None or abs(value) > LARGEST else value}
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
        run.values[keys[0]] = value  # also of a name that no reader knows
        run.row |= {column: value, "metric": column, "metric_name": keys[0]}
        run.row |= {"error": 1 - value} if column == "accuracy" else {}
    scale = f", in percent in {cut_names(percent, 3)}" if percent else ""
    return runs, f"{' or '.join(keys)} ({'higher' if rises else 'lower'} is better{scale})"


def set_roles(runs: Sequence[Logged], keys: Mapping[str, Sequence[str]], asked: Mapping[str, str | None]) -> None:
    """Set each run's model, size and seed from the first key it has; join all keys given for a model or seed."""
    problems = []
    for run in runs:
        for role in ROLES:
            first, value = pick(run.settings, keys[role])
            if role == "size" and keys[role]:
                value = number if (number := finite(parse(value))) and 0 < number < 2**53 else None
            run.row[role] = value
            more = [key for key in keys[role] if key != first and run.settings.get(key) not in (None, "")]
            if more and asked[role] and role != "size":
                run.row[role] = " ".join([str(value), *(f"{tail(key)}={run.settings[key]}" for key in more)])
    for role in ROLES:
        if keys[role] and (lost := [run for run in runs if run.row[role] in (None, "")]):
            text = f"--{role} {keys[role][0]}: {describe_runs(lost, f'without a {role}')}"
            problems.append(f"{text}; correct them, or give another --{role} KEY, or none")
    raise_all(problems)
    sizes, seeds = ([run.row[role] for run in runs] for role in ("size", "seed"))
    shares = bool(keys["size"]) and max(sizes) <= 1
    unit = ("hundredth" if shares else "example") if keys["size"] else "data set"
    named = keys["size"][0] if keys["size"] and tail(keys["size"][0]) not in NAMES["size"] else ""
    named = tail(named).replace("_", " ")
    places = {seed: n for n, seed in enumerate(sorted({*seeds}, key=str))}
    whole = all(isinstance(one, int) and abs(one) < 2**53 for one in seeds)
    for run in runs:
        size, model, seed = run.row.pop("size") or 1, str(run.row["model"] or "all"), run.row["seed"]
        run.row |= {"model": model, "train_size": parse(round(size * (100 if shares else 1), 6))}
        seed = seed if whole else places[seed]
        run.row = {"unit": unit, **run.row, "seed": seed}
        run.row |= {"size_name": named} if named else {}


def list_varied(runs: Sequence[Logged], known: Collection[str], *of_cell: str) -> list[str]:
    """List the settings, beside the known ones, that runs of one cell do not share: of one model and size, or so."""
    names = dict.fromkeys(key for run in runs for key in run.settings if key not in known and tail(key) not in FREE)
    found = []
    for key in names:
        cells = [tuple(run.row[of] for of in of_cell or ("model", "train_size")) for run in runs]
        pairs = {*zip(cells, (str(parse(run.settings.get(key, NOTHING))) for run in runs), strict=True)}
        found += [key] if len(pairs) > len({*cells}) else []
    return found


def count_runs(
    runs: Sequence[Logged], seeds: bool, counted: bool = False, sizeless: bool = False
) -> tuple[list[Logged], list[Logged], list[str]]:
    """Number the runs of a model and size if no seed is known; return the runs without copies, those to tell apart, and
    a remark on copies.
    """
    kept: dict[tuple[Any, ...], list[Logged]] = {}
    again, copies = [], []
    for run in runs:
        of_cell = kept.setdefault(tuple(run.row[key] for key in ("model", "train_size", "seed")), [])
        same = any(agree(one, run) for one in of_cell)
        if seeds and same:
            copies.append(run)
        elif of_cell and (sizeless or seeds or (same and not counted)):
            again.append(run)
        else:
            of_cell.append(run)
    for number, run in enumerate(run for of_cell in kept.values() for run in of_cell if not seeds and of_cell[1:]):
        run.row["seed"] = number  # of no other run: the order of a file pairs nothing
    notes = [describe_runs(copies, "left out as copies")] * bool(copies)
    return [run for run in runs if run not in copies], again, notes


def agree(one: Logged, other: Logged) -> bool:
    """Tell whether two runs have the same values, up to float32's rounding, of all that both logged."""
    pairs = [(one.values[key], other.values[key]) for key in one.values.keys() & other.values.keys()]
    return bool(pairs) and all(math.isclose(a, b, rel_tol=1e-6) or (a != a and b != b) for a, b in pairs)
