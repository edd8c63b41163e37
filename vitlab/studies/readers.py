"""Read the runs of other programs and judge them as a study: who leads at which size, by how much, how surely.

A reader is a function `read(path)` that gives a list of `Logged`; `find_reader` chooses it by a file's content. Nothing
is unpickled. `load_others` guesses what is model, size, seed and metric.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from vitlab.config import UserError, choices_text, collecting, raise_all
from vitlab.config.identity import flatten
from vitlab.data.text.texts import Table, read_cells
from vitlab.files import check_regular, read_utf8, reading
from vitlab.formatting import cut_names, finite, plural
from vitlab.studies.results import Results, RunResults
from vitlab.studies.status import StudyStatus
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles


@dataclass
class Logged:
    """A run of another program: its name and file, its settings, and the last value of each number it logged."""

    run: str
    path: Path
    settings: dict[str, Any]
    values: dict[str, float]
    source: str = ""
    row: dict[str, Any] = field(default_factory=dict)  # of results.csv


# ---- tables


THOUSANDS = re.compile(r"\s*[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*")
STEPS = ("step", "global_step", "_step", "trainer/global_step", "iteration", "iter", "epoch")


def as_number(text: str) -> float:
    """Parse the finite number in a cell; NaN if there is none."""
    try:
        value = float(text.replace(",", "") if THOUSANDS.fullmatch(text) else text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def read_columns(path: Path, used: Iterable[str] = ()) -> Table:
    """Read the columns of a table as texts: CSV, a JSON object a line, or a JSON list of objects. Raises UserError."""
    text = read_utf8(path, "CSV")
    if text.lstrip()[:1] not in ("{", "["):
        found = read_cells(path, "CSV", used, ",", quoting=True, header=True, advice="give a CSV file")
        if len(found.columns) == 1 and (mark := re.search(r"[;|\t]|\b \b", next(iter(found.columns)))):
            problem = f"its columns are separated by {mark[0]!r}; separate them by commas, and write 0.5 for 0,5"
            raise UserError(f"{path}: {problem}")
        return found
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    with reading(str(path), "give a JSON object a line, or a list of objects"):
        whole = text.lstrip().startswith("[") and json.loads(text)
        rows = [*enumerate(whole, 1)] if whole else [(number, json.loads(line)) for number, line in lines]
        flat = {number: dict(flatten(dict(row), choices=True)) for number, row in rows}
    names = dict.fromkeys(key for row in flat.values() for key in row)
    cells = {key: [write_cell(row.get(key)) for row in flat.values()] for key in names}
    return Table(str(path), cells, [*flat])


def write_cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def parse(text: Any) -> Any:
    """Parse a setting that is a number; other values are texts."""
    if isinstance(text, bool) or not isinstance(text, (int, float, str)):
        return write_cell(text)
    try:
        value = float(text)
    except ValueError:
        return text.strip()
    return int(value) if math.isfinite(value) and value == int(value) else value if math.isfinite(value) else str(text)


def read_table(path: Path) -> list[Logged]:
    """Read a table with a row a run, or with several rows a run of which the last value counts.

    A table of steps or epochs without a column that names its runs is one run, with the settings of the YAML beside it.
    """
    table = read_columns(path)
    columns, beside = table.columns, read_settings(path)
    count = len(table.numbers)
    numeric = {key for key, cells in columns.items() if all(not c.strip() or is_number(c) for c in cells)}
    step = next((key for key in STEPS if key in numeric), None)
    named = [key for key in columns if key not in numeric or any(tail(key) in NAMES[role] for role in NAMES)]
    groups: dict[tuple[str, ...], list[int]] = {}
    for place in range(count):
        groups.setdefault(tuple(columns[key][place] for key in named), []).append(place)
    steps = [[as_number(columns[step][place]) for place in of] for of in groups.values()] if step else []
    if not all(one <= other for of in steps for one, other in pairwise(of)) or not step:
        groups = {(str(place),): [place] for place in range(count)}  # the step is where a run has ended
    curves = len(groups) < count
    runs = []
    for places in groups.values():
        cells = {key: [c for p in places if (c := column[p]).strip()] for key, column in columns.items()}
        settings, values = {}, {}
        for key, of_run in cells.items():
            is_value = key not in named and (beside or (key in STEPS and curves) or is_measure(key, columns[key]))
            if of_run and (is_value or (curves and key not in named and len({*of_run}) > 1)):
                values[key] = float(of_run[-1])
            elif of_run:
                settings[key] = parse(of_run[-1])
        name = str(settings.get("run") or settings.get("name") or settings.get("Name") or "")
        line = f"{path.stem}:{table.numbers[places[0]]}" if len(groups) > 1 else f"{path.parent.name}/{path.stem}"
        runs.append(Logged(name or line, path, beside | settings, values))
    return runs


def is_number(cell: str) -> bool:
    return not math.isnan(as_number(cell)) or cell.strip().lower().lstrip("+-") in ("nan", "inf", "infinity")


def is_measure(key: str, cells: Sequence[str]) -> bool:
    """Tell whether a column of numbers was measured: by its name, or since nearly every row has another fraction."""
    numbers = {number for cell in cells if not math.isnan(number := as_number(cell))}
    broken = any(number != int(number) for number in numbers)
    return describe_metric(key)[1] is not None or (broken and len(cells) > 2 and len(numbers) > 0.7 * len(cells))


def plain_loader() -> type:
    """Make a loader of YAML that takes an object of Python for nothing, and so makes none."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("", lambda *_: None)
    return Loader


def read_settings(path: Path) -> dict[str, Any]:
    """Read the settings that timm (args.yaml), Lightning (hparams.yaml) or Hydra leave beside a file; {} without."""
    import yaml

    for name in ("args.yaml", "hparams.yaml", ".hydra/config.yaml"):
        if (file := path.parent / name).is_file():
            with reading(str(file), "correct it, or delete it"):
                found = yaml.load(read_utf8(file, "settings"), plain_loader())
            return dict(flatten(found, choices=True)) if isinstance(found, dict) else {}
    return {}


# ---- files and folders


def find_reader(path: Path, *, given: bool = True) -> Callable[[Path], list[Logged]] | None:
    """Find the reader of a file by how it begins; None for another kind. Within a folder, tables have a suffix."""
    with open(path, "rb") as file:
        head = file.read(4096)
    lines = head.lstrip().splitlines() or [b""]
    if lines[0][:1] in (b"{", b"["):
        rows = lines[0][:1] == b"[" or lines[0].rstrip().endswith(b"}") or (len(head) == 4096 and len(lines) == 1)
        return read_table if rows and (given or path.suffix in TABLES) else None
    is_text = b"\0" not in head and len(lines) > 1 and b"," in lines[0]
    return read_table if is_text and (given or path.suffix in TABLES) else None


def read_source(path: Path) -> list[Logged]:
    """Read a file, or each folder below one that has runs: its files of the kind that comes first in READERS."""
    kinds = "a vitlab study, Hugging Face, timm, Lightning, TensorBoard, W&B, MLflow, trackio, scikit-learn, CSV, JSON"
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; give runs of {kinds}")
    check_regular(path, str(path))
    if path.is_file():
        reader = find_reader(path)
        runs = reader(path) if reader else []
    else:
        runs = []
        for folder, folders, names in os.walk(path):
            folders.sort()
            found: dict[Any, list[Path]] = {}
            for file in (Path(folder, name) for name in sorted(names)):
                if file.is_file() and (reader := find_reader(file, given=False)):
                    found.setdefault(reader, []).append(file)
            if found:
                reader = min(found, key=READERS.index)
                runs += [run for file in found[reader] for run in reader(file)]
                folders.clear()  # what lies deeper are copies: checkpoints, other loggers
    if not any(run.values for run in runs):
        raise UserError(f"{path}: no runs found; give runs of {kinds}")
    return runs


def read_sources(sources: Sequence[str | Path]) -> list[Logged]:
    """Read all sources; their names tell runs apart where there are several. Raises UserError with all problems."""
    names = [Path(source).resolve().name for source in sources]
    runs, problems, seen = [], [], Counter[str]()
    for name, source in zip(names, sources, strict=True):
        with collecting(problems):
            for run in read_source(Path(source)):
                run.source = name if names.count(name) == 1 else str(source)
                run.settings |= {"source": run.source} if len(sources) > 1 else {}
                seen[run.run] += 1
                run.run += f" #{seen[run.run]}" if seen[run.run] > 1 else ""
                runs.append(run)
    raise_all(problems)
    return runs


READERS = (read_table,)
TABLES = (".csv", ".json", ".jsonl", ".ndjson")


# ---- what is model, size, seed and metric


NAMES = {  # of settings: the last part of their keys, the likeliest first
    "model": "model arch architecture model_name model_name_or_path _name_or_path backbone network net encoder"
    " estimator algorithm method variant classifier model_type",
    "size": "train_size train_subset n_train num_train num_train_samples max_train_samples train_samples train_examples"
    " num_train_examples train_items training_size n_samples num_samples num_examples n_examples dataset_size data_size"
    " subset_size subset size n tokens train_fraction fraction limit_train_batches",
    "seed": "seed random_seed random_state rng_seed manual_seed global_seed data_seed split_seed seed_everything trial"
    " replicate repeat repetition rep fold",
    "data": "dataset data dataset_name data_name task",
}
NAMES = {role: tuple(text.split()) for role, text in NAMES.items()}
ROLES = ("model", "size", "seed")
MEASURES = (  # names of one measure a line, the first that is there is compared
    *("accuracy acc acc1 acc@1 top1 top_1 top1_acc top1_accuracy prec1", "balanced_accuracy bacc", "exact_match em"),
    *("map", "f1 f1_macro macro_f1", "auc auroc roc_auc", "score scores", "iou miou", "dice", "precision", "recall"),
    *("top5 acc5 acc@5 top5_acc top5_accuracy",),
    *("bleu", "rouge_l rougel", "r2", "pearson", "spearman", "matthews", "reward return"),
    *("error err err1 top1_err error_rate", "loss cross_entropy ce nll", "bits_per_byte bpb", "perplexity ppl"),
    *("rmse", "mse", "mae", "wer", "cer", "fid"),
)
BLEU, ERROR = MEASURES.index("bleu"), MEASURES.index("error err err1 top1_err error_rate")
MEASURED = {name: place for place, names in enumerate(MEASURES) for name in names.split()}
SPLITS = {"test": 0, "heldout": 0, "holdout": 0, **dict.fromkeys(("eval", "val", "valid", "validation", "dev"), 1)}
SPLITS |= {"": 2, "train": 3, "training": 3}
EACH_RUN = re.compile(
    r"(^|_)(run|name|id|dir|path|folder|time|timestamp|date|created|host|hostname|url|tags|notes|pid)$"
)
UNITS = {1: "example", 10: "tenth", 100: "hundredth", 1000: "thousandth", 10**6: "millionth"}
NOTHING = "none"
MOST_NAMED = 8


def tail(key: str) -> str:
    return re.split(r"[./]", key)[-1].strip().lower().replace(" ", "_").replace("-", "_")


def describe_metric(key: str) -> tuple[int, int | None]:
    """Describe a logged number by its name: the place of its split, that of its measure or None.

    `eval/top1`, `val_acc_epoch` and `Test Accuracy` are accuracies of a split.
    """
    words = re.sub(r"[\s./-]+", "_", key.strip().lower()).strip("_").split("_")
    words = words[:-1] if words[-1] in ("epoch", "step", "best", "final", "last") else words
    split = next((word for word in words if word in SPLITS), "")
    name = "_".join(word for word in words if word != split)
    ends = [name, *(name[at + 1 :] for at, character in enumerate(name) if character == "_")]
    return SPLITS[split], next((MEASURED[end] for end in ends if end in MEASURED), None)


def load_others(
    sources: Sequence[str | Path],
    *,
    model: str | None = None,
    size: str | None = None,
    seed: str | None = None,
    metric: str | None = None,
    lower_is_better: bool | None = None,
    chance: float | None = None,
    ignore: Sequence[str] = (),
    out: str | Path = "",
) -> Results:
    """Load runs of other programs as a study, whose files go to `out`. Raises UserError.

    A key that is not given is guessed: `config["read_as"]` says what was read, `config["notes"]` what to know of it.
    """
    runs, problems, notes = read_sources(sources), list[str](), list[str]()
    keys = dict[str, list[str]]()
    for role, asked in zip(ROLES, (model, size, seed), strict=True):
        keys[role] = choose_keys(role, asked, runs, problems)
    if seed == NOTHING:  # runs are counted
        ignore = [*ignore, *choose_keys("seed", None, runs, [])]
    measures = choose_measures(metric, runs, problems)
    raise_all(problems)
    runs, key, said = measure(runs, measures, lower_is_better, notes)
    used = place(runs, keys)
    split(runs, used, keys, ignore, notes)
    runs = drop_copies(runs, keys["seed"], notes)
    for run in runs:
        data = next((value for key, value in run.settings.items() if tail(key) in NAMES["data"]), run.source)
        run.row |= {"run": run.run, "data": data, "metric": key, "metric_name": measures[0]}
        run.row |= {} if chance is None else {"chance": chance}
        run.row |= {"error": 1 - run.row[key]} if key == "accuracy" else {}
        run.row |= {"source": run.source} if len(sources) > 1 else {}
    read_as = {role: " or ".join(keys[role]) or NOTHING for role in ROLES} | {"metric": said}
    counts = plural(len(runs), "run"), plural(len({run.source for run in runs}), "source")
    name = Path(sources[0]).resolve().stem
    config = {"name": name, "read_as": read_as | {"runs": f"{counts[0]} of {counts[1]}"}, "notes": notes}
    found = Results([run.row for run in runs], config, StudyFiles(out), {run.run: hold(run) for run in runs})
    found.status = StudyStatus([])
    return found


def choose_keys(role: str, asked: str | None, runs: Sequence[Logged], problems: list[str]) -> list[str]:
    """List the settings that tell the role of a run, the first that a run has counts: those asked for, or by names."""
    known = Counter(key for run in runs for key in run.settings)
    if asked:
        wanted = [key.strip() for key in asked.split(",") if key.strip() != NOTHING]
        problems += [f"--{role} {key}: no run has it; {choices_text(key, known)}" for key in wanted if key not in known]
        return wanted

    def rank(key: str) -> tuple[bool, int, int]:
        return len({run.settings.get(key) for run in runs}) == 1, NAMES[role].index(tail(key)), -known[key]

    found = sorted((key for key in known if tail(key) in NAMES[role]), key=rank)
    numbers = [key for key in found if any(read_size(run.settings.get(key)) for run in runs)]
    return numbers if role == "size" else found


def choose_measures(asked: str | None, runs: Sequence[Logged], problems: list[str]) -> list[str]:
    """List the logged numbers that are compared, the first that a run has counts: one measure on one split.

    The measure is the first in MEASURES that half of the runs have on held-out data, on test rather than validation.
    """
    known = Counter(key for run in runs for key in run.values)
    if asked:
        wanted = [key.strip() for key in asked.split(",")]
        numbers = {k for run in runs for k, v in run.settings.items() if finite(v) is not None}
        problems += [
            f"--metric {k}: no run has it; {choices_text(k, known)}" for k in wanted if k not in {*known, *numbers}
        ]
        return wanted
    groups: dict[tuple[int, int], list[str]] = {}
    for key in known:
        where, what = describe_metric(key)
        if what is not None and where < SPLITS["train"]:
            groups.setdefault((where, what), []).append(key)
    counts = {group: sum(any(key in run.values for key in of) for run in runs) for group, of in groups.items()}
    if not groups:
        problems.append(
            f"metric: no number is named as one on held-out data; give --metric KEY; {choices_text('', known)}"
        )
        return []
    return sorted(groups[min(group for group in groups if 2 * counts[group] >= max(counts.values()))], key=known.get)[
        ::-1
    ]


def pick(values: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, Any]:
    """Pick the first of the keys that is there, and its value; ("", None) without."""
    return next(((key, values[key]) for key in keys if key in values), ("", None))


def measure(
    runs: list[Logged], keys: Sequence[str], lower_is_better: bool | None, notes: list[str]
) -> tuple[list[Logged], str, str]:
    """Set each run's metric; return the runs that have it, its column and its words. Raises UserError.

    The column is accuracy for shares, loss for what falls and stays above 0, else score or cost.
    """
    what = describe_metric(keys[0])[1]
    rises = (what is None or what < ERROR) if lower_is_better is None else not lower_is_better
    values = [finite(pick(run.settings | run.values, keys)[1]) for run in runs]
    left = [run.run for run in runs if not pick(run.settings | run.values, keys)[0]]
    if left:
        notes.append(f"{plural(len(left), 'run')} without {' or '.join(keys)} left out: {cut_names(left, MOST_NAMED)}")
    lost = [run.run for run, v in zip(runs, values, strict=True) if v is None and run.run not in left]
    if lost:
        notes.append(f"{plural(len(lost), 'run')} ended without a finite {keys[0]}: {cut_names(lost, MOST_NAMED)}")
    known = [value for value in values if value is not None]
    if not known:
        raise UserError(f"metric {' or '.join(keys)}: no run has a finite value; give another --metric")
    is_share, percent = rises and what is not None and what < BLEU and min(known) >= 0 and max(known) <= 100, False
    for source in dict.fromkeys(run.source for run in runs) if is_share else ():
        here = [n for n, run in enumerate(runs) if run.source == source and values[n] is not None]
        if any(values[n] > 1 for n in here):
            percent = True
            if any(0 < values[n] <= 1 for n in here):
                where = f"{source}: {keys[0]} has values up to 1 and above"
                raise UserError(f"{where}; give all as shares or all in percent, or another --metric")
            for n in here:
                values[n] /= 100
    column = "accuracy" if is_share else "score" if rises else "loss" if min(known) > 0 else "cost"
    for run, value in zip(runs, values, strict=True):
        run.row[column] = math.nan if value is None else value
    words = f"{' or '.join(keys)} ({'higher' if rises else 'lower'} is better{', in percent' if percent else ''})"
    return [run for run in runs if run.run not in left], column, words


def read_size(value: Any) -> float | None:
    """Read a size above 0: a number, or `10%`."""
    number = (
        as_number(value.removesuffix("%")) / (100 if value.endswith("%") else 1) if isinstance(value, str) else value
    )
    return number if (finite(number) or 0) > 0 else None


def place(runs: Sequence[Logged], keys: Mapping[str, Sequence[str]]) -> set[str]:
    """Set each run's model, size and seed; return the settings that told them. Raises UserError with all problems."""
    found = {role: [pick(run.settings, keys[role]) for run in runs] for role in ROLES}
    problems = []
    for role in ROLES:
        lost = [
            run.run for run, (key, value) in zip(runs, found[role], strict=True) if keys[role] and value in (None, "")
        ]
        if role == "size" and keys["size"] and not lost:
            lost = [
                f"{run.run}: {value}" for run, (_, value) in zip(runs, found[role], strict=True) if not read_size(value)
            ]
        if lost:
            text = f"{plural(len(lost), 'run')} without a {role} ({cut_names(lost, MOST_NAMED)})"
            problems.append(f"--{role} {keys[role][0]}: {text}; correct them, or give another --{role} KEY, or none")
    raise_all(problems)
    sizes = [read_size(value) for _, value in found["size"]] if keys["size"] else [1]
    scales = [scale for scale in UNITS if max(sizes) > 1 or scale >= 100] if keys["size"] else [1]
    whole = (scale for scale in scales if all(abs(one * scale - round(one * scale)) < 1e-6 for one in sizes))
    scale = next(whole, scales[-1])
    seeds = [value for _, value in found["seed"]]
    if not all(isinstance(value, int) for value in seeds):
        names = {value: n for n, value in enumerate(sorted({*map(str, seeds)}))}
        seeds = [names[str(value)] for value in seeds]
    for n, run in enumerate(runs):
        run.row |= {"model": str(found["model"][n][1] or ""), "train_size": round(sizes[n % len(sizes)] * scale)}
        run.row |= {"seed": seeds[n], "unit": UNITS[scale] if keys["size"] else "data set"}
    return {key for of in found.values() for key, _ in of}


def split(
    runs: Sequence[Logged], used: set[str], keys: Mapping[str, Sequence[str]], ignore: Sequence[str], notes: list[str]
) -> None:
    """Name models by what else varies among runs of one model and size, so that these are not averaged; note the rest.

    A setting that follows the model, the size or the seed, or that has another text in each run, tells no runs apart.
    """
    known: dict[str, set[str]] = {}
    for run in runs:
        known.setdefault(run.source, set()).update(run.settings)
    others = dict.fromkeys(key for run in runs for key in run.settings if key not in used)
    values = {  # of settings that a source does not log, nothing is known: None
        key: [parse(run.settings.get(key, NOTHING)) if key in known[run.source] else None for run in runs]
        for key in others
    }
    cells = [(run.row["model"], run.row["train_size"]) for run in runs]
    seeds = [run.row["seed"] for run in runs]

    def follows(by: Sequence[Any], key: str) -> bool:
        pairs = {(of, value) for of, value in zip(by, values[key], strict=True) if value is not None}
        return len(pairs) == len({of for of, _ in pairs})

    apart, found = [], dict[str, list[str]]()
    for key, of_runs in values.items():
        different = {*of_runs} - {None}
        if len(different) < 2:
            continue
        if key in ignore:
            found.setdefault("averaged over", []).append(key)
        elif follows(cells, key):
            found.setdefault("differ with the model or size", []).append(key)
        elif keys["seed"] and follows(seeds, key):
            found.setdefault("differ with the seed", []).append(key)
        elif EACH_RUN.search(tail(key)) or (len(different) == len(runs) and all(isinstance(v, str) for v in different)):
            found.setdefault("differ from run to run", []).append(key)
        else:
            apart.append(key)
    groups, named = cells, list[str]()
    for key in sorted(apart, key=lambda key: len({*values[key]})):
        finer = [(*group, value) for group, value in zip(groups, values[key], strict=True)]
        if len({*finer}) > len({*groups}):
            groups, named = finer, [*named, key]
        else:
            found.setdefault(f"differ with {', '.join(named)}", []).append(key)
    models = [model for model, _ in cells]
    within = {key: Counter(model for model, _ in {*zip(models, values[key], strict=True)}) for key in named}
    for n, run in enumerate(runs):
        own = [key for key in named if within[key][models[n]] > 1 and values[key][n] is not None]
        texts = [f"{key if [*map(tail, named)].count(tail(key)) > 1 else tail(key)}={values[key][n]}" for key in own]
        run.row["model"] = " ".join(filter(None, [models[n], *texts])) or "all"
    if named:
        what = f"differ within a model, so runs that differ in them are not averaged: {', '.join(named)}"
        notes.append(f"{what}; --ignore {','.join(named)} averages them")
    notes += [f"{what}: {cut_names(names, MOST_NAMED)}" for what, names in found.items()]


def drop_copies(runs: Sequence[Logged], seeds: Sequence[str], notes: list[str]) -> list[Logged]:
    """Leave out runs that are there twice, and count the runs of a model and size where no seed is known.

    Raises UserError for runs of the same model, size and seed with other values.
    """
    kept: dict[tuple[Any, ...], list[Logged]] = {}
    copies, again = [], []
    for run in runs:
        of_cell = kept.setdefault(tuple(run.row[key] for key in ("model", "train_size", "seed")), [])
        same = [
            one for one in of_cell if str(one.values) == str(run.values) and (seeds or one.settings == run.settings)
        ]
        if same or (of_cell and seeds):
            (copies if same else again).append(run.run)
        else:
            of_cell.append(run)
        if not seeds and not same:
            run.row["place"] = len(of_cell) - 1
    if again:
        what = f"{plural(len(again), 'run')} with the model, size and seed of another ({cut_names(again, MOST_NAMED)})"
        raise UserError(f"--seed {seeds[0]}: {what}; tell them apart by --model KEY, or count them by --seed none")
    if copies:
        notes.append(f"{plural(len(copies), 'copy', 'copies')} of runs left out: {cut_names(copies, MOST_NAMED)}")
    for run in runs if not seeds else ():
        run.row["seed"] = run.row.pop("place", 0)
    return [run for of_cell in kept.values() for run in of_cell]


def hold(run: Logged) -> RunResults:
    """Hold a run as the pages read one: its settings, and when its file was written."""
    found = RunResults(RunFiles(run.path))
    written = datetime.fromtimestamp(run.path.stat().st_mtime).isoformat()
    found.result = {"settings": run.settings, "finished_at": written}
    return found
