"""A Lightning logger that writes metrics.jsonl."""

import json
import math
from typing import Any

from lightning.pytorch.loggers import Logger

from vitlab.training.files import RunFiles


class JsonLines(Logger):
    """Appends one JSON object per line, `step` first. Values that are not finite become null."""

    def __init__(self, files: RunFiles):
        super().__init__()
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
        row = {"step": step, **metrics}
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        self.file.write(json.dumps(finite) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()
