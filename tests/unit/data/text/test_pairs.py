"""Sources and targets: from two files, from a table, from docstrings, and several sets as one."""

import pytest

from tests.unit.data.text.test_text_files import load, problems, texts, write
from vitlab.config import load as load_config
from vitlab.data.text.corpora import draw_numbers, read, spell


def pairs(found, *splits):
    """The pairs of the splits, by default of all; no source comes twice."""
    sources, targets = (texts(found, *splits, part=part) for part in (0, 1))
    assert len(set(sources)) == len(sources)
    return dict(zip(sources, targets, strict=True))


@pytest.fixture
def files(tmp_path):
    """Keys of two files with 41 pairs."""
    german = [f"Zeile {n}" for n in range(41)]
    english = [f"line {n}" for n in range(41)]
    return {"source": write(tmp_path / "train.de", *german), "target": write(tmp_path / "train.en", *english)}


def test_lines_of_two_files_belong_together(files, tmp_path):
    found = load("parallel", **files)
    assert [len(split) for split in found.splits.values()] == [33, 4, 4]
    assert pairs(found) == {f"Zeile {n}": f"line {n}" for n in range(41)}
    own = {
        f"{split}_{side}": write(tmp_path / f"{split}.{side}", f"{split} {side}")
        for split in ("test", "validation")
        for side in ("source", "target")
    }
    given = load("parallel", **files, **own)
    assert len(given.train) == 41
    assert pairs(given, "test") == {"test source": "test target"}
    assert pairs(given, "validation") == {"validation source": "validation target"}


def test_a_table_with_two_columns_of_text_is_of_pairs(tmp_path):
    rows = [f"{n}\tZeile {n}\tline {n}" for n in range(20)]
    path = write(tmp_path / "pairs.tsv", "id\tde\ten", *rows)
    found = load("tsv", path=path, text=["de", "en"])
    assert pairs(found) == {f"Zeile {n}": f"line {n}" for n in range(20)}
    (line,) = problems("tsv", path=path, text=["de", "fr"])
    assert line == f"data.text=fr: data.path={path} has no column 'fr'; choices: id, de, en"
    path = write(tmp_path / "pairs.tsv", "id\tde\ten", *rows, "20\tZeile 20\t", "21\tZeile 21\t ")
    (line,) = problems("tsv", path=path, text=["de", "en"])
    assert line == f"data.path={path}: row 22: a text of de, en is empty; each needs the other"


@pytest.mark.parametrize("kind", ["tsv", "parallel"])
def test_pairs_with_one_source_lie_on_one_side_and_shared_targets_are_counted(kind, tmp_path):
    lines = [(f"Frage {n % 150}", f"reply {n % 4} of the stock" if n % 5 < 2 else f"answer {n}") for n in range(200)]
    paths = [write(tmp_path / f"{side}.txt", *column) for side, column in enumerate(zip(*lines, strict=True))]
    table = {"path": write(tmp_path / "a.tsv", "a\tb", *map("\t".join, lines)), "text": ["a", "b"]}
    keys = table if kind == "tsv" else dict(zip(("source", "target"), paths, strict=True))
    with pytest.warns(UserWarning, match="training targets too") as said:
        found = load(kind, **keys)
    sides = [set(texts(found, split, part=0)) for split in found.splits]
    assert len(set.union(*sides)) == sum(map(len, sides)) == 150
    train, validation, test = (texts(found, split, part=1) for split in found.splits)
    for part, name in ((validation, "validation"), (test, "held-out")):
        count = sum(text in train for text in part)
        assert f"{count} of {len(part)} {name} targets are training targets too" in str(said[0].message)


def test_files_that_do_not_fit_are_refused_with_a_line_each(files, tmp_path):
    source = files["source"]
    short = write(tmp_path / "short.en", *["line"] * 40)
    (line,) = problems("parallel", source=source, target=short)
    lengths = f"data.source={source} has 41 lines, data.target={short} has 40"
    assert line == f"{lengths}; line n of one must be line n of the other"
    gaps = write(tmp_path / "gaps.en", "line", "", " ", *["line"] * 38)
    found = problems("parallel", source=source, target=gaps, test_source=short, validation_target=short)
    empty = "line 2 is empty, and 1 more"
    needs = "is given, and each of its lines needs the other language's"
    assert found == [
        f"data.target={gaps}: {empty}; write what is missing, or leave such pairs out by data.skip_empty=true",
        f"data.validation_source is missing: data.validation_target {needs}",
        f"data.test_target is missing: data.test_source {needs}",
    ]
    kept = load("parallel", source=source, target=gaps, skip_empty=True)
    assert len(pairs(kept)) == 39
    (line,) = problems("parallel", source=source, target=str(tmp_path / "none"))
    assert line == f"data.target={tmp_path}/none: no such file; give a text file"


@pytest.fixture
def parts(files, tmp_path):
    moods = [f"I am number {n},{'good' if n % 2 else 'bad'}" for n in range(40)]
    return {
        "translate": {"name": "parallel", **files},
        "mood": {"name": "csv", "path": write(tmp_path / "moods.csv", "text,mood", *moods), "label": "mood"},
    }


def test_a_mixture_is_text_to_text_with_the_names_of_its_tasks(parts):
    found = load("mixture", parts=parts)
    assert found.classes == ("translate", "mood")
    for split, counts in (("train", [33, 32]), ("validation", [4, 4]), ("test", [4, 4])):
        own = pairs(found, split)
        for source, target in own.items():
            number = int(source.split()[-1])
            assert source in (f"translate: Zeile {number}", f"mood: I am number {number}")
            assert target == (f"line {number}" if source[0] == "t" else ["bad", "good"][number % 2])
        labels = getattr(found, split).labels
        assert [sum(source.startswith(name) for source in own) for name in found.classes] == counts
        assert [(labels == number).sum() for number in (0, 1)] == counts
    few = load("mixture", parts=parts, limit=7)
    assert [(few.train.labels == number).sum() for number in (0, 1)] == [7, 7]
    assert len(few.test) == len(found.test)


def test_parts_that_do_not_fit_are_refused_with_a_line_each(parts, tmp_path):
    wrong = {"a": "glyphs", "b": "nothing", "c": {"name": "csv"}, "d": {"name": "csv", "path": "x", "txt": 1}}
    found = problems("mixture", parts=wrong)
    assert found[0] == "data.parts.a=glyphs: cannot be part of a mixture; give a data set of texts"
    assert found[1].startswith("data.parts.b=nothing: unknown data; ")
    assert found[2] == "data.parts.c.path is missing: give data.parts.c.path=VALUE"
    assert found[3].startswith("data.parts.d=csv: txt: no key 'txt'; did you mean 'text'?")
    parts["mood"]["label"] = "moot"
    (line,) = problems("mixture", parts=parts)
    assert line.startswith("data.parts.mood: data.label=moot: ")
    parts["mood"]["label"] = None
    (line,) = problems("mixture", parts=parts)
    assert line == "data.parts.mood: data=csv: has one text each and nothing to predict; give pairs, classes or numbers"


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "zero"), (13, "thirteen"), (40, "forty"), (704, "seven hundred four"), (90_011, "ninety thousand eleven")],
)
def test_numbers_are_spelled(number, words):
    assert spell(number) == words


def test_every_number_is_spelled_in_its_own_way():
    assert len({spell(number) for number in range(0, 1_000_000, 37)}) == len(range(0, 1_000_000, 37))


def test_held_out_numbers_are_new_and_of_every_length():
    corpus = read(load_config("data", {"name": "numbers", "count": 3000}))
    (words, digits), (_, held) = corpus.train.parts, corpus.test.parts
    assert [spell(int(number)) for number in digits] == words
    assert not set(digits) & set(held)
    assert len(digits) + len(held) == 3000
    assert {len(number) for number in held} >= {3, 4, 5, 6}
    assert sorted(draw_numbers(1_000_000)) == list(range(1_000_000))
