"""A study's files, checked: what is malformed comes back as UserError that names the file, all problems at once.

A file that is not there is no problem: a report must be possible of a study that is half done, or partly deleted.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from vitlab.config import UserError, read_yaml
from vitlab.files import read_json
from vitlab.formatting import finite
from vitlab.studies.metrics import METRICS
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

Item = TypeVar("Item")
Found = TypeVar("Found")
LONGEST = 200  # bytes of a folder's name, so that one with a suffix is a file's on every file system
LARGEST_COUNT = 10**15
MOST = 1e100  # no number of a study is larger: what draws them must be able to add to them
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
    if not isinstance(found.get("set") or [], list):
        raise UserError(f"{study.config_path}: set={found['set']} is not a list")
    if not isinstance(found.get("data") or {}, dict):
        raise UserError(f"{study.config_path}: data={found['data']} is not a mapping")
    return found


def results(study: StudyFiles) -> list[dict[str, Any]]:
    """The rows of results.csv, by the study's models and then size and seed; none before the first run has ended."""
    if not study.results_path.exists():
        return []
    rows = study.rows()
    problems = [line for number, row in enumerate(rows, start=2) for line in row_problems(study, number, row)]
    twice = [run for run, times in Counter(str(row["run"]) for row in rows).items() if times > 1]
    problems += [f"{study.results_path}: run={run} stands there twice; delete one of its lines" for run in twice]
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
    for key in ("seed", "train_size", *NUMBERS, *(metric.key for metric in METRICS)):
        if isinstance(row.get(key), str) and key != "train_size":
            yield f"{where}: {key}={row[key]} is not a number"
        elif abs(finite(row.get(key)) or 0) > MOST:
            yield f"{where}: {key}={row[key]:.3g} is too large a number"
    for metric in METRICS:
        if metric.percent and not 0 <= (finite(row.get(metric.key)) or 0) <= 1:
            yield f"{where}: {metric.key}={row[metric.key]} is not a share between 0 and 1"
    if isinstance(row["run"], str) and not inside(study.folder, row["run"]):
        yield f"{where}: run={row['run']} is not a folder of the study"


def inside(folder: Path, name: str) -> bool:
    """Whether a name stays below a folder: results.csv may come from elsewhere."""
    parts = Path(name).parts
    fits = all(len(part.encode(errors="backslashreplace")) <= LONGEST for part in parts) and len(name) <= 4 * LONGEST
    return fits and not Path(name).is_absolute() and ".." not in parts and (folder / name) != folder


def curves(run: RunFiles) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl."""
    try:
        rows = run.metrics()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{run.metrics_path}: cannot read it: {error}") from None
    if not all(isinstance(row, dict) and whole_from(row.get("step"), 0) for row in rows):
        raise UserError(f"{run.metrics_path}: a row's step is not a whole number; delete the run's folder")
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
    for number, row in enumerate(rows, start=1):
        for key in ("step", "layer", "head"):
            if not whole_from(row[key], 0 if key == "step" else 1):
                raise UserError(f"{path}: row {number}: {key}={row[key]!r:.40} is not a whole number that counts it")
        if row["value"] is not None and (isinstance(row["value"], bool) or not isinstance(row["value"], (int, float))):
            raise UserError(f"{path}: row {number}: value={row['value']!r:.40} is not a number")
    return found


def whole_from(value: Any, least: int) -> bool:
    """Whether a value of JSON is a whole number that counts something."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST_COUNT


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
    for part in ("environment", "wandb"):
        for key, value in (found.get(part) or {}).items():
            if isinstance(value, (list, dict)):
                raise UserError(f"{run.result_path}: {part}.{key} is neither a text nor a number")
    return found


def config(run: RunFiles) -> dict[str, Any]:
    """config.yaml, empty where it is gone."""
    found = read_yaml(run.config_path) if run.config_path.is_file() else {}
    if not isinstance(found.get("recipe") or {}, dict):
        raise UserError(f"{run.config_path}: recipe is not a mapping")
    if not isinstance(found.get("analyses") or [], list):
        raise UserError(f"{run.config_path}: analyses={found['analyses']} is not a list")
    return found


def texts(study: StudyFiles) -> list[dict[str, Any]]:
    """`{"size", "texts"}` of each size of a study of text, from figures/samples.json; empty for one of images."""
    path = study.figures / "samples.json"
    try:
        found = read_json(path) if path.is_file() else []
        return [{"size": int(one["size"]), "texts": [str(text) for text in one["texts"]]} for one in found]
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise UserError(f"{path}: cannot read it: {error}") from None


def failures(study: StudyFiles) -> list[dict[str, str]]:
    """`{"run", "error"}` of each run that failed, from failed.json."""
    path = study.folder / "failed.json"
    if not path.is_file():
        return []
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read it: {error}") from None
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and {"run", "error"} <= one.keys() for one in found
    ):
        raise UserError(f"{path}: expected a list of run and error")
    return [{"run": str(one["run"]), "error": str(one["error"])} for one in found]
