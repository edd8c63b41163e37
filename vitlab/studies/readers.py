"""Read the runs that other programs logged: a reader is a function `read(path)` that gives a list of `Logged`.

`find_reader` chooses it by a file's content. Nothing is unpickled.
"""

import json
import math
import os
import pickletools
import re
import sqlite3
import subprocess
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import crc32

import numpy as np
import yaml

from vitlab.config import TrainConfig, UserError, collecting, raise_all
from vitlab.config.groups import affecting, select
from vitlab.config.identity import flatten
from vitlab.config.schema.fields import WEIGHTS
from vitlab.data.text.texts import Table, read_cells
from vitlab.files import check_regular, check_unpacked, read_utf8, reading
from vitlab.formatting import plural
from vitlab.registry import implementation
from vitlab.studies.outcomes import choose_trials
from vitlab.studies.results import MARGIN, RunResults
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

LONGEST = 1000  # bytes of a setting's text; a longer one ends in its checksum
MOST_PARTS = 50_000  # of a YAML file, read in 3 s
LARGEST = 2**22  # bytes of what a zip archive holds, unpacked
SECONDS = 10  # of reading a database


@dataclass(eq=False)
class Logged:
    """A run of another program: its name and file, its settings, and the last value of each number it logged."""

    run: str
    path: Path
    settings: dict[str, Any] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    source: str = ""
    row: dict[str, Any] = field(default_factory=dict)  # of results.csv, where vitlab trained it
    line: int = 0  # of a table
    alone: bool = False  # a single row of a table: its `accuracy` is held out; a log's may be on training items

    def __post_init__(self) -> None:
        with reading(str(self.path), "correct it"):
            self.run = str(as_plain(self.run))
            self.settings = {str(as_plain(key)): as_plain(value) for key, value in self.settings.items()}
            self.values = {str(as_plain(key)): float(value) for key, value in self.values.items()}
        for key in [key for key in self.values if tail(key) in STEPS]:
            self.settings[key] = self.values.pop(key)


def as_plain(value: Any) -> Any:
    """Return None, a truth value or a number; another value, also a long number, as a text that can be written."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1e300):
        return value
    text = hex(value) if isinstance(value, int) else value if isinstance(value, str) else repr(value)
    whole = text.encode(errors="backslashreplace")
    return whole.decode() if len(whole) <= LONGEST else f"{whole[:200].decode(errors='ignore')}...{crc32(whole):08x}"


class PlainLoader(yaml.SafeLoader):
    """Loads YAML; reads a Python object as None, and so builds none. Refuses aliases that stand for much more text."""

    parts = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        start, node = self.parts, super().compose_node(parent, index)
        self.parts += getattr(node, "parts", 1)
        node.parts = self.parts - start
        if self.parts > MOST_PARTS:
            raise ValueError(f"over {MOST_PARTS:,} parts, with those that aliases (*name) repeat")
        return node


PlainLoader.add_multi_constructor("", lambda *_: None)


def read_plain(path: Path) -> dict[str, Any]:
    """Read the dotted keys of a mapping in JSON or YAML; {} without the file. Raises UserError."""
    if not path.is_file():
        return {}
    with reading(str(path), "correct it, or delete it"):
        text = read_utf8(path, "source")
        found = json.loads(text) if text.startswith("{") else yaml.load(text, PlainLoader)
        return dict(flatten(found or {}, choices=True))


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    known = {key: v for key, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {key: float(v) for key, v in known.items() if isinstance(v, float) or abs(v) < 1e300}


# ---- tables


THOUSANDS = re.compile(r"\s*[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*")
COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")  # beside other marks between columns
STEPS = ("step", "global_step", "_step", "iteration", "iter", "epoch")
KEPT = ("batch_size", "weight_decay", "dropout", "depth", "width", "layers", "heads", "hidden_size")  # in all steps
LOGS = ("summary.csv", "metrics.csv", "log.txt", "scalars.json")  # of one run: timm, Lightning, DeiT and MAE, mmengine
BESIDE = ("args.yaml", "hparams.yaml", ".hydra/config.yaml")  # the settings of timm, Lightning and Hydra


def as_number(text: str) -> float:
    """Parse the finite number in a cell; NaN if there is none."""
    try:
        value = float(text.replace(",", "") if THOUSANDS.fullmatch(text) else text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def read_columns(path: Path) -> Table:
    """Read the columns of a table as texts: CSV, a JSON object a line, or a JSON list of objects. Raises UserError."""
    text = read_utf8(path, "CSV")
    if not text.lstrip().startswith(("{", "[")):
        mark = max(",", "\t", ";", key=text.lstrip().partition("\n")[0].count)
        found = read_cells(path, "CSV", None, mark, quoting=True, header=True, advice="give a CSV file")
        if len(found.columns) == 1 and (other := re.search(r"\||\b \b", next(iter(found.columns)))):
            raise UserError(f"{path}: its columns are separated by {other[0]!r}; separate them by commas")
        for key, cells in found.columns.items():
            marked = next(filter((THOUSANDS if mark == "," else COMMA).fullmatch, cells), "").strip()
            if marked and tail(key) not in NAMES["size"]:
                ways = [marked.replace(",", "")] * bool(THOUSANDS.fullmatch(marked)) + [marked.replace(",", ".")]
                raise UserError(f"{path}: {key}={marked}: write {' or '.join(ways)}")
        return found
    rows = {}
    if text.lstrip().startswith("["):
        with reading(str(path), "give a list of JSON objects, or one a line"):
            text = "\n".join(map(json.dumps, json.loads(text)))
    for number, line in enumerate(text.split("\n"), 1):
        with reading(f"{path}, line {number}", "give a JSON object a line"):
            if line.strip():
                rows[number] = dict(flatten(json.loads(line), choices=True))
    names = dict.fromkeys(key for row in rows.values() for key in row)
    cells = {key: ["" if row.get(key) is None else str(row[key]) for row in rows.values()] for key in names}
    return Table(str(path), cells, [*rows])


def parse(value: Any) -> Any:
    """Parse a setting: a finite number, whole if it can be, or else its text."""
    text, number = str(value).strip(), as_number(str(value))  # of which a float holds 15 digits
    if number % 1 != 0:  # NaN too
        return text if math.isnan(number) else number
    return int(text if text.lstrip("+-").isdecimal() else number)


def read_table(path: Path, keys: Collection[str] = ()) -> list[Logged]:
    """Read a table with one row per run, or with several, of which the last value counts. Raises UserError.

    A log of one run takes its settings from the YAML beside it. If a step comes twice, each row is a run. Runs differ
    in texts, in model, size and seed, and in `keys`.
    """
    table, beside, runs = read_columns(path), {}, []
    columns, count = table.columns, len(table.numbers)
    for name in BESIDE:
        beside |= read_plain(path.parent / name)
    texts = {key for key in columns if any(map(is_text, columns[key]))}
    known = {*keys, *(key for key in texts if tail(key) not in TIMES)}
    named = [key for key in columns if key in known or any(tail(key) in names for names in NAMES.values())]
    step = next((key for name in STEPS for key in columns if tail(key) == name and key not in known), None)
    groups: dict[Any, list[int]] = {}
    for place in range(count):
        groups.setdefault(tuple(columns[key][place] for key in named), []).append(place)
    is_log = path.name in LOGS and step is not None and not named
    kept = [[columns[key][place] for place in of] for of in groups.values() for key in columns if tail(key) in KEPT]
    ends = [[as_number(columns[step][place]) for place in of] for of in groups.values()] if step else []
    rise = step and all(a < b for of in ends for a, b in pairwise(of))
    if any(len({*cells}) > 1 for cells in kept) or not (rise or is_log) or len(groups) == count > 1:
        groups, step = {place: [place] for place in range(count)}, None
    measured = {key for key in columns if describe_metric(key)[1] is not None or LOGGED.match(key) or beside or is_log}
    measured -= {*named, *texts}
    for places in groups.values():
        settings, values = {}, {}
        for key, cells in columns.items():
            of_run = [cells[place] for place in places if cells[place].strip()]
            varies = len(groups) < count and key not in {*named, *texts} and len({*of_run}) > 1
            if of_run and (key in measured or varies):
                values[key] = float(of_run[-1].replace(",", ""))
            elif of_run:
                settings[key] = parse(of_run[-1])
        name = f"{path.stem}:{table.numbers[places[0]]}" if len(groups) > 1 else path.parent.name
        name = str(pick(settings, ("run", "name", "Name"))[1] or name)
        runs.append(Logged(name, path, beside | settings, values, line=table.numbers[places[-1]], alone=not step))
    return runs


def is_text(cell: str) -> bool:
    return math.isnan(as_number(cell)) and cell.strip().lower().lstrip("+-") not in ("", "nan", "inf", "infinity")


# ---- files of other programs


def read_trainer(path: Path) -> list[Logged]:
    """Read trainer_state.json of Hugging Face's Trainer, with the results, arguments and model's config beside it."""
    values, folder = {}, path.parent
    with reading(str(path), "give a trainer_state.json as the Trainer writes it"):
        for row in json.loads(read_utf8(path, "source"))["log_history"]:
            values |= numbers_of(row)
    values |= numbers_of(read_plain(folder / "all_results.json"))
    settings = {key: parse(values.pop(key)) for key in ("train_samples",) if key in values}
    settings |= {f"config.{key}": value for key, value in read_plain(folder / "config.json").items()}
    if (arguments := folder / "training_args.bin").is_file():
        with reading(str(arguments), "delete it"):
            settings |= {f"args.{key}": value for key, value in list_pickled(arguments)}
    return [Logged((folder.parent if folder.name.startswith("checkpoint-") else folder).name, path, settings, values)]


def list_pickled(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield each name with its number, text or truth value in a file of torch.save, from the pickle's operations.

    Unpickle nothing: carry out no operation.
    """
    check_unpacked(path, LARGEST)
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
    """Read the finished runs of a vitlab study, only the best of trials, or the run of a result.json."""
    files, study, runs = StudyFiles(path.parent), path.name == "study.yaml", []
    result = {} if study else RunFiles(path.parent).read_result()[0] or {}
    rows = files.finished_rows() if study else [result | {"run": path.parent.name}] if result else []
    beside = {"margin": files.config().get("margin", MARGIN)} if study else {}
    for row in choose_trials(rows):
        row = beside | {key: value for key, value in row.items() if not isinstance(value, dict | list)}
        run = RunFiles(path.parent / row["run"] if study else path.parent)
        told = {key: row[key] for key in row if key in OF_STUDY or "." in key}
        settings = told | dict(flatten(select(RunResults(run).config, TrainConfig, WEIGHED), choices=True)) | told
        settings = {key: settings[key] for key in settings if key in OF_STUDY or not (row.get("trial") and key in row)}
        values = numbers_of({key: value for key, value in row.items() if key not in told})
        values = {key if key.startswith(("validation_", "train_")) else f"test_{key}": values[key] for key in values}
        runs.append(Logged(row["run"], run.folder, settings, values, row=row))
    return runs


def read_events(path: Path) -> list[Logged]:
    """Read the event files of TensorBoard in one folder: a run, with the settings of its plugin hparams."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
        from tensorboard.util.tensor_util import make_ndarray
    except ModuleNotFoundError:
        raise UserError(f"{path}: TensorBoard's events need its package: pip install 'vitlab[tensorboard]'") from None
    folder, settings = path.parent, read_plain(path.parent / "hparams.yaml")
    for file in folder.glob("**/*tfevents*"):  # the library opens all of them
        check_regular(file, str(file))
    with reading(str(folder), "give a folder of event files"):
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        last = {tag: events.Scalars(tag)[-1] for tag in events.Tags()["scalars"]}
        values = {tag: one.value for tag, one in last.items()}
        for tag in events.Tags()["tensors"]:  # of version 2
            array = make_ndarray(events.Tensors(tag)[-1].tensor_proto)
            values |= {tag: float(array)} if array.shape == () and array.dtype.kind == "f" else {}
        values |= {"step": max(one.step for one in last.values())} if last and "step" not in last else {}
        told = [part for part in folder.iterdir() if re.fullmatch(r"\d+\.\d+", part.name)]  # by add_hparams
        beside = [EventAccumulator(str(part)).Reload() for part in told if len(told) == 1]
        found = [one.plugin_data for part in (events, *beside) for one in part.summary_metadata.values()]
        for content in (one.content for one in found if one.plugin_name == "hparams"):
            for key, value in HParamsPluginData.FromString(content).session_start_info.hparams.items():
                settings[key] = parse(getattr(value, value.WhichOneof("kind") or "string_value"))
    return [Logged(folder.name, path, settings, values)] if values else []


def read_wandb(path: Path) -> list[Logged]:
    """Read the log of a run that W&B kept offline, by the program behind `wandb leet inspect`, in 40 ms."""
    from wandb.util import get_core_path

    options = ["--no-observability", "--summary", "--json", "--run-file", str(path)]
    with reading(str(path), "give the .wandb file of an offline run, and install wandb 0.31 or later"):
        command = [get_core_path(), "leet", "inspect", *options]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        if done.returncode:
            raise ValueError(done.stderr.strip() or "wandb leet failed")
        found = json.loads(done.stdout)
    return [from_wandb(found.get("name") or path.stem, path, found["config"], found["summary"], found.get("state"))]


def from_wandb(name: str, path: Path, config: Any, summary: Any, state: Any) -> Logged:
    """Make a run of what W&B keeps; the bare numbers of a run of vitlab were measured on test items."""
    settings, values = (dict(flatten(of or {}, choices=True)) for of in (config, summary))
    if {one.name for one in fields(TrainConfig)} <= (config or {}).keys():  # of vitlab
        told = {"model": settings["variant"], "data": settings["data.name"]}
        settings = told | dict(flatten(select(config, TrainConfig, WEIGHED), choices=True))
        values |= {f"test_{key}": value for key, value in values.items()}
    return Logged(name, path, settings | {"state": state}, numbers_of(values))


def read_project(source: Path) -> list[Logged]:
    """Read the finished runs of `wandb:ENTITY/PROJECT` on W&B's server, with the user's login."""
    import wandb

    with reading(str(source), "give wandb:ENTITY/PROJECT, after wandb login"):
        runs = wandb.Api().runs(str(source).partition(":")[2], filters={"state": "finished"}, lazy=False)
        return [from_wandb(run.name, source / run.id, run.config, run.summary_metrics, "finished") for run in runs]


def read_mlruns(path: Path) -> list[Logged]:
    """Read the folder of a run of MLflow's file store: a file for each parameter and metric."""
    meta, found = read_plain(path), {"params": {}, "metrics": {}}
    with reading(str(path.parent), "give a folder that MLflow wrote"):
        for kind, texts in found.items():
            for file in (path.parent / kind).rglob("*"):
                if file.is_file():
                    texts[str(file.relative_to(path.parent / kind))] = read_utf8(file, "source")
        lines = {key: [line.split() for line in text.splitlines()] for key, text in found["metrics"].items()}
        values = {key: float(max(of, key=lambda line: (int(line[2]), int(line[0])))[1]) for key, of in lines.items()}
    status = {1: "running", 2: "scheduled", 4: "failed", 5: "killed"}.get(as_plain(meta.get("status")), "finished")
    settings = {key: parse(text) for key, text in found["params"].items()} | {"status": status}
    return [Logged(meta.get("run_name"), path, settings, values)] if meta.get("lifecycle_stage") != "deleted" else []


def read_database(path: Path) -> list[Logged]:
    """Read the tables, not views, of a database of MLflow or of trackio."""
    runs: dict[str, Logged] = {}
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    with (
        reading(str(path), f"give a database of MLflow or trackio, read in {SECONDS} s"),
        closing(sqlite3.connect(address, uri=True)) as file,
    ):
        end = time.monotonic() + SECONDS
        file.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2**24)
        if views := [*file.execute("select name from sqlite_master where type = 'view'")]:
            raise ValueError(f"has a view, {views[0][0]}")
        tables = {name for (name,) in file.execute("select name from sqlite_master")}
        if "latest_metrics" in tables:
            of_runs = "select run_uuid, name, status from runs where lifecycle_stage = 'active'"
            for key, name, status in file.execute(of_runs):
                runs[key] = Logged(name or key, path, {"status": status})
            for key, name, value in file.execute("select run_uuid, key, value from params"):
                if key in runs:
                    runs[key].settings[name] = parse(as_plain(value))
            for key, name, value, lost in file.execute("select run_uuid, key, value, is_nan from latest_metrics"):
                if key in runs:
                    runs[key].values[name] = math.nan if lost else value
        else:
            for name, text in file.execute("select run_name, config from configs order by id"):
                settings = flatten(json.loads(text), choices=True)
                runs[name] = Logged(name, path, {key: value for key, value in settings if not key.startswith("_")})
            for name, text in file.execute("select run_name, metrics from metrics order by step, id"):
                runs.setdefault(name, Logged(name, path)).values.update(numbers_of(json.loads(text)))
    return [replace(run) for run in runs.values()]  # checked again


def read_arrays(path: Path) -> list[Logged]:
    """Read the arrays of scikit-learn's learning_curve, saved by np.savez; folds count as seeds.

    Arrays of one value are settings, such as model; the default model is the file's name.
    """
    keys, runs = ("train_sizes", "train_scores", "test_scores"), []
    with reading(str(path), f"save {', '.join(keys)} under these names"), np.load(path, allow_pickle=False) as file:
        check_unpacked(path, LARGEST)
        beside = {"model": path.stem} | {key: file[key].item() for key in file.files if file[key].shape == ()}
        for size, *scores in zip(*(file[key] for key in keys), strict=True):
            for fold, of_fold in enumerate(zip(*scores, strict=True)):
                settings = beside | {"train_size": int(size), "seed": fold}
                values = dict(zip(keys[1:], map(float, of_fold), strict=True))
                runs.append(Logged(f"{path.stem} {size} fold {fold}", path, settings, values))
    return runs


# ---- files and folders


READERS = (read_study, read_trainer, read_mlruns, read_database, read_wandb, read_arrays, read_table, read_events)
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
KINDS = "vitlab, transformers, timm, Lightning, TensorBoard, W&B, MLflow, trackio, scikit-learn, CSV or JSON lines"
OURS = "{model}-n{size}-s{seed}"  # the name of a run's folder
PLACED = {"size": r"\d+(?:\.\d+)?", "seed": r"\d+"}  # in such names


def find_reader(path: Path, *, given: bool = True) -> Callable[[Path], list[Logged]] | None:
    """Find a file's reader by its first bytes; None for another kind. In a folder, tables need a known suffix."""
    with reading(str(path), "make it readable, or take it away"), open(path, "rb") as file:
        head = file.read(4096).removeprefix(b"\xef\xbb\xbf")
    packed = head.startswith(b"\x1f\x8b") and (given or path.suffix in TABLES)
    head = (read_utf8(path, "source")[:4096].encode() if packed else head).replace(b"\r", b"\n")
    first, _, more = head.lstrip().partition(b"\n")
    columns = re.search(rb"[,;\t]", first) and (more or len(head) > 4000)
    table = first.endswith(b"}") or not more if first.startswith(b"{") else columns
    table = table or re.match(rb"\[\s*\{", head.lstrip()) or (b"\0" in head and path.suffix in TABLES)  # UTF-16
    kinds = {
        read_study: path.name == "study.yaml" or (path.name == "result.json" and b'"train_size"' in head),
        read_database: head.startswith(b"SQLite format 3\0"),
        read_wandb: head.startswith(b":W&B"),
        read_arrays: head.startswith(b"PK\3\4") and (given or path.suffix == ".npz"),
        read_events: b"brain.Event:" in head[:64],
        read_trainer: head.startswith(b"{") and b'"log_history"' in head,
        read_mlruns: path.name == "meta.yaml" and b"run_id:" in head,
        read_table: table and (given or path.suffix in TABLES or path.name in LOGS),
    }
    found = next((reader for reader in READERS if kinds[reader]), None)
    if given and not found:
        problem = "names no columns" if read_utf8(path, "source").strip() else "is empty"  # or says why it is no text
        raise UserError(f"{path}: {problem}; give runs of {KINDS}")
    return found


def read_source(path: Path, own: str | None = None) -> list[Logged]:
    """Read a file, or every folder with runs below a path: in each folder, the files of the first kind in READERS.

    A user's module `own` reads the whole path: its `read(path)` gives (name, settings, values) of each run.
    """
    runs: list[Logged] = []
    check_regular(path, str(path))
    on_server = str(path).startswith("wandb:") and not os.path.exists(path)
    if own:
        module = implementation("vitlab.studies.readers", own, "read", "--reader")
        with reading(str(path), f"correct {own}"):
            runs = [Logged(str(name), path, dict(settings), dict(of)) for name, settings, of in module.read(path)]
    elif on_server:
        runs = read_project(path)
    walk = [(path.parent, list[str](), [path.name])] if os.path.isfile(path) else os.walk(path)
    homes: dict[Path, Logged] = {}  # of TensorBoard
    for folder, folders, names in walk if not own else ():
        folders.sort(key=lambda name: (len(name), name))
        checkpoints = [name for name in folders if name.startswith("checkpoint-")]
        again = ("tensorboard", "wandb", "mlflow", "mlruns") if "csv" in folders else ()  # Lightning's loggers of a run
        folders[:] = [name for name in folders if name not in (*checkpoints[:-1], *again)]
        found: dict[Any, list[Path]] = {}
        for file in (Path(folder, name) for name in sorted(names)):
            if file.is_file() and (reader := find_reader(file, given=file == path)):
                found.setdefault(reader, []).append(file)
        if found:
            reader = min(found, key=READERS.index)
            files = found[reader][: 1 if reader is read_events else None]
            for run in (run for file in files for run in reader(file)):
                # deeper files are copies: checkpoints, other loggers; but for splits of TensorBoard
                folders[:] = [name for name in folders if reader is read_events and find_split(name)]
                home, split = Path(folder), find_split(Path(folder).name)
                if reader is read_events and (home.parent in homes or home.name.lower() in SPLITS):
                    run.values = {key if find_split(key) else f"{split}/{key}": run.values[key] for key in run.values}
                    home = home.parent
                    run.run = home.name
                first = homes.setdefault(home, run) if reader is read_events else run
                first.values = run.values | first.values
                runs += [run] if first is run else []
    for run in runs:
        empty = [key for key, value in run.settings.items() if str(value).strip().lower() in ("none", "nan", "null")]
        run.settings |= {key: "" for key in empty if tail(key) in {*NAMES["model"], *NAMES["seed"]}}
    if not any(run.values or run.settings for run in runs):
        problem = "holds no runs" if on_server or os.path.exists(path) else "no such file or folder"
        raise UserError(f"{path}: {problem}; give runs of {KINDS}")
    return runs


def read_sources(
    sources: Sequence[str | Path], own: str | None = None, pattern: str | None = None
) -> tuple[list[Logged], list[str]]:
    """Read the finished runs of all sources, and notes. Raises UserError with all problems.

    Read settings `name.model`, ... from names of runs and folders: by `pattern` for all, by OURS for runs without.
    """
    names = [str(as_plain(Path(os.path.realpath(source)).name)) for source in sources]
    runs, problems, notes, seen = [], [], [], Counter[str]()
    placed = re.sub(r"\\{(\w+)\\}", lambda of: f"(?P<{of[1]}>{PLACED.get(of[1], '.+?')})", re.escape(pattern or OURS))
    with reading(f"--name {pattern}", f"write it as {OURS}"):
        form = re.compile(placed)
    for name, source in zip(names, sources, strict=True):
        with collecting(problems):
            found = read_source(Path(source), own)
            of_path, named = Counter(run.path for run in found), Counter(run.run for run in found)
            left = [run for run in found if is_unfinished(run)]
            notes += [f"{plural(len(left), 'run')} not finished, left out"] if left else []
            for run in (run for run in found if run not in left):
                folders = [name, *run.path.parts[len(Path(source).parts) :]] if of_path[run.path] == 1 else []
                told = [match.groupdict() for match in map(form.fullmatch, {run.run, *folders}) if match]
                if pattern and len(told) != 1:
                    problems.append(f"--name {pattern}: {len(told)} names of {run.path} have it; give one that one has")
                for key, value in told[0].items() if len(told) == 1 else ():
                    if pattern or not any(tail(one) in NAMES[key] and run.settings[one] != "" for one in run.settings):
                        run.settings[f"name.{key}"] = parse(value)
                if named[run.run] > 1 and folders[2:]:
                    run.run = "/".join(folders[1:-1])
                run.source = name if names.count(name) == 1 else str(source)
                run.settings |= {"source": run.source} if len(sources) > 1 else {}
                seen[run.run] += 1
                run.run += f" #{seen[run.run]}" if seen[run.run] > 1 else ""
                runs.append(run)
    raise_all(problems)
    return runs, notes


def is_unfinished(run: Logged) -> bool:
    return any(tail(key) in ("status", "state") and UNFINISHED.match(str(run.settings[key])) for key in run.settings)


# ---- names


NAMES = {  # exact names of settings: a key's last part, in lower case; the first that a run has counts
    "model": "model arch architecture model_name model_name_or_path _name_or_path model_type backbone"
    " network estimator params",
    "size": "train_size n_train num_train train_samples max_train_samples num_train_samples train_examples"
    " num_train_examples train_items train_subset training_size train_fraction",
    "seed": "seed random_seed random_state rng_seed manual_seed global_seed seed_everything",
    "data": "dataset data dataset_name data_name task",
}
NAMES = {role: tuple(text.split()) for role, text in NAMES.items()}
FREE = (  # settings in which runs of one model and size may differ, as in their seeds
    "run name id run_id run_name run_uuid dir path folder output output_dir log_dir logging_dir save_dir work_dir"
    " checkpoint_dir experiment_name exp_name experiment_id artifact_uri hub_model_id url host hostname pid time date"
    " timestamp created start_time end_time runtime _runtime _timestamp wall_s images_per_s source status state notes"
    " tags user sweep runname data_seed split_seed calibration_error undertrained train_sample_accuracy"
    " train_sample_loss"
)
FREE = (*NAMES["seed"], *FREE.split())
TIMES = ("time", "date", "datetime", "timestamp", "wall_time", "created", "created_at", "logged_at")
UNFINISHED = "running scheduled fail kill crash err abort cancel preempt pend wait queue prun paus interrupt time oom"
UNFINISHED = re.compile(rf"\W*({UNFINISHED.replace(' ', '|')}|out.of|node.fail|unknown)", re.I)  # a state begins so
# names of one measure, joined by spaces; compare the first measure that runs have: shares, rising, falling
SHARES = (
    *("accuracy acc acc1 acc@1 top1 top_1 top1_acc top1_accuracy prec1", "balanced_accuracy bacc", "exact_match em"),
    *("map", "f1 f1_macro macro_f1", "auc auroc roc_auc", "iou miou", "dice", "precision", "recall"),
    "top5 acc5 acc@5 top5_acc top5_accuracy",
)
RISING = (*SHARES, "score scores", "bleu", "rouge_l rougel", "r2", "pearson", "spearman", "matthews", "reward return")
FALLING = ("error err err1 top1_err error_rate", "loss cross_entropy ce nll", "bits_per_byte bpb", "perplexity ppl")
FALLING = (*FALLING, "rmse", "mse", "mae", "wer", "cer", "fid")
MEASURED = {name: place for place, names in enumerate((*RISING, *FALLING)) for name in names.split()}
SPLITS = ("test predict heldout holdout", "eval val valid validation dev", "", "train training")
SPLITS = {name: place for place, names in enumerate(SPLITS) for name in names.split() or [""]}
SPREAD = re.compile(r"^(std|rank|split\d+)_|(_std|__min|__max)$")  # over folds or steps
ENDS = ("epoch", "step", "best", "final", "last", "max", "min")
LOGGED = re.compile(r"(metrics|summary)[./]|(train|val|valid|validation|eval|test)/", re.I)  # begin results
OF_CHOICE = ("name", "type", "_target_")
OF_STUDY = ("model", "data", "train_size", "seed", "budget")
WEIGHED = affecting(WEIGHTS)


@cache
def tail(key: str) -> str:
    """Return the last part of a key in lower case; `model` for `model.name`, `model.type` and `model._target_`."""
    parts = re.split(r"[./]", key.strip().lower().replace(" ", "_").replace("-", "_"))
    return parts[-2] if len(parts) > 1 and parts[-1] in OF_CHOICE else parts[-1]


def describe_metric(key: str) -> tuple[int, int | None]:
    """Split a logged number's exact name: return the place of its split, and of its measure (None if unknown).

    `eval/top1`, `val_acc_epoch` and `Test Accuracy` are a split and a measure; mmengine's `accuracy/top1` is validated.
    """
    key = "val/top1" if key == "accuracy/top1" else re.sub(r"^(metrics|summary)[./]", "", key.strip().lower())
    key, spread = SPREAD.subn("", key)
    words = [word for word in re.split(r"[\s./_-]+", key.removeprefix("mean_")) if word not in ("", *ENDS)]
    split = find_split(key)
    what = MEASURED.get("_".join(word for word in words if word != split))
    return SPLITS["train" if spread else split], what


def find_split(name: str) -> str:
    return next((word for word in re.split(r"[\s./_-]+", name.lower()) if word and word in SPLITS), "")


def pick(values: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, Any]:
    """Pick the first of the keys that has a value, and the value; ("", None) without."""
    return next(((key, values[key]) for key in keys if values.get(key) not in (None, "")), ("", None))
