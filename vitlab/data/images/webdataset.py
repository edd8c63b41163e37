"""Tar shards as the webdataset library writes them: sample KEY is the files KEY.jpg, KEY.cls, ... beside each other.

Shards are indexed once (vitlab.data.shards): where each image lies, its label and a hash of its key. Images are then
read by their number like those of any other set, so an epoch's order depends on the seed alone and a run can go on at
any step, with any number of workers. An epoch goes through a window of shards at a time.
"""

import warnings
from collections.abc import Callable

from vitlab.config import UserError, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Split
from vitlab.data.shards.images import ShardImages
from vitlab.data.shards.index import Index, ShardIndex
from vitlab.data.shards.locate import fetch_shards, list_shards
from vitlab.formatting import plural

VERSION = 2  # of the decoding
SPLITS = ("train", "validation", "test")


def fingerprint(config: ImageDataConfig) -> list:
    index = ShardIndex(config, None, {part: list_shards(config, part) for part in list_given(config)})
    return [VERSION, index.settings(), index.fingerprint()]


def contents(config: ImageDataConfig) -> str:
    """Of the index: keys, labels and sizes of all images."""
    return open_index(config, None).digest


def load(config: ImageDataConfig, progress: Callable[[str, int, int], None] | None = None) -> ImageData:
    """The images of `data.train`, RGB, resized to cover `image_size` and cropped. Raises UserError, a line a fault.

    Where `data.validation` or `data.test` is not given, training samples are held out by a hash of their keys.
    """
    index, size = open_index(config, progress), extent(config.image_size)
    splits = {part: Split(found.labels, ShardImages(index.shards, found, size)) for part, found in index.splits.items()}
    train = index.splits["train"]
    splits["train"] = Split(train.labels, splits["train"].read, keys=train.keys, blocks=train.shards)
    return ImageData(config.name, index.classes, size, 3, **splits)


def open_index(config: ImageDataConfig, progress: Callable[[str, int, int], None] | None) -> Index:
    shards = {part: fetch_shards(config, part, progress or skip) for part in list_given(config)}
    for part in shards.keys() - {"train"}:
        if both := {shard.path for shard in shards[part]} & {shard.path for shard in shards["train"]}:
            line = f"data.{part}: {plural(len(both), 'shard')} of data.train too, such as {min(both)}"
            warnings.warn(f"{line}: trained on, not held out", stacklevel=1)
    return ShardIndex(config, None, shards, progress).load()


def list_given(config: ImageDataConfig) -> list[str]:
    """The splits that have shards. Raises UserError."""
    try:
        import webdataset  # noqa: F401
    except ModuleNotFoundError:
        raise UserError("data=webdataset needs the library 'webdataset': pip install 'vitlab[webdataset]'") from None
    if config.train is None:
        raise UserError("data.train is missing: give data.train=SHARDS, such as 'shards/train-{000000..000099}.tar'")
    return [part for part in SPLITS if vars(config)[part] is not None]


def skip(*_: object) -> None:
    pass
