"""Report a run while it trains: draw its analyses into its folder, and log to Weights & Biases.

metrics.jsonl is the record, and W&B mirrors the record: offline if nobody is logged in. A failure of W&B warns and
never ends a run. Importing this module imports neither wandb nor Lightning. W&B's own variables (WANDB_ENTITY,
WANDB_NOTES and so on) apply.
"""

import hashlib
import os
import secrets
import shutil
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from vitlab.config import resolved
from vitlab.config.schema import AnalysisConfig, TrainConfig, WandbConfig
from vitlab.files import replacing, write_text
from vitlab.formatting import finite
from vitlab.reports.words import headline
from vitlab.studies.results import Results, RunResults
from vitlab.training.files import RunFiles

if TYPE_CHECKING:
    from vitlab.analysis.capture import Findings
    from vitlab.training.run import Run

STEP = "trainer/global_step"  # the training step in W&B's rows, as Lightning's logger names it
WAITING = "not uploaded yet"
LONGEST_TAG = 64  # characters
SETTINGS = {
    "console": "off",
    "silent": True,
    "x_transaction_log_flush_interval": 0.5,  # seconds; the default of 15 would lose the last rows of a killed run
    "init_timeout": 30,
}


def default_mode() -> str:
    """Return WANDB_MODE if set, else online for a logged-in user, else offline."""
    if mode := os.environ.get("WANDB_MODE"):
        return {"disabled": "off", "online": "online"}.get(mode, "offline")
    import wandb

    return "online" if wandb.login(prompt=False, verify=False) else "offline"


def harmless(method: Callable[..., None]) -> Callable[..., None]:
    """Skip a method in mode `off`, and switch to `off` when the method fails: W&B must not end a training run."""

    @wraps(method)
    def call(tracker: "Tracker", *args: Any, **options: Any) -> None:
        try:
            if tracker.mode != "off":
                method(tracker, *args, **options)
        except Exception as error:
            tracker.mode = "off"
            warnings.warn(f"W&B logging stopped: {type(error).__name__}: {error}", stacklevel=2)

    return call


class Tracker:
    """Mirror a training run as a run in W&B.

    Until the run ends, wandb/figures/<step> keeps its pictures for an attempt that resumes the run.
    """

    def __init__(self, config: TrainConfig, files: RunFiles, *, family: str, params: int):
        self.config, self.files = config, files
        self.figures = files.folder / "wandb" / "figures"
        self.mode, self.run = config.wandb.mode, None
        self.start(family, params)

    @harmless
    def start(self, family: str, params: int) -> None:
        self.mode = default_mode() if self.mode == "auto" else self.mode
        if self.mode == "off":
            return
        import wandb  # takes 1 s: only logged runs pay

        config, id_path = self.config, self.files.folder / "wandb" / "id"
        self.fresh = not id_path.exists()  # W&B has nothing of this run yet
        if self.fresh:  # resumed attempts stay one run in W&B
            write_text(id_path, secrets.token_hex(4))
        tags = [config.variant, family, config.data.name, f"n={config.train_size}"]
        tags += [f"trial={config.trial}"] * bool(config.trial) + os.environ.get("WANDB_TAGS", "").split(",")
        name = [os.environ.get("WANDB_NAME"), self.files.folder.resolve().name]
        if name[0] and not config.study:  # runs of a study need different names
            name = name[:1]
        options = {
            "project": config.wandb.project,
            "id": id_path.read_text().strip(),
            "name": " ".join(filter(None, name)),
            "group": config.study or None,
            "job_type": "train",
            "tags": list(dict.fromkeys(filter(None, (tag.strip()[:LONGEST_TAG] for tag in tags)))),
            "config": {**resolved(config), "params": params, "family": family},  # W&B groups by keys of config
            "dir": self.files.folder,
            "reinit": "create_new",  # a failed run of this process may still be open
            "settings": SETTINGS,
        }
        try:
            self.run = wandb.init(mode=self.mode, resume="allow" if self.mode == "online" else None, **options)
        except wandb.Error as error:
            if self.mode == "online":
                warnings.warn(f"cannot reach W&B ({error}); this run is logged offline", stacklevel=2)
            # W&B's service may outlive a killed process and hold the id
            self.mode, options["id"] = "offline", secrets.token_hex(4)
            self.run = wandb.init(mode="offline", **options)
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP, step_sync=True)  # the x axis of every chart

    @harmless
    def log(self, row: dict[str, Any]) -> None:
        """Log a row of metrics.jsonl."""
        self.run.log({STEP if key == "step" else key: value for key, value in row.items()})

    @harmless
    def replay(self, rows: list[dict[str, Any]], last_step: int) -> None:
        """Log the rows and pictures of an interrupted attempt again, so the last attempt's log is complete.

        Logs all `rows` of metrics.jsonl, and pictures up to `last_step`. Offline each attempt has its own folder;
        online this does nothing if W&B has the run already.
        """
        if self.mode == "online" and not self.fresh:
            return
        for row in rows:
            self.log(row)
        for step, path in sorted((int(path.parent.name), path) for path in self.figures.glob("[0-9]*/*.png")):
            if step <= last_step:
                self.log_picture(path, step)

    @harmless
    def log_picture(self, path: Path, step: int) -> None:
        """Log the PNG of a figure at a step, and keep a copy for `replay`."""
        import wandb
        from PIL import Image

        with replacing(self.figures / str(step) / path.name) as file:
            file.write(path.read_bytes())
        with Image.open(path, formats=["PNG"]) as picture:
            image = wandb.Image(picture, caption=picture.text.get("Title"))
        self.run.log({f"{path.stem}/picture": image, STEP: step})

    @harmless
    def log_rows(self, name: str, rows: list[dict[str, Any]], step: int) -> None:
        """Log the rows of an analysis as a table; non-scalar values become text."""
        import wandb

        columns, plain = list(dict.fromkeys(key for row in rows for key in row)), (str, int, float, type(None))
        cells = [[one if isinstance(one := row.get(key), plain) else str(one) for key in columns] for row in rows]
        if rows:
            self.run.log({f"{name}/rows": wandb.Table(columns, cells), STEP: step})

    @harmless
    def log_layers(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Log mean, min and max over each layer's heads, for charts: `attention_distance/layer1/mean`."""
        heads: dict[int, dict[int, list[float]]] = {}
        for row in rows:
            if (value := finite(row["value"])) is not None:
                heads.setdefault(row["step"], {}).setdefault(row["layer"], []).append(value)
        for step, layers in heads.items():
            numbers = {"mean": fmean, "min": min, "max": max}
            found = {f"{name}/layer{at}/{key}": of(some) for at, some in layers.items() for key, of in numbers.items()}
            self.run.log({**found, STEP: step})

    @harmless
    def log_reach(self, rows: list[dict[str, Any]]) -> None:
        """Log the reach of each layer's units in pixels (`reach/layer1`), or of the last state in tokens (`reach`)."""
        for step in dict.fromkeys(row["step"] for row in rows):
            some = [row for row in rows if row["step"] == step]
            found = {f"reach/layer{row['layer']}" if "layer" in row else "reach": row["reach"] for row in some}
            self.run.log({**found, STEP: step})

    def finish(self, result: dict[str, Any], exit_code: int = 0) -> dict[str, Any] | None:
        """Write the summary and end the run; return its mode and address in W&B, for result.json."""
        if self.mode == "off":
            return None
        where = {"mode": self.mode, "id": self.run.id, "path": os.path.relpath(self.run.dir, self.files.folder)}
        if self.mode == "online":
            where["url"] = self.run.url
        self.end({key: value for key, value in result.items() if isinstance(value, str | int | float)}, exit_code)
        return where

    @harmless
    def end(self, summary: dict[str, Any], exit_code: int) -> None:
        try:
            self.run.summary.update(summary)
        finally:
            self.run.finish(exit_code=exit_code)


class RunReporter:
    """Draw the analyses of a run, and mirror the run in W&B; see `vitlab.studies.experiment.run_experiment`."""

    tracker: Tracker | None = None

    def on_start(self, run: "Run") -> Callable[[dict[str, Any]], None]:
        self.tracker = Tracker(run.config, run.files, family=run.plan.family, params=run.plan.params)
        self.tracker.replay(run.files.metrics(), min(run.resumed_step, run.last_step - 1))  # the last step runs again
        return self.tracker.log

    def on_analysis(
        self, run: "Run", config: AnalysisConfig, findings: "Findings", rows: list[dict[str, Any]], step: int
    ) -> None:
        from vitlab.reports.figures import draw_findings, save_figure

        name = run.files.folder.name
        source = name if step in (0, run.last_step) else f"{name} at step {step:,}"
        # a figure of heads shows earlier steps, too
        shown = replace(findings, rows=rows) if "heads" in config.drawings else findings
        for figure in draw_findings(shown, config, source):
            _, picture = save_figure(figure, run.files.analysis_folder)
            if self.tracker:
                self.tracker.log_picture(picture, step)
        if self.tracker and step == run.last_step:
            self.tracker.log_rows(findings.name, rows, step)
        # at the end log all steps again: a resumed attempt lacks the earlier steps
        logged = [row for row in rows if step in (run.last_step, row["step"])] if self.tracker else []
        if logged and "reach" in logged[0]:
            self.tracker.log_reach(logged)
        if logged and {"layer", "value"} <= logged[0].keys() and "other" not in logged[0]:
            self.tracker.log_layers(findings.name, logged)

    def on_result(self, run: "Run", result: dict[str, Any]) -> dict[str, Any]:
        return {"wandb": self.tracker.finish(result)}

    def on_failure(self, run: "Run") -> None:
        self.tracker.finish({"status": "failed"}, exit_code=1)

    def on_end(self, run: "Run") -> None:
        shutil.rmtree(self.tracker.figures, ignore_errors=True)  # a run that has ended is not resumed


# ---- the study itself


def log_study(results: Results) -> None:
    """Log a study as a W&B run of job type `summary`: figures, tables, sentences, and a number for each model.

    Logs nothing with wandb.mode=off or if results.csv has not changed; turns errors into warnings.
    """
    files, config = results.files, {**asdict(WandbConfig()), **(results.config.get("wandb") or {})}
    mode = default_mode() if config["mode"] == "auto" else config["mode"]
    known, digest = files.folder / "wandb" / "id", hashlib.sha256(files.results_path.read_bytes()).hexdigest()
    key, _, logged = known.read_text().partition(" ") if known.is_file() else (secrets.token_hex(4), "", "")
    if mode == "off" or logged == digest or not results.rows:
        return
    import wandb

    for earlier in files.folder.glob("wandb/offline-run-*"):
        shutil.rmtree(earlier)
    options = {"project": config["project"], "id": key, "name": results.name, "group": results.name}
    options |= {"job_type": "summary", "dir": files.folder, "config": results.config, "settings": SETTINGS}
    try:
        resume = "allow" if mode == "online" else None
        run = wandb.init(mode=mode, resume=resume, reinit="create_new", **options)
        shown = {f"study/{name}": wandb.Table(dataframe=frame) for name, frame in results.tables.items() if len(frame)}
        shown |= {f"study/{path.stem}": wandb.Image(str(path)) for path in sorted(files.figures.glob("*.png"))}
        run.log(shown)
        run.define_metric("by_size/*", step_metric="train_size")
        for size, numbers in list_by_size(results).items():
            run.log({"train_size": size, **numbers})
        first, *details = headline(results)
        numbers = {"headline": first, "details": " ".join(details).strip(), "runs": len(results.all_rows)}
        largest = results.cells.sort_values("train_size").groupby("model").last()
        numbers |= {f"{model}/{results.metric.key}": mean for model, mean in largest["mean"].items()}
        for pair, crossing in results.fits.crossovers.items():
            ends = {"size": crossing.size, "low": crossing.low, "high": crossing.high}
            numbers |= {f"crossover/{' and '.join(pair)}/{end}": value for end, value in ends.items() if value}
        run.summary.update(numbers)
        run.finish()
        write_text(known, f"{key} {digest}")
    except Exception as error:
        warnings.warn(f"W&B has no summary of the study: {type(error).__name__}: {error}", stacklevel=2)


def list_by_size(results: Results) -> dict[int, dict[str, float]]:
    """List chart values by training-set size and key: metrics of each model, analyses of each layer.

    `by_size/accuracy/vit_nano` is a mean over seeds; `/low` and `/high` are the ends of its interval.
    `by_size/attention_distance/vit_nano/layer1` is a mean over heads and seeds.
    """
    found: dict[int, dict[str, float]] = {size: {} for size in sorted({*results.cells["train_size"]})}
    for cell in results.cells.itertuples():
        key, ends = f"by_size/{results.metric.key}/{cell.model}", {"low": cell.low, "high": cell.high}
        found[cell.train_size] |= {key: cell.mean} | {
            f"{key}/{end}": value for end, value in ends.items() if finite(value) is not None
        }
    heads: dict[tuple[int, str], list[float]] = {}
    for row in results.rows:
        run = results.run_files[row["run"]]
        for name in run.analyses:
            for one in (run.last_analysis(name) or {"rows": []})["rows"]:
                if "layer" in one and (value := finite(one["value"])) is not None:
                    key = f"by_size/{name}/{row['model']}/layer{one['layer']}"
                    heads.setdefault((row["train_size"], key), []).append(value)
    for (size, key), values in heads.items():
        found[size][key] = fmean(values)
    return found


# ---- uploads


def list_uploads(results: Results) -> list[tuple[str, str, Path | None]]:
    """List `(name, state, file)` of each finished run and of the study's summary.

    `state` is WAITING, or a reason to skip the upload.
    """
    found = [(name, *find_upload(run)) for name, run in results.run_files.items()]
    for file in results.files.folder.glob("wandb/offline-run-*/*.wandb") if results.files else ():
        found.append(("summary", "uploaded before" if is_uploaded(file) else WAITING, file))
    return found


def find_upload(run: RunResults) -> tuple[str, Path | None]:
    """Find the state of a run and the .wandb file of its last attempt, which holds the whole run."""
    if run.wandb.get("mode") != "offline":
        return ("logged online" if run.wandb.get("mode") == "online" else "not logged to W&B"), None
    # only the folder's name: a path in result.json must not lead outside this run
    folder = run.files.folder / "wandb" / Path(str(run.wandb.get("path"))).parent.name
    file = min(folder.glob("*.wandb"), default=None)
    if file is None:
        return "its offline files are gone", None
    return ("uploaded before" if is_uploaded(file) else WAITING), file


def is_uploaded(file: Path) -> bool:
    """Check for W&B's marker beside a file, because `wandb sync` exits with 0 even without a server."""
    return file.with_name(f"{file.name}.synced").exists()
