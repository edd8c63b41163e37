"""Runs in Weights & Biases: config, metrics, summary, figures; offline when nobody is logged in.

metrics.jsonl is the record; this mirrors it. A failure here is a warning and never ends a run. Until a run ends, its
pictures are also kept in wandb/figures/<step>, for an attempt that resumes the run.
"""

import os
import secrets
import shutil
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import WandbLogger
from PIL import Image

import vitlab
from vitlab.config import resolved
from vitlab.config.schema import TrainConfig
from vitlab.files import replacing, write_text
from vitlab.reports.tracking import STEP
from vitlab.reports.tracking.wandb_mode import resolve_mode
from vitlab.training.checkpoint import KEYS, read_checkpoint
from vitlab.training.files import RunFiles

LONGEST_TAG = 64  # characters
FLUSH = 0.5  # seconds; the default of 15 would lose the last rows of a killed run


class Tracker:
    """One W&B run of one training run; every method is a no-op in mode `off` and after a failure."""

    def __init__(self, config: TrainConfig, files: RunFiles, *, family: str, params: int, trial_of: str = ""):
        self.settings, self.trial_of = config.wandb, trial_of  # the name of the run that a trial of `tune` is for
        self.run: Any = None
        self.files = files
        self.fresh = False  # whether W&B has nothing of this run yet
        self.figures = files.folder / "wandb" / "figures"
        self.mode = config.wandb.mode
        self.guard(lambda: self.start(config, family, params))

    def start(self, config: TrainConfig, family: str, params: int) -> None:
        self.mode = resolve_mode(config.wandb)
        if self.mode == "off":
            return
        import wandb  # 1 s: for runs that are logged alone

        os.environ.setdefault("WANDB_SILENT", "true")
        options = {
            "project": config.wandb.project,
            "entity": config.wandb.entity,
            "id": self.run_id(),
            "resume": "allow" if self.mode == "online" else None,
            "name": self.name_run(config.study),
            "group": config.study or None,
            "job_type": "tune" if self.trial_of else "train",
            "tags": [tag[:LONGEST_TAG] for tag in self.list_tags(config, family)],
            "notes": config.wandb.notes,
            "config": {**resolved(config), "params": params},
            "dir": self.files.folder,
        }
        settings = wandb.Settings(
            console="off",
            silent=True,
            x_transaction_log_flush_interval=FLUSH,
            init_timeout=30,
        )
        try:
            self.run = wandb.init(mode=self.mode, settings=settings, **options)
        except wandb.Error as error:
            if config.wandb.mode == "online":
                raise
            if self.mode == "online":
                warnings.warn(f"cannot reach W&B ({error}); this run is logged offline", stacklevel=2)
            # a service that outlived a killed process may hold the id
            options = {**options, "id": secrets.token_hex(4), "resume": None}
            self.mode = "offline"
            self.run = wandb.init(mode="offline", settings=settings, **options)
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP, step_sync=True)  # the x axis of every chart
        if config.wandb.log_code and not self.trial_of:
            self.add_artifact(lambda: self.run.log_code(str(Path(vitlab.__file__).parent), name="vitlab-code"))

    def name_run(self, study: str) -> str:
        """The folder's name; `wandb.name` in its place, or before it in a study, whose runs need names of their own."""
        folder = self.files.folder.resolve().name
        name = f"{self.trial_of} {folder}" if self.trial_of else folder
        asked = self.settings.name
        if asked is None:
            return name
        return f"{asked} {name}" if study or self.trial_of else asked

    def list_tags(self, config: TrainConfig, family: str) -> list[str]:
        tags = [config.variant, family, config.data.name, f"n={config.train_size}", *self.settings.tags]
        return list(dict.fromkeys([*tags, "tune"] if self.trial_of else tags))

    def run_id(self) -> str:
        """One W&B run however often training was interrupted, and another in every folder."""
        path = self.files.folder / "wandb" / "id"
        if not path.exists():
            self.fresh = True
            write_text(path, secrets.token_hex(4))
        return path.read_text().strip()

    def guard(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # a dashboard must not end a training run
            self.run = None
            warnings.warn(f"W&B logging stopped: {type(error).__name__}: {error}", stacklevel=3)

    @property
    def loggers(self) -> list[WandbLogger]:
        return [Mirror(self)] if self.run else []

    def replay(self, rows: list[dict[str, Any]], last_step: int) -> None:
        """Log again what an interrupted attempt logged before its checkpoint, so that the last attempt is complete.

        That is the rows of its metrics.jsonl, and its pictures up to `last_step`. Offline, where each attempt has its
        own folder; online only where W&B has nothing of the run yet: a tuned run begins as its best trial.
        """
        if not self.run or (self.mode == "online" and not self.fresh):
            return

        def log() -> None:
            for row in rows:
                self.run.log({**{k: v for k, v in row.items() if k != "step"}, STEP: row["step"]})
            pictures = sorted((int(path.parent.name), path) for path in self.figures.glob("[0-9]*/*.png"))
            for step, path in pictures:
                if step <= last_step:
                    self.log_kept(path, step)

        self.guard(log)

    def log_picture(self, picture: Path, step: int) -> None:
        """Log the PNG of a figure at a step."""
        if not self.run:
            return

        def log() -> None:
            path = self.figures / str(step) / picture.name
            with replacing(path) as file:
                file.write(picture.read_bytes())
            self.log_kept(path, step)

        self.guard(log)

    def log_rows(self, name: str, rows: list[dict[str, Any]], step: int) -> None:
        """Log the rows of an analysis as a table; values that are no scalars as text."""
        if not self.run or not rows:
            return

        def log() -> None:
            import wandb

            columns = list(dict.fromkeys(key for row in rows for key in row))
            plain = (str, int, float, type(None))
            values = [
                [value if isinstance(value := row.get(key), plain) else str(value) for key in columns] for row in rows
            ]
            self.run.log({f"{name}/rows": wandb.Table(columns, values), STEP: step})

        self.guard(log)

    def log_kept(self, path: Path, step: int) -> None:
        """Log a picture that was kept."""
        import wandb

        with Image.open(BytesIO(path.read_bytes())) as picture:
            image = wandb.Image(picture, caption=picture.text.get("Title"))
        self.run.log({f"{path.stem}/picture": image, STEP: step})

    def forget(self) -> None:
        """Delete the pictures that were kept: a run that has ended is not resumed."""
        shutil.rmtree(self.figures, ignore_errors=True)

    def finish(self, result: dict[str, Any], exit_code: int = 0) -> dict[str, Any] | None:
        """Write the summary and end the run; return where it is, for result.json."""
        if not self.run:
            return None
        where = {"mode": self.mode, "id": self.run.id, "path": os.path.relpath(self.run.dir, self.files.folder)}
        if self.mode == "online":
            where["url"] = self.run.url

        def end() -> None:
            flat = {k: v for k, v in result.items() if isinstance(v, str | int | float)}
            self.run.summary.update(flat)
            if self.settings.log_model and exit_code == 0 and not self.trial_of:
                self.add_artifact(lambda: self.log_weights(flat))
            self.run.finish(exit_code=exit_code)

        self.guard(end)
        return where

    def add_artifact(self, action: Callable[[], Any]) -> None:
        """An artifact that cannot be added leaves the rest of the run as it is."""
        try:
            action()
        except Exception as error:
            warnings.warn(f"W&B got no artifact: {type(error).__name__}: {error}", stacklevel=2)

    def log_weights(self, metadata: dict[str, Any]) -> None:
        """The weights that count, without the optimizer's state, as an artifact of type `model`."""
        import torch
        import wandb

        best = self.files.best_path
        state = read_checkpoint(best if best.is_file() else self.files.checkpoint_path)
        artifact = wandb.Artifact(f"model-{self.run.id}", type="model", metadata=metadata)
        with artifact.new_file("weights.ckpt", mode="wb") as file:
            torch.save({key: state[key] for key in KEYS}, file)
        self.run.log_artifact(artifact)


class Mirror(WandbLogger):
    """Lightning's logger for the tracker's run, silent once W&B has failed."""

    def __init__(self, tracker: Tracker):
        super().__init__(experiment=tracker.run)
        self.tracker = tracker

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        if self.tracker.run:
            self.tracker.guard(lambda: super(Mirror, self).log_metrics(metrics, step))
