"""The files of one study: its grid, its results, its runs. Imports no torch."""

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitlab.config import StudyConfig, UserError, first_line, identity, read_config, resolved
from vitlab.config.groups import dump_yaml
from vitlab.files import read_json, read_stamp, write_json, write_text
from vitlab.formatting import finite, round_numbers
from vitlab.studies.grid import TRIAL, list_study_changes, list_varied_keys, merge_variants, read_varied
from vitlab.training.files import COLUMNS, RunFiles, refuse_changes, refuse_folder

# ---- undertrained runs (docs/rules.md, "Undertrained cells")


Row = dict[str, Any]
LOOSE = 0.3  # training loss / validation loss: a run above this ratio is undertrained
RISE = 1.01  # a validation loss that ends above its lowest by more than this factor is past its minimum
# recipes that the rule was not tried on
OTHERWISE = ("mixup", "cutmix", "class_weights", "freeze", "ema", "average", "cooldown")


def is_undertrained(run: RunFiles, result: Mapping[str, Any]) -> bool:
    """Tell whether a finished run needs more steps; False where the rule was not tried.

    A model that fits its own training items hardly better than new items has not used up its data. A model that is
    right in every validation item, or whose validation loss rose, gains nothing from more steps.
    """
    seen, unseen = (finite(result.get(key)) for key in ("train_sample_loss", "validation_loss"))
    if seen is None or unseen is None:
        return False
    config = run.config()
    recipe, kinds = config["recipe"], [(config.get(key) or {}).get("kind") for key in ("task", "model")]
    smoothing, classes = recipe.get("label_smoothing") or 0.0, len(result.get("by_class") or ())
    of_memory = kinds[0] == "classification" and kinds[1] != "color_histogram"  # it can learn its items by heart
    adapted = (recipe.get("lora") or {}).get("rank") or any(recipe.get(key) for key in OTHERWISE)
    adapted = adapted or (config.get("data") or {}).get("label_noise")  # training labels, unlike new ones, are wrong
    if not of_memory or adapted or (smoothing and not classes):
        return False
    least = -math.log(1 - smoothing + smoothing / classes) if smoothing else 0.0  # of a model that fits smoothed labels
    if unseen <= least or result.get("validation_accuracy") == 1 or seen - least <= LOOSE * (unseen - least):
        return False
    losses = [row["validation/loss"] for row in run.metrics() if "validation/loss" in row]
    stopped = recipe.get("patience") and len(losses) < config["trainer"]["evaluations"]
    worse = losses and losses[-1] > RISE * min(losses)
    return not (stopped or worse or result.get("kept_step", result["steps"]) < result["steps"])


# ---- files


RunKey = tuple[str, int, int]  # variant, training-set size, seed, as results.csv has them
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # with apostrophes, so that no two texts become the same


class StudyFiles:
    """A study: `study.yaml start.json results.csv report.html compare.html attention/ figures/ subsets/ <run>/...`."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.config_path = self.folder / "study.yaml"
        self.runs_path = self.folder / "runs.json"
        self.start_path = self.folder / "start.json"
        self.spent_path = self.folder / "spend.json"
        self.results_path = self.folder / "results.csv"
        self.report_path = self.folder / "report.html"
        self.figures = self.folder / "figures"
        self.subsets = self.folder / "subsets"
        # cached contents of files, with their stamps: a running study asks again whenever a run ends
        self._config: tuple[Any, dict[str, Any]] = (None, {})
        self._rows: dict[str, tuple[Any, Row | None]] = {}
        self.damaged: dict[str, str] = {}  # by run: the damage to its result, "" if none; see `finished_rows`

    def refuse(self, config: StudyConfig) -> None:
        """Raise UserError unless this study can run here: the folder is new, or holds the same study."""
        refuse_folder(self.folder, self.config_path.exists(), "study of vitlab")
        if self.config_path.exists():
            refuse_changes(self.folder, list_study_changes(resolved(config), self.config()), "another name= or --out")

    def config(self) -> dict[str, Any]:
        """Read the resolved study. Raises UserError when the folder holds none, and for keys that no study has."""
        stamp = read_stamp(self.config_path)
        if stamp is None:
            near = f" {self.folder.parent}," if (self.folder.parent / self.config_path.name).is_file() else ""
            hint = f"give{near} the folder that 'vitlab scale' wrote"
            raise UserError(f"{self.folder}: not a study, it holds no study.yaml; {hint}")
        if stamp != self._config[0]:
            config = read_config(StudyConfig, self.config_path, without=["executor"])
            self._config, self._rows = (stamp, config), {}  # rows have a column for each key that the study varies
        return self._config[1]

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.config_path, dump_yaml(config))

    def run_keys(self) -> list[RunKey]:
        """Read (variant, training-set size, seed) of every run that was ever asked for in this folder, finished or not.

        Raises UserError.
        """
        return read_json(self.runs_path, lambda found: [(variant, size, seed) for variant, size, seed in found]) or []

    def spent(self) -> list[dict[str, Any]]:
        """Read the study's spent times, each with its rounds: see `vitlab.studies.rounds`. Raises UserError."""
        return read_json(self.spent_path, lambda found: [dict(one) for one in found]) or []

    def add_start(self, config: dict[str, Any], keys: Iterable[RunKey]) -> dict[str, Any]:
        """Add a start's configuration and runs to study.yaml and runs.json, beside those of earlier starts.

        Return the configuration with the models, axes, sizes and seeds of all starts.
        """
        old = self.config() if self.config_path.is_file() else {}
        keys = list(dict.fromkeys([*(self.run_keys() if old else []), *keys]))
        config = {**config, "sizes": sorted({size for _, size, _ in keys})}
        config["seeds"] = list(dict.fromkeys([*(old.get("seeds") or []), *config["seeds"]]))
        config |= merge_variants(old, config) if old else {}
        config["settled"] = {**config.get("settled", {}), **(old.get("settled") or {})}
        self.write_config(config)
        write_json(self.runs_path, keys)
        write_json(self.start_path, {"folder": os.path.relpath(Path.cwd(), self.folder.resolve())})
        return config

    def start_folder(self) -> Path:
        """Return the folder where the study was started: relative paths in its configurations start there.

        Return the parent of the study's folder if the start's folder is unknown or gone. Raises UserError.
        """
        here = self.folder.resolve()
        folder = (here / (read_json(self.start_path, lambda found: str(found["folder"])) or "..")).resolve()
        return folder if folder.is_dir() else here.parent

    def path_from_start(self, run: str = "") -> str:
        """Return the path of the study, or of one of its runs, relative to `start_folder`, for command lines."""
        return os.path.relpath(self.folder.resolve() / run, self.start_folder())

    def run(self, name: str) -> RunFiles:
        return RunFiles(self.folder / name)

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """Write one row per finished run; a task's own metrics follow the fixed columns."""
        rows = [round_numbers(row) for row in rows]
        extra = dict.fromkeys(key for row in rows for key in row if key not in COLUMNS)
        columns = [*COLUMNS, *extra]
        lines = [format_line(columns), *(format_line([row.get(column) for column in columns]) for row in rows)]
        write_text(self.results_path, "".join(lines))

    def finished_rows(self) -> list[Row]:
        """List a row per finished run from its result.json, sorted by model, size, seed and trial.

        A damaged result has no row, but a line in `damaged`. Raises UserError.
        """
        study, rows = self.config(), {}
        for entry in os.scandir(self.folder):
            stamp = read_stamp(f"{entry.path}/result.json")
            if stamp is not None and stamp != self._rows.get(entry.name, (None,))[0]:
                self._rows[entry.name] = stamp, self.read_row(study, self.run(entry.name))
            if stamp is not None and (row := self._rows[entry.name][1]):
                rows[entry.name] = row
        copies = {name for name, row in rows.items() if row["run"] != name and row["run"] in rows}
        # leave out a copy of a run that is here too: a seed must not count twice; a renamed run stays
        rows = [{**row, "run": name} for name, row in rows.items() if name not in copies]
        variants = dict.fromkeys(key[0].partition(TRIAL)[0] for key in self.run_keys())
        places = {variant: place for place, variant in enumerate(variants)}
        by = {row["model"]: (places.get(row["model"], len(places)), row["model"]) for row in rows}
        return sorted(rows, key=lambda row: (*by[row["model"]], row["train_size"], row["seed"], row.get("trial") or 0))

    def read_row(self, study: dict[str, Any], run: RunFiles) -> Row | None:
        """Read a finished run's row, under the name it was trained with; None if the folder is no run of the study."""
        result, damage = run.read_result() if run.config_path.exists() else (None, "")
        self.damaged[run.folder.name] = damage
        if not result or result["study"] != study.get("name"):
            return None
        columns = {k: v for k, v in result.items() if not isinstance(v, dict | list) and k not in ("id", "finished_at")}
        columns |= {"metric": metric} if (metric := (study.get("task") or {}).get("metric")) else {}
        columns |= {"holdout": "repeated"} if (study.get("data") or {}).get("holdout") == "repeated" else {}
        of_own_data = "@" not in str(metric)  # `fewshot_5@digits` is on other data
        columns["undertrained"] = of_own_data and is_undertrained(run, result)
        keys = [key for key in list_varied_keys(study) if key not in columns]
        return round_numbers({**columns, **(read_varied(run.config(), keys) if keys else {})})


LATER = ("analyses", "probes", "eval_on")  # a finished run may later get more entries of these keys


def list_missing(run: RunFiles, config: Mapping[str, Any], data: str | None = None) -> list[str]:
    """List the parts of its configuration that a run lacks: `training` (with its test), analyses, probes, other tests.

    A complete run lacks nothing. `data` is the hash of its data set; without it any result counts.
    """
    result, asked = run.read_result()[0], [name for key in LATER for name in config.get(key, ())]
    is_other = result is None or (data and result.get("id") != identity(config, data))
    if is_other or not run.config_path.is_file():
        return ["training", *asked]
    if result.get("status") == "diverged":
        return []
    before = run.config()
    return [name for name in asked if not any(name in before.get(key, []) for key in LATER)]


def summarize_error(error: BaseException) -> str:
    """Return the first line of an error, with its type if the text alone does not explain the error."""
    text, kind = first_line(error), type(error).__name__
    return text if kind in ("UserError", "Diverged", "DeviceLost", text) else f"{kind}: {text}"


def format_line(cells: Sequence[Any]) -> str:
    """Format one line of CSV; a text that a spreadsheet would run as a formula begins with an apostrophe.

    The writer quotes a carriage return in a cell only where its own lines end in one.
    """
    text = io.StringIO()
    plain = [f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell for cell in cells]
    csv.writer(text, lineterminator="\r\n").writerow(plain)
    return text.getvalue().removesuffix("\r\n") + "\n"


def collect(files: StudyFiles) -> None:
    """Rewrite results.csv from the result of every finished run of the study."""
    files.write_rows(files.finished_rows())
