"""One experiment: a run trained in its folder, analysed before, while and after, with whoever observes it.

An analysis or a probe that is asked for later is computed from the finished run; nothing is trained again.
"""

import itertools
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import Logger

from vitlab import analysis
from vitlab.analysis import probes
from vitlab.analysis.capture.findings import Findings
from vitlab.config import UserError, compose, identity, load, resolved
from vitlab.config.checks import list_settings, read_choice
from vitlab.config.schema import AnalysisConfig, TrainConfig, TrainerConfig
from vitlab.data.cache import contents
from vitlab.data.opening import open_data
from vitlab.files import replacing, write_json
from vitlab.formatting import round_numbers
from vitlab.studies.claims import Borrowed, Hold, hold
from vitlab.studies.grid import read_varied
from vitlab.studies.stats import Outcomes, write_outcomes
from vitlab.studies.store import Trial, TrialFiles
from vitlab.tasks.base import Task
from vitlab.training.callbacks import Diverged, Interrupted, score
from vitlab.training.distributed import ALONE, Ranks
from vitlab.training.files import Progress, RunFiles, source_of, write_analysis
from vitlab.training.load import refuse_other_source
from vitlab.training.run import Prepared, Run, make_result, prepare
from vitlab.training.settings import HERE, Placement
from vitlab.training.train import Hooks, compare_splits, test, train

MOST_CLASSES = 1000  # whose right answers a result counts


class Observer:
    """Watches an experiment; a subclass overrides what it wants to know. One observer watches one experiment."""

    def observe_trial(self, run: str) -> "Observer":
        """Another observer, of a trial of `tune` for the run of this name."""
        return Observer()

    def on_start(self, run: Run) -> Sequence[Logger]:
        """Training begins, or resumes from `run.resumed_step`; gives Lightning's loggers of the training's rows."""
        return ()

    def on_analysis(
        self, run: Run, config: AnalysisConfig, findings: Findings, rows: list[dict[str, Any]], step: int
    ) -> None:
        """An analysis looked at the model at a step; `rows` are those of the steps before, too.

        Its file is written afterwards: a step that stands in it has been observed.
        """

    def on_result(self, run: Run, result: dict[str, Any]) -> dict[str, Any]:
        """The run is trained; gives entries that are added to its result.json, which is written next."""
        return {}

    def on_failure(self, run: Run) -> None:
        """The run ends without a result: an error, or it was stopped."""

    def on_end(self, run: Run) -> None:
        """result.json is written: the run is finished."""


def train_run(config: TrainConfig, folder: str | Path, **options: Any) -> dict[str, Any]:
    """Train one run to its end in its folder, or complete the result that is there; gives the result.

    `options` are those of `run_experiment`. Raises `Held` while another process trains the run, UserError for a run of
    several devices, which `vitlab train` and torchrun start.
    """
    refuse_single_process(config.trainer)
    with hold(folder) as claim:
        return run_experiment(config, claim, **options)


def refuse_single_process(trainer: TrainerConfig) -> None:
    """Raise UserError for a run of several devices in this one process."""
    if (devices := trainer.devices * trainer.nodes) > 1:
        raise UserError(
            f"trainer.devices={trainer.devices} trainer.nodes={trainer.nodes}: start {devices} processes with torchrun "
            f"or srun --nodes={trainer.nodes} --ntasks-per-node={trainer.devices} vitlab train ..."
        )


def run_experiment(
    config: TrainConfig,
    claim: Hold | Borrowed,
    *,
    placement: Placement = HERE,
    ranks: Ranks = ALONE,
    observer: Observer | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> dict[str, Any] | None:
    """The same in a folder that rank 0 has claimed, on every rank; gives the result on rank 0.

    Raises UserError, `ClaimLost` when another process has taken the run over, `Interrupted` when `stop` says so,
    `Diverged`.
    """
    data, files = open_data(config.data), RunFiles(claim.folder)
    config = recall_choice(config, files) if config.tune else config
    observer = observer or Observer()
    hooks = Hooks(progress, stop, claim.check) if ranks.is_main else Hooks()
    refuse_other_source(source_of(config.init), files)
    finished = ranks.share(files.has_finished(resolved(config), contents(config.data, data)))
    if finished:
        ranks.leave()
        lacks = any(files.find_lacking(resolved(config)).values())
        if not ranks.is_main or not lacks:
            return files.result()
        files.remove_leftovers()
        return add_missing(Run(prepare(config, data, placement), files.folder), observer, hooks)
    if ranks.is_main:
        files.remove_leftovers()
        files.set_aside_damaged_result()
    prepared = prepare(config, data, placement)
    if config.tune and not ranks.share(files.config_path.is_file()):
        observe_trial = partial(observer.observe_trial, files.folder.resolve().name)
        chosen = choose_settings(prepared, files, placement, ranks, observe_trial, hooks)
        prepared = prepare(chosen, data, placement)
    run = Run(prepared, files.folder, ranks)
    if ranks.is_main:
        return train_and_test(run, observer, hooks)
    train(run)
    ranks.leave()
    return None


def train_and_test(run: Run, observer: Observer, hooks: Hooks) -> dict[str, Any]:
    """What rank 0 does: train, then test and analyse when the other ranks have left; gives the result."""
    config, files = run.config, run.files
    run.write_start()
    if run.init is not None:
        print(run.init, file=sys.stderr)
    loggers = observer.on_start(run)
    names = list_applicable(run, config.analyses)

    def analyze(step: int) -> None:
        hooks.check_claim()
        for name in names:
            try:
                add_analysis(run, observer, name, step)
            except Exception as error:
                if step == 0:
                    raise
                # a run that is trained must not be lost
                if isinstance(error, UserError):
                    print(f"{name}, step {step}: {error}", file=sys.stderr)
                else:
                    print(f"{name}, step {step}: failed; the run goes on without it", file=sys.stderr)
                    traceback.print_exc()

    try:
        analyze(0)
        trained = train(run, replace(hooks, analyze=analyze, loggers=loggers))
        run.ranks.leave()
        tested = test(run)
        compared = compare_splits(run, trained.validation)
        analyze(run.last_step)
        probed = measure_probes(run, config.probes)
        result = make_result(run, {**tested.columns, **trained.columns, **compared, **probed})
        result |= list_columns(config, files) if config.tune else {}
        hooks.check_claim()
        result |= observer.on_result(run, result)
    except BaseException:
        observer.on_failure(run)
        raise
    key = next((key for key in ("accuracy", "exact_match") if result.get(key) is not None), "loss")
    outcomes = Outcomes(key, *tested.outcomes)
    write_outcomes(files.heldout_path, outcomes)
    result |= count_right(run.task, outcomes)
    if tested.texts is not None:
        write_json(files.generated_path, tested.texts)
    result = files.write_result(result)
    observer.on_end(run)
    return result


def count_right(task: Task, outcomes: Outcomes) -> dict[str, Any]:
    """`by_class`: of each class of the test items [right ones, all]; nothing where an item has no class."""
    if outcomes.key != "accuracy" or not 1 < len(task.strata) <= MOST_CLASSES:
        return {}
    labels, classes = task.test.labels, len(task.strata)
    right, items = (np.bincount(labels, weights=weights, minlength=classes) for weights in (outcomes.means, None))
    return {"by_class": {name: [int(r), int(n)] for name, r, n in zip(task.strata, right, items, strict=True)}}


def add_missing(run: Run, observer: Observer, hooks: Hooks) -> dict[str, Any]:
    """Add to a finished run the analyses and probes that it lacks; gives its result.

    config.yaml names them last: whatever ends this process, the next start does what is left.
    """
    files, lacking = run.files, run.files.find_lacking(resolved(run.config))
    result, before = files.finished_result(), files.config()
    run.last_step = result["steps"]
    names = list_applicable(run, lacking["analyses"])
    total = 2 * len(names) + bool(lacking["probes"])
    done = itertools.count(1)

    def advance() -> None:
        if hooks.progress:
            hooks.progress(Progress(next(done), total))
        hooks.check_claim()
        if hooks.stop and hooks.stop():
            raise Interrupted

    for step in (0, run.last_step):
        if step:
            run.load_weights(files.weights_path)
        for name in names:
            add_analysis(run, observer, name, step)
            advance()
    if lacking["probes"]:
        result |= round_numbers(measure_probes(run, lacking["probes"]))
        write_json(files.result_path, result)
        advance()
    files.write_config({**before, **{key: [*before[key], *names] for key, names in lacking.items()}})
    return result


def list_applicable(run: Run, names: Sequence[str]) -> list[str]:
    """The analyses that apply to the run's model; says of the others why not."""
    reasons = {name: analysis.refusal(load("analysis", name), run.model) for name in names}
    for reason in filter(None, reasons.values()):
        print(reason, file=sys.stderr)
    return [name for name, reason in reasons.items() if reason is None]


def add_analysis(run: Run, observer: Observer, name: str, step: int) -> None:
    """Add the state at a step to one analysis."""
    config = load("analysis", name)
    before = run.files.analysis_rows(config.name)
    # the untrained model of a resumed run was looked at when it began; its first weights, where it had some, are gone
    if step == 0 and (before or (run.resumed_step and source_of(run.config.init))):
        return
    findings = analysis.examine(run.placed_model(), run.task, config, step)
    rows = [*(row for row in before or [] if row["step"] < step), *findings.rows]
    observer.on_analysis(run, config, findings, rows, step)
    # last: a step that is in it is done
    write_analysis(run.files.analysis_folder, {**findings.to_dict(), "rows": rows}, findings.arrays)


def measure_probes(run: Run, names: Sequence[str]) -> dict[str, float | None]:
    """The probes' numbers of the trained model, for results.csv."""
    return probes.measure(run.placed_model(), run.task, names, run.prepared.indices, run.settings.workers)


# ---- settings that are chosen on validation data


def set_values(config: TrainConfig, values: Mapping[str, Any], **changes: Any) -> TrainConfig:
    """A run's configuration with other values. Raises UserError."""
    return compose(TrainConfig, [*values.items()], base={**resolved(config), **changes})


def recall_choice(config: TrainConfig, files: RunFiles) -> TrainConfig:
    """The configuration with the values that were chosen for the run, where they were."""
    if not files.config_path.is_file():
        return config
    return set_values(config, read_choice(files.config(), config.tune))


def choose_settings(
    prepared: Prepared,
    files: RunFiles,
    placement: Placement,
    ranks: Ranks,
    observe_trial: Callable[[], Observer],
    hooks: Hooks,
) -> TrainConfig:
    """Train the trials that are not finished; the configuration with the best one's values.

    The best has the highest `vitlab.training.callbacks.score` on the validation data; of equal ones it is the first.
    Raises Diverged when all trials do, Interrupted when `hooks.stop` says so.
    """
    config = prepared.config
    settings, trials = list_settings(resolved(config)["tune"]), []
    for place, values in enumerate(settings):
        note = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in values.items())
        note = f"{note} ({place + 1} of {len(settings)})"
        progress = hooks.progress and track_trial(hooks.progress, note, place, len(settings))
        trial = set_values(config, values, tune={}, analyses=[], probes=[])
        trial_folder = trial_files(files, values)
        trial_folder.refuse(trial)
        run = Run(prepare(trial, prepared.data, placement), trial_folder.folder, ranks)
        trials.append(train_trial(run, trial_folder, values, observe_trial(), replace(hooks, progress=progress)))
    finished = [trial for trial in trials if trial["status"] == "finished"]
    if not finished:
        raise Diverged(f"all {len(trials)} settings of tune diverged: {trials[0]['error']}")
    best = max(finished, key=lambda trial: score(trial["validation"], prepared.task.metric))
    if can_reuse_best_trial(config) and ranks.is_main:
        source = trial_files(files, best["settings"])
        for name in ("metrics.jsonl", "checkpoints/last.ckpt"):
            with replacing(files.folder / name) as file:
                file.write((source.folder / name).read_bytes())
    return set_values(config, ranks.share(best["settings"]))  # the others go on when its files are there


def train_trial(run: Run, files: TrialFiles, values: dict[str, Any], observer: Observer, hooks: Hooks) -> Trial:
    """Train a trial unless it is finished; gives what its result.json holds."""
    ranks, config = run.ranks, resolved(run.config)
    finished = ranks.share(files.result() if files.has_finished(config, run.contents) else None)
    # one that finished when the study was about another metric is only evaluated again
    if finished is not None and run.task.metric.key in finished.get("validation", [run.task.metric.key]):
        return finished
    result: Trial = {"settings": values, "id": identity(config, run.contents)}
    if ranks.is_main:
        run.write_start()
        hooks = replace(hooks, loggers=observer.on_start(run))
    try:
        trained = train(run, hooks)
        result |= {"status": "finished", "steps": run.last_step, "validation": trained.validation}
    except Diverged as error:
        steps = max((row["step"] for row in files.metrics()), default=0)
        result |= {"status": "diverged", "steps": steps, "error": str(error)}
    except BaseException:
        if ranks.is_main:
            observer.on_failure(run)
        raise
    result["train_flops"] = run.prepared.flops_per_example * result["steps"] * run.config.recipe.batch_size
    if ranks.is_main:
        write_json(files.result_path, {**result, **observer.on_result(run, result)})
        observer.on_end(run)
    return ranks.share(result)


def trial_files(files: RunFiles, values: Mapping[str, Any]) -> TrialFiles:
    name = ",".join(f"{key}-{value}" for key, value in values.items())
    return TrialFiles(files.folder / "tune" / re.sub(r"[^A-Za-z0-9_.,+-]", "_", name))


def can_reuse_best_trial(config: TrainConfig) -> bool:
    """Whether the best trial is the run; analyses that look at a training as it goes need one of their own."""
    return not config.analyses or (config.trainer.analyze_every is None and source_of(config.init) is None)


def list_columns(config: TrainConfig, files: RunFiles) -> dict[str, Any]:
    """The columns of a tuned run: each tuned key, and `tune_flops`, what tuning cost beside the run's train_flops."""
    tune = resolved(config)["tune"]
    chosen, spent = read_choice(resolved(config), tune), 0
    for values in list_settings(tune):
        trial = trial_files(files, values)
        if not (can_reuse_best_trial(config) and read_choice(trial.config(), tune) == chosen):
            spent += trial.result()["train_flops"]
    return {**read_varied(resolved(config), [*tune]), "tune_flops": spent}


def track_trial(progress: Callable[[Progress], None], note: str, place: int, trials: int) -> Callable[[Progress], None]:
    """Reports the progress of one trial as that of all of them."""

    def report(one: Progress) -> None:
        left = one.seconds_left
        if left is not None and one.step < one.steps:
            left *= (trials * one.steps - place * one.steps - one.step) / (one.steps - one.step)
        progress(
            replace(one, step=place * one.steps + one.step, steps=trials * one.steps, seconds_left=left, note=note)
        )

    return report
