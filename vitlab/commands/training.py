"""Training one run with all that belongs to it: data, W&B, analyses before, while and after, the result."""

import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import nn

from vitlab import analysis
from vitlab.analysis import probes
from vitlab.analysis.capture.findings import Findings
from vitlab.config import TrainConfig, UserError, compose, load, resolved
from vitlab.data.loader import Items
from vitlab.data.opening import open_data
from vitlab.data.subset import examples
from vitlab.files import write_json
from vitlab.models import count
from vitlab.models.features import before_head
from vitlab.reports.figures.analyses import drawn
from vitlab.reports.figures.backends import matplotlib_backend
from vitlab.reports.tracking.wandb_logger import Tracker
from vitlab.studies.grid import Spec
from vitlab.tasks.base import Task
from vitlab.training.callbacks import Interrupted, Progress
from vitlab.training.files import locked, source_of
from vitlab.training.run import Run
from vitlab.training.sources import fingerprint


def train_run(
    config: DictConfig,
    folder: str | Path,
    *,
    jobs: int = 1,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Train one run to its end in its folder, or give the result that is there already.

    Raises UserError, `Interrupted` when `stop` says so, `Diverged`.
    """
    run = Run(config, open_data(config.data), folder, jobs=jobs)
    if run.finished:
        return run.files.result()
    with locked(run.files.folder):
        return train_locked(run, progress, stop)


def train_locked(
    run: Run, progress: Callable[[Progress], None] | None, stop: Callable[[], bool] | None
) -> dict[str, Any]:
    """The training itself, with the run's folder for this process alone."""
    config = run.config
    if config.probes:
        before_head(run.model)  # raises UserError now rather than when it is trained
    run.files.write_config(resolved(config))
    if config.data.modality == "text":
        run.data.tokenizer.save(run.files.tokenizer_path)
    if run.init is not None:
        write_json(run.files.init_path, {**asdict(run.init), "sha256": fingerprint(source_of(config.init))})
        print(run.init, file=sys.stderr)
    tracker = Tracker(config, run.files, family=run.family, params=count.parameters(run.model))
    resumed = run.resumed_step  # which drops the rows after it
    tracker.replay(run.files.metrics(), min(resumed, run.steps - 1))  # the end is looked at again
    refused = {name: analysis.refusal(name, run.model) for name in config.analyses}
    for reason in filter(None, refused.values()):
        print(reason, file=sys.stderr)
    chosen = [name for name, reason in refused.items() if reason is None]

    def look(step: int) -> None:
        analyse(run, tracker, chosen, step)

    try:
        look(0)
        metrics = run.fit(loggers=tracker.loggers, progress=progress, stop=stop, look=look)
        look(run.steps)
        result = run.result({**metrics, **probed(run)})
    except BaseException:
        tracker.finish({"status": "failed"}, exit_code=1)
        raise
    result["wandb"] = tracker.finish(result)
    write_json(run.files.result_path, result)  # a run that has it is finished
    tracker.forget()
    return result


def analyse(run: Run, tracker: Tracker, chosen: Sequence[str], step: int) -> None:
    """Add the state at a step to each of the chosen analyses, and draw it.

    What keeps an analysis from looking at the untrained model is raised; later it is a warning, for a run that is
    trained must not be lost.
    """
    for name in chosen:
        try:
            add_analysis(run, tracker, name, step)
        except UserError as error:
            if step == 0:
                raise
            print(f"{name}, step {step}: {error}", file=sys.stderr)
        except Exception:
            if step == 0:
                raise
            print(f"{name}, step {step}: failed; the run goes on without it", file=sys.stderr)
            traceback.print_exc()


def add_analysis(run: Run, tracker: Tracker, name: str, step: int) -> None:
    """Add the state at a step to one analysis, and draw it."""
    config, before = load("analysis", name), run.files.analysis_rows(name)
    # the untrained model of a resumed run was looked at when it began; its first weights, where it had some, are gone
    if step == 0 and (before or (run.resumed_step and source_of(run.config.init))):
        return
    found = examine(placed(run), run.task, config, step)
    kept = [row for row in before or [] if row["step"] < step]
    rows = [*kept, *found.rows]
    source = run.files.folder.name if step in (0, run.steps) else f"{run.files.folder.name} at step {step:,}"
    # that of heads shows those of the steps before too
    for figure in drawn(replace(found, rows=rows) if "heads" in config.drawings else found, config, source):
        _, picture = matplotlib_backend.save(figure, run.files.analysis_folder)
        tracker.log_figure(figure, picture, step)
    run.files.write_analysis(name, found.unit, rows, found.arrays)  # last: a step that is in it is done


def placed(run: Run) -> nn.Module:
    """The run's model on the device that it trains on."""
    return run.model.to("cuda" if run.settings.accelerator == "gpu" else "cpu")


def probed(run: Run) -> dict[str, float | None]:
    """The numbers of the configuration's probes of the trained model, for results.csv."""
    return probes.measure(placed(run), run.task, run.config.probes, run.indices, run.settings.workers)


def examine(
    model: nn.Module,
    task: Task,
    config: DictConfig,
    step: int,
    *,
    labelled: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """What one analysis finds in a model at a step over `config.examples` held-out items, of every class alike.

    An analysis whose `run` takes `labels` is given them where they are `labelled` as the model's outputs are; one
    that takes `progress` tells it how much is done, and of how much. One with the option `pictures` keeps what it
    looked at, with sides of at most so many pixels.
    """
    items, targets = Items(task.test).__getitems__(list(examples(task.test.labels, config.examples)))
    device = next(model.parameters()).device
    inputs = task.inputs(task.prepare((items.to(device), targets.to(device))))
    module = analysis.module_of(config)
    of_classes = bool(len(task.classes)) and targets.ndim == 1
    given = {"labels": targets if of_classes and labelled else None, "progress": progress}
    taken = inspect.signature(module.run).parameters.keys() & given.keys()
    found = module.run(model, inputs, config, **{key: given[key] for key in taken})
    findings = Findings.of(
        found,
        name=config.name,
        unit=module.UNIT,
        images=items.numpy() if items.ndim == 4 else None,
        labels=targets.numpy() if of_classes else None,
        classes=task.classes,
    )
    findings = replace(findings, rows=[{"step": step, **row} for row in findings.rows])
    return findings.with_pictures(config.pictures) if config.get("pictures") else findings


class StudyJob:
    """What a worker of a study does with a spec: train it, its output in the run's log.txt."""

    def __init__(self, folder: Path, jobs: int):
        self.folder = folder
        self.jobs = jobs

    def __call__(self, spec: Spec, report: Callable[[Any], None], stop: Callable[[], bool]) -> dict[str, Any]:
        folder = self.folder / spec.name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.txt").open("a", buffering=1) as log:
            sys.stdout = sys.stderr = log
            try:
                config = compose(TrainConfig, base=spec.config)
                return train_run(config, folder, jobs=self.jobs, progress=report, stop=stop)
            except Interrupted:
                print(f"{spec.name}: stopped; its checkpoint is written")
                raise
            except Exception:
                traceback.print_exc()
                raise
            finally:
                sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
