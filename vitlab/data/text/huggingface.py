"""Any data set that Hugging Face's `datasets` loads: of the Hub, or files of its formats."""

import os
from glob import glob
from typing import Any

from vitlab.config import UserError, choices_text, first_line
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.text import columns
from vitlab.data.text.columns import Table, Wanted
from vitlab.data.text.types import Corpus

VERSION = 1  # of the reading
UNPICKLING = ("pandas",)  # builders of `datasets` below 5 that read pickles


def fingerprint(config: TextDataConfig) -> list:
    """Local files as they are; of a set on the Hub nothing more than `revision` says."""
    patterns = [os.path.expanduser(p) for p in (config.dataset, *as_list(config.files), *as_list(config.test_files))]
    return [VERSION, columns.VERSION, *(stat_files(path) for pattern in patterns for path in sorted(glob(pattern)))]


def as_list(value: Any) -> list[str]:
    return [str(v) for v in (value if isinstance(value, list) else [value]) if v is not None]


def read(config: TextDataConfig) -> Corpus:
    """The rows of the split `split` as `vitlab.data.text.columns` reads them; those of `test_split` are held out.

    Raises UserError, also for what `datasets` cannot load.
    """
    test_split = config.test_split or ("test" if config.test_files else None)
    splits = load_splits(config, test_split)
    unknown = [key for key in ("split", "test_split") if vars(config)[key] and vars(config)[key] not in splits]
    if unknown:
        raise UserError(
            f"data.{key}={vars(config)[key]}: no such split; {choices_text(vars(config)[key], splits)}"
            for key in unknown
        )
    test = read_table(config, splits, test_split) if test_split else None
    return columns.make_corpus(Wanted.of(config), read_table(config, splits, config.split), test)


def load_splits(config: TextDataConfig, test_split: str | None) -> Any:
    """A `datasets.DatasetDict`."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise UserError("data=huggingface needs the library 'datasets': pip install 'vitlab[datasets]'") from None
    files = {}
    for split, key in ((config.split, "files"), (test_split, "test_files")):
        if paths := [os.path.expanduser(path) for path in as_list(vars(config)[key])]:
            files[split] = paths
    source = f"data.dataset={config.dataset}"
    try:
        builder = datasets.load_dataset_builder(
            os.path.expanduser(config.dataset), config.subset, data_files=files or None, revision=config.revision
        )
        if builder.name in UNPICKLING:
            raise UserError(f"{source}: would be unpickled, which can run any program; save it as Parquet, CSV or JSON")
        builder.download_and_prepare()
        return builder.as_dataset()
    except UserError:
        raise
    except Exception as error:  # the library raises its own, and those of every format and of the network
        cause = error
        while cause.__cause__ is not None:  # it says only there what is wrong with a file
            cause = cause.__cause__
        reasons = dict.fromkeys(map(first_line, (error, cause)))
        raise UserError(f"{source}: cannot be loaded: {': '.join(reasons)}") from None


def read_table(config: TextDataConfig, splits: Any, split: str) -> Table:
    """The columns of a split; those that are not asked for are not read."""
    rows = splits[split]
    wanted = Wanted.of(config)
    columns = {*wanted.text, wanted.label}
    cells = {name: rows[name][:] if name in columns else () for name in rows.column_names}
    feature = rows.features.get(wanted.label)
    classes = getattr(getattr(feature, "feature", feature), "names", None) or ()  # of tags it is one level down
    return Table(f"data.dataset={config.dataset} ({split})", cells, range(len(rows)), tuple(classes))
