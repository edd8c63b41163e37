"""Read the runs of other programs and judge them as a study: who leads at which size, by how much, how surely.

A reader is a function `read(path)` that gives a list of `Logged`; `find_reader` chooses it by a file's content. Nothing
is unpickled. `load_others` guesses what is model, size, seed and metric.
"""

import json
import math
import os
import pickletools
import re
import sqlite3
import subprocess
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from vitlab.config import UserError, choices_text, collecting, raise_all
from vitlab.config.identity import flatten
from vitlab.data.text.texts import Table, read_cells
from vitlab.files import check_regular, read_utf8, reading
from vitlab.formatting import cut_names, finite, plural
from vitlab.registry import implementation
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
    whole, flat = text.lstrip().startswith("["), {}
    with reading(str(path), "give a JSON object a line, or a list of objects"):
        rows = json.loads(text) if whole else text.split("\n")
    for number, row in enumerate(rows, 1):
        with reading(
            f"{path}, {'row' if whole else 'line'} {number}", "give a JSON object a line, or a list of objects"
        ):
            if whole or row.strip():
                flat[number] = dict(flatten(dict(row if whole else json.loads(row)), choices=True))
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


# ---- files of other programs


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(v) for key, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def read_json_file(path: Path) -> dict[str, Any]:
    """Read an object of a JSON file; {} without the file. Raises UserError."""
    if not path.is_file():
        return {}
    with reading(str(path), "write it again, or delete it"):
        return dict(flatten(json.loads(read_utf8(path, "source")), choices=True))


def read_trainer(path: Path) -> list[Logged]:
    """Read trainer_state.json of Hugging Face's Trainer, with the results, arguments and model's config beside it."""
    state, beside = read_json_file(path), path.parent
    values = {}
    with reading(str(path), "give a trainer_state.json as the Trainer writes it"):
        for row in state["log_history"]:
            values |= numbers_of(row)
    settings = {f"config.{key}": value for key, value in read_json_file(beside / "config.json").items()}
    if (arguments := beside / "training_args.bin").is_file():
        with reading(str(arguments), "delete it"):
            settings |= {f"args.{key}": value for key, value in list_pickled(arguments)}
    folder = beside.parent if beside.name.startswith("checkpoint-") else beside
    return [Logged(folder.name, path, settings, values | numbers_of(read_json_file(beside / "all_results.json")))]


def list_pickled(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the names with a number, text or truth value in a file of torch.save, from its list of operations.

    Nothing is unpickled: no operation is carried out.
    """
    with zipfile.ZipFile(path) as file:
        data = file.read(next(name for name in file.namelist() if name.endswith("data.pkl")))
    key = ""
    for operation, value, _ in pickletools.genops(data):
        name = operation.name
        if name.startswith(("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BINFLOAT", "NEWTRUE", "NEWFALSE")):
            if key:
                yield key, name == "NEWTRUE" if name.startswith("NEW") else value
            key = value if not key and isinstance(value, str) and value.isidentifier() else ""
        elif not name.endswith(("PUT", "MEMOIZE")):
            key = ""


def read_study(path: Path) -> list[Logged]:
    """Read the finished runs of a study of vitlab, or the run of a result.json."""
    study, result = path.name == "study.yaml", RunFiles(path.parent).read_result()[0]
    rows = StudyFiles(path.parent).finished_rows() if study else [result | {"run": path.parent.name}] if result else []
    runs = []
    for row in rows:
        settings = {key: row[key] for key in row if key in OF_STUDY or "." in key}
        values = numbers_of({key: value for key, value in row.items() if key not in settings})
        values = {key if key.startswith(("validation_", "train_")) else f"test_{key}": values[key] for key in values}
        runs.append(Logged(row["run"], path.parent / row["run"] if study else path.parent, settings, values))
    return runs


def read_events(path: Path) -> list[Logged]:
    """Read the event files of TensorBoard in one folder: a run, with the settings of its plugin hparams."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
        from tensorboard.util.tensor_util import make_ndarray
    except ModuleNotFoundError:
        raise UserError(f"{path}: TensorBoard's events need its package: pip install 'vitlab[tensorboard]'") from None
    folder, settings = path.parent, read_settings(path)
    with reading(str(folder), "give a folder of event files"):
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        values = {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}
        for tag in events.Tags()["tensors"]:  # of version 2
            array = make_ndarray(events.Tensors(tag)[-1].tensor_proto)
            values |= {tag: float(array)} if array.shape == () and array.dtype.kind == "f" else {}
        found = [one.plugin_data for one in events.summary_metadata.values()]
        contents = [one.content for one in found if one.plugin_name == "hparams"]
        for content in contents:
            for key, value in HParamsPluginData.FromString(content).session_start_info.hparams.items():
                settings[key] = parse(getattr(value, value.WhichOneof("kind") or "string_value"))
    return [Logged(folder.name, path, settings, values)]


def read_wandb(path: Path) -> list[Logged]:
    """Read the log of a run that W&B kept offline, by the program behind `wandb leet inspect`, in 40 ms."""
    from wandb.util import get_core_path

    options = ["--no-observability", "--summary", "--json", "--run-file", str(path)]
    with reading(str(path), "give the .wandb file of an offline run, and install wandb 0.31 or later"):
        command = [get_core_path(), "leet", "inspect", *options]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise ValueError(done.stderr.strip() or "wandb leet failed")
        found = json.loads(done.stdout)
        settings, summary = (dict(flatten(found[key] or {}, choices=True)) for key in ("config", "summary"))
    return [Logged(found.get("name") or path.stem, path, settings, numbers_of(summary))]


def read_mlruns(path: Path) -> list[Logged]:
    """Read the folder of a run of MLflow's file store: a file for each parameter and metric."""
    import yaml

    folder = path.parent
    with reading(str(folder), "give a folder that MLflow wrote"):
        meta = yaml.load(read_utf8(path, "source"), plain_loader())
        if meta.get("lifecycle_stage") == "deleted":
            return []
        of_kind = {}
        for kind in ("params", "metrics"):
            files = [file for file in sorted((folder / kind).rglob("*")) if file.is_file()]
            of_kind[kind] = {str(file.relative_to(folder / kind)): read_utf8(file, "source") for file in files}
        last = {
            key: max(map(str.split, text.splitlines()), key=lambda line: (int(line[2]), int(line[0])))
            for key, text in of_kind["metrics"].items()
        }
    settings = {key: parse(text) for key, text in of_kind["params"].items()}
    return [Logged(str(meta["run_name"]), path, settings, {key: float(line[1]) for key, line in last.items()})]


def read_database(path: Path) -> list[Logged]:
    """Read a database of MLflow or of trackio."""
    runs: dict[str, Logged] = {}
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    with (
        reading(str(path), "give a database of MLflow or trackio"),
        closing(sqlite3.connect(address, uri=True)) as file,
    ):
        tables = {name for (name,) in file.execute("select name from sqlite_master where type = 'table'")}
        if {"runs", "params", "latest_metrics"} <= tables:
            for key, name in file.execute("select run_uuid, name from runs where lifecycle_stage = 'active'"):
                runs[key] = Logged(name or key, path, {}, {})
            for key, name, value in file.execute("select run_uuid, key, value from params"):
                runs.get(key, Logged("", path, {}, {})).settings[name] = parse(value)
            for key, name, value, lost in file.execute("select run_uuid, key, value, is_nan from latest_metrics"):
                runs.get(key, Logged("", path, {}, {})).values[name] = math.nan if lost else value
        elif {"metrics", "configs"} <= tables:
            for name, text in file.execute("select run_name, config from configs order by id"):
                settings = dict(flatten(json.loads(text), choices=True))
                runs[name] = Logged(name, path, {k: v for k, v in settings.items() if not k.startswith("_")}, {})
            for name, text in file.execute("select run_name, metrics from metrics order by step, id"):
                runs.setdefault(name, Logged(name, path, {}, {})).values.update(numbers_of(json.loads(text)))
        else:
            raise ValueError(f"it has the tables {', '.join(sorted(tables)[:5])}")
    return [*runs.values()]


def read_arrays(path: Path) -> list[Logged]:
    """Read what scikit-learn's learning_curve returns, saved by np.savez: its folds count as seeds.

    Arrays of one value are settings, such as model; without one the file's name is the model.
    """
    keys = "train_sizes", "train_scores", "test_scores"
    with reading(str(path), f"save {', '.join(keys)} under these names"), np.load(path, allow_pickle=False) as file:
        sizes, *scores = (file[key] for key in keys)
        settings = {"model": path.stem} | {key: file[key].item() for key in file.files if file[key].shape == ()}
        return [
            Logged(
                f"{path.stem} n={size} fold={fold}",
                path,
                settings | {"train_size": int(size), "fold": fold},
                {"train_score": float(one), "test_score": float(other)},
            )
            for size, *of_size in zip(sizes, *scores, strict=True)
            for fold, (one, other) in enumerate(zip(*of_size, strict=True))
        ]


# ---- files and folders


def find_reader(path: Path, *, given: bool = True) -> Callable[[Path], list[Logged]] | None:
    """Find the reader of a file by how it begins; None for another kind. Within a folder, tables have a suffix."""
    with reading(str(path), "make it readable, or take it away"), open(path, "rb") as file:
        head = file.read(4096)
    if path.name in ("study.yaml", "result.json"):
        return read_study if path.name == "study.yaml" or b'"train_size"' in head else None
    begins = {b"SQLite format 3\0": read_database, b":W&B": read_wandb, b"PK\3\4": read_arrays}
    if reader := next((reader for start, reader in begins.items() if head.startswith(start)), None):
        return reader if given or reader is not read_arrays or path.suffix == ".npz" else None
    if b"brain.Event:" in head[:64]:
        return read_events
    lines = head.lstrip().splitlines() or [b""]
    if head.startswith(b"{") and b'"log_history"' in head:
        return read_trainer
    if path.name == "meta.yaml" and b"run_id:" in head:
        return read_mlruns
    if lines[0][:1] in (b"{", b"["):
        rows = lines[0][:1] == b"[" or lines[0].rstrip().endswith(b"}") or (len(head) == 4096 and len(lines) == 1)
        return read_table if rows and (given or path.suffix in TABLES) else None
    is_text = b"\0" not in head and len(lines) > 1 and b"," in lines[0]
    return read_table if is_text and (given or path.suffix in TABLES) else None


def read_source(path: Path, own: str | None = None) -> list[Logged]:
    """Read a file, or each folder below one that has runs: its files of the kind that comes first in READERS.

    A user's own module reads the whole path: its `read(path)` gives (name, settings, values) of each run.
    """
    kinds = "a vitlab study, Hugging Face, timm, Lightning, TensorBoard, W&B, MLflow, trackio, scikit-learn, CSV, JSON"
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; give runs of {kinds}")
    check_regular(path, str(path))
    if own:
        module = implementation("vitlab.studies.readers", own, "read")
        with reading(str(path), f"correct {own}"):
            runs = [
                Logged(str(name), path, dict(settings), dict(values)) for name, settings, values in module.read(path)
            ]
    elif path.is_file():
        reader = find_reader(path)
        runs = reader(path) if reader else []
    else:
        runs = []
        for folder, folders, names in os.walk(path):
            folders.sort(key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])
            checkpoints = [name for name in folders if name.startswith("checkpoint-")]
            folders[:] = [name for name in folders if name not in checkpoints[:-1]]
            found: dict[Any, list[Path]] = {}
            for file in (Path(folder, name) for name in sorted(names)):
                if file.is_file() and (reader := find_reader(file, given=False)):
                    found.setdefault(reader, []).append(file)
            if found:
                reader = min(found, key=READERS.index)
                files = found[reader][: 1 if reader is read_events else None]
                runs += [run for file in files for run in reader(file)]
                folders.clear()  # what lies deeper are copies: checkpoints, other loggers
    if not any(run.values for run in runs):
        raise UserError(f"{path}: no runs found; give runs of {kinds}")
    return runs


def read_name(run: Logged) -> None:
    """Read model, size and seed from a run's name, such as `vit-n500-s1`, where its settings have no such key."""
    found = {
        kind[0].lower(): int(number)
        for kind, number in re.findall(r"(?<![^\W_])(seed|size|s|n)[-_=]?(\d+)(?![^\W_])", run.run)
    }
    model = re.split(r"[-_ .]?(?<![^\W_])(?:seed|size|s|n)[-_=]?\d+(?![^\W_])", run.run)[0]
    for role, value in (("seed", found.get("s")), ("size", found.get("n")), ("model", model if found else None)):
        if value not in (None, "") and not any(tail(key) in NAMES[role] for key in run.settings):
            run.settings[f"name.{NAMES[role][0]}"] = value


def read_sources(sources: Sequence[str | Path], own: str | None = None) -> list[Logged]:
    """Read all sources; their names tell runs apart where there are several. Raises UserError with all problems."""
    names = [Path(source).resolve().name for source in sources]
    runs, problems, seen = [], [], Counter[str]()
    for name, source in zip(names, sources, strict=True):
        with collecting(problems):
            found = read_source(Path(source), own)
            of_path = Counter(run.path for run in found)
            for run in found:
                if of_path[run.path] == 1:  # not a row of a table
                    read_name(run)
                run.source = name if names.count(name) == 1 else str(source)
                run.settings |= {"source": run.source} if len(sources) > 1 else {}
                seen[run.run] += 1
                run.run += f" #{seen[run.run]}" if seen[run.run] > 1 else ""
                runs.append(run)
    raise_all(problems)
    return runs


READERS = (read_study, read_trainer, read_mlruns, read_database, read_wandb, read_arrays, read_table, read_events)
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
SPLITS = {
    "test": 0,
    "predict": 0,
    "heldout": 0,
    "holdout": 0,
    **dict.fromkeys(("eval", "val", "valid", "validation", "dev"), 1),
}
SPLITS |= {"": 2, "train": 3, "training": 3}
EACH_RUN = re.compile(
    r"(^|_)(run|name|id|dir|path|folder|time|timestamp|date|created|host|hostname|url|tags|notes|pid)$"
)
UNITS = {1: "example", 10: "tenth", 100: "hundredth", 1000: "thousandth", 10**6: "millionth"}
NOTHING = "none"
MOST_NAMED = 8
OF_STUDY = ("model", "data", "train_size", "seed", "budget", "trial")


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
    reader: str | None = None,
    out: str | Path = "",
) -> Results:
    """Load runs of other programs as a study, whose files go to `out`. Raises UserError.

    A key that is not given is guessed: `config["read_as"]` says what was read, `config["notes"]` what to know of it.
    """
    runs, problems, notes = read_sources(sources, reader), list[str](), list[str]()
    keys = dict[str, list[str]]()
    for role, asked in zip(ROLES, (model, size, seed), strict=True):
        keys[role] = choose_keys(role, asked, runs, problems)
    if seed == NOTHING:  # runs are counted
        ignore = [*ignore, *choose_keys("seed", None, runs, [])]
    measures = choose_measures(metric, runs, problems)
    raise_all(problems)
    runs, key, said = measure(runs, measures, lower_is_better, notes)
    used = place(runs, keys)
    keys = {role: [key for key in of if key in used] for role, of in keys.items()}  # others were no run's first
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

    The measure is the first in MEASURES that every source and half of the runs have, on test rather than validation.
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
    of_group = {
        group: [run.source for run in runs if not run.values.keys().isdisjoint(of)] for group, of in groups.items()
    }
    if not groups:
        problems.append(
            f"metric: no number is named as one on held-out data; give --metric KEY; {choices_text('', known)}"
        )
        return []
    most = max(len({*sources}) for sources in of_group.values())
    counts = {group: len(sources) for group, sources in of_group.items() if len({*sources}) == most}
    best = min(group for group, count in counts.items() if 2 * count >= max(counts.values()))
    return sorted(groups[best], key=known.get, reverse=True)


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
    is_share, percent = rises and what is not None and what < BLEU and min(known) >= 0 and max(known) <= 100, []
    for source in dict.fromkeys(run.source for run in runs) if is_share else ():
        here = [n for n, run in enumerate(runs) if run.source == source and values[n] is not None]
        if any(values[n] > 1 for n in here):
            percent.append(source)
            if any(0 < values[n] <= 1 for n in here):
                where = f"{source}: {keys[0]} has values up to 1 and above"
                raise UserError(f"{where}; give all as shares or all in percent, or another --metric")
            for n in here:
                values[n] /= 100
    column = "accuracy" if is_share else "score" if rises else "loss" if min(known) > 0 else "cost"
    for run, value in zip(runs, values, strict=True):
        run.row[column] = math.nan if value is None else value
    scale = f", in percent in {cut_names(percent, 3)}" if percent else ""
    words = f"{' or '.join(keys)} ({'higher' if rises else 'lower'} is better{scale})"
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
        elif EACH_RUN.search(tail(key)) or (
            len(different) == len(runs) - of_runs.count(None) and all(isinstance(v, str) for v in different)
        ):
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
