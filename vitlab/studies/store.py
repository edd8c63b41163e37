"""The files of one study: its grid, its results, its runs. Imports no torch."""

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from vitlab.config import StudyConfig, UserError, read_config
from vitlab.config.groups import is_file_choice
from vitlab.files import read_json, write_json, write_text
from vitlab.studies.grid import list_study_changes, name_run
from vitlab.studies.variants import add_words, list_varied_keys, merge_variants, read_varied
from vitlab.training.files import RunFiles, refuse_changes, refuse_folder, round_numbers

COLUMNS = (
    *("study", "run", "model", "family", "data", "train_size", "seed", "budget", "steps", "examples_seen", "params"),
    *("train_flops", "accuracy", "error", "loss", "train_loss", "images_per_s", "wall_s", "precision", "status"),
)
Cell = tuple[str, int, int]  # variant, training-set size, seed, as results.csv has them
TEXT_COLUMNS = ("study", "run", "model", "family", "data", "budget", "precision", "status", "unit")
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # the apostrophes: so that each text reads back as it was
NO_COLUMNS = ("id", "finished_at")  # of result.json


class StudyFiles:
    """`study.yaml results.csv report.html compare.html attention/ figures/ subsets/ <run>/...` below one folder."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.config_path = self.folder / "study.yaml"
        self.cells_path = self.folder / "cells.json"
        self.results_path = self.folder / "results.csv"
        self.report_path = self.folder / "report.html"
        self.figures = self.folder / "figures"
        self.subsets = self.folder / "subsets"
        self._varied: dict[str, dict[str, Any]] = {}

    def refuse(self, config: DictConfig) -> None:
        """Raise UserError unless this study can run here: the folder is new, or holds the same study."""
        refuse_folder(self.folder, self.config_path.name)
        if self.config_path.exists():
            refuse_changes(self.folder, list_study_changes(config, OmegaConf.create(self.config())))

    def config(self) -> dict[str, Any]:
        """The resolved study. Raises UserError when the folder holds none, and for keys that no study has."""
        if not self.config_path.is_file():
            raise UserError(
                f"{self.folder}: not a study, it holds no study.yaml; give the folder that 'vitlab scale' wrote"
            )
        config = read_config(StudyConfig, self.config_path)
        return {**config, "models": add_words(config["models"], config["per_model"]), "per_model": {}}

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.config_path, yaml.safe_dump(config, sort_keys=False))

    def cells(self) -> list[Cell]:
        """(variant, training-set size, seed) of every run that was ever asked for in this folder, finished or not.

        A study of version 0.2 kept no such list: there it is models x sizes x seeds. Raises UserError.
        """
        if self.cells_path.is_file():
            return [tuple(cell) for cell in read_json(self.cells_path)]
        config = self.config()
        models = [Path(model).stem if is_file_choice(model) else model for model in config.get("models") or []]
        return list(product(models, config.get("sizes") or [], config.get("seeds") or []))

    def add_start(self, config: dict[str, Any], cells: Iterable[Cell]) -> dict[str, Any]:
        """Write what a start asks for, beside what earlier ones did: study.yaml and the list of cells.

        Gives the configuration with the models, axes, sizes and seeds of all starts.
        """
        old = self.config() if self.config_path.is_file() else {}
        known = self.cells() if old else []
        cells = list(dict.fromkeys([*known, *cells]))
        config = {**config, "sizes": sorted({size for _, size, _ in cells})}
        config["seeds"] = list(dict.fromkeys([*(old.get("seeds") or []), *config["seeds"]]))
        config |= merge_variants(old, config) if old else {}
        config["settled"] = {**config.get("settled", {}), **(old.get("settled") or {})}
        self.write_config(config)
        write_json(self.cells_path, cells)
        return config

    def add_cells(self, cells: Iterable[Cell]) -> None:
        """Write what a round of `--until` asks for: before it begins, so that a later start repeats it."""
        write_json(self.cells_path, list(dict.fromkeys([*self.cells(), *cells])))

    def run(self, name: str) -> RunFiles:
        return RunFiles(self.folder / name)

    def failures(self) -> list[dict[str, str]]:
        """`{"run", "error"}` of each run whose last attempt failed."""
        found = []
        for cell in self.cells():
            run = self.run(name_run(*cell))
            if not run.result_path.is_file() and (error := run.error()) is not None:
                found.append({"run": run.folder.name, "error": error})
        return found

    def rows(self) -> list[dict[str, Any]]:
        """results.csv with numbers as numbers; an empty cell is None. Raises UserError if it does not parse."""
        try:
            with self.results_path.open(newline="") as file:
                reader = csv.DictReader(file)
                rows = list(reader)
            if not {*COLUMNS} <= {*(reader.fieldnames or ())}:
                raise ValueError("columns are missing")
        except (OSError, ValueError, csv.Error) as error:
            raise UserError(
                f"{self.results_path}: cannot read it ({error}); delete it, and `vitlab report` writes it again"
            ) from None
        return [{key: parse_cell(key, value) for key, value in row.items()} for row in rows]

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """One row per finished run; a task's own metrics follow the fixed columns."""
        rows = [round_numbers(row) for row in rows]
        extra = dict.fromkeys(key for row in rows for key in row if key not in COLUMNS)
        columns = [*COLUMNS, *extra]
        lines = [format_line(columns), *(format_line([row.get(column) for column in columns]) for row in rows)]
        write_text(self.results_path, "".join(lines))

    def finished_rows(self) -> list[dict[str, Any]]:
        """The row of every finished run from its result.json, by model, size and seed. Raises UserError."""
        study, rows = self.config(), []
        name, varied = study.get("name"), list_varied_keys(study)
        for path in self.folder.glob("*/result.json"):
            run = self.run(path.parent.name)
            result = run.result() if run.config_path.exists() else None  # others' folders have no config.yaml
            if result and result["study"] == name and not self.is_copy(path.parent.name, result):
                columns = {k: v for k, v in result.items() if not isinstance(v, dict | list) and k not in NO_COLUMNS}
                varies = {key: value for key, value in self.varied(run, varied).items() if key not in columns}
                rows.append({**columns, **varies, "run": path.parent.name})
        return self.sort_rows(rows)

    def varied(self, run: RunFiles, keys: list[str]) -> dict[str, Any]:
        """The values of what a study varies in a finished run, whose configuration is read once."""
        known = self._varied.setdefault(run.folder.name, {})
        if any(key not in known for key in keys):
            known |= read_varied(run.config(), keys)
        return {key: known[key] for key in keys}

    def is_copy(self, name: str, result: dict[str, Any]) -> bool:
        """Whether a folder is a copy of a run that is here too: one seed must not count twice."""
        return result["run"] != name and self.run(result["run"]).result_path.is_file()

    def sort_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """By the study's variants, then size and seed."""
        places = {variant: place for place, variant in enumerate(dict.fromkeys(cell[0] for cell in self.cells()))}
        by = {row["model"]: (places.get(row["model"], len(places)), row["model"]) for row in rows}
        return sorted(rows, key=lambda row: (*by[row["model"]], row["train_size"], row["seed"]))


def format_line(cells: Sequence[Any]) -> str:
    """One line of CSV; a text that a spreadsheet would run as a formula begins with an apostrophe.

    The writer quotes a carriage return in a cell only where its own lines end in one.
    """
    text = io.StringIO()
    plain = [f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell for cell in cells]
    csv.writer(text, lineterminator="\r\n").writerow(plain)
    return text.getvalue().removesuffix("\r\n") + "\n"


def parse_cell(key: str, value: str | None) -> Any:
    if not value:
        return None
    if value[0] == "'" and FORMULA.match(value):
        return value[1:]
    if key in TEXT_COLUMNS:
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    return int(value) if math.isfinite(number) and value.lstrip("-").isdecimal() else number
