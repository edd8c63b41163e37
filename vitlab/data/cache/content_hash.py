"""What a data set holds, as one number: a run that resumes must find what it began with."""

import hashlib
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from omegaconf import DictConfig

from vitlab.data import module_of
from vitlab.data.base import Split
from vitlab.data.text.corpus import arrays

KNOWN: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of data that this process has open: found once for all runs


def contents(config: DictConfig, data: Any) -> str:
    """SHA-256 of the tokens and all that belongs to them, of images of their labels and what their module adds.

    A module of images may have `contents(config) -> str` for that: reading all pixels would take too long.
    """
    if data not in KNOWN:
        KNOWN[data] = hashed(config, data)
    return KNOWN[data]


def hashed(config: DictConfig, data: Any) -> str:
    found = hashlib.sha256()
    for split in (data.train, data.test):
        for name, values in ({"labels": split.labels} if isinstance(split, Split) else arrays(split)).items():
            found.update(f"{name} {values.dtype} {len(values)}".encode())
            found.update(np.ascontiguousarray(values).data)
    module = module_of(config)
    if hasattr(module, "contents"):
        found.update(module.contents(config).encode())
    return found.hexdigest()
