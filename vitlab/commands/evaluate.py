"""`vitlab eval`: a finished run, or a model of timm, on held-out data."""

import json
import math
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from torch import Tensor

from vitlab import tasks
from vitlab.analysis import probes
from vitlab.commands.subject import Subject, subject_of
from vitlab.config import UserError, names, printable
from vitlab.data.loader import eval_loader
from vitlab.data.opening import progress_bar
from vitlab.data.subset import resolve_size, size_problems, training_items
from vitlab.files import write_json, write_text
from vitlab.hardware import count_cores
from vitlab.reports.figures import evaluation
from vitlab.reports.figures.backends import matplotlib_backend
from vitlab.studies.store import line_of
from vitlab.tasks.base import Task

PAIRS = 5  # of classes that are confused most, shown
BATCH = 256


def evaluate(source: str, config: DictConfig, changed: Set[str], *, as_json: bool, folder: Path | None) -> int:
    """Print metrics on the held-out data of a configuration, and its probes; the exit code.

    `source` is a run's folder or `timm:NAME`, `changed` the keys that the user gave. With a folder, write eval.json
    and the confusion matrix and calibration as files and pictures. Raises UserError for data that the model does not
    fit: with probes they may have other classes than the run's.
    """
    console = Console(stderr=True)
    subject = subject_of(source, config, changed)
    data = subject.data
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    sizes = [config.train_size] if config.probes else []
    problems = size_problems(sizes, task.train, task.strata, data.name, "train_size")
    if subject.strange and not config.probes:
        instead = f"; ask for probes=[NAME], choices: {', '.join(names('probe'))}" if task.item == "image" else ""
        problems.append(f"{subject.strange}{instead}")
    if problems:
        raise UserError(problems)
    device = "cuda" if torch.cuda.is_available() and config.trainer.accelerator != "cpu" else "cpu"
    model, workers = subject.model.to(device), 0 if data.cached else count_cores()
    found: dict[str, Any] = {}
    tables: dict[str, Tensor] = {}
    size = resolve_size(config.train_size, task.train.total)
    with progress_bar(console) as progress:
        if not subject.strange:
            measured = held_out(subject, task, workers, progress)
            found = {name: float(value) for name, value in measured.items() if not value.ndim}
            refuse_not_finite(found, task)
            tables = {name: value.cpu() for name, value in measured.items() if value.ndim}
            if "confusion_matrix" in tables:
                found["most_confused"] = most_confused(tables["confusion_matrix"], task.classes)
        if config.probes:
            indices = training_items(task.train, size, config.seed)
            found |= probes.measure(model, task, config.probes, indices, workers, progress)
    head = {"run": source, "data": data.name, f"{task.item}s": len(task.test)}
    head |= {"train_size": size} if config.probes else {}
    if as_json:
        print(json.dumps({**head, **found}, indent=1))
    else:
        show(head, found, subject, task)
    if folder:
        for path in write(folder, {**head, **found}, tables, subject, task.classes):
            print(path, file=console.file if as_json else None)
    return 0


def held_out(
    subject: Subject, task: Task, workers: int, progress: Callable[[str, int, int], None]
) -> dict[str, Tensor]:
    """Every metric of the task on all held-out images."""
    device, split = next(subject.model.parameters()).device, task.test
    metrics, done = task.metrics(detailed=True).to(device), 0
    with torch.inference_mode():
        for batch in eval_loader(split, batch_size=task.eval_batch_size or BATCH, workers=workers):
            task.update(metrics, subject.model, task.prepare([part.to(device) for part in batch]))
            done += len(batch[0])
            progress(f"held-out {task.item}s", done, len(split))
        return dict(metrics.compute())


def refuse_not_finite(found: dict[str, float], task: Task) -> None:
    for name, value in found.items():
        if not math.isfinite(value):
            why = "is data.std what it was trained with?" if task.item == "image" else "are its weights finite?"
            raise UserError(f"the model's {name} on these {task.item}s is {value}: {why}")


def most_confused(confusion: Tensor, classes: Sequence[str]) -> list[dict[str, Any]]:
    """The pairs of (true, predicted) class with the most images, `share` of the true class's images; all mistakes."""
    wrong = confusion.clone().fill_diagonal_(0)
    order = wrong.flatten().argsort(descending=True, stable=True)[:PAIRS]
    pairs = [divmod(place, len(classes)) for place in order.tolist()]
    return [
        {
            "true": classes[true],
            "predicted": classes[predicted],
            "images": int(wrong[true, predicted]),
            "share": float(wrong[true, predicted] / confusion[true].sum()),
        }
        for true, predicted in pairs
        if wrong[true, predicted]
    ]


def show(head: dict[str, Any], found: dict[str, Any], subject: Subject, task: Task) -> None:
    print(f"{head['run']} on {len(task.test):,} held-out {task.item}s of {head['data']}:")
    if subject.strange:
        print(f"  accuracy, loss and the like are left out: {printable(subject.strange)}")
    elif subject.name.startswith("timm:"):
        print(f"  (its classes are taken to be those of {subject.data.name}, in the same order)")
    for name, value in found.items():
        if name != "most_confused":
            print(f"  {name:17} {value:.4f}" if value is not None else f"  {name:17} too few training {task.item}s")
    if "train_size" in head:
        print(f"  (probes: {head['train_size']:,} training {task.train.unit}s)")
    if found.get("most_confused"):
        print("Most confused classes:")
    for pair in found.get("most_confused") or ():
        true, predicted = printable(pair["true"]), printable(pair["predicted"])
        print(f"  {true} taken for {predicted}: {pair['images']:,} {task.item}s, {pair['share']:.1%} of {true}")


def write(
    folder: Path, found: dict[str, Any], tables: dict[str, Tensor], subject: Subject, classes: Sequence[str]
) -> list[Path]:
    """The files of an evaluation; gives their paths."""
    paths, title = [folder / "eval.json"], f"{subject.name} on {subject.data.name}"
    write_json(paths[0], found)
    if "confusion_matrix" in tables:
        counts = tables["confusion_matrix"].tolist()
        lines = [["true \\ predicted", *classes], *([name, *row] for name, row in zip(classes, counts, strict=True))]
        paths.append(folder / "confusion_matrix.csv")
        write_text(paths[-1], "".join(map(line_of, lines)))
        paths += matplotlib_backend.save(evaluation.confusion_matrix(counts, classes, title), folder)
    if "reliability" in tables:
        figure = evaluation.reliability(tables["reliability"].tolist(), found["calibration_error"], title)
        paths += matplotlib_backend.save(figure, folder)
    return paths
