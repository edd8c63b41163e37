"""A run's settings, chosen on validation data: each combination of `tune` is trained as a trial of its own.

Every run is tuned by itself, also those of one model and size with other seeds: then the spread over seeds holds what
the choice adds to it, and no run waits for another. A trial has the run's seed and training subset; it lies in
RUN/tune/, never reads the test data, and is not trained again once it is finished. The best trial serves as the run.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vitlab.config import TrainConfig, compose, identity, resolved
from vitlab.config.tuning import list_settings, read_choice
from vitlab.files import replacing, write_json
from vitlab.studies.store import Trial, TrialFiles
from vitlab.studies.variants import read_varied
from vitlab.training.callbacks import Diverged
from vitlab.training.devices.ranks import Ranks
from vitlab.training.files import RunFiles, source_of
from vitlab.training.prepare import Prepared, prepare
from vitlab.training.progress import Progress
from vitlab.training.run import Run
from vitlab.training.selection import score
from vitlab.training.settings import Placement
from vitlab.training.train import Hooks, train

if TYPE_CHECKING:
    from vitlab.studies.experiment import Observer


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
    observe_trial: "Callable[[], Observer]",
    hooks: Hooks,
) -> TrainConfig:
    """Train the trials that are not finished; the configuration with the best one's values.

    The best has the highest `vitlab.training.selection.score` on the validation data; of equal ones it is the first.
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


def train_trial(run: Run, files: TrialFiles, values: dict[str, Any], observer: "Observer", hooks: Hooks) -> Trial:
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
