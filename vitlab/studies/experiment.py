"""Do the parts that a run lacks (training with its test, analyses, probes), and tell its observer.

A finished run does the analyses and probes that are asked for later; nothing is trained again.
"""

import itertools
import shlex
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from vitlab import analysis, tasks
from vitlab.analysis import probes
from vitlab.config import UserError, compose, load, resolved
from vitlab.config.schema import TrainConfig
from vitlab.config.schema.fields import Choice
from vitlab.data.opening import hash_data, open_data
from vitlab.data.split import size_problems
from vitlab.files import write_json
from vitlab.formatting import round_numbers
from vitlab.models.base import evaluating
from vitlab.studies.claims import ClaimLost, Hold
from vitlab.studies.outcomes import Outcomes, write_outcomes
from vitlab.studies.store import LATER, list_missing, summarize_error
from vitlab.tasks.base import Task
from vitlab.training.distributed import ALONE, Ranks
from vitlab.training.files import Progress, RunFiles, source_of, write_analysis
from vitlab.training.load import refuse_other_source
from vitlab.training.loop import Diverged, Hooks, Interrupted
from vitlab.training.run import ON_FEATURES, Run, count_finetuning_steps, make_result, plan_run, start_run
from vitlab.training.settings import HERE, Machine
from vitlab.training.train import compare_splits, keep_process_settings, test, train

FINETUNE = "finetune"  # the kind of the probe that trains
MOST_CLASSES = 1000  # count right answers per class up to so many classes


@keep_process_settings()
def run_experiment(
    config: TrainConfig,
    claim: Hold,
    *,
    machine: Machine = HERE,
    ranks: Ranks = ALONE,
    trunks: Sequence[str] | None = None,
    observer: Any | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] | None = None,
) -> dict[str, Any] | None:
    """Do what a run lacks, in a folder that rank 0 has claimed; return the result on rank 0. Call it on every rank.

    `start_run` takes `ranks` and `trunks`. The observer, a `vitlab.reports.wandb.RunReporter`, draws the
    analyses and logs the training. Raises UserError, `ClaimLost` when another process has taken the run over,
    `Interrupted` when `stop` says so, `Diverged`.
    """
    data, files = open_data(config.data), RunFiles(claim.folder)
    refuse_other_source(source_of(config.init), files)
    lacking = ranks.share(list_missing(files, resolved(config), hash_data(config.data, data)))
    if lacking and ranks.is_main:
        files.remove_leftovers()
    if "training" not in lacking:
        ranks.leave()
    if not lacking or not (ranks.is_main or "training" in lacking):
        return files.result()
    run = start_run(plan_run(config, data, machine), files.folder, ranks, trunks)
    if ranks.is_main:
        return complete(run, lacking, observer, Hooks(progress, stop, claim.check))
    train(run)
    ranks.leave()
    return None


def complete(run: Run, lacking: Sequence[str], observer: Any | None, hooks: Hooks) -> dict[str, Any]:
    """Do the parts that a run lacks, on rank 0: its training and test, each analysis, each probe; return the result.

    A failed analysis, probe or test on other data does not end a run that has begun: the run keeps its result,
    error.json names the failure, and a later start tries again. A study counts the run as finished.
    """
    files, training = run.files, "training" in lacking
    asked = [name for name in run.config.analyses if name in lacking]
    refused = {name: why for name in asked if (why := analysis.refusal(load("analysis", name), run.model, run.task))}
    print(*refused.values(), sep="\n", end="\n" * bool(refused), file=sys.stderr)
    names = [name for name in asked if name not in refused]
    probed = [name for name in (*run.config.probes, *run.config.eval_on) if name in lacking]
    total, count = 2 * len(names) + bool(probed), itertools.count(1)

    def advance() -> None:
        if not training:
            hooks.check_claim()
            hooks.progress(Progress(next(count), total))
            if hooks.stop and hooks.stop():
                raise Interrupted

    def analyze(step: int) -> None:
        hooks.check_claim()
        for name in names:
            if step == 0 and training and not run.resumed_step:  # nothing is lost yet
                add_analysis(run, observer, name, step)
            else:
                with surviving(run, name, step):
                    add_analysis(run, observer, name, step)
            advance()

    if training:
        result = train_and_test(run, observer, replace(hooks, analyze=analyze))
    else:
        check_later(run)
        result, before = files.finished_result(), files.config()
        run.last_step = result["steps"]
        analyze(0)
        run.load_weights()
        analyze(run.last_step)
        if probed:
            if count_finetuning_steps(run.config):
                run.write_steps()
            result |= round_numbers(measure_probes(run, probed, hooks))
            write_json(files.result_path, result)
            advance()
        # last: whatever ends this process, the next start does what is left
        done = {key: [name for name in vars(run.config)[key] if name in lacking] for key in LATER}
        files.write_config({**before, **{key: [*before.get(key, []), *run.keep(new)] for key, new in done.items()}})
    if run.failed:
        files.write_error("; ".join(run.failed.values()))
    elif not training:
        files.error_path.unlink(missing_ok=True)
    return result


@contextmanager
def surviving(run: Run, name: str, step: int | None = None) -> Iterator[None]:
    """Wrap one analysis, probe or other test of a run: note its error in `run.failed`, or clear an earlier error."""
    try:
        yield
        run.failed.pop(name, None)
    except (ClaimLost, Interrupted):
        raise
    except Exception as error:
        if not isinstance(error, UserError):
            traceback.print_exc()
        folder, instead = shlex.quote(str(run.files.folder)), ""
        if name in run.config.analyses:
            instead = f", or vitlab analyze {folder} {shlex.quote(name)}"
        elif name in run.config.probes and load("probe", name.partition("@")[0]).kind != FINETUNE:
            instead = f", or vitlab eval {folder} {shlex.quote(f'probes=[{name}]')}"
        why = f"{name} failed: {summarize_error(error)}"
        run.failed[name] = f"{why}; the run is kept; to try again, give its command once more{instead}"
        print(f"{why} (step {step})" if step else why, file=sys.stderr)


def check_later(run: Run) -> None:
    """Raise UserError, before any work, for probes and tests on other data that a run cannot do."""
    for entry in run.config.eval_on:
        open_shifted(run, entry)
    for name in run.config.probes:
        config, data = load("probe", name.partition("@")[0]), name.partition("@")[2]
        if config.kind != FINETUNE:
            probes.find_run(config)
        if data and "image_size" in run.task.shape:
            probes.open_task(data, run.task)
        if config.kind == FINETUNE:
            for child in list_finetunings(run, data, config):
                plan = plan_run(child, open_data(child.data))
                plan.count_steps(child.train_size)
                if plan.task.of not in config.of:
                    raise UserError(f"probes={name}: is for {', '.join(config.of)}, but data={data} has {plan.task.of}")


def train_and_test(run: Run, observer: Any | None, hooks: Hooks) -> dict[str, Any]:
    """Train and measure a run, on rank 0; write the result, which finishes the run, and return it.

    A trial that diverges has a result, too.
    """
    run.write_start()
    check_later(run)
    if run.init is not None:
        print(run.init, file=sys.stderr)
    if run.plan.head:
        print(ON_FEATURES, file=sys.stderr)
    hooks = replace(hooks, log=observer.on_start(run)) if observer else hooks
    try:
        try:
            result = measure(run, hooks)
        except Diverged as error:
            if run.config.trial is None:
                raise
            run.last_step = max((row["step"] for row in run.files.metrics()), default=0)
            result = make_result(run, {}) | {"status": "diverged", "diverged": str(error)}
        hooks.check_claim()
        result |= observer.on_result(run, result) if observer else {}
    except BaseException:
        if observer:
            observer.on_failure(run)
        raise
    run.files.write_config(resolved(run.config) | {key: run.keep(vars(run.config)[key]) for key in LATER})
    result = run.files.write_result(result)
    if observer:
        observer.on_end(run)
    return result


def measure(run: Run, hooks: Hooks) -> dict[str, Any]:
    """Train; test and analyze once the other ranks have left."""
    config, files = run.config, run.files
    hooks.analyze(0)
    trained = train(run, hooks)
    run.ranks.leave()

    def show(what: str, done: int, total: int) -> None:
        hooks.progress(Progress(done, total, note=what))

    tested = test(run, show)
    compared = compare_splits(run, trained.validation, lambda _, *far: show("again on validation", *far))
    hooks.analyze(run.last_step)
    beside = measure_probes(run, [*config.probes, *config.eval_on], hooks)
    result = make_result(run, {**tested.columns, **trained.columns, **compared, **beside})
    outcomes = Outcomes(tested.outcome, *tested.outcomes)
    hooks.check_claim()
    write_outcomes(files.heldout_path, outcomes)
    if tested.texts is not None:
        write_json(files.generated_path, tested.texts)
    return result | count_right(run.task, outcomes)


def count_right(task: Task, outcomes: Outcomes) -> dict[str, Any]:
    """Count items per class, `by_class`: {name: [right, all]}; {} unless an accuracy over 2 to MOST_CLASSES classes."""
    if outcomes.key != "accuracy" or not 1 < len(task.strata) <= MOST_CLASSES:
        return {}
    labels, classes = task.test.labels, len(task.strata)
    right, items = (np.bincount(labels, weights=weights, minlength=classes) for weights in (outcomes.means, None))
    return {"by_class": {name: [int(r), int(n)] for name, r, n in zip(task.strata, right, items, strict=True)}}


def add_analysis(run: Run, observer: Any | None, name: str, step: int) -> None:
    """Add the findings at a step to one analysis."""
    config = load("analysis", name)
    before = (run.files.analysis(config.name) or {}).get("rows")
    # a resumed run analyzed its untrained model when it began; its initial weights, if any, are gone
    if step == 0 and (before or (run.resumed_step and source_of(run.config.init) and run.init is None)):
        return
    with evaluating(model := run.model_on_device()):  # a user's analysis may leave it in eval mode; training goes on
        findings = analysis.examine(model, run.task, config, step)
    rows = [*(row for row in before or [] if row["step"] < step), *findings.rows]
    if observer:
        observer.on_analysis(run, config, findings, rows, step)
    # last: a step in this file is done
    write_analysis(run.files.analysis_folder, {**findings.to_dict(), "rows": rows}, findings.arrays)


def measure_probes(run: Run, names: Sequence[str], hooks: Hooks) -> dict[str, float | None]:
    """Test the trained model on other data and by probes; return columns of results.csv, with the probes' seconds."""
    numbers: dict[str, float | None] = {}
    for name in names:
        if name in run.config.eval_on:
            with surviving(run, name):
                task = open_shifted(run, name)
                found = run.evaluate(task.test, task, detailed=True).compute()
                keys = run.task.metric.key, "loss", str(run.config.task.metric).partition("@")[0]
                numbers |= {f"{key}@{name}": float(found[key]) for key in keys if key in found}
    names, began = [name for name in names if name in run.config.probes], time.monotonic()
    chosen = {name: load("probe", name.partition("@")[0]) for name in names}
    frozen = [name for name, config in chosen.items() if config.kind != FINETUNE]
    around = partial(surviving, run)
    numbers |= probes.measure(run.model_on_device(), run.task, frozen, run.indices, run.settings.workers, around=around)
    for name, config in chosen.items():
        if name not in frozen:
            with surviving(run, name):
                numbers |= finetune(run, name.partition("@")[2], config, hooks)
    return numbers | ({"probe_s": round(time.monotonic() - began, 2)} if names else {})


def open_shifted(run: Run, entry: str) -> Task:
    tokenizer = str(run.files.tokenizer_path) if run.task.tokenizer is not None else None
    return probes.open_shifted(run.config, run.task, entry, tokenizer)


def list_finetunings(run: Run, name: str, config: Choice) -> list[TrainConfig]:
    """List the configurations that fine-tune a run on other data as a probe, without their initial weights."""
    settings = {"data": name, "budget.steps": config.steps, "recipe.lr": config.rate * run.config.recipe.lr}
    settings |= {"wandb.mode": "off", "trainer.evaluations": 1, "analyses": []}
    if "image_size" in run.task.shape:
        settings["data.image_size"] = list(run.task.shape["image_size"])
    else:
        settings |= {"data.tokenizer": str(run.files.tokenizer_path), "data.length": run.task.shape["length"]}
    kept = {key: resolved(run.config)[key] for key in ("model", "recipe", "seed")}
    return [compose(TrainConfig, [*settings.items(), ("train_size", labels)], base=kept) for labels in config.labels]


def finetune(run: Run, name: str, config: Choice, hooks: Hooks) -> dict[str, float | None]:
    """Fine-tune the trained model on labels of other data; return test accuracies by `finetune_100@NAME`.

    An accuracy is None if the data have no such training set. `finetune_flops`: the total cost, beside train_flops.
    """
    folder, numbers, spent = run.files.folder / "finetuned" / name, {}, 0
    shutil.rmtree(folder, ignore_errors=True)  # an earlier attempt may have had other weights
    for child in list_finetunings(run, name, config):
        task = tasks.build(child.task, recipe=child.recipe, data=open_data(child.data), data_config=child.data)
        key, labels = f"finetune_{child.train_size}@{name}", child.train_size
        numbers[key] = None
        if not size_problems([labels], task.train, task.strata, name):
            child = compose(TrainConfig, [("init.weights", str(run.files.folder))], base=resolved(child))
            result = run_experiment(child, Hold(folder / f"n{labels}"), stop=hooks.stop)
            numbers[key], spent = result["accuracy"], spent + result["train_flops"]
    return {**numbers, "finetune_flops": spent}
