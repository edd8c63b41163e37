"""`vitlab eval`: a finished run, or a model of timm, on held-out data."""

import json
import math
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab.commands.arguments import CommandParser, source_config, status_line
from vitlab.config import UserError, load, names, printable, raise_all
from vitlab.config.schema import TrainConfig
from vitlab.console import Console
from vitlab.data.opening import progress_bar
from vitlab.data.split import resolve_size, size_problems, training_items
from vitlab.files import write_json, write_text
from vitlab.formatting import round_numbers
from vitlab.hardware import count_cores
from vitlab.studies.store import format_line
from vitlab.training.files import refuse_unwritable

if TYPE_CHECKING:
    from torch import Tensor

    from vitlab.tasks.base import Task
    from vitlab.training.load import Subject

DESCRIPTION = """Evaluate a finished run on held-out images, its own or another data set's, and probe its features:
  vitlab eval runs/quick/vit_nano-n32000-s0 --out evaluation
  vitlab eval runs/quick/vit_nano-n32000-s0 probes=[fewshot,linear,knn] train_size=5000
  vitlab eval timm:vit_small_patch16_224 data=cifar10 probes=[knn]"""
PAIRS = 5  # of classes that are confused most, shown


def main(words: Sequence[str]) -> int:
    parser = CommandParser("eval", DESCRIPTION)
    parser.add_argument("run", metavar="RUN|timm:NAME", help="the run's folder, or a model of timm")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_json()
    parser.add_out("where to write the numbers and pictures (default: nowhere)")
    args = parser.parse_intermixed_args(words)
    config, changed = source_config(args.run, args.overrides, ("data", "train_size", "probes"))
    if args.out:
        refuse_unwritable(args.out)
    return evaluate(args.run, config, changed, as_json=args.json, folder=args.out)


def evaluate(source: str, config: TrainConfig, changed: Set[str], *, as_json: bool, folder: Path | None) -> int:
    """Print metrics on the held-out data of a configuration, and its probes; the exit code.

    `source` is a run's folder or `timm:NAME`, `changed` the keys that the user gave. With a folder, write eval.json
    and the confusion matrix and calibration as files and pictures. Raises UserError for data that do not fit the
    model; only probes work on other classes than the run's.
    """
    with status_line("loading torch, lightning and timm", quiet=as_json):
        from vitlab import tasks
        from vitlab.analysis import probes
        from vitlab.tasks.base import evaluate
        from vitlab.training.load import load_subject

    console = Console(stderr=True)
    subject = load_subject(source, config, changed)
    data = subject.data
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    if subject.scale is not None:  # the model's numbers are standardised by its own training data, not by these
        task.objective.scale = subject.scale
    sizes = [config.train_size] if config.probes else []
    problems = size_problems(sizes, task.train, task.strata, data.name, "train_size")
    if subject.mismatch and not config.probes:
        choices = ", ".join(name for name in names("probe") if name != "finetune")
        instead = f"; ask for probes=[NAME], choices: {choices}" if task.item == "image" else ""
        problems.append(f"{subject.mismatch}{instead}")
    trained = [probe for probe in config.probes if load("probe", probe.partition("@")[0]).kind == "finetune"]
    problems += [f"probes={probe}: trains; give it to vitlab train or vitlab scale" for probe in trained]
    raise_all(problems)
    model, workers = subject.model, 0 if data.cached else count_cores()
    results: dict[str, Any] = {}
    tables: dict[str, Tensor] = {}
    size = resolve_size(config.train_size, task.train.total)
    task.training_indices = training_items(task.train, min(size, task.train.total), config.seed)
    with progress_bar(console) as progress:
        if not subject.mismatch:
            options = {"detailed": True, "progress": progress}
            metrics = evaluate(model, task, task.test, subject.autocast, workers, **options).compute()
            results = {name: float(value) for name, value in metrics.items() if not value.ndim}
            for name, value in results.items():
                if not math.isfinite(value):
                    why = "is data.std that of its training?" if task.item == "image" else "are its weights finite?"
                    raise UserError(f"the model's {name} on these {task.item}s is {value}: {why}")
            tables = {name: value.cpu() for name, value in metrics.items() if value.ndim}
            if "confusion_matrix" in tables:
                results["most_confused"] = rank_confused_pairs(tables["confusion_matrix"], task.classes)
        if config.probes:
            results |= probes.measure(model, task, config.probes, task.training_indices, workers, progress)
    results = round_numbers(results)
    head = {"run": source, "data": data.name, f"{task.item}s": len(task.test)}
    head |= {"train_size": size} if config.probes else {}
    if as_json:
        print(json.dumps({**head, **results}, indent=1))
    else:
        show(head, results, subject, task)
    if folder:
        for path in write(folder, {**head, **results}, tables, subject, task.classes):
            print(path, file=console.file if as_json else None)
    return 0


def rank_confused_pairs(confusion: "Tensor", classes: Sequence[str]) -> list[dict[str, Any]]:
    """The pairs of (true, predicted) classes with the most mistakes; `share` is of the true class's images."""
    true, predicted = confusion.nonzero(as_tuple=True)  # few of the C x C pairs where there are many classes
    wrong = true != predicted
    true, predicted = true[wrong], predicted[wrong]
    images, totals = confusion[true, predicted], confusion.sum(dim=1)
    return [
        {
            "true": classes[true[place]],
            "predicted": classes[predicted[place]],
            "images": int(images[place]),
            "share": float(images[place] / totals[true[place]]),
        }
        for place in images.argsort(descending=True, stable=True)[:PAIRS]
    ]


def show(head: dict[str, Any], results: dict[str, Any], subject: "Subject", task: "Task") -> None:
    print(f"{head['run']} on {len(task.test):,} held-out {task.item}s of {head['data']}:")
    if subject.mismatch:
        print(f"  no accuracy and no loss: {printable(subject.mismatch)}")
    elif subject.name.startswith("timm:"):
        print(f"  (assuming that its classes are those of {subject.data.name}, in the same order)")
    for name, value in results.items():
        if name != "most_confused":
            print(f"  {name:17} {value:.4f}" if value is not None else f"  {name:17} too few training {task.item}s")
    if "train_size" in head:
        print(f"  (probes: {head['train_size']:,} training {task.train.unit}s)")
    pairs = results.get("most_confused", [])
    if pairs:
        print("Most confused classes:")
    for pair in pairs:
        true, predicted = printable(pair["true"]), printable(pair["predicted"])
        print(f"  {true} taken for {predicted}: {pair['images']:,} {task.item}s, {pair['share']:.1%} of {true}")


def write(
    folder: Path, results: dict[str, Any], tables: "dict[str, Tensor]", subject: "Subject", classes: Sequence[str]
) -> list[Path]:
    """Write the files of an evaluation; gives their paths."""
    from vitlab.reports.figures import images, save_figure

    paths, title = [folder / "eval.json"], f"{subject.name} on {subject.data.name}"
    write_json(paths[0], results)
    if "confusion_matrix" in tables:
        counts = tables["confusion_matrix"].numpy()
        pairs = ((classes[t], classes[p], counts[t, p]) for t, p in zip(*counts.nonzero(), strict=True))
        paths.append(folder / "confusion_matrix.csv")
        write_text(paths[-1], "".join(map(format_line, [("true", "predicted", "count"), *pairs])))
        paths += save_figure(images.plot_confusion_matrix(counts, classes, title), folder)
    if "reliability" in tables:
        figure = images.plot_reliability(tables["reliability"].tolist(), results["calibration_error"], title)
        paths += save_figure(figure, folder)
    return paths
