"""vitlab: how transformers compare with the architectures they replaced, as the data grows.

Models: `build_model` builds by name, `load_weights` and `export_weights` read and write weights; `extract_features`,
`attention_maps` and `attention_distance` look into a model.
Parts for models of your own: `TransformerEncoder` and its `Block`, `ViT` on images, `TextEncoder` on tokens.
Training: `TrainingModule` under Lightning's Trainer; `load_run` opens a finished run.
Results: `load_results` of a study, `load_others` of other programs; `fit_scaling_law`, `crossover` and
`data_multiplier` of any errors.
Errors: a mistake in an argument raises `UserError`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers and editors cannot see the imports of `__getattr__`
    from vitlab.analysis.capture import attention_maps as attention_maps
    from vitlab.analysis.heads import attention_distance as attention_distance
    from vitlab.config import UserError as UserError
    from vitlab.models import build_model as build_model
    from vitlab.models.base import extract_features as extract_features
    from vitlab.models.encoder import Block as Block
    from vitlab.models.encoder import TransformerEncoder as TransformerEncoder
    from vitlab.models.export import export_weights as export_weights
    from vitlab.models.text import TextEncoder as TextEncoder
    from vitlab.models.vit import ViT as ViT
    from vitlab.statistics.crossover import crossover as crossover
    from vitlab.statistics.crossover import data_multiplier as data_multiplier
    from vitlab.statistics.fit import fit_scaling_law as fit_scaling_law
    from vitlab.studies.others import load_others as load_others
    from vitlab.studies.results import load_results as load_results
    from vitlab.training.finished import load_run as load_run
    from vitlab.training.load import load_weights as load_weights
    from vitlab.training.module import TrainingModule as TrainingModule

_HOME = {  # name -> module; imported on first use, because most modules import torch
    "build_model": "vitlab.models",
    "load_weights": "vitlab.training.load",
    "export_weights": "vitlab.models.export",
    "load_results": "vitlab.studies.results",
    "load_others": "vitlab.studies.others",
    "load_run": "vitlab.training.finished",
    "extract_features": "vitlab.models.base",
    "attention_maps": "vitlab.analysis.capture",
    "attention_distance": "vitlab.analysis.heads",
    "fit_scaling_law": "vitlab.statistics.fit",
    "crossover": "vitlab.statistics.crossover",
    "data_multiplier": "vitlab.statistics.crossover",
    "TransformerEncoder": "vitlab.models.encoder",
    "Block": "vitlab.models.encoder",
    "ViT": "vitlab.models.vit",
    "TextEncoder": "vitlab.models.text",
    "TrainingModule": "vitlab.training.module",
    "UserError": "vitlab.config",
}
__all__ = sorted(_HOME)


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'vitlab' has no attribute '{name}'")
        return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
