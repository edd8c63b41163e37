"""Pictures with a table of what they show: classes, labels, numbers, groups, splits; and repeated hold-out."""

import re
from unicodedata import normalize

import numpy as np
import pytest
from PIL import Image

from tests.configurations import refused
from vitlab import config, data
from vitlab.config import UserError


def write(folder, header, rows):
    """A picture of its own grey level for each row, and the table."""
    for level, row in enumerate(rows):
        if row[0]:
            Image.new("RGB", (12, 12), (level,) * 3).save(folder / row[0])
    lines = [",".join(header), *(",".join(map(str, row)) for row in rows)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")


def load(folder, name="imagetable", **changes):
    settings = {"root": str(folder), "path": str(folder / "table.csv"), "image_size": 8, **changes}
    return data.load(config.load("data", {"name": name, **settings}))


def levels(split):
    return split.read(np.arange(len(split)))[:, 0, 0, 0].tolist()


def grouped(folder, pictures=120, groups=23):
    numbers = np.random.default_rng(0).integers(0, groups, pictures)
    write(
        folder,
        ["file", "label", "patient"],
        [(f"{i}.png", "ab"[i % 3 == 0], f"p{numbers[i]}") for i in range(pictures)],
    )
    return numbers


@pytest.mark.parametrize("cache", ["never", "always"])
@pytest.mark.parametrize("holdout", ["fixed", 0, 1, 7])
def test_no_group_is_on_two_sides(tmp_path, cache, holdout):
    groups = grouped(tmp_path)
    found = load(tmp_path, group="patient", holdout=holdout, cache=cache)
    sides = [{int(groups[level]) for level in levels(split)} for split in (found.train, found.validation, found.test)]
    assert all(sides)
    assert not sides[0] & sides[1]
    assert not (sides[0] | sides[1]) & sides[2]
    assert all(len(np.unique(split.labels)) == 2 for split in (found.train, found.validation, found.test))
    assert 12 <= len(found.test) <= 24


def test_repeated_holdout_gives_other_tests_and_as_many_training_images(tmp_path):
    grouped(tmp_path)
    drawn = [load(tmp_path, group="patient", holdout=seed) for seed in range(5)]
    assert len({len(one.train) for one in drawn}) == 1
    assert len({tuple(levels(one.test)) for one in drawn}) > 1
    again = load(tmp_path, group="patient", holdout=3)
    assert levels(again.test) == levels(drawn[3].test)
    assert levels(again.train) == levels(drawn[3].train)
    for one in drawn:
        assert np.array_equal(one.train.labels, [int(level % 3 == 0) for level in levels(one.train)])


def test_columns_of_splits_are_taken_as_they_are(tmp_path):
    parts = ["train", "Train", "dev", "Testing", "TRAINING", "test"]
    write(tmp_path, ["file", "label", "part"], [(f"{i}.png", "ab"[i % 2], part) for i, part in enumerate(parts)])
    found = load(tmp_path, split="part")
    assert (levels(found.train), levels(found.validation), levels(found.test)) == ([0, 1, 4], [2], [3, 5])


def test_rows_added_before_move_no_other_group(tmp_path):
    grouped(tmp_path)
    before = load(tmp_path, group="patient").test.together
    table = (tmp_path / "table.csv").read_text()
    Image.new("RGB", (12, 12)).save(tmp_path / "new.png")
    (tmp_path / "table.csv").write_text(table.replace("label,patient\n", "label,patient\nnew.png,a,new\n"))
    assert {*before} <= {*load(tmp_path, group="patient").test.together}


def test_several_labels_and_numbers_are_targets(tmp_path):
    write(tmp_path, ["file", "label"], [(f"{i}.png", ["dog;red", "cat", "", "cat; red"][i % 4]) for i in range(40)])
    found = load(tmp_path, "imagelabels")
    assert found.classes == ("cat", "dog", "red")
    wanted = {0: [0, 1, 1], 1: [1, 0, 0], 2: [0, 0, 0], 3: [1, 0, 1]}
    assert found.test.targets.tolist() == [wanted[level % 4] for level in levels(found.test)]
    write(tmp_path, ["file", "label"], [(f"{i}.png", ["cat;rat", "cat", "", "cow"][i % 4]) for i in range(40)])
    rarest, found = {0: 2, 1: 0, 2: 3, 3: 1}, load(tmp_path, "imagelabels")
    assert found.test.labels.tolist() == [rarest[level % 4] for level in levels(found.test)]
    write(tmp_path, ["file", "label"], [(f"{i}.png", i / 4) for i in range(40)])
    found = load(tmp_path, "imagenumbers")
    assert found.train.targets.tolist() == [level / 4 for level in levels(found.train)]


@pytest.mark.parametrize(
    ("table", "settings", "says"),
    [
        ("file,label a.png,x b.png,x", {}, "only one class, 'x'"),
        ("file,labl a.png,x", {}, "no column 'label'.*labl"),
        ("file,label a.png,x a.png,y", {}, "row 3: 'a.png' is in row 2 too"),
        ("file,label a.png,x ,y", {}, "row 3: no picture '' in"),
        ("file,label a.png,", {}, "row 2: no label of 'a.png'"),
        ("file,label a.png,1 b.png,one", {"target": "number"}, "label=one: is not a number"),
        ("file,label a.png,1 b.png,1e29", {"target": "number"}, "row 3: label=1e29: is not a num"),
        ("file,label,s a.png,x,tset", {"split": "s"}, "s=tset: .*test"),
        ("file,label,s,g a.png,x,train,p b.png,y,test,p", {"split": "s", "group": "g"}, "'p' is in train and in test"),
    ],
)
def test_mistakes_are_named_with_their_row(tmp_path, table, settings, says):
    header, *rows = (line.split(",") for line in table.split(" "))
    write(tmp_path, header, rows)
    with pytest.raises(UserError, match=says):
        load(tmp_path, **settings)


def test_one_file_has_one_name(tmp_path):
    inside = tmp_path / "in"
    (inside / "a").mkdir(parents=True)
    for name in ("0", "1", normalize("NFD", "é")):
        Image.new("RGB", (4, 4)).save(inside / "a" / f"{name}.png")
    (inside / "link.png").symlink_to("a/0.png")
    names = ["a/0.png", "a//0.png", "./a/0.png", inside / "a" / "0.png", "link.png", "x" * 300, "a/é.png"]
    (inside / "table.csv").write_text("file,label\n" + "".join(f"{name},{n % 2}\n" for n, name in enumerate(names)))
    said = [line.partition("row ")[2].split(" in ")[0] for line in refused(load, inside)]
    assert said[:4] == [f"{row}: '{name}' is" for row, name in enumerate(names[1:5], start=3)]
    assert said[4] == f"7: no picture '{'x' * 300}'"
    assert len(said) == 5


@pytest.mark.parametrize("delimiter", [";", "\t", ","])
def test_the_first_line_says_what_parts_the_cells(tmp_path, delimiter):
    write(tmp_path, ["file", "label", "a note"], [(f"{i}.png", "ab"[i % 2], "") for i in range(20)])
    text = (tmp_path / "table.csv").read_text().replace(",", delimiter).replace("a note", '"one, two and, three"')
    (tmp_path / "table.csv").write_text(f"\ufeff{text}".replace("\n", "\r\n"))
    assert load(tmp_path).classes == ("a", "b")


@pytest.mark.parametrize(
    ("texts", "classes"),
    [
        ("disc|cross\ndisc\ncross|dot", "cross disc dot"),
        ("disc, cross\ndisc\ncross\ncross, dot\ndot", "cross disc dot"),
        ("disc cross\ndisc\ncross\ncross dot\ndot", "cross disc dot"),
        ("[\"disc\", 'cross']\n[]\n[dot]", "cross disc dot"),
        ("a\nb\nc d\na c\nb d", "a b c d"),
        ("golden retriever\npolar bear\ncat", "cat|golden retriever|polar bear"),
        ("Washington, D.C.\nRome, Italy\nParis, France", "Paris, France|Rome, Italy|Washington, D.C."),
        ("golden retriever;cat\ncat\nC;C++", "C|C++|cat|golden retriever"),
        (f"{normalize('NFC', 'é')}\n{normalize('NFD', 'é')}\nx", f"x {normalize('NFC', 'é')}"),
    ],
)
@pytest.mark.filterwarnings("ignore:data.label=label. '.*' is read as")
def test_labels_are_parted_by_what_the_column_shows(tmp_path, texts, classes):
    write(tmp_path, ["file", "label"], quoted(texts))
    assert load(tmp_path, "imagelabels").classes == tuple(classes.split("|" if "|" in classes else " "))


def quoted(texts):
    """Rows whose labels are these lines in turn."""
    lines = texts.replace('"', '""').split("\n")
    return [(f"{i}.png", f'"{lines[i % len(lines)]}"') for i in range(20)]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ("cat\ndog\ncat dog\npolar bear", "'cat dog' may be one label or several by ' '"),
        ("['cat']\ndog", "some are lists, not all"),
        ("['a' 'b']\n['a']", "some are lists, not all"),
        (f"{'[' * 500}{']' * 500}\n[a]", "some are lists, not all"),
    ],
)
def test_labels_that_may_mean_two_things_are_refused(tmp_path, texts, says):
    write(tmp_path, ["file", "label"], quoted(texts))
    with pytest.raises(UserError, match=f"^data.label=label: .*{says}"):
        load(tmp_path, "imagelabels")


def test_what_is_read_as_several_labels_or_as_one_class_is_said(tmp_path):
    write(tmp_path, ["file", "label"], [(f"{i}.png", ["disc|cross", "disc", "cross"][i % 3]) for i in range(30)])
    with pytest.warns(UserWarning, match=r"'disc\|cross' is read as one class; several labels are data=imagelabels"):
        assert len(load(tmp_path).classes) == 3
    for mark in (", ", "/", "+", " ", "|"):
        write(tmp_path, ["file", "label"], quoted(f"disc{mark}cross\ndisc\ncross"))
        with pytest.warns(UserWarning, match=rf"'disc{re.escape(mark)}cross' is read as 2 labels"):
            load(tmp_path, "imagelabels")


@pytest.mark.parametrize("column", [None, "part"])
def test_few_large_groups_are_divided(tmp_path, column):
    rows = [(f"{i}.png", "ab"[i % 2], f"p{i // 8}", ["train", "val"][i >= 64]) for i in range(80)]
    write(tmp_path, ["file", "label", "patient", "part"], rows)
    for holdout in ("fixed", 1, 2):
        found = load(tmp_path, group="patient", split=column, holdout=holdout)
        sides = [{level // 8 for level in levels(split)} for split in (found.train, found.validation, found.test)]
        assert list(map(len, sides)) == [7, 1, 2]
        assert len(set.union(*sides)) == 10
