"""`vitlab train`: one run."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from vitlab.commands.arguments import CommandParser, status_line
from vitlab.config import TrainConfig, UserError, compose
from vitlab.config.schema import TrainerConfig
from vitlab.console import Console
from vitlab.data.opening import open_data
from vitlab.hardware import Launched, find_launched
from vitlab.studies.claims import hold
from vitlab.studies.display import Board, Row, display
from vitlab.studies.events import Event, summarize_error
from vitlab.studies.grid import name_run
from vitlab.tasks.metrics import list_metrics
from vitlab.training.files import RunFiles, source_of, source_problems

if TYPE_CHECKING:
    from vitlab.training.devices.group import Group
    from vitlab.training.progress import Progress

DESCRIPTION = """Train one model. key=value chooses a group (model, data, task, recipe) or changes a field:
  vitlab train model=vit_nano data=digits budget.epochs=20
  vitlab train model=resnet18 data=cifar10 recipe.lr=0.05 train_size=5000
  vitlab train model=vit_b16 init=timm:vit_base_patch16_224 data=imagefolder data.root=photos data.image_size=384
  vitlab train model=./bert-base-uncased task=text_classification data=docstrings     # a Hugging Face folder
The choices: vitlab list models|data|tasks|recipes, and in the README."""


def main(words: Sequence[str]) -> int:
    parser = CommandParser("train", DESCRIPTION)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_out("the run's folder (default: runs/MODEL-DATA-nSIZE-sSEED)")
    launched = find_launched()
    if launched is not None and launched.rank > 0:
        # nothing is printed once for each device, and what is wrong the first one says
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        from vitlab.training.devices.following import follow_launched

        return follow_launched(launched)
    args = parser.parse_intermixed_args(words)
    config = compose(TrainConfig, args.overrides)
    if launched is not None:
        refuse_launched(config.trainer, launched)
    name = name_run(f"{config.model.name}-{config.data.name}", config.train_size, config.seed)
    files = RunFiles(args.out or Path("runs") / name)
    files.refuse(config)
    if not files.checkpoint_path.exists() and (problems := list(source_problems(source_of(config.init)))):
        raise UserError(problems)
    return train(config, files.folder, launched)


def train(config: TrainConfig, folder: Path, launched: Launched | None = None) -> int:
    """Train one run in its folder, resuming what is there; the exit code. Raises UserError.

    By several processes where a launcher has started them, of which this is the first.
    """
    with status_line("loading torch, lightning and timm"):
        from vitlab.training.devices.group import DeviceLost
        from vitlab.training.devices.processes import meet_launched

    console = Console(stderr=True)
    try:
        with meet_launched(launched) if launched else contextlib.nullcontext() as group:
            return train_shown(config, folder, console, group)
    except DeviceLost as error:
        console.print(escape(f"failed: {error}"), soft_wrap=True, highlight=False)
        return 1


def train_shown(config: TrainConfig, folder: Path, console: Console, group: "Group | None") -> int:
    """The same with its progress on the console."""
    from vitlab.reports.observer import RunReporter
    from vitlab.studies.experiment import train_held
    from vitlab.training.callbacks import Diverged, Interrupted

    open_data(config.data, console)  # with its progress, before the board takes the terminal
    if (devices := config.trainer.devices * config.trainer.nodes) > 1:
        strategy = "fsdp" if config.trainer.strategy == "fsdp" else "ddp"
        console.print(f"training on {devices} devices (trainer.strategy={strategy})", highlight=False)
    board = Board([Row(folder.name, config.model.name, 1)], jobs=1)
    stopping = Stopping()
    with hold(folder, wait="heartbeat") as claim, display(board) as shown, stopping:
        shown.notify(Event("started", folder.name))

        def progress(value: "Progress") -> None:
            shown.notify(Event("progress", folder.name, value))
            shown.notify(Event("tick", ""))

        try:
            options = {"observer": RunReporter(), "progress": progress, "stop": stopping.asked}
            result = train_held(config, claim, group=group, **options)
        except Interrupted:
            raise KeyboardInterrupt from None
        except Diverged as error:
            shown.notify(Event("failed", folder.name, summarize_error(error)))
            console.print(escape(f"failed: {error}"), soft_wrap=True, highlight=False)
            return 1
        shown.notify(Event("done", folder.name, result))
    show(result, RunFiles(folder))
    return 0


def refuse_launched(trainer: TrainerConfig, launched: Launched) -> None:
    """Raise UserError for another number of processes than of devices."""
    if launched.size != trainer.devices * trainer.nodes:
        raise UserError(
            f"trainer.devices={trainer.devices} trainer.nodes={trainer.nodes}: {launched.by} started {launched.size} "
            "processes; give as many devices on each node, and nodes, as it starts"
        )


class Stopping:
    """While it is entered, the first Ctrl-C or SIGTERM asks training to end at its next step, the second just ends."""

    def __init__(self) -> None:
        self.requested = False
        self.before: dict[int, Any] = {}

    def asked(self) -> bool:
        return self.requested

    def __enter__(self) -> "Stopping":
        self.before = {number: signal.signal(number, self.handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: Any) -> None:
        if self.requested:  # not KeyboardInterrupt, of which Lightning makes an exit code of its own
            os._exit(130)
        self.requested = True


def show(result: dict[str, Any], files: RunFiles) -> None:
    """The metrics and where the files are, on stdout."""
    console = Console()
    compared = [m for m in list_metrics() if m.is_compared and m.key != "loss"]
    metrics = {m.key: m.text(m.value(result)) for m in compared if m.value(result) is not None}
    shown = ("loss", "train_loss", "images_per_s", "mfu", "wall_s")
    metrics |= {k: f"{result[k]:.4g}" for k in shown if result.get(k)}
    texts = [f"{name} {value}" for name, value in metrics.items()]
    line = f"{result['run']}: {', '.join(texts)} ({result['params']:,} parameters, {result['budget']})"
    console.print(escape(line), soft_wrap=True, highlight=False)
    console.print(escape(f"files    {files.folder}"), soft_wrap=True, highlight=False)
    tracked = result.get("wandb") or {}
    if tracked.get("mode") == "offline":
        console.print(escape(f"W&B      wandb sync {files.folder}/wandb/latest-run"), soft_wrap=True, highlight=False)
    elif tracked.get("url"):
        console.print(escape(f"W&B      {tracked['url']}"), soft_wrap=True, highlight=False)
