"""Data sets: one module for each `kind`. Importing this package imports no torch.

An image module defines `load(config) -> ImageData`, a text module `read(config) -> Corpus` (vitlab.data.text).
This package holds their shared parts: batches, training subsets, held-out shares, validation data carved from train.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from vitlab.config import UserError, raise_all
from vitlab.data.base import module_of

if TYPE_CHECKING:
    from vitlab.config.schema.data import DataConfig
    from vitlab.data.base import ImageData, Show, TextData

LOOKED_AT, DARK = 16, 64  # pictures sampled; warn if none reaches this level, a quarter of white


def load(config: DataConfig, progress: Show | None = None) -> ImageData | TextData:
    """Open the data set of a configuration, through the cache unless `config.cache` is never.

    The module of `config.kind` may define `fingerprint(config)`: JSON of everything its data depends on besides the
    configuration (default: the module's source, and the files at the configuration's `root` or `path`). An image module
    may also define `contents(config)`: a text that changes with the images, so that no run resumes on other images
    (vitlab.data.cache).

    Calls progress(what, done, total) while it builds the cache, and passes `progress` to an image `load` that takes it.
    Raises UserError.
    """
    module = module_of(config)
    function = {"image": "load", "text": "read"}[config.modality]
    if not getattr(module, function, None):
        raise UserError(f"kind={config.kind}: {module.__name__} is not a data set, it has no {function}(config)")
    progress = progress or (lambda *_: None)
    if config.modality == "text":
        from vitlab.data.text.corpus import load_texts

        return load_texts(config, module, progress)
    from vitlab.data.cache import load_images

    data, problems = load_images(config, module, progress), []
    for key in ("mean", "std"):
        if len(vars(config)[key]) not in (1, data.channels):
            wanted = "1 value" if data.channels == 1 else f"1 value, or {data.channels}, one per channel"
            problems.append(f"data.{key}={vars(config)[key]}: give {wanted}")
    if config.augment.shift >= (side := min(data.image_size)):
        problems.append(f"data.augment.shift={config.augment.shift}: must be below the image's side of {side} pixels")
    raise_all(problems)
    warn_of_darkness(config, data)
    if config.holdout != "fixed":
        from vitlab.data.split import draw_again

        data = draw_again(data, 0 if config.holdout == "repeated" else config.holdout)
    if data.validation is None:
        from vitlab.data.split import carve_images

        data = carve_images(data)
    if data.train.targets is not None and data.train.targets.dtype.kind == "S":
        from vitlab.data.images.tables import encode_captions

        data = encode_captions(config, data)
    return data


def warn_of_darkness(config: DataConfig, data: ImageData) -> None:
    """Warn if evenly spaced training pictures are all nearly black, as 12-bit pictures in 16-bit files are."""
    with suppress(UserError):  # later reads report an unreadable file
        brightest = data.train.read(np.unique(np.linspace(0, len(data.train) - 1, LOOKED_AT).astype(int))).max()
        if brightest < DARK:
            few = f"data={config.name}: a few training pictures have no pixel brighter than {brightest} of 255"
            warnings.warn(f"{few}; of files with more than 8 bits `vitlab data` names data.bits", stacklevel=1)
