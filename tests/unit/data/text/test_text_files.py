"""Texts from the user's files: folders of documents, CSV, the files of GLUE, Hugging Face's data sets."""

import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.configurations import refused
from tests.unit.data.conftest import assert_divided
from vitlab import config, data, tasks
from vitlab.data.text import NO_TAG


def load(name, **changes):
    return data.load(config.load("data", {"name": name, "vocabulary": 300, **changes}))


def problems(name, **changes):
    return refused(load, name, **changes)


def texts(found, *splits, part=0):
    """The texts of the splits, by default of all."""
    rows = (row for split in splits or found.splits for row in found.splits[split].parts[part])
    return [found.tokenizer.decode(row) for row in rows]


def items(found, split):
    """Each item's texts, and its class, or the tags of its words."""
    part = found.splits[split]
    answers = [found.classes[label] for label in part.labels]
    if part.tags is not None:
        answers = [[found.classes[tag] for tag in tags if tag != NO_TAG] for tags in part.tags]
    return list(zip(*(texts(found, split, part=number) for number in range(len(part.parts))), answers, strict=True))


def write(path, *lines, end="\n", encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode(encoding))
    return str(path)


@pytest.fixture
def folder(tmp_path):
    for n in range(23):
        write(tmp_path / "books" / f"part{n % 3}" / f"{n}.txt", f"Chapter {n}.", "", f"It has {n} words.")
    write(tmp_path / "books" / "notes.MD", "# Notes")
    write(tmp_path / "books" / "table.csv", "a,b")
    write(tmp_path / "books" / ".hidden.txt", "hidden")
    return tmp_path / "books"


def test_each_file_is_a_document(folder):
    found = load("textfile", path=str(folder), test_share=0.25)
    expected = {f"Chapter {n}.\n\nIt has {n} words." for n in range(23)} | {"# Notes"}
    assert sorted(texts(found)) == sorted(expected)
    assert [len(split) for split in found.splits.values()] == [16, 2, 6]
    assert found.classes == ()
    write(folder / "later.txt", "Later")
    later = load("textfile", path=str(folder), test_share=0.25)
    assert len(set(texts(later, "test")) ^ set(texts(found, "test"))) <= 2  # those that are there stay where they were


def composed(*words):
    return config.compose(config.TrainConfig, [*words, "data.vocabulary=300"])


def build_task(made):
    return tasks.build(made.task, recipe=made.recipe, data=data.load(made.data), data_config=made.data)


def test_a_column_named_label_is_the_label(tmp_path):
    path = write(tmp_path / "a.csv", "text,label", *(f"text {n},{'ab'[n % 2]}" for n in range(20)))
    assert build_task(composed("data=csv", f"data.path={path}")).classes == ("a", "b")
    assert composed("data=csv", f"data.path={path}", "task=causal_lm").data.label is None
    path = write(tmp_path / "b.csv", "text,stars,length", *(f"text {n},{n % 2},{n}" for n in range(20)))
    assert refused(build_task, composed("data=csv", f"data.path={path}")) == [
        f"data.label=label: data.path={path} has no column 'label'; choices: text, stars, length"
    ]


def test_extensions_and_paragraphs(folder):
    found = load("textfile", path=str(folder), extensions=["csv", ".txt"])
    assert {"a,b"} == {text for text in texts(found) if not text.startswith("Chapter")}
    write(folder / "again.txt", *(["The same paragraph.", ""] * 5))
    found = load("textfile", path=str(folder), split_on="blank_line")
    assert len(texts(found)) == 23 * 2 + 1 + 5
    assert 5 in [texts(found, split).count("The same paragraph.") for split in found.splits]


def test_of_a_single_file_the_end_is_held_out(tmp_path):
    lines = [f"line {n}" for n in range(100)]
    path = write(tmp_path / "book.txt", *lines)
    found = load("textfile", path=path, test_share=0.2)
    train, validation, test = texts(found)
    assert train + validation + test == "\n".join(lines)
    assert train[-1] == validation[-1] == "\n"
    assert 0.19 < len(test) / len(train + validation + test) <= 0.2
    assert 0.08 < len(validation) / len(train + validation) <= 0.1
    assert problems("textfile", path=write(tmp_path / "one.txt", "one line")) == [
        f"data.path={tmp_path}/one.txt: has too few lines to hold out the last of them; give data.test_path=FILE"
    ]
    assert problems("textfile", path=write(tmp_path / "two.txt", "a" * 50, "b")) == [
        "data=textfile: 1 training text, none to spare for validation; give more"
    ]


def test_a_file_of_its_own_is_held_out_and_a_change_is_seen(tmp_path):
    lines = [f"line {n}" for n in range(20)]
    path, test_path = write(tmp_path / "a.txt", *lines), write(tmp_path / "b.txt", "four")
    read = texts(load("textfile", path=path, test_path=test_path))
    assert read == ["".join(f"{line}\n" for line in lines[:-1]), "line 19", "four"]
    write(tmp_path / "b.txt", "five six")
    assert texts(load("textfile", path=path, test_path=test_path), "test") == ["five six"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "{}/empty.txt"}, "data.path={}/empty.txt: contains no text"),
        ({"path": "{}/no"}, "data.path={}/no: no such file or folder"),
        ({"path": "{}/books", "extensions": ["doc"]}, "data.path={}/books: no text files (.doc)"),
        ({"path": "{}/books", "split_on": "page"}, "data=textfile: split_on=page: choices: file, blank_line"),
    ],
)
def test_bad_text_files(folder, tmp_path, options, said):
    write(tmp_path / "empty.txt", " ")
    given = {key: value.format(tmp_path) if key == "path" else value for key, value in options.items()}
    (line,) = problems("textfile", **given)
    assert line.startswith(said.format(tmp_path))


MNLI = [
    "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label",
    "0\t31\tConceptually.\tProduct.\tneutral\tneutral",
    "1\t32\tyou know\tYou lose\tentailment\tentailment",
]
GLUE = [  # lines, another one, options, texts, labels
    (  # SST-2; an open quote
        ["sentence\tlabel", 'no wit , only "labored gags \t0', "that loves its characters \t1"],
        "text {0}\t{1}",
        {"text": "sentence", "label": "label"},
        [['no wit , only "labored gags ', "that loves its characters "]],
        ["0", "1"],
    ),
    (  # CoLA
        ["gj04\t1\t\tOur friends won't buy this.", "gj04\t0\t*\tThe more pseudos.", 'c_13\t1\t\tHe said: "so".'],
        "c_13\t{1}\t\ttext {0}",
        {"header": False, "text": 3, "label": 1},
        [["Our friends won't buy this.", "The more pseudos.", 'He said: "so".']],
        ["1", "0", "1"],
    ),
    (  # MRPC; a byte-order mark, ends of lines as Windows has them
        ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r", '1\t702876\t702977\t" the witness " .\tonly " the .\r'],
        "{1}\t0\t0\ttext {0}\tother {0}\r",
        {"text": ["#1 String", "#2 String"], "label": "Quality"},
        [['" the witness " .'], ['only " the .']],
        ["1"],
    ),
    (
        [*MNLI, "9\t9\tNo one agrees.\tNo.\tneutral\t-"],
        "9\t9\ttext {0}\tother {0}\tneutral\t{1}",
        {"text": ["sentence1", "sentence2"], "label": "gold_label", "skip": ["-"]},
        [["Conceptually.", "you know"], ["Product.", "You lose"]],
        ["neutral", "entailment"],
    ),
]


@pytest.mark.parametrize(("lines", "more", "options", "parts", "labels"), GLUE, ids=["SST-2", "CoLA", "MRPC", "MNLI"])
def test_files_of_glue(tmp_path, lines, more, options, parts, labels):
    others = [(*(f"text {n}", f"other {n}")[: len(parts)], labels[n % len(labels)]) for n in range(20)]
    path = write(tmp_path / "train.tsv", *lines, *(more.format(n, other[-1]) for n, other in enumerate(others)))
    found = load("tsv", path=path, test_path=write(tmp_path / "dev.tsv", *lines), **options)
    assert items(found, "test") == list(zip(*parts, labels, strict=True))
    assert_divided(items(found, "test") + others, items(found, "train"), items(found, "validation"))
    assert list(found.classes) == sorted(set(labels))


def test_a_held_out_label_that_training_lacks_is_refused(tmp_path):
    train, dev = (
        write(tmp_path / "train.tsv", *MNLI),
        write(tmp_path / "dev.tsv", MNLI[0], "9\t9\tNo one.\tNo.\tneutral\t-"),
    )
    (line,) = problems("tsv", path=train, test_path=dev, text=["sentence1", "sentence2"], label="gold_label")
    assert line.startswith(f"data.test_path={dev}: the held-out label '-' is not among the training labels; ")


def test_csv_with_quotes_and_a_held_out_share(tmp_path):
    rows = [f'"a, ""quoted"" text\nof row {n}",{"yes" if n % 5 else "no"}' for n in range(50)]
    path = write(tmp_path / "a.csv", "text,kind", *rows, "", *rows[:20])
    found = load("csv", path=path, label="kind", test_share=0.2)
    assert found.classes == ("no", "yes")
    assert sorted(texts(found)) == sorted(f'a, "quoted" text\nof row {n}' for n in [*range(50), *range(20)])
    assert sum(len(set(texts(found, split))) for split in found.splits) == 50  # rows that come twice are in one split
    assert [np.bincount(split.labels)[0] for split in found.splits.values()] == [10, 2, 2]
    assert texts(load("csv", path=path, label="kind", test_share=0.2, cache="never"), "test") == texts(found, "test")


def test_rows_of_a_group_are_never_on_two_sides_of_a_split(tmp_path):
    rows = [f"row {n},Zeile {n},{'yes' if n % 3 else 'no'},source {n % 31}" for n in range(310)]
    path = write(tmp_path / "a.csv", "text,de,kind,source", *rows)
    for options in ({"label": "kind"}, {"text": ["text", "de"]}):
        found = load("csv", path=path, group="source", **options)
        homes = [{int(text.split()[1]) % 31 for text in texts(found, split)} for split in found.splits]
        assert list(map(len, homes)) == [26, 2, 3]  # whole groups
        assert len(set.union(*homes)) == 31
    assert problems("csv", path=path, group="sorce", label="kind")[0].startswith("data.group=sorce: ")
    test = write(tmp_path / "b.csv", "text,de,kind,source", "row,Zeile,no,source 3")
    (line,) = problems("csv", path=path, test_path=test, group="source", label="kind")
    assert line == f"data.group=source: 'source 3' is in data.path={path} and in data.test_path={test}; move it to one"
    path = write(tmp_path / "c.csv", "text,source", "one,a", "two,")
    (line,) = problems("csv", path=path, group="source")
    assert line == f"data.path={path}: row 3: no data.group=source; name the row's group"
    lines = [f'"line {n}\n{n} more\nand {n}",{"b" if n > 6 else "a"}' for n in range(10)]
    (line,) = problems("csv", path=write(tmp_path / "d.csv", "text,source", *lines), group="source")
    assert line == "data=csv: 7 training texts of 1 group, none to spare for validation; give more", "no text is lost"
    (line,) = problems("csv", path=write(tmp_path / "e.csv", "text,source", *lines[:6]), group="source")
    assert line == "data.group=source: 1 group, none to spare for a test; give data.test_path"


def test_a_text_in_two_groups_is_told(tmp_path):
    path = write(tmp_path / "a.csv", "text,kind,who", *(f"text {n % 20},{'ab'[n % 2]},{n % 7}" for n in range(140)))
    with pytest.warns(UserWarning, match=r"\d+ of \d+ held-out texts are training texts too"):
        load("csv", path=path, group="who", label="kind")


def test_choices_are_parts_and_the_label_says_which_is_right(tmp_path):
    rows = [f"The sky{n};is blue;is round;is late;{n % 3 + 1}" for n in range(30)]
    path = write(tmp_path / "a.csv", "stem;x;y;z;right", *rows)
    options = {"path": path, "test_path": path, "delimiter": ";", "label": "right"}
    found = load("csv", text=["stem", "x", "y", "z"], **options)
    assert items(found, "test") == [
        (f"The sky{n}", "is blue", "is round", "is late", str(n % 3 + 1)) for n in range(30)
    ]
    assert_divided(items(found, "test"), items(found, "train"), items(found, "validation"))
    assert problems("csv", text=["stem", "x", "y"], **options) == [
        "data.label=right: 3 different values for 2 choices; it must name the right choice"
    ]


def test_tags_of_words(tmp_path):
    rows = ["John lives in New York,PER O O LOC LOC", "Nobody came,O O"]
    path = write(tmp_path / "a.csv", "words,tags", *rows, *(f"word {n},O O" for n in range(20)))
    options = {"path": path, "test_path": path, "text": "words", "label": "tags", "target": "tags"}
    found = load("csv", **options)
    assert found.classes == ("LOC", "O", "PER")
    tagged = [tuple(row.split(",")) for row in Path(path).read_text().splitlines()[1:]]
    assert items(found, "test") == [(words, tags.split()) for words, tags in tagged]
    assert_divided(items(found, "test"), items(found, "train"), items(found, "validation"))
    write(tmp_path / "a.csv", "words,tags", *rows, "one two,O")
    assert problems("csv", **options) == [f"data.path={path}: row 4: 2 words and 1 tags; give one for each word"]


COLUMNS = ["sentence,label,label", "a,1,2"]
ROWS = ["text,label", "a,1", "", "b,", "c,x"]


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (COLUMNS, {"text": "sentenc"}, ["data.text=sentenc: WHERE has no column 'sentenc'; did you mean 'sentence'?"]),
        (COLUMNS, {"text": "sentence", "target": "clas"}, ["data=csv: target=clas: did you mean 'class'?"]),
        (COLUMNS, {"text": "no", "target": "tags"}, ["data.text=no: ", "data.target=tags: give"]),
        (COLUMNS, {"text": "sentence", "label": "label"}, ["WHERE: two columns are named 'label'"]),
        (ROWS, {"label": "label"}, ["WHERE: row 4: no label; add it, or skip such rows by data.skip=['']"]),
        (ROWS, {"label": "label", "target": "number", "skip": [""]}, ["WHERE: row 5: 'x' is not a number"]),
        (ROWS, {"target": "number"}, ["data.target=number: give data.label=COLUMN"]),
        (ROWS, {"text": []}, ["data.text=[]: give at least one column"]),
    ],
)
def test_bad_tables(tmp_path, rows, options, said):
    path = write(tmp_path / "a.csv", *rows)
    for line, start in zip(problems("csv", path=path, **options), said, strict=True):
        assert line.startswith(start.replace("WHERE", f"data.path={path}"))


@pytest.mark.parametrize("name", ["csv", "tsv"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(("row", "right"), [("hello, you,a", False), ("hello", False), ("hello,a,,", True)])
def test_a_row_that_does_not_fit_the_columns_is_refused(tmp_path, name, header, row, right):
    lines = [*["text,label"] * header, *(f"text {n},{'ab'[n % 2]}" for n in range(20)), row]
    path = write(tmp_path / "a.csv", *(line.replace(",", "\t" if name == "tsv" else ",") for line in lines))
    options = {"path": path, "header": header, "text": "text" if header else 0, "label": "label" if header else 1}
    if right:
        found = load(name, **options)
        assert len(texts(found)) == 21
    else:
        expected = f"data.path={path}, 1 line ({len(lines)}): not one cell for each of the 2 columns; correct the row"
        assert problems(name, **options)[0].startswith(expected)


@pytest.mark.parametrize("cell", ["1e29", "-1e15", "inf", "nan", "1_0", "9" * 5000])
def test_a_target_that_no_model_learns_names_its_row(tmp_path, cell):
    path = write(tmp_path / "a.csv", "text,label", "a,1", f"b,{cell}")
    (line,) = problems("csv", path=path, label="label", target="number")
    assert line.startswith(f"data.path={path}: row 3: '{cell[:99]}")


def test_texts_without_tokens_are_counted(tmp_path):
    path = write(tmp_path / "a.csv", "text,label", *(f"text {n},{n % 2}" for n in range(20)), ",1", "null,0")
    with pytest.warns(UserWarning, match="data=csv: 1 of 18 training texts are left out: they have no tokens"):
        found = load("csv", path=path, label="label")
    assert "null" in texts(found)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\3\4...", "a zip archive, an Excel workbook (.xlsx) or a document"),
        ("text,label\na,1\n".encode("utf-16"), "text in UTF-16, such as Excel's Unicode text"),
        ("text,label\na,1\n".encode("utf-16-le"), "text in UTF-16, such as Excel's Unicode text"),
        (b"PAR1\x15\x04...PAR1", "a Parquet file, which data=huggingface data.dataset=parquet data.files=FILE reads"),
        (b"BZh91AY", "compressed, and not by gzip"),
    ],
)
def test_another_format_is_named(tmp_path, content, said):
    (tmp_path / "a.csv").write_bytes(content)
    assert problems("csv", path=f"{tmp_path}/a.csv") == [
        f"data.path={tmp_path}/a.csv: {said}; save it as text or CSV in UTF-8"
    ]


def test_gzip_is_read_but_not_a_bomb(tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    packed = gzip.compress("\n".join(["\ufefftext,label", *(f"text é{n},{n % 2}" for n in range(40))]).encode())
    path.write_bytes(packed)
    assert sorted(texts(load("csv", path=str(path), label="label"))) == sorted(f"text é{n}" for n in range(40))
    path.write_bytes(packed[:-20])
    assert problems("csv", path=str(path))[0].startswith(f"data.path={path}: cannot read it: EOFError")
    path.write_bytes(gzip.compress(bytes(3 * 2**20)))
    monkeypatch.setattr("vitlab.files.UNPACKED", 2)
    assert problems("csv", path=str(path)) == [
        f"data.path={path}: over 2 times as long when unpacked; give the unpacked file"
    ]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["# sent_id = 1", "a A", "b B"], "a b"),  # a comment
        (["# B", "a A"], "# a"),  # a word
        (["a A", "# B"], "a #"),
        (["#\tB", "a\tA"], "# a"),
        (["a\xa0b A", "c B"], "a\xa0b c"),
        (["a\u2028b A"], "a\u2028b"),
        (["a"], None),
        (["a A", "New York B"], None),
        (["a A", "b B C"], None),
        (["a\tA", "b\t"], None),
    ],
)
def test_a_line_is_a_word_and_its_tag(tmp_path, lines, sentence):
    before = [line for n in range(20) for line in (f"word{n} A", "then B", "")]
    path = write(tmp_path / "a.txt", *before, *lines)
    if sentence is None:
        assert problems("conll", path=path)[0].startswith(f"data.path={path}: line {60 + len(lines)} has ")
    else:
        found = load("conll", path=path)
        assert sentence in texts(found)
        assert found.classes == ("A", "B")


def test_conll_2003(tmp_path):
    lines = ["-DOCSTART- -X- -X- O", "", "EU NNP B-NP B-ORG", "rejects VBZ B-VP O", "", "", "Peter NNP B-NP B-PER"]
    others = (line for n in range(20) for line in ("", f"word{n} NNP B-NP O"))
    path = write(tmp_path / "train.txt", *lines, "Blackburn NNP I-NP I-PER", *others)
    found = load("conll", path=path, test_path=path)
    assert found.classes == ("B-ORG", "B-PER", "I-PER", "O")
    tagged = [("EU rejects", ["B-ORG", "O"]), ("Peter Blackburn", ["B-PER", "I-PER"])]
    assert items(found, "test") == tagged + [(f"word{n}", ["O"]) for n in range(20)]
    assert_divided(items(found, "test"), items(found, "train"), items(found, "validation"))
    assert load("conll", path=path, test_path=path, tag=1).classes == ("NNP", "VBZ")


def test_conll_u(tmp_path):
    lines = ["# sent_id = 1", "1\tDogs\tdog\tNOUN", "2\tbark\tbark\tVERB", "", "# text = No .", "1\tNo\tno\tINTJ"]
    others = (line for n in range(20) for line in ("", f"1\tword{n}\tword\tNOUN"))
    path = write(tmp_path / "train.conllu", *lines, "2\t.\t.\tPUNCT", *others)
    found = load("conll", path=path, test_path=path, word=1, tag=3)
    full = [line + "\t_" * 6 if "\t" in line else line for line in Path(path).read_text().split("\n")]
    ranged = write(tmp_path / "ranged.conllu", "1-2\tdu" + "\t_" * 8, *full, "2.1\tpro" + "\t_" * 8)
    again = load("conll", path=ranged, test_path=path, word=1, tag=3)
    assert (again.classes, texts(again, "train")) == (found.classes, texts(found, "train"))
    assert found.classes == ("INTJ", "NOUN", "PUNCT", "VERB")
    source = ["Dogs bark", "No .", *(f"word{n}" for n in range(20))]
    assert_divided(source, texts(found, "train"), texts(found, "validation"))
    alone = write(tmp_path / "a.txt", "EU", "rejects", "", "Peter")  # words are not their own tags
    nothing = write(tmp_path / "b.txt", "", "# nothing")
    for given, said in (
        ({"path": path, "word": 1, "tag": 4}, "line 2 has 4 columns; "),
        ({"path": alone}, "line 1 has 1 column; "),
        ({"path": nothing}, "no lines with words"),
        ({"path": str(tmp_path)}, "cannot read it: Is a directory; give a text file"),
    ):
        (line,) = problems("conll", **given)
        assert line.startswith(f"data.path={given['path']}: {said}")


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    rows = [
        {"review": f"film number {n}", "stars": n % 3, "tokens": ["film", str(n)], "tags": [0, 1]} for n in range(30)
    ]
    names = datasets.ClassLabel(names=["bad", "fair", "good"])
    features = datasets.Features(
        review=datasets.Value("string"),
        stars=names,
        tokens=datasets.List(datasets.Value("string")),
        tags=datasets.List(datasets.ClassLabel(names=["WORD", "NUMBER"])),
    )
    datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "train.parquet")
    datasets.Dataset.from_list(rows[:7], features=features).to_parquet(tmp_path / "test.parquet")
    (tmp_path / "train.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_parquet_files_with_names_of_classes(reviews):
    files = {"files": str(reviews / "train.parquet"), "test_files": [str(reviews / "test.parquet")]}
    found = load("huggingface", dataset="parquet", text="review", label="stars", **files)
    assert found.classes == ("bad", "fair", "good")
    rated = [(f"film number {n}", found.classes[n % 3]) for n in range(30)]
    assert items(found, "test") == rated[:7]
    assert_divided(rated, items(found, "train"), items(found, "validation"))
    tagged = load("huggingface", dataset="parquet", text="tokens", label="tags", target="tags", **files)
    assert tagged.classes == ("WORD", "NUMBER")
    words = [(f"film {n}", ["WORD", "NUMBER"]) for n in range(30)]
    assert_divided(words, items(tagged, "train"), items(tagged, "validation"))
    choices = load("huggingface", dataset="parquet", text=["review", "tokens"], **files)
    assert len(choices.train.parts) == 3


def test_json_lines_and_a_share(reviews):
    options = {"dataset": "json", "files": str(reviews / "train.json"), "text": "review", "label": "stars"}
    found = load("huggingface", **options, test_share=0.2)
    assert found.classes == ("0", "1", "2")
    assert np.bincount(found.test.labels).tolist() == [2, 2, 2]
    assert problems("huggingface", **options, test_split="test") == [
        "data.test_split=test: no such split; choices: train"
    ]
    assert problems("huggingface", **{**options, "text": "reviw"})[0].startswith(
        "data.text=reviw: data.dataset=json (train) has no column 'reviw'; did you mean 'review'?"
    )


def test_cells_of_a_csv_are_read_as_they_are_written(reviews, capfd):
    rows = [f"{text},{label}" for text in ("null", "NA", "None", "nan", "1.0", "007") for label in ("007", "TRUE")]
    options = {"dataset": "csv", "files": write(reviews / "a.csv", "text,label", *rows), "label": "label"}
    found = load("huggingface", **options, test_files=options["files"])
    assert found.classes == ("007", "TRUE")
    assert texts(found, "test") == [row.split(",")[0] for row in rows]
    write(reviews / "a.csv", "text,label", *(f"{row},more" for row in rows))
    assert "more cells than the first line has columns" in problems("huggingface", **options)[0]
    write(reviews / "a.csv")
    assert "No columns to parse" in problems("huggingface", **options)[0]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"label": "a"}, "None in data.text=text is no text"),
        ({"text": None, "label": "a"}, "None in data.text=text is no text"),
        ({"text": "a"}, "no label; add it"),
        ({"text": "a", "label": ["a", "b"]}, "a list in the column of labels; give one label"),
        ({"text": "a", "label": {"text": ["a"]}}, "a dict in the column of labels; give one label"),
        ({"text": {"de": "a"}, "label": "a"}, "{'de': 'a'} in data.text=text is no text"),
    ],
)
def test_a_row_without_a_text_or_a_label_is_named(reviews, row, said):
    same = [{"text": f"text {n}", "label": "a"} for n in range(9)]
    rows = [row] * 9 if any(isinstance(value, (list, dict)) for value in row.values()) else [*same, row]
    path = write(reviews / "a.jsonl", *map(json.dumps, rows))
    (line,) = problems("huggingface", dataset="json", files=path, label="label")
    assert line.startswith(f"data.dataset=json (train): row {0 if rows[0] is row else 9}: {said}")


@pytest.mark.parametrize(
    ("dataset", "name", "said"),
    [
        ("json", "empty.json", "data.dataset=json: cannot be loaded: a file is empty"),
        ("json", "pipe", "data.dataset=json: {}/pipe: a pipe, socket or device; give a regular file"),
        ("json", "bad.json", "data.dataset=json: cannot be loaded: "),
        ("json", "no.json", "data.dataset=json: cannot be loaded: Unable to find '{}/no.json'"),
        ("pandas", "rows.pkl", "data.dataset=pandas: would be unpickled, which can run any program; "),
        ("{}/rows.pkl", None, "data.dataset={}/rows.pkl: cannot be loaded: "),
        ("{}/damaged", None, "data.dataset={}/damaged: cannot be loaded: .*: JSON parse error: Invalid value"),
        ("nobody/nothing", None, "data.dataset=nobody/nothing: cannot be loaded: "),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # the builder's own, that it will go
def test_what_cannot_be_loaded_is_one_line(reviews, dataset, name, said):
    write(reviews / "empty.json")
    os.mkfifo(reviews / "pipe")
    write(reviews / "bad.json", "{")
    write(reviews / "damaged" / "train.jsonl", '{"text": "good"}', '{"text": bad}')
    pandas.DataFrame({"text": ["one", "two", "three"]}).to_pickle(reviews / "rows.pkl")
    files = {} if name is None else {"files": str(reviews / name)}
    (line,) = problems("huggingface", dataset=dataset.format(reviews), **files)
    assert re.match(said.format(reviews), line), line
