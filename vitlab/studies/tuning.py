"""A run's settings, chosen on validation data: each combination of `tune` is trained as a trial of its own.

Every run is tuned by itself, also those of one model and size with other seeds: then the spread over seeds holds what
the choice adds to it, and no run waits for another. A trial has the run's seed and training subset; it lies in
RUN/tune/, never reads the test data, and is not trained again once it is finished. The best trial serves as the run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lightning.pytorch.loggers import Logger

from vitlab.config import TrainConfig, compose, identity, resolved
from vitlab.config.tuning import list_settings, read_choice
from vitlab.files import replacing, write_json
from vitlab.studies.store import Trial, TrialFiles
from vitlab.studies.variants import read_varied
from vitlab.training.callbacks import Diverged
from vitlab.training.devices.ranks import ALONE, Ranks
from vitlab.training.files import RunFiles, source_of
from vitlab.training.progress import Progress
from vitlab.training.run import Run
from vitlab.training.selection import score
from vitlab.training.settings import Placement

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
    config: TrainConfig,
    data: Any,
    files: RunFiles,
    *,
    placement: Placement,
    ranks: Ranks = ALONE,
    observe: "Callable[[str], Observer]",
    progress: Callable[[Progress], None] | None,
    stop: Callable[[], bool] | None,
    check_claim: Callable[[], None] = lambda: None,
) -> TrainConfig:
    """Train the trials that are not finished; the configuration with the best one's values.

    The best has the highest `vitlab.training.selection.score` on the validation data; of equal ones it is the first.
    `observe` gives the observer of a trial, by the run's name. Raises Diverged when all trials do, Interrupted when
    `stop` says so.
    """
    settings, trials = list_settings(resolved(config)["tune"]), []
    for place, values in enumerate(settings):
        note = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in values.items())
        report = progress and track_trial(progress, f"{note} ({place + 1} of {len(settings)})", place, len(settings))
        options = {"placement": placement, "ranks": ranks, "progress": report, "stop": stop, "check_claim": check_claim}
        options["observer"] = observe(files.folder.resolve().name)
        trials.append(train_trial(config, values, data, files, **options))
    finished = [trial for trial in trials if trial["status"] == "finished"]
    if not finished:
        raise Diverged(f"all {len(trials)} settings of tune diverged: {trials[0]['error']}")
    best = max(finished, key=lambda trial: score(trial["validation"]))
    if can_reuse_best_trial(config) and ranks.is_main:
        source = trial_files(files, best["settings"])
        for name in ("metrics.jsonl", "checkpoints/last.ckpt"):
            with replacing(files.folder / name) as file:
                file.write((source.folder / name).read_bytes())
    return set_values(config, ranks.share(best["settings"]))  # the others go on when its files are there


def train_trial(
    config: TrainConfig,
    values: dict[str, Any],
    data: Any,
    files: RunFiles,
    *,
    placement: Placement,
    ranks: Ranks = ALONE,
    observer: "Observer",
    progress: Callable[[Progress], None] | None,
    stop: Callable[[], bool] | None,
    check_claim: Callable[[], None],
) -> Trial:
    """Train a run with these values in its folder, unless it is finished; gives what its result.json holds."""
    own = trial_files(files, values)
    trial = set_values(config, values, tune={}, analyses=[], probes=[])
    own.refuse(trial)
    run = Run(trial, data, own.folder, placement=placement, ranks=ranks)
    known = ranks.share(own.result() if own.has_finished(resolved(trial), run.contents) else None)
    if known is not None:
        return known
    found: Trial = {"settings": values, "id": identity(resolved(trial), run.contents)}
    loggers: Sequence[Logger] = ()
    if ranks.is_main:
        own.write_config(resolved(trial))
        run.drop_rows_after_checkpoint()
        loggers = observer.on_start(run)
    try:
        run.fit(loggers=loggers, progress=progress, stop=stop, check_claim=check_claim)
        found |= {"status": "finished", "steps": run.trained_steps, "validation": run.validation}
    except Diverged as error:
        steps = max((row["step"] for row in own.metrics()), default=0)
        found |= {"status": "diverged", "steps": steps, "error": str(error)}
    except BaseException:
        if ranks.is_main:
            observer.on_failure(run)
        raise
    found["train_flops"] = run.flops_per_example * found["steps"] * trial.recipe.batch_size
    if ranks.is_main:
        write_json(own.result_path, {**found, **observer.on_result(run, found)})
        observer.on_end(run)
    return ranks.share(found)


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
