"""A start like the last one says what that one has found; a study that has changed is read anew."""

import shutil

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.reports.results.conclusion import KEPT, Conclusion, recall, redrawn
from vitlab.studies.grid import compose_study

WORDS = ["data.train_images=720", "data.test_images=72"]
FOUND = Conclusion("quick: 8 runs", ["images", "vit_nano"], [["500", "42%"]], "One seed.", ["A leads."], ["report r"])


@pytest.fixture
def config():
    return compose_study("quick", WORDS)


@pytest.fixture
def folder(tmp_path, config):
    folder = make_study(tmp_path / "quick", sizes=(500,), seeds=(0,), failed=0).folder
    (folder / "report.html").write_text("a page")
    FOUND.keep(folder, config)
    return folder


def test_the_same_start_is_told_what_the_last_has_found(folder, config):
    config.settled = {"vit_nano": {"threads": 1}}  # what a start settles is not asked for
    assert recall(folder, config) == FOUND


@pytest.mark.parametrize("word", ["budget.steps=7", "analyses=[]", "seeds=[3]", "data.seed=1", "wandb.mode=off"])
def test_another_start_is_not(folder, word):
    assert recall(folder, compose_study("quick", [*WORDS, word])) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "report.html").unlink(),
        lambda folder: (folder / "report.html").write_text("a pagE"),
        lambda folder: shutil.rmtree(folder / "vit_nano-n500-s0"),
        lambda folder: (folder / "vit_nano-n500-s0" / "analysis" / "new.json").write_text("{}"),
        lambda folder: (folder / KEPT).write_text('{"files": '),
        lambda folder: (folder / KEPT).write_text("[]"),
        lambda folder: (folder / KEPT).unlink(),
    ],
    ids=["no report", "another report", "a run less", "an analysis more", "damaged", "not ours", "forgotten"],
)
def test_nor_is_one_of_a_study_that_has_changed(folder, config, change):
    change(folder)
    assert recall(folder, config) is None


def test_a_report_that_is_drawn_again_changes_nothing_that_was_found(folder, config):
    for broken in (False, True):
        if broken:
            (folder / "vit_nano-n500-s0" / "result.json").touch()
        with redrawn(folder):
            (folder / "report.html").write_text("a page that is drawn again")
        assert recall(folder, config) == (None if broken else FOUND)
