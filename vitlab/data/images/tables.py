"""A folder of pictures and a table (CSV or TSV) of their classes, labels, numbers or captions.

imagetable: its columns may also say which split a picture belongs to, and which pictures stay on one side of every
split because they show the same patient, camera or film. captions: one or several rows a picture; the held-out pictures
are chosen by their names and the seed, so that adding pictures later moves few of them.
"""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from unicodedata import normalize

import numpy as np
import yaml

from vitlab.config import UserError, choices_text, extent, raise_all
from vitlab.config.schema.data import CaptionsConfig, ImageDataConfig, ImageTableConfig
from vitlab.data.base import CaptionData, ImageData, Split, take_items
from vitlab.data.cache import hash_bytes, stat_files
from vitlab.data.images.imagefolder import EXTENSIONS, SPLITS, WHOLE, FileImages, name_splits, to_names
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.data.split import hash_key, hold_out
from vitlab.data.text import tokenization
from vitlab.data.text.texts import LARGEST, check_column, read_cells, read_number
from vitlab.files import read_utf8
from vitlab.formatting import cut_lines

VERSIONS = {"imagetable": 5, "captions": 5}  # of the reading
SHOWN = 5  # rows named in an error
SEPARATORS = ";|,/+& "  # between the labels of a picture; the first two hardly stand in a name

Row = dict[str, str]  # the cells by the names of their columns


def fingerprint(config: ImageDataConfig) -> list:
    files = stat_files(Path(config.path).expanduser()), stat_files(Path(config.root).expanduser(), EXTENSIONS)
    return [VERSIONS[config.kind], *files]


def contents(config: ImageDataConfig) -> str:
    """List the pictures' names, groups and splits, and hash their bytes; labels and targets are hashed elsewhere."""
    root, is_table = os.path.expanduser(config.root), config.kind == "imagetable"
    keys = (config.file, config.group or "", config.split or "") if is_table else ()
    named = [[*map(row.get, keys)] for row in read_pictures(config)] if is_table else [*zip(read_captions(config))]
    return f"{named} {hash_bytes(config.name, [os.path.join(root, file) for file, *_ in named])}"


def load(config: ImageDataConfig) -> ImageData:
    """Load the table's pictures, RGB, resized to cover `image_size` and cropped. Raises UserError, a line a fault."""
    size, root = extent(config.image_size), str(Path(config.root).expanduser())
    if config.kind == "imagetable":
        rows = read_pictures(config)
        classes, labels, targets = read_targets(config, rows)
        # groups by their names: new rows move no other group
        together = np.array([hash_key(row[config.group]) >> 1 for row in rows]) if config.group else None
        paths = [row[config.file] for row in rows]
        read = FileImages(root, tuple(paths), size, config.bits)
        whole = Split(labels, read, targets, names=to_names(paths), together=together)
        return ImageData(config.name, classes, size, 3, **split_rows(config, rows, whole))
    by_name = read_captions(config)
    read = FileImages(root, tuple(by_name), size, config.bits)
    captions = np.array([*zip_longest(*by_name.values(), fillvalue=b"")]).T
    whole = Split(np.zeros(len(by_name), dtype=np.int64), read, captions, names=to_names([*by_name]))
    if len(whole) < 3:
        raise UserError(f"data.path={config.path}: captions of {len(by_name)} pictures; give at least 3")
    return ImageData(config.name, (), size, 3, *hold_out(whole, config.test_share, config.seed))


def read_rows(config: ImageDataConfig, columns: Mapping[str, str | None]) -> list[tuple[int, Row]]:
    """Read the table's rows as (number, cells), in Unicode's composed form. Raises UserError for a missing column,
    by its key in the configuration.
    """
    root, path = Path(config.root).expanduser(), Path(config.path).expanduser()
    if not root.is_dir():
        raise UserError(f"data.root={root}: {'not a folder' if root.exists() else 'no such folder'}")
    advice = "quote a cell that has a comma or a quote"
    first = read_utf8(path, "data.path").partition("\n")[0]
    parts = {each: {cell.strip(' "') for cell in first.split(each)} for each in ",\t;"}  # Excel writes ; in Europe
    delimiter = max(parts, key=lambda each: (len(parts[each] & {*columns.values()}), len(parts[each])))
    table = read_cells(path, "data.path", [*columns.values()], delimiter, quoting=True, header=True, advice=advice)
    raise_all(line for key, name in columns.items() for line in check_column(table, key, name))
    rows = zip(*table.columns.values(), strict=True)
    cells = [dict(zip(table.columns, (normalize("NFC", cell.strip()) for cell in row), strict=True)) for row in rows]
    return list(zip(table.numbers, cells, strict=True))


def find_pictures(root: Path, cells: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Find the picture that each cell names, as its path below the root: one path for each file, however it is written
    (`./a.png`, an absolute path, a link, another Unicode form); return the paths, and the problems of all other cells.
    """
    found, wrong, composed = {}, {}, {}
    for cell in cells:
        path = os.path.join(root, cell)
        if not os.path.isfile(path):
            composed = composed or {normalize("NFC", path): path for path, *_ in stat_files(root)}
            path = os.path.join(root, composed.get(normalize("NFC", os.path.normpath(cell)), cell))
        if not os.path.isfile(path):
            wrong[cell] = f"no picture '{cell}' in data.root={root}; correct the name, or delete the row"
            continue
        found[cell] = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return found, wrong


def raise_problems(config: ImageDataConfig, problems: Sequence[tuple[int, str]]) -> None:
    """Raise UserError for the problems of rows, (number, problem), if there are any."""
    source = f"data.path={Path(config.path).expanduser()}"
    if problems:
        lines = [f"{source}: row {number}: {problem}" for number, problem in problems]
        raise UserError(cut_lines(lines, SHOWN, " such rows", f"{source}: ... "))


def read_captions(config: CaptionsConfig) -> dict[str, list[bytes]]:
    """Read the captions of each picture, UTF-8, by its path. Raises UserError for a missing column, file or caption."""
    by_name, problems, image_column, caption_column = {}, [], config.image_column, config.caption_column
    rows = read_rows(config, {"image_column": image_column, "caption_column": caption_column})
    found, wrong = find_pictures(Path(config.root).expanduser(), {row[image_column] for _, row in rows})
    for number, row in rows:
        image, caption = row[image_column], " ".join(row[caption_column].split())
        if image in wrong and image not in by_name:
            problems.append((number, wrong[image]))
        image = found.get(image, image)
        if not caption:
            problems.append((number, f"no caption for '{image}'; write one, or delete the row"))
        by_name.setdefault(image, []).append(caption.encode())
    raise_problems(config, problems)
    return by_name


def read_pictures(config: ImageTableConfig) -> list[Row]:
    """Read the rows of a table with one row a picture. Raises UserError for a missing column, file or cell."""
    lines, problems = {}, []
    rows = read_rows(config, {key: vars(config)[key] for key in ("file", "label", "group", "split")})
    found, wrong = find_pictures(Path(config.root).expanduser(), {row[config.file] for _, row in rows})
    parts = name_splits({row[config.split] for _, row in rows}) if config.split else {}
    for number, row in rows:
        file, label, split = row[config.file], row[config.label], row.get(config.split or "", "")
        row[config.file] = found.get(file, file)
        if file in wrong:
            problems.append((number, wrong[file]))
        elif (first := lines.setdefault(found[file], number)) != number:
            problems.append((number, f"'{file}' is in row {first} too; give each picture one row"))
        if config.target == "class" and not label:
            problems.append((number, f"no label of '{file}'; write one, or delete the row"))
        elif config.target == "number" and read_number(label) is None:
            what = f"is not a number below {LARGEST:g}"
            problems.append((number, f"{config.label}={label}: {what}; correct it, or delete the row"))
        if config.split and parts.get(split) not in SPLITS:
            problems.append((number, f"{config.split}={split}: {choices_text(split, ('train', 'val', 'test'))}"))
    raise_problems(config, problems)
    return [row for _, row in rows]


def read_targets(
    config: ImageTableConfig, rows: Sequence[Row]
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None]:
    """Read classes, labels int64 (N,) and targets: float32 (N, C) of 0 and 1 for several labels, numbers (N,), or None.

    If a picture has several labels, its rarest one is in `labels`, so that splits share out the rare ones.
    """
    cells = [row[config.label] for row in rows]
    if config.target == "number":
        return (), np.zeros(len(rows), dtype=np.int64), np.array(cells, dtype=np.float32)
    several = config.target == "labels"
    names_of = split_labels(f"data.label={config.label}", {*cells} - {""}, several)
    if joined := sorted(cell for cell, names in names_of.items() if len(names) > 1 and not (several and ";" in cell)):
        meant = f"{len(names_of[joined[0]])} labels" if several else "one class; several labels are data=imagelabels"
        warnings.warn(f"data.label={config.label}: '{joined[0]}' is read as {meant}", stacklevel=1)
    listed = [names_of.get(cell, []) if several else [cell] for cell in cells]
    classes = tuple(sorted({name for names in listed for name in names}))
    if len(classes) < 2:
        raise UserError(f"data.path={config.path}: only one class, '{''.join(classes)}'; give two or more")
    places = {name: place for place, name in enumerate(classes)}
    if not several:
        return classes, np.array([places[name] for name in cells]), None
    targets = np.zeros((len(rows), len(classes)), dtype=np.float32)
    for target, names in zip(targets, listed, strict=True):
        target[[places[name] for name in names]] = 1
    rarity = np.where(targets > 0, targets.sum(axis=0), np.inf)
    return classes, np.where(targets.any(axis=1), rarity.argmin(axis=1), len(classes)), targets


def split_labels(source: str, texts: set[str], several: bool) -> dict[str, list[str]]:
    """Split the texts of a column into labels. With `several`, raises UserError if a text may be one label or more.

    `;`, `|` and lists separate labels. Other characters may belong to a name (`golden retriever`, `Washington, D.C.`):
    they separate labels if this gives fewer labels than texts; for a space half of the labels must stand alone, too.
    """
    if several and any(text[0] == "[" for text in texts):
        with suppress(yaml.YAMLError, RecursionError):  # YAML knows the lists of JSON and of Python
            listed = {text: yaml.load(text, yaml.BaseLoader) for text in sorted(texts)}
            if all(
                isinstance(names, list) and all(isinstance(name, str) for name in names) for names in listed.values()
            ):
                return listed
        raise UserError(f"{source}: some are lists, not all as [cat, dog]; write them so, or labels with ';' between")
    for separator in SEPARATORS:
        parts = {text: [part for part in map(str.strip, text.split(separator)) if part] for text in texts}
        joined = sorted(text for text in texts if len(parts[text]) > 1 or (separator == ";" and ";" in text))
        names = {name for of_text in parts.values() for name in of_text}
        fewer, alone = len(names) < len(texts), names & texts
        if joined and (separator in ";|" or (fewer and (separator != " " or 2 * len(alone) >= len(names)))):
            return parts
        if several and (open_ := [text for text in joined if fewer or alone.issuperset(parts[text])]):
            advice = "write ';' between labels, and behind a label that holds one"
            raise UserError(f"{source}: '{open_[0]}' may be one label or several by '{separator}'; {advice}")
    return {text: [text] for text in texts}


def read_parts(config: ImageTableConfig, rows: Sequence[Row]) -> np.ndarray:
    """Read the split of each picture, (N,), from the column `split`. Raises UserError for a group in two splits."""
    named, home, problems = name_splits({row[config.split] for row in rows}), {}, {}
    parts = np.array([named[row[config.split]] for row in rows])
    for part, name in zip(parts, [row[config.group] for row in rows] if config.group else (), strict=False):
        if home.setdefault(name, part) != part:
            problems[f"data.group={config.group}: '{name}' is in {home[name]} and in {part}; move it to one"] = None
    raise_all([*problems][:SHOWN])
    return parts


def list_splits(config: ImageTableConfig) -> dict[str, dict[str, list[str]]]:
    """List the files of each split and class, the training split first; a table without splits has all as WHOLE."""
    rows, found = read_pictures(config), dict[str, dict[str, list[str]]]()
    for row, part in zip(rows, read_parts(config, rows) if config.split else [WHOLE] * len(rows), strict=True):
        found.setdefault(str(part), {}).setdefault(row[config.label], []).append(row[config.file])
    return {part: found[part] for part in (WHOLE, *SPLITS) if part in found}


def split_rows(config: ImageTableConfig, rows: Sequence[Row], whole: Split) -> dict[str, Split]:
    """Split the pictures by the column `split`, else hold out a share of each class.

    Raises UserError for splits without a picture, and for a group in two splits.
    """
    if not config.split:
        why, held = f"data.test_share={config.test_share}", hold_out(whole, config.test_share, config.seed)
        splits = dict(zip(("train", "test"), held, strict=True))
    else:
        why, parts = f"data.split={config.split}", read_parts(config, rows)
        splits = {part: take_items(whole, np.flatnonzero(parts == part)) for part in SPLITS if part in parts}
    if not all(len(splits.get(part, ())) for part in ("train", "test")):
        raise UserError(f"{why}: of {len(rows)} pictures none is left for training or for the test; give more")
    return splits


def encode_captions(config: ImageDataConfig, data: ImageData) -> CaptionData:
    """Replace captions, UTF-8 (N, captions of an image), padded with empty captions, by their tokens.

    Trains a tokenizer on the training captions unless it is a file. Raises UserError for captions longer than
    `data.target_length`.
    """
    splits = data.splits
    captions = {
        part: [[text.decode() for text in row if text] for row in split.targets.tolist()]
        for part, split in splits.items()
    }
    if tokenization.is_path(config.tokenizer):
        tokenizer = tokenization.from_file(config.tokenizer)
    else:
        of_train = (text for of_image in captions["train"] for text in of_image)
        tokenizer = tokenization.train(of_train, config.tokenizer, config.vocabulary, config.lowercase)
    encoded = {part: [tokenizer.encode(of_image) for of_image in rows] for part, rows in captions.items()}
    lengths = np.array([len(ids) + 1 for rows in encoded.values() for of_image in rows for ids in of_image])
    longest, length = lengths.max(), config.target_length
    if longest > length:
        raise UserError(
            f"data.target_length={length}: {(lengths > length).sum()} of {len(lengths)} captions are longer, the "
            f"longest has {longest} tokens with its end; give data.target_length={longest}, or shorten them"
        )
    for part, rows in encoded.items():
        read = np.ascontiguousarray(splits[part].targets)[..., None].view(np.uint8)
        read = read[:, : max(map(len, rows)), : read.shape[-1] * (part != "train")].astype(np.int64)
        targets = np.full((*read.shape[:2], length + 1), IGNORE_INDEX, dtype=np.int64)
        for row, of_image in enumerate(rows):
            for place, ids in enumerate(of_image):
                targets[row, place, : len(ids) + 2] = [tokenizer.decoder_start, *ids, tokenizer.end]
        as_read = np.where(read, read, IGNORE_INDEX)
        splits[part] = replace(splits[part], targets=np.concatenate([targets, as_read], axis=-1))
    about = {"tokenizer": tokenizer, "target_length": length, "exact": config.exact}
    return CaptionData(**{**vars(data), **splits}, **about)
