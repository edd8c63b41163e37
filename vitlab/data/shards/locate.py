"""The shards that a configuration names: files here, or addresses to be copied here first."""

import hashlib
import math
import os
import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

from vitlab.config import UserError, first_line
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.cache.store import Progress, cache_root
from vitlab.files import replacing
from vitlab.formatting import plural

MOST_SHARDS = 1_000_000  # more are a mistake, and would fill the memory
SHOWN = 3  # missing shards named in an error
AT_ONCE = 4  # downloads


class Shard(NamedTuple):
    """A tar file as it was when it was indexed: bytes, and the time of its last change in ns."""

    path: str
    size: int
    mtime: int

    @property
    def unchanged(self) -> bool:
        return stat_shard(self.path) == self


def stat_shard(path: str) -> Shard:
    status = os.stat(path)
    return Shard(path, status.st_size, status.st_mtime_ns)


def list_sources(config: ImageDataConfig, key: str) -> list[str]:
    """The files and addresses that `data.<key>` names: braces expanded, globs and folders listed. Raises UserError."""
    from webdataset.shardlists import expand_urls

    patterns = vars(config)[key]
    sources: list[str] = []
    for pattern in patterns if isinstance(patterns, list) else [patterns]:
        if not isinstance(pattern, str) or not pattern:
            raise UserError(f"data.{key}={patterns}: give the name of a shard, a pattern, or a list of them, in quotes")
        if (count := count_names(pattern)) > MOST_SHARDS:
            raise UserError(f"data.{key}={pattern}: names {count:,} shards; give at most {MOST_SHARDS:,}")
        try:
            expanded = expand_urls(pattern)
        except (AssertionError, ValueError) as error:
            raise UserError(f"data.{key}={pattern}: {first_line(error)}") from None
        for source in expanded:
            if is_address(source):
                sources.append(source)
                continue
            path = os.path.abspath(os.path.expanduser(source.removeprefix("file://").removeprefix("file:")))
            path = os.path.join(path, "*.tar") if os.path.isdir(path) else path
            matches = sorted(glob(path)) if has_magic(path) and not os.path.exists(path) else [path]
            if not matches:
                raise UserError(f"data.{key}={pattern}: no shard matches")
            sources += matches
    if len(set(sources)) < len(sources):
        doubled = next(source for source, number in Counter(sources).items() if number > 1)
        raise UserError(f"data.{key}={patterns}: names {doubled} twice")
    return sources


def count_names(pattern: str) -> int:
    """How many names the ranges of a pattern stand for, `{000..999}`."""
    ranges = re.findall(r"\{(\d+)\.\.(\d+)\}", pattern)
    return math.prod(abs(int(last) - int(first)) + 1 for first, last in ranges)


def is_address(source: str) -> bool:
    return bool(re.match(r"(?!file:)[a-z0-9+]+:", source))


def place_of(source: str) -> str:
    """The path of a shard; of an address, that of its copy in the cache."""
    if not is_address(source):
        return source
    digest = hashlib.sha256(source.encode(errors="surrogateescape")).hexdigest()[:16]
    return str(cache_root() / "shards" / f"{digest}-{re.sub(r'[^A-Za-z0-9._-]', '_', source)[-60:]}")


def list_shards(config: ImageDataConfig, key: str) -> list[Shard]:
    """Those that are here, as they are now."""
    paths = map(place_of, list_sources(config, key))
    return [stat_shard(path) for path in paths if os.path.isfile(path)]


def fetch_shards(config: ImageDataConfig, key: str, progress: Progress) -> list[Shard]:
    """All of them, downloaded where they are addresses. Raises UserError for those that are not there."""
    sources = list_sources(config, key)
    absent = [source for source in sources if not os.path.isfile(place_of(source))]
    if missing := [source for source in absent if not is_address(source)]:
        if len(sources) == 1:
            raise UserError(f"data.{key}={vars(config)[key]}: no such file or folder")
        named = ", ".join(missing[:SHOWN]) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
        raise UserError(
            f"data.{key}={vars(config)[key]}: {len(missing)} of {plural(len(sources), 'shard')} not there: {named}"
        )
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done, problem in enumerate(pool.map(download, absent)):
            if problem:
                pool.shutdown(wait=False, cancel_futures=True)
                raise UserError(f"data.{key}={absent[done]}: {problem}")
            progress("downloading shards", done + 1, len(absent))
    return [stat_shard(place_of(source)) for source in sources]


def download(source: str) -> str | None:
    """Copy a shard into the cache; what went wrong."""
    from webdataset.gopen import gopen

    try:
        with replacing(Path(place_of(source))) as file, gopen(source) as stream:
            shutil.copyfileobj(stream, file, 2**20)
    except Exception as error:  # the library's own, and those of every protocol
        code = re.search(r"exit (\d+) ", str(error))
        if isinstance(error, ValueError):  # no program is known that fetches it
            return "cannot be opened by webdataset; give pipe:COMMAND, which writes the shard to its output"
        return f"cannot download it: {f'the command ended with code {code[1]}' if code else first_line(error)}"
    return None
