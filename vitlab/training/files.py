"""The files of one run: where they are, how they are read and written. Imports no torch."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from vitlab.config import UserError, read_yaml
from vitlab.files import write_json, write_text


class RunFiles:
    """`config.yaml metrics.jsonl result.json checkpoints/last.ckpt analysis/ wandb/` below one folder."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.config_path = self.folder / "config.yaml"
        self.metrics_path = self.folder / "metrics.jsonl"
        self.result_path = self.folder / "result.json"
        self.checkpoint_path = self.folder / "checkpoints" / "last.ckpt"
        self.analysis_folder = self.folder / "analysis"

    def config(self) -> dict[str, Any]:
        """The resolved configuration. Raises UserError when the folder holds no run."""
        if not self.config_path.is_file():
            raise UserError(f"{self.folder}: not a run, it holds no config.yaml")
        return read_yaml(self.config_path)

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.config_path, yaml.safe_dump(config, sort_keys=False))

    def result(self) -> dict[str, Any] | None:
        """What the finished run wrote, or None while it is not finished."""
        if not self.result_path.is_file():
            return None
        try:
            return json.loads(self.result_path.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{self.result_path}: cannot read it ({error}); delete the file to train again") from None

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl; a last line that a crash cut short is left out."""
        if not self.metrics_path.is_file():
            return []
        rows = []
        for line in self.metrics_path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    def keep_metrics(self, last_step: int) -> None:
        """Drop the rows past a step, those that training from its checkpoint writes again."""
        kept = [row for row in self.metrics() if row["step"] <= last_step]
        write_text(self.metrics_path, "".join(json.dumps(row) + "\n" for row in kept))

    def analysis(self, name: str) -> dict[str, Any] | None:
        """`{"name", "unit", "rows": [{"step", "layer", "head", "value"}, ...]}` of one analysis, if it ran."""
        path = self.analysis_folder / f"{name}.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def write_analysis(self, name: str, unit: str, rows: Iterable[dict[str, Any]]) -> None:
        write_json(self.analysis_folder / f"{name}.json", {"name": name, "unit": unit, "rows": list(rows)})
