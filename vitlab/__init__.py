"""vitlab: how transformers compare with the architectures they replaced, as the data grows."""

import importlib
from typing import Any

_HOME = {  # name -> module; imported on first use, for most of them bring torch
    "build_model": "vitlab.models",
    "load_weights": "vitlab.training.load",
    "export_weights": "vitlab.models.export",
    "load_results": "vitlab.studies.results",
    "load_others": "vitlab.studies.others",
    "load_run": "vitlab.training.checkpoints",
    "extract_features": "vitlab.models.base",
    "attention_maps": "vitlab.analysis.capture",
    "attention_distance": "vitlab.analysis.heads",
    "fit_scaling_law": "vitlab.studies.fit",
    "crossover": "vitlab.studies.crossover",
    "data_multiplier": "vitlab.studies.crossover",
    "UserError": "vitlab.config",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vitlab' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
