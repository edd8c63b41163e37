"""Texts from files: documents, tables, two files of translations, Hugging Face's sets, and mixtures of any."""

import csv
import io
import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vitlab.config import UserError, choices_text, collecting, first_line, groups, raise_all
from vitlab.config.errors import parse_json
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.base import Corpus, Examples, module_of
from vitlab.data.cache import key_of, named_files, stat_files, walk_files, warn_of_broken_links
from vitlab.data.split import carve_texts, cut_text, divide_texts, name_groups
from vitlab.data.text.corpus import SPLITS, check_texts
from vitlab.files import check_regular, read_utf8, reading
from vitlab.formatting import plural

VERSION = 7  # of the reading
LARGEST = 1e15  # bound of targets: float32 sums their squares
LARGEST_FIELD = 2**31 - 1  # characters; the csv module's own limit is 131,072
CONLLU = 10  # columns of CoNLL-U
DOCUMENT = "-DOCSTART-"  # a line of its own before each document of CoNLL-2003
UNPICKLING = ("pandas",)  # builders of `datasets` below 5 that read pickles
DEFAULT_MIXTURE = {"numbers": "numbers", "summarize": "summaries"}


def fingerprint(config: TextDataConfig) -> list:
    """Return the reading's version, and the files' sizes and times; a set on the Hub has only its `revision`."""
    if config.kind == "mixture":
        return [VERSION, {name: key_of(part, module_of(part))[1] for name, part in load_parts(config).items()}]
    paths = list(named_files(config).values())
    if config.kind == "huggingface":
        given = *as_list(config.dataset), *as_list(config.files), *as_list(config.test_files)
        paths = [path for pattern in given for path in sorted(glob(pattern))]
    extensions = endings(config) if config.kind == "textfile" else ()
    return [VERSION, *(stat_files(path, extensions) for path in paths)]


def read(config: TextDataConfig) -> Corpus:
    """Read the texts of a configuration; hold out its test files, or else a share. Raises UserError."""
    readers = {"textfile": read_documents, "parallel": read_parallel, "mixture": read_mixture, "squad": read_squad}
    return readers.get(config.kind, read_tables)(config)


# -- documents


def endings(config: TextDataConfig) -> tuple[str, ...]:
    return tuple("." + str(each).lower().removeprefix(".") for each in config.extensions)


def read_documents(config: TextDataConfig) -> Corpus:
    """Read the documents of `path`; hold out the documents of `test_path`, or else a share by a hash of each text.

    A single document is cut: its end is held out, from the start of a line.
    """
    train = list_documents(config, "path")
    if config.test_path:
        return Corpus(Examples((train,)), Examples((list_documents(config, "test_path"),)))
    if len(set(train)) == 1:
        cut = cut_text(train[0], config.test_share)
        if cut is None:
            reason = "has too few lines to hold out the last of them"
            raise UserError(f"data.path={config.path}: {reason}; give data.test_path=FILE")
        return Corpus(*(Examples(([text],)) for text in cut))
    return Corpus(*(Examples((texts,)) for texts in divide_texts(train, config.test_share)))


def list_documents(config: TextDataConfig, key: str) -> list[str]:
    """Read the documents of a key's file or folder, a folder's files in the order of their paths."""
    path = Path(vars(config)[key]).expanduser()
    if not os.path.exists(path):
        raise UserError(f"data.{key}={path}: no such file or folder")
    names, broken = [os.fspath(path)], []
    if path.is_dir():
        names = sorted(entry.path for entry in walk_files(path, endings(config), broken))
        warn_of_broken_links(f"data.{key}={path}", path, broken)
        if not names:
            kinds = " ".join(endings(config))
            raise UserError(f"data.{key}={path}: no text files ({kinds}); give others by data.extensions=[...]")
    texts = (read_utf8(Path(name), f"data.{key}") for name in names)
    if config.split_on == "blank_line":
        texts = (part for text in texts for part in re.split(r"\n\s*\n", text))
    documents = [text.strip("\n") for text in texts if text.strip()]
    if not documents:
        raise UserError(f"data.{key}={path}: contains no text")
    return documents


# -- tables: texts with classes, numbers or tags


@dataclass(frozen=True)
class Table:
    """Columns of equal length, by name.

    source: the beginning of a message, such as `data.path=x.csv`.
    numbers: each row's number, for messages.
    classes: class names, if the column of labels holds numbers with names.
    """

    source: str
    columns: Mapping[str, Sequence[Any]]
    numbers: Sequence[int]
    classes: Sequence[str] = ()


class Wanted(NamedTuple):
    """Columns to read: texts and label, the label's meaning (`target`), labels to skip; the column of groups."""

    text: list[str]
    label: str | None
    target: str
    skip: set[str]
    group: str | None = None


Record = tuple[tuple, Any, str]  # a row's parts, label (a class's name, a number, or names of tags) and group


def read_tables(config: TextDataConfig) -> Corpus:
    """Read the columns `text` as texts, and the column `label` as `target` says.

    Without a test table a share of the rows is held out, of each class if there are classes; rows of a `group`, else
    those with the same texts, stay together.
    """
    wanted = Wanted(["words"], "tags", "tags", set())
    if config.kind != "conll":
        text = config.text if isinstance(config.text, list) else ["text" if config.text is None else config.text]
        label = None if config.label is None else str(config.label)
        wanted = Wanted(list(map(str, text)), label, config.target, {*map(str, config.skip)}, config.group)
    if config.kind == "huggingface":
        train, test = read_huggingface(config, wanted)
    else:
        read_table = read_conll if config.kind == "conll" else read_csv
        train = read_table(config, "path", wanted)
        test = read_table(config, "test_path", wanted) if config.test_path else None
    raise_all(line for table in (train, test) if table for line in check_columns(wanted, table))
    rows, held = read_records(wanted, train), read_records(wanted, test) if test else []
    if both := {group for *_, group in rows if group} & {group for *_, group in held}:
        where = f"is in {train.source} and in {test.source}"
        raise UserError(f"data.group={wanted.group}: '{min(both)}' {where}; move it to one")
    if not test:
        named = [str(label) if wanted.target == "class" else "" for _, label, _ in rows]
        by_source = wanted.label is None and {len(texts) for texts, *_ in rows} == {2}
        names = [group for *_, group in rows] if wanted.group else name_groups([row[0] for row in rows], by_source)
        labels = np.unique(named, return_inverse=True)[1]
        rows, held = divide_texts(rows, config.test_share, names, labels)
        if wanted.group and not held:
            groups = plural(len({*names}), "group")
            raise UserError(f"data.group={wanted.group}: {groups}, none to spare for a test; give data.test_path")
    classes = () if wanted.label is None or wanted.target == "number" else train.classes or collect_names(wanted, rows)
    unseen = sorted(set(collect_names(wanted, held)) - set(classes)) if classes else ()
    if unseen:
        problem = f"{(test or train).source}: the held-out label '{unseen[0]}' is not among the training labels"
        raise UserError(f"{problem}; {choices_text('', classes)}")
    choices = len(rows[0][0]) - 1 if rows else 0
    if wanted.target == "class" and classes and choices > 1 and len(classes) != choices:
        problem = f"{len(classes)} different values for {choices} choices"
        raise UserError(f"data.label={wanted.label}: {problem}; it must name the right choice")
    return Corpus(make_examples(wanted, rows, classes), make_examples(wanted, held, classes), tuple(classes))


def read_csv(config: TextDataConfig, key: str, wanted: Wanted) -> Table:
    """Read the columns of a file, named by its first row, or without a header numbered from 0."""
    path, used = Path(vars(config)[key]).expanduser(), (*wanted.text, wanted.label, wanted.group)
    advice = "quote a cell that holds the delimiter; for a file without quotes give data.quoting=false"
    return read_cells(path, f"data.{key}", used, config.delimiter, config.quoting, config.header, advice)


def read_cells(
    path: Path, key: str, used: Collection[str | None] | None, delimiter: str, quoting: bool, header: bool, advice: str
) -> Table:
    """Read a file's columns, without empty rows. Columns in `used` (None: all columns) need distinct names.

    Raises UserError for a row that lacks a used cell or fills cells beyond the columns: cells may be under wrong names.
    delimiter: "" means a tab if the first line has one, else a comma. advice: on quotes, for messages.
    """
    text, source = read_utf8(path, key), f"{key}={path}"
    delimiter = delimiter or ("\t" if "\t" in text.partition("\n")[0] else ",")
    csv.field_size_limit(LARGEST_FIELD)
    with reading(source, advice):
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        rows = lines if quoting else (line.split(delimiter) for line in text.split("\n"))
        numbered = [(number, row) for number, row in enumerate(rows, 1) if any(row)]
    if len(numbered) <= header:
        raise UserError(f"{source}: no rows{' below the names of the columns' if numbered else ''}")
    names = [name.strip() for name in numbered.pop(0)[1]] if header else list(map(str, range(len(numbered[0][1]))))
    used = {*names} if used is None else {*used}
    if twice := next((name for name, times in Counter(names).items() if times > 1 and name in used), None):
        raise UserError(f"{source}: two columns are named '{twice}'; rename one of them")
    count, least = len(names), max((place for place, name in enumerate(names, 1) if name in used), default=0)
    wrong = [number for number, row in numbered if len(row) < least or any(row[count:])]
    if wrong and not (count == 1 and re.search("[;|\t]", names[0])):  # a table with another delimiter
        problem = f"not one cell for each of the {plural(count, 'column')}; correct the row, or delete it"
        raise UserError(f"{source}, {name_lines(wrong)}: {problem}; {advice}")
    cells = {name: [row[n] if n < len(row) else "" for _, row in numbered] for n, name in enumerate(names)}
    return Table(source, cells, [number for number, _ in numbered])


def name_lines(numbers: Sequence[int]) -> str:
    """Name lines by their numbers, at most five: `2 lines (3, 8)`."""
    return f"{plural(len(numbers), 'line')} ({', '.join(map(str, numbers[:5]))}{' ...' if len(numbers) > 5 else ''})"


def read_conll(config: TextDataConfig, key: str, wanted: Wanted) -> Table:
    """Read the sentences of a file as a table: lists in the columns `words` and `tags`, numbered by first lines.

    Each line holds a word; empty lines separate sentences. Lines that begin with `#` and a space are comments, as in
    CoNLL-U, unless other lines have as many columns and the same tag: then the word is `#`.
    """
    source, tag = f"data.{key}={Path(vars(config)[key]).expanduser()}", slice(config.tag, config.tag + 1 or None)
    text = read_utf8(Path(vars(config)[key]).expanduser(), f"data.{key}").split("\n")
    lines = [(line, line.split("\t") if "\t" in line else split_words(line)) for line in text]
    known = {(len(row), *row[tag]) for line, row in lines if row[tag] and not line.startswith("# ")}
    sentences, width = {}, 0
    for number, (line, row) in enumerate(lines, 1):
        if not line.strip() or row[0] == DOCUMENT:
            width = 0
        elif len(row) == CONLLU and config.word and re.fullmatch(r"\d+[-.]\d+", row[0]):
            continue  # of no word: `1-2 du` is a text that words 1 and 2 share, `2.1` is not in the text
        elif not line.startswith("# ") or (len(row), *row[tag]) in known:
            if not width:
                width, sentence = len(row), sentences.setdefault(number, [])
            sentence.append([row[column] for column in (config.word, config.tag) if -len(row) <= column < len(row)])
            fits = len(row) == width and len(sentence[-1]) == 2 and config.word % width != config.tag % width
            if not fits or not all(sentence[-1]):
                needs = f"as many as its sentence, a word in data.word={config.word}, a tag in data.tag={config.tag}"
                raise UserError(f"{source}: line {number} has {plural(len(row), 'column')}; give it {needs}")
    if not sentences:
        raise UserError(f"{source}: no lines with words")
    words, tags = ([[pair[side] for pair in sentence] for sentence in sentences.values()] for side in (0, 1))
    return Table(source, {"words": words, "tags": tags}, list(sentences))


def as_list(value: Any) -> list[str]:
    return [os.path.expanduser(str(v)) for v in (value if isinstance(value, list) else [value]) if v is not None]


def read_huggingface(config: TextDataConfig, wanted: Wanted) -> tuple[Table, Table | None]:
    """Read the splits `split` and `test_split` of any set that `datasets` loads, from the Hub or from files.

    Reads the wanted columns only. Raises UserError, also if `datasets` cannot load the set.
    """
    try:
        import datasets
    except ModuleNotFoundError:
        raise UserError("data=huggingface needs the library 'datasets': pip install 'vitlab[datasets]'") from None
    test_split = config.test_split or ("test" if config.test_files else None)
    given = (config.split, config.files), (test_split, config.test_files)
    files = {split: paths for split, value in given if (paths := as_list(value))}
    source, path = f"data.dataset={config.dataset}", os.path.expanduser(config.dataset)
    for named in chain(*map(glob, [path, *chain(*files.values())])):
        check_regular(named, f"{source}: {named}")
    datasets.disable_progress_bars()
    for name in ("datasets", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    options = {"name": config.subset, "data_files": files or None, "revision": config.revision}
    try:
        builder = datasets.load_dataset_builder(path, **options)
        if builder.name in UNPICKLING:
            raise UserError(f"{source}: would be unpickled, which can run any program; save it as Parquet, CSV or JSON")
        if builder.name == "csv":  # keep cells as written: pandas would read NA as missing, and 007 as 7
            converters = {name: str for name in (*wanted.text, wanted.label, wanted.group) if name}
            builder = datasets.load_dataset_builder(path, **options, converters=converters, na_filter=False)
        builder.download_and_prepare()
        splits = builder.as_dataset()
    except UserError:
        raise
    except Exception as error:  # errors of the library, of every format and of the network
        cause = error
        while cause.__cause__ is not None:  # the innermost error says what is wrong with a file
            cause = cause.__cause__
        reasons = dict.fromkeys(map(first_line, (error, cause)))
        said = ": ".join(reasons).replace("StopIteration", "a file is empty")
        raise UserError(f"{source}: cannot be loaded: {said}") from None
    given = {"split": config.split, "test_split": config.test_split}
    raise_all(
        f"data.{key}={split}: no such split; {choices_text(split, splits)}"
        for key, split in given.items()
        if split and split not in splits
    )

    def read_split(split: str) -> Table:
        rows = splits[split]
        if "__index_level_0__" in rows.column_names:  # pandas took all first cells for an index
            raise UserError(f"{source} ({split}): its rows have more cells than the first line has columns; correct it")
        used = *wanted.text, wanted.label, wanted.group
        cells = {name: rows[name][:] if name in used else () for name in rows.column_names}
        feature = rows.features.get(wanted.label)
        classes = getattr(getattr(feature, "feature", feature), "names", None) or ()  # tags have them one level down
        return Table(f"{source} ({split})", cells, range(len(rows)), tuple(classes))

    return read_split(config.split), read_split(test_split) if test_split else None


def check_columns(wanted: Wanted, table: Table) -> Iterator[str]:
    """Yield a line for each missing column, and for options that do not fit each other."""
    if not wanted.text:
        yield "data.text=[]: give at least one column"
    for key, names in (("text", wanted.text), ("label", [wanted.label]), ("group", [wanted.group])):
        for name in names:
            yield from check_column(table, key, name)
    if wanted.target != "class" and wanted.label is None:
        yield f"data.target={wanted.target}: give data.label=COLUMN"


def check_column(table: Table, key: str, name: str | None) -> Iterator[str]:
    if name is not None and name not in table.columns:
        yield f"data.{key}={name}: {table.source} has no column '{name}'; {choices_text(name, table.columns)}"


def read_records(wanted: Wanted, table: Table) -> list[Record]:
    """Read (texts, label, group) of each row, except rows with a label in `skip`.

    A cell with a list of texts gives several parts; with tags the words are the only part. Without a column of labels
    the label is None.
    """
    columns = [table.columns[name] for name in wanted.text]
    labels, groups = (None if name is None else table.columns[name] for name in (wanted.label, wanted.group))
    records: list[Record] = []
    for row, number in enumerate(table.numbers):
        if labels is not None and wanted.skip and read_name(labels[row], table) in wanted.skip:
            continue
        cells = [split_words(column[row]) if wanted.target == "tags" else column[row] for column in columns]
        parts = [part for cell in cells for part in (cell if isinstance(cell, (list, tuple)) else [cell])]
        texts = (tuple(map(str, parts)),) if wanted.target == "tags" else tuple(map(str, parts))
        try:
            if strange := [part for part in parts if part is None or isinstance(part, (dict, bytes))]:
                raise ValueError(f"{strange[0]} in data.text={','.join(wanted.text)} is no text; correct or delete it")
            if records and len(texts) != len(records[0][0]):
                raise ValueError(f"{len(texts)} texts, the first row has {len(records[0][0])}")
            if labels is None and len(columns) > 1 and not all(text.strip() for text in texts):
                raise ValueError(f"a text of {', '.join(wanted.text)} is empty; each needs the other")
            label = None if labels is None else read_label(wanted.target, labels[row], len(texts[0]), table)
            group = "" if groups is None or groups[row] is None else str(groups[row]).strip()
            if groups is not None and not group:
                raise ValueError(f"no data.group={wanted.group}; name the row's group")
        except ValueError as error:
            raise UserError(f"{table.source}: row {number}: {error}") from None
        records.append((texts, label, group))
    return records


def read_label(target: str, cell: Any, words: int, table: Table) -> str | float | list[str]:
    """Read a cell's label: a number, tags for each of `words` words, or a name. Raises ValueError if it has none."""
    if target == "number":
        if (number := read_number(cell)) is None:
            raise ValueError(f"'{'' if cell is None else cell}' is not a number below {LARGEST:g} in size")
        return number
    if target == "tags":
        tags = [read_name(tag, table) for tag in split_words(cell)]
        if len(tags) != words:
            raise ValueError(f"{words} words and {len(tags)} tags; give one for each word")
        return tags
    if isinstance(cell, (list, tuple, dict)):
        raise ValueError(f"a {type(cell).__name__} in the column of labels; give one label")
    name = read_name(cell, table)
    if not name:
        raise ValueError("no label; add it, or skip such rows by data.skip=['']")
    return name


def read_number(cell: Any) -> float | None:
    """Read a cell's number; return None for no number, or for one whose square overflows float32."""
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < LARGEST and "_" not in str(cell) else None  # Python takes 1_0 for 10


def read_name(cell: Any, table: Table) -> str:
    """Read a label's name; "" if missing. Where numbers have names, numbers below 0 are missing (Hugging Face)."""
    if table.classes and isinstance(cell, int):
        return table.classes[cell] if 0 <= cell < len(table.classes) else ""
    return "" if cell is None or cell != cell else str(cell).strip()  # NaN is not equal to itself


def split_words(cell: Any) -> list[Any]:
    """Split a cell into words: a list, or a text with white space between words."""
    if isinstance(cell, (list, tuple)):
        return list(cell)
    return re.findall(r"[^ \t\r\n]+", "" if cell is None else str(cell))  # a no-break space is part of a word


def collect_names(wanted: Wanted, rows: list[Record]) -> list[str]:
    """Collect the distinct names of labels, sorted by value if all are whole numbers, else by the alphabet."""
    names = {name for _, label, _ in rows for name in (label if wanted.target == "tags" else [label])}
    whole = all(name.isascii() and name.removeprefix("-").isdigit() for name in names)
    return sorted(names, key=lambda name: (int(name) if whole else 0, name))


def make_examples(wanted: Wanted, rows: list[Record], classes: Sequence[str]) -> Examples:
    parts = tuple(map(list, zip(*(texts for texts, *_ in rows), strict=True)))
    labels, groups = [label for _, label, _ in rows], [group for *_, group in rows] if wanted.group else None
    number = {name: index for index, name in enumerate(classes)}
    if wanted.label is None or wanted.target == "number":
        return Examples(parts, targets=None if wanted.label is None else labels, groups=groups)
    if wanted.target == "tags":
        return Examples(parts, tags=[[number[tag] for tag in tags] for tags in labels], groups=groups)
    return Examples(parts, labels=[number[label] for label in labels], groups=groups)


# -- two files: line n of one is a translation of line n of the other


def read_parallel(config: TextDataConfig) -> Corpus:
    """Read the pairs of two files, each line one text. Without test files, hold out a share by a hash of the texts.

    Raises one UserError that names all wrong files.
    """
    problems, splits = [], {}
    for split, prefix in (("train", ""), ("validation", "validation_"), ("test", "test_")):
        paths = {f"data.{prefix}{side}": vars(config)[f"{prefix}{side}"] for side in ("source", "target")}
        if all(paths.values()):
            with collecting(problems):
                splits[split] = read_pairs(paths, config.skip_empty)
        elif any(paths.values()):
            missing, given = sorted(paths, key=lambda key: bool(paths[key]))
            problems.append(f"{missing} is missing: {given} is given, and each of its lines needs the other language's")
    raise_all(problems)
    if "test" not in splits:
        names = name_groups(splits["train"], by_source=True)
        splits["train"], splits["test"] = divide_texts(splits["train"], config.test_share, names)
    return Corpus(**{split: Examples((*zip(*pairs, strict=True),) or ((), ())) for split, pairs in splits.items()})


def read_pairs(paths: dict[str, str], skip_empty: bool) -> list[tuple[str, str]]:
    """Read the pairs of two files; paths: {key: file}. Raises UserError."""
    problems, sides = [], {}  # {a file's name in messages: its lines}
    for key, given in paths.items():
        path = Path(given).expanduser()
        with collecting(problems):
            lines = [line.strip() for line in read_utf8(path, key).removesuffix("\n").split("\n")]
            sides[f"{key}={path}"] = lines
            empty = [number for number, line in enumerate(lines, 1) if not line]
            if empty and not skip_empty:
                which = f"line {empty[0]} is empty" + (f", and {len(empty) - 1} more" if len(empty) > 1 else "")
                advice = "write what is missing, or leave such pairs out by data.skip_empty=true"
                problems.append(f"{key}={path}: {which}; {advice}")
    if len({len(lines) for lines in sides.values()}) > 1:
        (first, one), (second, other) = sides.items()
        lengths = f"{first} has {plural(len(one), 'line')}, {second} has {len(other)}"
        problems.append(f"{lengths}; line n of one must be line n of the other")
    raise_all(problems)
    return [pair for pair in zip(*sides.values(), strict=True) if all(pair)]


# -- questions whose answer is a span of a text


Answer = make_dataclass("Answer", [("text", str), ("answer_start", int)])
Question = make_dataclass("Question", [("question", str), ("answers", list[Answer])])


@dataclass(frozen=True)
class Paragraph:
    context: str
    qas: list[Question]

    def __post_init__(self):
        for answer in chain(*(asked.answers[:1] for asked in self.qas)):
            first, words = answer.answer_start, answer.text
            if first < 0 or not words.strip() or not self.context.startswith(words, first):
                raise ValueError(f"the answer '{words}' does not stand at character {first}")


Article = make_dataclass("Article", [("paragraphs", list[Paragraph])])
Squad = make_dataclass("Squad", [("data", list[Article])])


def read_squad(config: TextDataConfig) -> Corpus:
    """Read questions, texts and first answers from files in SQuAD's form (Rajpurkar et al., 2016, 2018).

    Without test_path, holds out a share of the texts with their questions. Raises UserError.
    """
    splits = [read_answers(config, key) for key in ("path", "test_path") if vars(config)[key]]
    if len(splits) == 1:
        splits = divide_texts(splits[0], config.test_share, [text for _, text, _ in splits[0]])
    columns = [zip(*rows, strict=True) if rows else ((), (), ()) for rows in splits]
    return Corpus(*(Examples((a, b), [int(end > 0) for _, end in spans], spans=spans) for a, b, spans in columns))


def read_answers(config: TextDataConfig, key: str) -> list[tuple[str, str, tuple[int, int]]]:
    """Read (question, text, answer's span of characters) for each question of a file; (0, 0) without an answer."""
    path, none = Path(vars(config)[key]).expanduser(), Answer("", 0)
    advice = "give data[].paragraphs[].qas[].answers[] as in SQuAD, answer_start in characters from 0"
    squad = parse_json(Squad, read_utf8(path, f"data.{key}"), f"data.{key}={path}", advice)
    return [
        (asked.question, paragraph.context, (first := answer.answer_start, first + len(answer.text)))
        for article in squad.data
        for paragraph in article.paragraphs
        for asked in paragraph.qas
        for answer in [*asked.answers, none][:1]
    ]


# -- mixtures


def read_mixture(config: TextDataConfig) -> Corpus:
    """Read several sets as one text-to-text set (T5: Raffel et al., 2020, section 2.4).

    Each source begins with its task's name, "numbers: seven hundred". Each target is text, such as a class's name. The
    classes are the parts' names, so a subset has its share of each part. A part has at most `limit` training pairs.
    """
    corpora, problems = {}, []
    for name, part in load_parts(config).items():
        with collecting(problems, f"data.parts.{name}: "):
            corpus: Corpus = module_of(part).read(part)
            check_texts(part, corpus)
            corpus = carve_texts(corpus, part.name) if corpus.validation is None else corpus
            pairs = {split: make_pairs(name, of, corpus.classes, part) for split, of in corpus.splits.items()}
            count = len(pairs["train"])
            if config.limit is not None and config.limit < count:
                sources = [source for source, _ in pairs["train"]]
                pairs["train"] = divide_texts(pairs["train"], config.limit / count, sources)[1]
            corpora[name] = pairs
    raise_all(problems)
    splits = {}
    for split in SPLITS:
        labels = [number for number, pairs in enumerate(corpora.values()) for _ in pairs[split]]
        sides = zip(*chain(*(pairs[split] for pairs in corpora.values())), strict=True)
        splits[split] = Examples(tuple(map(list, sides)), labels=labels)
    return Corpus(**splits, classes=tuple(corpora))


def load_parts(config: TextDataConfig) -> dict[str, TextDataConfig]:
    """Load the configuration of each part by its name. Raises UserError."""
    given = DEFAULT_MIXTURE if config.parts is None else config.parts
    if not isinstance(given, Mapping) or not given:
        raise UserError(f"data.parts={given}: give names and data sets, data.parts={{NAME: DATA, ...}}")
    parts, problems = {}, []
    for name, choice in given.items():
        with collecting(problems):
            part = parts[str(name)] = groups.load("data", choice, f"data.parts.{name}")
            if part.modality != "text" or part.kind == "mixture":
                wrong = "cannot be part of a mixture; give a data set of texts"
                raise UserError(f"data.parts.{name}={part.name}: {wrong}")
    raise_all(problems)
    return parts


def make_pairs(
    name: str, examples: Examples, classes: tuple[str, ...], config: TextDataConfig
) -> list[tuple[str, str]]:
    """Make pairs (source, target); each source begins with `name`. Raises UserError if no single text is the target."""
    *sources, targets = examples.parts
    if examples.tags is not None or len(sources) > 1:
        raise UserError(
            f"data={config.name}: tags and choices have no place in a mixture; give classes, numbers, pairs"
        )
    if examples.targets is not None:
        sources, targets = examples.parts, [f"{value:g}" for value in examples.targets]
    elif examples.labels is not None and classes:
        sources, targets = examples.parts, [classes[label] for label in examples.labels]
    elif not sources:
        raise UserError(f"data={config.name}: has one text each and nothing to predict; give pairs, classes or numbers")
    texts = (f"{name}: " + "\n".join(parts) for parts in zip(*sources, strict=True))
    return list(zip(texts, targets, strict=True))
