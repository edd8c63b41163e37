"""A study's files, checked: what is malformed comes back as UserError that names the file, all problems at once.

A file that is not there is no problem: a report must be possible of a study that is half done, or partly deleted.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from vitlab.config import UserError, read_yaml
from vitlab.reports.metric import METRICS
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

Item = TypeVar("Item")
Found = TypeVar("Found")
NUMBERS = ("steps", "examples_seen", "params", "train_flops", "train_items", "train_loss", "images_per_s", "wall_s")


def every(items: Iterable[Item], read: Callable[[Item], Found]) -> list[Found]:
    """`read` of each item; the problems of all of them are raised together."""
    found, problems = [], []
    for item in items:
        try:
            found.append(read(item))
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(dict.fromkeys(problems))
    return found


def study_config(study: StudyFiles) -> dict[str, Any]:
    """study.yaml."""
    found = study.config()
    for key in ("models", "sizes", "seeds"):
        if not isinstance(found.get(key) or [], list):
            raise UserError(f"{study.config_path}: {key}={found[key]} is not a list")
    return found


def results(study: StudyFiles) -> list[dict[str, Any]]:
    """The rows of results.csv, by the study's models and then size and seed; none before the first run has ended."""
    if not study.results_path.is_file():
        return []
    rows = study.rows()
    problems = [line for number, row in enumerate(rows, start=2) for line in row_problems(study, number, row)]
    if problems:
        raise UserError(problems)
    models = list(dict.fromkeys(row["model"] for row in rows))
    return sorted(rows, key=lambda row: (models.index(row["model"]), row["train_size"], row["seed"] or 0))


def row_problems(study: StudyFiles, number: int, row: dict[str, Any]) -> Iterable[str]:
    where = f"{study.results_path}, line {number}"
    for key in ("run", "model"):
        if not isinstance(row[key], str):
            yield f"{where}: {key} is empty"
    if not isinstance(row["train_size"], int) or row["train_size"] < 1:
        yield f"{where}: train_size={row['train_size']} is not a number of examples"
    for key in ("seed", *NUMBERS, *(metric.key for metric in METRICS)):
        if isinstance(row.get(key), (str, list)):
            yield f"{where}: {key}={row[key]} is not a number"
    if isinstance(row["run"], str) and not inside(study.folder, row["run"]):
        yield f"{where}: run={row['run']} is not a folder of the study"


def inside(folder: Path, name: str) -> bool:
    """Whether a name stays below a folder: results.csv may come from elsewhere."""
    return not Path(name).is_absolute() and ".." not in Path(name).parts and (folder / name) != folder


def curves(run: RunFiles) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl."""
    try:
        rows = run.metrics()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{run.metrics_path}: cannot read it: {error}") from None
    if not all(isinstance(row, dict) and isinstance(row.get("step"), (int, float)) for row in rows):
        raise UserError(f"{run.metrics_path}: a row has no step")
    return rows


def analysis(run: RunFiles, name: str) -> dict[str, Any] | None:
    """`{"name", "unit", "rows": [{"step", "layer", "head", "value"}, ...]}`, or None where it did not run.

    None too for an analysis that is not of heads: its pictures lie beside its numbers.
    """
    path = run.analysis_folder / f"{name}.json"
    try:
        found = run.analysis(name)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read it: {error}") from None
    if found is None:
        return None
    rows = found.get("rows") if isinstance(found, dict) else None
    of_heads = not isinstance(rows, list) or any(isinstance(row, dict) and "head" in row for row in rows)
    if not of_heads and all(isinstance(row, dict) and {"step", "value"} <= row.keys() for row in rows):
        return None
    keys = {"step", "layer", "head", "value"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and keys <= row.keys() for row in rows):
        raise UserError(f"{path}: expected rows with {', '.join(sorted(keys))}")
    return found


def result(run: RunFiles) -> dict[str, Any]:
    """result.json, empty where it is gone."""
    found = run.result()
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UserError(f"{run.result_path}: expected a mapping")
    for key in ("environment", "settings", "wandb"):
        if not isinstance(found.get(key) or {}, dict):
            raise UserError(f"{run.result_path}: {key} is not a mapping")
    return found


def config(run: RunFiles) -> dict[str, Any]:
    """config.yaml, empty where it is gone."""
    found = read_yaml(run.config_path) if run.config_path.is_file() else {}
    if not isinstance(found.get("recipe") or {}, dict):
        raise UserError(f"{run.config_path}: recipe is not a mapping")
    return found


def texts(study: StudyFiles) -> list[dict[str, Any]]:
    """`{"size", "texts"}` of each size of a study of text, from figures/samples.json; empty for one of images."""
    path = study.figures / "samples.json"
    try:
        found = json.loads(path.read_text()) if path.is_file() else []
        return [{"size": int(one["size"]), "texts": [str(text) for text in one["texts"]]} for one in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: cannot read it: {error}") from None


def failures(study: StudyFiles) -> list[dict[str, str]]:
    """`{"run", "error"}` of each run that failed, from failed.json."""
    path = study.folder / "failed.json"
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read it: {error}") from None
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and {"run", "error"} <= one.keys() for one in found
    ):
        raise UserError(f"{path}: expected a list of run and error")
    return [{"run": str(one["run"]), "error": str(one["error"])} for one in found]
