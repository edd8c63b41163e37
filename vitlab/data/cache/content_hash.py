"""What a data set holds, as one number: a run that resumes must find what it began with."""

import hashlib
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from vitlab.config.schema.data import DataConfig
from vitlab.data import load, module_of
from vitlab.data.base import Split
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.cache.store import named_files
from vitlab.data.text.types import list_arrays
from vitlab.registry import find_function

HASHES: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of data that this process has open: once for all runs


def contents(config: DataConfig, data: Any) -> str:
    """SHA-256 of the tokens and all that belongs to them, of images of their labels and what their module adds.

    It does not depend on where the files are. A module of images may have `contents(config) -> str` to tell images
    apart without reading all pixels; of a user's module without one it is the names and sizes of the files it names.
    """
    if data not in HASHES:
        HASHES[data] = hash_contents(config, data)
    return HASHES[data]


def hash_contents(config: DataConfig, data: Any) -> str:
    if config.modality == "image" and config.holdout != "fixed":
        # the seed of a drawn test set stands in the configuration: what it is drawn from is the same for all
        config = replace(config, holdout="fixed")
        data = load(config)
    digest = hashlib.sha256()
    # validation images follow from the training images, the configuration or what the module adds
    for split in (data.train, data.test) if isinstance(data.train, Split) else (data.train, data.validation, data.test):
        for name, values in (list_answers(split) if isinstance(split, Split) else list_arrays(split)).items():
            digest.update(f"{name} {values.dtype} {len(values)}".encode())
            digest.update(np.ascontiguousarray(values).data)
    module = module_of(config)
    if of := find_function(module, "contents"):
        digest.update(of(config).encode(errors="surrogateescape"))
    elif not find_function(module, "fingerprint") and isinstance(data.train, Split):
        for path in named_files(config).values():
            digest.update(repr([(name, size) for name, size, _ in stat_files(path)]).encode())
    return digest.hexdigest()


def list_answers(split: Split) -> dict[str, np.ndarray]:
    """The labels of images and, where they have any, their captions."""
    return {"labels": split.labels} | ({} if split.targets is None else {"targets": split.targets})
