"""Analyses and probes that are asked for after a run has finished: computed from it, nothing is trained again."""

import json
import shutil

import pytest

from tests.integration.commands import TINY
from tests.runs import train_run
from vitlab.config import TrainConfig, compose
from vitlab.reports.wandb import RunReporter
from vitlab.training.files import RunFiles

WORDS = [*TINY, "budget.steps=6", "train_size=150", "wandb.mode=off", "recipe.ema=0.7"]
FIRST = ["analyses=[attention_distance]", "probes=[fewshot]"]
MORE = ["analyses=[attention_distance,cka,rgb_filters]", "probes=[knn]", "trainer.evaluations=1"]
ADDED = ("cka", "rgb_filters")


def configure(*words):
    return compose(TrainConfig, [*WORDS, *words])


def read_analysis(folder, name):
    return json.loads((folder / "analysis" / f"{name}.json").read_text())


def stamp(folder):
    """Every file of a run that completing it must leave alone, with its time."""
    paths = [folder / "metrics.jsonl", folder / "data.json", *folder.glob("checkpoints/*")]
    paths += folder.glob("analysis/attention_distance.*")
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train_run(configure(*FIRST), folder, observer=RunReporter())
    return folder


def test_added_analyses_and_probes_are_those_of_a_run_that_had_them_from_the_start(original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "added")
    before, result = stamp(folder), RunFiles(folder).result()
    added = train_run(configure(*MORE), folder, observer=RunReporter())
    assert stamp(folder) == {folder / path.relative_to(folder): content for path, content in before.items()}
    assert {key: added[key] for key in result} | {"probe_s": 0} == result | {"probe_s": 0}, "but for the time"
    assert added == RunFiles(folder).result()
    start = train_run(configure(*MORE), tmp_path / "start", observer=RunReporter())
    assert added["knn"] == start["knn"]
    for name in ADDED:
        assert read_analysis(folder, name) == read_analysis(tmp_path / "start", name)
        assert {row["step"] for row in read_analysis(folder, name)["rows"]} <= {0, 6}
        assert {p.name for p in folder.glob(f"analysis/{name}*")} == {
            p.name for p in (tmp_path / "start").glob(f"analysis/{name}*")
        }
    config = RunFiles(folder).config()
    assert config["analyses"] == ["attention_distance", *ADDED]
    assert config["probes"] == ["fewshot", "knn"]


class Failing:
    """Stops the program at an analysis of the trained model."""

    def on_analysis(self, run, config, findings, rows, step):
        if (config.name, step) == ("rgb_filters", 6):
            raise KeyboardInterrupt


def test_a_run_stays_finished_when_it_is_stopped_while_it_is_completed(original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "run")
    result = RunFiles(folder).result()
    with pytest.raises(KeyboardInterrupt):
        train_run(configure(*MORE), folder, observer=Failing())
    assert RunFiles(folder).result() == result
    completed = train_run(configure(*MORE), folder, observer=RunReporter())
    assert completed.keys() - result.keys() == {"knn"}
    for name in ADDED:
        assert (folder / "analysis" / f"{name}.png").is_file()
        assert [row["step"] for row in read_analysis(folder, name)["rows"]].count(0) * 2 == len(
            read_analysis(folder, name)["rows"]
        )
    again = []
    assert train_run(configure(*MORE), folder, progress=again.append) == completed
    assert not again
