"""Lightning's Trainer as this program uses it: nothing printed, files written by its own callbacks."""

import json
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import lightning.pytorch as L
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy

from vitlab.training.callbacks import OwnSignals
from vitlab.training.checkpoint import AtomicCheckpointIO
from vitlab.training.devices.ranks import PATIENCE, Place, Ranks
from vitlab.training.files import RunFiles
from vitlab.training.settings import Settings


def build_trainer(
    settings: Settings,
    check_claim: Callable[[], None],
    ranks: Ranks,
    *,
    unused: bool,
    callbacks: Sequence[L.Callback],
    **options: Any,
) -> L.Trainer:
    """A trainer on these settings; `check_claim` is that of its checkpoints, `options` are Lightning's.

    `unused`: the loss does not depend on all parameters of the model.
    """
    silence_lightning()
    return L.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.nodes,
        # buffers are those of synchronised BatchNorm, the same everywhere
        strategy=DDPStrategy(find_unused_parameters=unused, forward_sync_buffers=False, timeout=PATIENCE)
        if ranks.size > 1
        else "auto",
        sync_batchnorm=ranks.size > 1 and settings.accelerator == "gpu",
        use_distributed_sampler=False,  # the loaders know of the devices
        precision=settings.precision,
        deterministic=settings.deterministic,
        max_epochs=-1,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        plugins=[AtomicCheckpointIO(check_claim), Place(ranks)],
        callbacks=[OwnSignals(), *callbacks],
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


class JsonLines(Logger):
    """Appends a JSON object per line to metrics.jsonl, `step` first. Values that are not finite become null."""

    def __init__(self, files: RunFiles, check_claim: Callable[[], None]):
        super().__init__()
        self.check_claim = check_claim
        files.folder.mkdir(parents=True, exist_ok=True)
        self.path = files.metrics_path
        self.file = self.path.open("a")

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """config.yaml holds them."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.check_claim()
        row = {"step": step, **metrics}
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        self.file.write(json.dumps(finite) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class Endless:
    """A loader without a length, so that Lightning ends at max_steps, at whatever step the loader begins."""

    def __init__(self, loader: Iterable[Any]):
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def silence_lightning() -> None:
    """Silence Lightning's advice on hardware, loaders and srun, which this program decides on."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\.pytorch\.(trainer|loops|utilities)\..*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=r"The `srun` command is available on your system but is not used")
    warnings.filterwarnings("ignore", module=r"torchmetrics\..*")
