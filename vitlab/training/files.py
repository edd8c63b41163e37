"""The files of one run: their paths, how to read and write them, and a run's progress. Imports no torch."""

import contextlib
import json
import math
import os
import socket
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from vitlab.config import TrainConfig, UserError, read_yaml, resolved
from vitlab.config.groups import dump_yaml
from vitlab.config.identity import PARTS, count_parts, list_changes, weight_settings
from vitlab.config.schema import InitConfig
from vitlab.files import create_json, read_json, replacing, write_json, write_text
from vitlab.formatting import cut_names


@dataclass(frozen=True)
class Progress:
    """The progress of a run: `step` of `steps`, estimated seconds left, the last loss and validation metrics."""

    step: int
    steps: int
    seconds_left: float | None = None
    loss: float | None = None
    validation: dict[str, float] = field(default_factory=dict)
    note: str = ""  # for a probe: what it trains


COLUMNS = (  # of results.csv; each result.json holds them
    *("study", "run", "model", "family", "data", "train_size", "seed", "budget", "steps", "examples_seen", "params"),
    *("train_flops", "accuracy", "error", "loss", "train_loss", "images_per_s", "wall_s", "precision", "status"),
)
TEXT_COLUMNS = ("study", "run", "model", "family", "data", "budget", "precision", "status", "unit", "metric", "holdout")
PLACED_BY = ("study", "run", "model", "train_size", "seed")  # no result is without them
RETRAINED = "the run counts as not finished, and its command trains it again"
VALIDATION = "validation/"  # begins the metrics.jsonl keys of an evaluation during training


MARK = ".vitlab.json"  # says which command writes the other files of a folder, and about what


def refuse_folder(folder: Path, is_ours: bool, what: str) -> None:
    """Raise UserError unless the `--out` folder is new, empty, or ours (holds `what`), and takes new files."""
    try:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--out {folder}: is a file; give a folder")
        others = [path for path in folder.glob("[!.]*") if not path.match("claim.*")]  # a killed start leaves claims
        if others and not is_ours:
            raise UserError(f"--out {folder}: is not empty and holds no {what}; give another folder")
    except OSError as error:
        raise UserError(f"--out {folder}: cannot read it ({error.strerror}); give another folder") from None
    refuse_unwritable(folder)


def refuse_output(folder: Path, command: str, *subjects: str | Path) -> None:
    """Raise UserError unless `--out` is new or empty, or the same command wrote it about the same subjects.

    Subjects are paths or names, such as the run of `vitlab analyze`. `mark_output` makes a folder ours.
    """
    found = read_json(folder / MARK, lambda mark: (str(mark["command"]), [str(each) for each in mark["subjects"]]))
    mark = describe_output(folder, command, *subjects)
    refuse_folder(folder, found is not None, f"output of 'vitlab {command}'")
    if found not in (None, (*mark.values(),)):
        about = [str(place.resolve()) if (place := folder / each).exists() else each for each in found[1]]
        written = f"'vitlab {found[0]}' wrote about {cut_names(about, 3)}"
        raise UserError(f"--out {folder}: holds what {written}; give another folder by --out")


def mark_output(folder: Path, command: str, *subjects: str | Path) -> None:
    """Write into an `--out` folder the command and the subjects of its files; `refuse_output` reads them."""
    write_json(folder / MARK, describe_output(folder, command, *subjects))


def describe_output(folder: Path, command: str, *subjects: str | Path) -> dict[str, Any]:
    """Describe a folder's output. Makes paths relative to the folder, so that a user can move both together."""
    start = folder.resolve()
    found = [os.path.relpath(Path(each).resolve(), start) if os.path.exists(each) else str(each) for each in subjects]
    return {"command": command, "subjects": found}


def refuse_file(path: Path, key: str) -> None:
    """Raise UserError unless a file is new and writable: no command overwrites a file that it did not write."""
    if path.exists() or path.is_symlink():
        raise UserError(f"{key} {path}: exists; delete it, or give another name")
    refuse_unwritable(path.absolute().parent, key)


def refuse_unwritable(folder: Path, key: str = "--out") -> None:
    """Raise UserError if a folder takes no new files. Leaves nothing behind."""
    made = []
    try:  # write to be sure: permissions do not tell of a full or a read-only file system
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{key} {folder}: cannot write there ({error.strerror}); give another folder") from None
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


def refuse_changes(folder: Path, changes: Sequence[str], other: str = "another --out") -> None:
    """Raise UserError for settings (`key old -> new`) that differ from the settings of a folder's results."""
    if changes:
        differ = f"holds results of another configuration ({cut_names(changes, 4)})"
        raise UserError(f"{folder}: {differ}; give {other}, or delete that folder")


def source_of(init: InitConfig) -> str | None:
    """Return the source of the first weights, of a whole model or of its encoder; None for random weights."""
    return init.weights if init.weights is not None else init.encoder


def source_problems(source: str | None) -> Iterator[str]:
    """Look at the disk and yield the problems of a source of weights."""
    if source is None or source.startswith("timm:"):
        return
    path = Path(source)
    if not path.exists():
        yield f"init={source}: no such file or folder; give timm:NAME, a run's folder, or a file of weights"
    elif path.is_dir() and not any(file.is_file() for file in (RunFiles(path).checkpoint_path, path / "config.json")):
        yield f"init={source}: holds neither a run (checkpoints/last.ckpt) nor a Hugging Face model (config.json)"


def below(*names: str) -> property:
    """Make a property that builds a path below a run's folder on demand: a study reads a thousand runs at a time."""
    return property(lambda files: files.folder.joinpath(*names))


class RunFiles:
    """`config.yaml metrics.jsonl result.json heldout.npz checkpoints/last.ckpt analysis/ wandb/` below one folder."""

    config_path = below("config.yaml")
    metrics_path = below("metrics.jsonl")
    result_path = below("result.json")
    error_path = below("error.json")  # why the last attempt failed
    heldout_path = below("heldout.npz")  # the outcome of each test item
    generated_path = below("generated.json")  # the texts that the model generated for the test items
    init_path = below("init.json")  # the report on the initial weights
    data_path = below("data.json")  # the SHA-256 of the training data
    checkpoint_path = below("checkpoints", "last.ckpt")
    best_path = below("checkpoints", "best.ckpt")  # with recipe.keep=best, when training has ended
    trunk_path = below("checkpoints", "trunk.ckpt")  # where the cooldown began, for runs of a larger budget
    packages_path = below("packages.txt")  # the packages installed when the run began
    tokenizer_path = below("tokenizer.json")  # of text, so that the model can be used without its data
    analysis_folder = below("analysis")

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    @property
    def weights_path(self) -> Path:
        """The checkpoint with the weights to use: best.ckpt if it exists, else last.ckpt."""
        return self.best_path if self.best_path.is_file() else self.checkpoint_path

    def refuse(self, config: TrainConfig) -> None:
        """Raise UserError unless this configuration can train here: the folder is new, or holds the same run."""
        refuse_folder(self.folder, self.config_path.exists(), "run of vitlab")
        self.refuse_other_parts(resolved(config))
        if self.config_path.exists():
            refuse_changes(self.folder, self.changes(resolved(config)))

    def refuse_other_parts(self, config: Mapping[str, Any]) -> None:
        """Raise UserError if the folder holds a run that computes its batches in another number of parts."""
        if not self.config_path.exists():
            return
        before, now = (count_parts(each.get("trainer", {})) for each in (self.config(), config))
        if before != now:
            raise UserError(
                f"{PARTS} = {now}: the run in {self.folder} began with {before}; give numbers whose product is "
                f"{before}, or another --out, or delete that folder"
            )

    def refuse_other_data(self, name: str, data_hash: str) -> None:
        """Raise UserError if the data set `name`, now of this hash, has changed since the folder's run began."""
        if self.data_hash() not in (None, data_hash):
            raise UserError(
                f"--out {self.folder}: data={name} has changed since its run began; restore the files, give another "
                "--out, or delete that folder"
            )

    def changes(self, config: dict[str, Any]) -> list[str]:
        """List, as `key old -> new`, settings of the folder's run and `config` that differ and change final weights.

        Compares the data by their contents (`data_hash`), not by their path, if the run has recorded the hash.
        """
        old, contents_known = self.config(), self.data_path.is_file()
        if old == config:
            return []
        return list_changes(*(weight_settings(c, contents_known=contents_known) for c in (config, old)))

    def config(self) -> dict[str, Any]:
        """Read the resolved configuration. Raises UserError when the folder holds no run."""
        if not self.config_path.is_file():
            if (self.folder / "study.yaml").is_file():
                run = next((path.parent for path in sorted(self.folder.glob("*/result.json"))), self.folder / "RUN")
                raise UserError(f"{self.folder}: is a study, not a run; give one of its finished runs, such as {run}")
            near = sorted(self.folder.parent.glob(f"{self.folder.name}-*/config.yaml"))
            hint = f"did you mean {near[0].parent}?" if near else "give one that 'vitlab train' wrote"
            raise UserError(f"{self.folder}: not a run, it holds no config.yaml; {hint}")
        found = read_yaml(self.config_path)
        if lacking := [key for key in ("model", "data", "task", "recipe", "seed") if key not in found]:
            raise UserError(
                f"{self.config_path}: another program's, it has no {', '.join(lacking)}; give another folder"
            )
        return found

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.config_path, dump_yaml(config))

    def result(self) -> dict[str, Any] | None:
        """Read result.json; None while the run is not finished. Raises UserError for a file that is no result."""
        return read_json(self.result_path, check_result, RETRAINED)

    def read_result(self) -> tuple[dict[str, Any] | None, str]:
        """Read result.json without raising: (result or None, why the file is no result or "")."""
        try:
            return self.result(), ""
        except UserError as error:
            return None, str(error)

    def write_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write the result, and so finish the run, unless there is a result; return the first result: it counts."""
        if not create_json(self.result_path, result):
            return self.result()
        self.error_path.unlink(missing_ok=True)
        return result

    def write_error(self, error: str) -> None:
        write_json(self.error_path, {"error": error, "host": socket.gethostname()})

    def error(self) -> str | None:
        """Read the first line of the error that ended the last attempt; None if there is no error. Raises UserError."""
        return read_json(self.error_path, lambda found: str(found["error"]))

    def finished_result(self) -> dict[str, Any]:
        """Read the finished run's result. Raises UserError for a folder without a finished run."""
        self.config()
        result = self.result()
        if result is None:
            raise UserError(f"{self.folder}: the run is not finished; run its command again to continue it")
        return result

    def remove_leftovers(self) -> None:
        """Remove the temporary files of killed writers; rename a damaged result.json, with a warning.

        Call it only while you hold the folder: a suspended writer can then no longer put its file in place.
        """
        for folder in (self.folder, self.checkpoint_path.parent, self.analysis_folder):
            for path in folder.glob(".*.tmp"):
                path.unlink(missing_ok=True)
        if damage := self.read_result()[1]:
            warnings.warn(damage, stacklevel=2)
            self.result_path.replace(self.folder / "result.damaged.json")

    def packages(self) -> list[str]:
        """Read the packages installed when the run began, NAME==VERSION each; [] if they are not known."""
        return self.packages_path.read_text().splitlines() if self.packages_path.is_file() else []

    def init(self) -> dict[str, Any] | None:
        """Read the report on the run's initial weights, and their SHA-256; None for random weights."""
        return read_json(self.init_path, dict)

    def data_hash(self) -> str | None:
        """Read the SHA-256 of the run's data, taken when it began; None if it is not known. Raises UserError."""
        return read_json(self.data_path, lambda data: data["sha256"])

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        """Append a row to metrics.jsonl. Values that are not finite become null."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.metrics_path.open("a") as file:
            file.write(json.dumps(finite) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Read the rows of metrics.jsonl. Skip damaged lines with a warning, except a last line cut by a crash."""
        if not self.metrics_path.is_file():
            return []
        damaged, finished = [], self.result_path.is_file()
        lines = self.metrics_path.read_text(errors="replace").splitlines()
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # one call takes a third of the time
            rows = json.loads(f"[{','.join(lines)}]")
            if rows and all(row["step"] is not None for row in rows):
                return rows
        rows = []
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                if row["step"] is None:
                    raise ValueError
                rows.append(row)
            except (ValueError, TypeError, KeyError, RecursionError):
                if finished or number < len(lines):  # else a crash has cut the last one
                    damaged.append(number)
        # a diverged trial may end before its first row
        diverged = (self.read_result()[0] or {}).get("status") == "diverged"
        if damaged or (finished and not rows and not diverged):
            what = f"line {damaged[0]} is damaged and was skipped" if damaged else "is empty"
            more = f", like {len(damaged) - 1:,} more" if damaged[1:] else ""
            again = "delete the run's folder and start again to have its curves back"
            warnings.warn(f"{self.metrics_path}: {what}{more}; {again}", stacklevel=2)
        return rows

    def read_progress(self) -> Progress | None:
        """Estimate the run's progress from its last rows of metrics.jsonl; None before the first row."""
        rows = self.metrics()
        last = next((row for row in reversed(rows) if "wall_s" in row), None)
        steps = read_json(self.data_path, lambda data: dict(data).get("steps"))
        if last is None or not steps:
            return None
        step = last["step"]
        values = {key: value for row in rows for key, value in row.items() if key.startswith(VALIDATION)}
        validation = {key.removeprefix(VALIDATION): value for key, value in values.items()}
        return Progress(step, steps, last["wall_s"] / step * (steps - step), last["train/loss"], validation)

    def keep_metrics(self, last_step: int, evaluated_again: bool = False, source: Optional["RunFiles"] = None) -> None:
        """Drop rows past `last_step`, and with `evaluated_again` that step's evaluation: training writes them again.

        `source`: the run that trained the steps up to `last_step`; its rows become this run's.
        """
        rows = [
            row
            for row in (source or self).metrics()
            if row["step"] < last_step
            or (row["step"] == last_step and not (evaluated_again and any(k.startswith(VALIDATION) for k in row)))
        ]
        write_text(self.metrics_path, "".join(json.dumps(row) + "\n" for row in rows))

    def analysis(self, name: str) -> dict[str, Any] | None:
        """Read an analysis `{"name", "unit", "rows": [{"step", ...}]}`; None if it did not run. Raises UserError."""
        return read_json(self.analysis_folder / f"{name}.json", dict)


def check_result(result: Any) -> dict[str, Any]:
    """Return a run's result unchanged. Raises ValueError if a study's key is missing or a column has a wrong type."""
    if not isinstance(result, dict):
        raise ValueError(f"it is no result but {json.dumps(result)[:40]}")
    if lacking := [key for key in PLACED_BY if result.get(key) is None]:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    for key in COLUMNS:
        value, text = result.get(key), key in TEXT_COLUMNS
        if value is not None and (isinstance(value, bool) or not isinstance(value, str if text else int | float)):
            raise ValueError(f"{key}: {json.dumps(value)[:40]} is not a {'text' if text else 'number'}")
    return result


def write_analysis(folder: Path, analysis: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> list[Path]:
    """Write an analysis {"name", "unit", "rows", ...} as `<name>.json`; return the paths of the written files.

    Writes the NumPy `arrays` of the rows' last step to `<name>.npz`; read them with `numpy.load`.
    """
    paths = [folder / f"{analysis['name']}.json"]
    if arrays:
        import numpy as np

        paths.append(folder / f"{analysis['name']}.npz")
        with replacing(paths[1]) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    write_json(paths[0], analysis)
    return paths
