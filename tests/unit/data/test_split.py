"""Three splits of every data set: as its folders or its module give them, else with validation data carved out."""

import shutil

import numpy as np
import pytest
from PIL import Image

from vitlab import config, data
from vitlab.config import UserError
from vitlab.data.base import Corpus, Examples
from vitlab.data.opening import compute_hash
from vitlab.data.split import MAX_VAL_ITEMS, carve_texts, count_validation, divide, name_groups


def load(name, **changes):
    return data.load(config.load("data", {"name": name, **changes}))


def pixels(split):
    return {image.tobytes() for image in split.read(np.arange(len(split)))}


def carve(labels, names=None):
    return divide(labels, count_validation(len(labels)), names)[1]


def test_a_tenth_of_each_class_is_chosen_and_never_the_last_of_one():
    labels = np.repeat([0, 1, 2, 3], [600, 300, 99, 1])
    assert np.bincount(labels[carve(labels)], minlength=4).tolist() == [60, 30, 10, 0]
    assert not len(carve(np.arange(7)))
    counts = [len(carve(np.zeros(n, dtype=int))) for n in (1, 2, 4, 15, 40, 10 * MAX_VAL_ITEMS + 70)]
    assert counts == [0, 1, 2, 2, 4, MAX_VAL_ITEMS]


def test_names_that_come_move_few_others_and_a_name_is_on_one_side():
    labels, names = np.arange(900) // 300, np.array([f"{n // 2}.png" for n in range(900)])
    left, chosen = ({*names[rows]} for rows in divide(labels, 180, names))
    assert not left & chosen
    assert len(chosen ^ {*names[9:][divide(labels[9:], 178, names[9:])[1]]}) < 9


@pytest.mark.parametrize(
    ("sizes", "classes", "held"),
    [
        ([100] * 8, 1, [0]),
        ([100] * 8, 2, [0, 1]),  # of each class one
        ([300, 100, 200, 90], 1, [3]),
        ([300, 300], 2, []),  # the last of each class
        ([400, 500], 1, [0]),
    ],
)
def test_of_few_large_groups_the_smallest_are_held_out(sizes, classes, held):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    chosen = carve(groups % classes, groups)
    assert len(np.unique(groups[chosen])) == len(held)
    assert (
        np.bincount((groups % classes)[chosen]).tolist()
        == np.bincount([k % classes for k in held for _ in range(sizes[k])]).tolist()
    )


def test_a_group_counts_as_its_rarest_class_whose_last_group_stays():
    labels, groups = np.repeat([0, 0, 1, 0, 1], [100, 10, 10, 50, 5]), np.repeat([0, 1, 1, 2, 3], [100, 10, 10, 50, 5])
    assert np.unique(groups[divide(labels, 12, groups, every_class=True)[1]]).tolist() == [2, 3]
    assert not len(divide(np.repeat([0, 1], 20), 4, np.repeat([0, 1], 20), every_class=True)[1])


@pytest.mark.parametrize("seed", range(20))
def test_a_class_in_groups_of_rarer_classes_stays_in_training(seed):
    labels = np.repeat([0, 1, 2, 2, 1, 3, 3], [30, 2, 1, 1, 2, 1, 1])  # class 1 lies in groups 1 and 3 alone
    groups = np.repeat([0, 1, 1, 2, 3, 3, 4], [30, 2, 1, 1, 2, 1, 1])
    left, chosen = divide(labels, 12, groups, seed, every_class=True)
    assert set(labels[left]) == {0, 1, 2, 3}
    assert not {*groups[left]} & {*groups[chosen]}


def test_nothing_is_divided_into_nothing():
    assert [len(side) for side in divide(np.zeros(0, dtype=int), 0, [], every_class=True)] == [0, 0]


def test_glyphs_draw_their_own_so_that_their_training_images_and_their_identity_stay():
    settings = {"train_images": 72, "test_images": 36}
    found = load("glyphs", **settings)
    assert [len(found.train), len(found.validation), len(found.test)] == [72, 36, 36]
    assert len(pixels(found.train) | pixels(found.validation) | pixels(found.test)) == 144
    assert compute_hash(config.load("data", {"name": "glyphs", **settings}), found).startswith("6f8cb1f87b903403")


def save(path, level):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 12), (level,) * 3).save(path)


def test_three_folders_are_taken_as_they_are(tmp_path):
    for number, (part, count) in enumerate({"train": 5, "val": 3, "test": 2}.items()):
        for label in "ab":
            for i in range(count):
                save(tmp_path / part / label / f"{i}.png", 80 * number + (label == "b"))
    found = load("imagefolder", root=str(tmp_path), image_size=12)
    for number, (split, count) in enumerate(zip(found.splits.values(), (10, 6, 4), strict=True)):
        assert split.read(np.arange(len(split)))[:, 0, 0, 0].tolist() == (80 * number + split.labels).tolist()
        assert len(split) == count
    for part in ("val", "test", "train/a", "train/b"):
        shutil.rmtree(tmp_path / part)
    for i in range(4):
        save(tmp_path / "train" / "ab"[i % 2] / f"{i}.png", i)
    with pytest.raises(UserError, match="data=imagefolder: 2 training images, none to spare for validation; add some"):
        load("imagefolder", root=str(tmp_path / "train"), image_size=12)


def decode(found, split):
    return {found.tokenizer.decode(row) for row in getattr(found, split).parts[0]}


def test_whole_documents_are_carved_and_equal_ones_stay_together(tmp_path):
    for i in range(60):
        (tmp_path / f"{i:02}.txt").write_text(f"document number {i % 30} says so")
    found = load("textfile", path=str(tmp_path))
    splits = [decode(found, split) for split in ("train", "validation", "test")]
    assert [len(split) for split in splits] == [25, 2, 3]
    assert len(set.union(*splits)) == 30
    assert [len(part) for part in (found.train, found.validation, found.test)] == [50, 4, 6]


PREMISES = [f"A man in a red shirt numbered {n} sleeps on a bench in the park." for n in range(20)]
HELD = ["A man sleeps.", "Nobody is there.", "The man sings a song."]


@pytest.mark.parametrize(
    ("items", "shared"),
    [
        ([(f"{n} of {p}?", f"The passage {p} is longer. " * 9) for p in range(4) for n in range(30)], 1),
        ([(premise, held) for premise in PREMISES for held in HELD], 0),
        ([(held, premise) for premise in PREMISES for held in HELD], 1),
        ([(premise, f"Is it {n}? {n}") for premise in PREMISES for n in range(12)], 0),
        ([(f"stem {n // 2} of a story", f"end {n}", "yes", "no") for n in range(60)], 0),
    ],
)
def test_items_that_share_a_text_lie_on_one_side(items, shared):
    parts = tuple(map(list, zip(*items, strict=True)))
    examples = Examples(parts, labels=[0] * len(items) if shared else None)  # without labels the source counts
    found = carve_texts(Corpus(train=examples, test=examples), "made")
    train, validation = (set(split.parts[shared]) for split in (found.train, found.validation))
    assert train
    assert validation
    assert not train & validation


@pytest.mark.parametrize("target", ["Yes.", ("positive", "negative"), [f"class {n}" for n in range(9)]])
def test_short_texts_and_names_of_classes_join_nothing(target):
    items = [(f"wort {n}", target if isinstance(target, str) else target[n % len(target)]) for n in range(100)]
    assert name_groups(items) == [repr(item) for item in items], "and the names that choose are the items' own"
