"""`vitlab train`: one run."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab.commands.arguments import CommandParser, status_line
from vitlab.config import TrainConfig, UserError, compose, raise_all, resolved
from vitlab.config.identity import takes_all
from vitlab.config.schema import TrainerConfig
from vitlab.console import Console
from vitlab.data.opening import open_data, progress_bar
from vitlab.hardware import Launched, find_launched
from vitlab.studies.claims import hold
from vitlab.studies.grid import name_run
from vitlab.tasks.metrics import METRICS
from vitlab.training.files import RunFiles, source_of, source_problems
from vitlab.training.launch import Stopping

if TYPE_CHECKING:
    from vitlab.training.files import Progress

DESCRIPTION = """Train one model. key=value chooses a group (model, data, task, recipe) or changes a field:
  vitlab train model=vit_nano data=digits budget.epochs=20
  vitlab train model=resnet18 data=cifar10 recipe.lr=0.05 train_size=5000
  vitlab train model=vit_b16 init=timm:vit_base_patch16_224 data=imagefolder data.root=photos data.image_size=384
  vitlab train model=./bert-base-uncased task=text_classification data=docstrings     # a Hugging Face folder
The choices: vitlab list models|data|tasks|recipes, and in the README."""


def train(words: Sequence[str]) -> int:
    parser = CommandParser("train", DESCRIPTION)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_out("the run's folder (default: runs/MODEL-DATA-nSIZE-sSEED)")
    launched = find_launched()
    if launched is not None and launched.rank > 0:  # rank 0 says what is to be said
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    args = parser.parse_intermixed_args(words)

    def check_init(run: dict[str, Any], is_wrong: bool) -> None:  # where nothing else is wrong it is checked below
        if is_wrong and not (args.out and RunFiles(args.out).checkpoint_path.exists()):
            raise_all(source_problems(run["init"]["weights"] or run["init"]["encoder"]))

    config = compose(TrainConfig, args.overrides, also=check_init)
    trainer = config.trainer
    if config.subset_seed is not None and takes_all(resolved(config)):
        raise UserError(f"subset_seed={config.subset_seed}: has no effect with train_size=all; leave it out")
    if launched is not None and launched.size != trainer.devices * trainer.nodes:
        raise UserError(
            f"trainer.devices={trainer.devices} trainer.nodes={trainer.nodes}: {launched.by} started {launched.size} "
            "processes; give as many devices on each node, and nodes, as it starts"
        )
    name = name_run(f"{config.model.name}-{config.data.name}", config.train_size, config.seed)
    files = RunFiles(args.out or Path("runs") / name)
    if launched is not None and launched.rank > 0:
        from vitlab.studies.worker import follow

        return follow(config, files.folder, launched)
    files.refuse(config)
    if not files.checkpoint_path.exists():
        raise_all(source_problems(source_of(config.init)))
    if trainer.nodes > 1 and launched is None:
        raise UserError(
            f"trainer.nodes={trainer.nodes} trainer.devices={trainer.devices}: start the processes with torchrun or "
            f"srun --nodes={trainer.nodes} --ntasks-per-node={trainer.devices} vitlab train ..."
        )
    if trainer.devices > 1 and launched is None:
        return launch_ranks(trainer, words)
    return run_rank_0(config, files.folder, launched)


def launch_ranks(trainer: TrainerConfig, words: Sequence[str]) -> int:
    """Start this command once for each device of this machine; return the exit code."""
    from vitlab.training.distributed import refuse_devices
    from vitlab.training.launch import DeviceLost, launch
    from vitlab.training.settings import choose_accelerator

    refuse_devices(trainer, choose_accelerator(trainer.accelerator))
    try:
        return launch(trainer.devices, "vitlab", ["train", *words])
    except DeviceLost as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1


def run_rank_0(config: TrainConfig, folder: Path, launched: Launched | None = None) -> int:
    """Train one run in its folder, resuming what is there, as rank 0; return the exit code. Raises UserError."""
    with status_line("loading torch, lightning and timm"):
        from vitlab.reports.wandb import RunReporter
        from vitlab.studies.experiment import run_experiment
        from vitlab.training.distributed import is_lost_rank, join_ranks
        from vitlab.training.loop import Diverged, Interrupted

    console, stopping = Console(stderr=True), Stopping()
    try:
        with join_ranks(launched) as ranks:
            open_data(config.data, console)  # with its own progress, before the run's
            if ranks.size > 1:
                console.print(f"training on {ranks.size} devices", highlight=False)
            if config.data.modality == "image" and (flip := config.data.augment.describe_flip()):
                console.say(f"data={config.data.name}: {flip}")
            with hold(folder) as claim, progress_bar(console) as shown, stopping:
                said: dict[str, float] = {}

                def progress(far: "Progress") -> None:
                    if far.validation not in ({}, said):
                        said.update(far.validation)
                        console.say(f"validation by step {far.step:,}: {', '.join(list_metrics(said))}")
                    shown(f"{folder.name} {far.note}".rstrip(), far.step, far.steps)

                options = {"observer": RunReporter(), "progress": progress, "stop": stopping.asked}
                result = run_experiment(config, claim, ranks=ranks, **options)
    except Interrupted:
        raise KeyboardInterrupt from None
    except Diverged as error:
        console.say(f"failed: {error}")
        return 1
    except Exception as error:
        if launched is not None and is_lost_rank(error):
            console.say("failed: the process of another device has ended, or has not answered for hours")
            return 1
        raise
    show(result, RunFiles(folder))
    if error := RunFiles(folder).error():  # of analyses or probes: the run itself is done
        console.say(f"vitlab: {error}")
    return 0


def show(result: dict[str, Any], files: RunFiles) -> None:
    """Print the metrics and the places of the files on stdout."""
    console = Console()
    shown = ("train_loss", "images_per_s", "mfu", "wall_s")
    texts = [*list_metrics(result), *(f"{key} {result[key]:.4g}" for key in shown if result.get(key))]
    console.say(f"{result['run']}: {', '.join(texts)} ({result['params']:,} parameters, {result['budget']})")
    console.say(f"files    {files.folder}")
    tracked = result.get("wandb") or {}
    if tracked.get("mode") == "offline":
        console.say(f"W&B      wandb sync {files.folder}/wandb/latest-run")
    elif tracked.get("url"):
        console.say(f"W&B      {tracked['url']}")


def list_metrics(values: Mapping[str, Any]) -> list[str]:
    """List the metrics that are compared, as texts, with the loss last."""
    compared = sorted((m for m in METRICS if m.is_compared), key=lambda m: m.key == "loss")
    return [f"{m.key} {m.text(m.value(values))}" for m in compared if m.value(values) is not None]
