"""Analyses and probes that are asked for after a run has finished: computed from it, nothing is trained again."""

import csv
import json
import shutil

import pytest

from tests.integration import commands
from tests.integration.commands import TINY
from vitlab.config import TrainConfig, compose
from vitlab.reports.wandb import RunReporter
from vitlab.studies.experiment import train_run
from vitlab.training.files import RunFiles

WORDS = [*TINY, "budget.steps=6", "train_size=150", "wandb.mode=off"]
FIRST = ["analyses=[attention_distance]", "probes=[fewshot]"]
MORE = ["analyses=[cka,rgb_filters]", "probes=[knn]", "trainer.evaluations=1"]
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


@pytest.fixture(scope="module", params=["vit_nano", "resnet_nano"])
def finished(request, tmp_path_factory):
    """The words of a model, and a finished run of it."""
    words = [f"model={request.param}", "recipe.ema=0.7"]
    folder = tmp_path_factory.mktemp("finished") / "run"
    train_run(configure(*words, *FIRST), folder, observer=RunReporter())
    return words, folder


def test_added_analyses_and_probes_are_those_of_a_run_that_had_them_from_the_start(finished, tmp_path):
    words, original = finished
    folder = shutil.copytree(original, tmp_path / "added")
    before, result = stamp(folder), RunFiles(folder).result()
    added = train_run(configure(*words, *MORE), folder, observer=RunReporter())
    assert stamp(folder) == {folder / path.relative_to(folder): content for path, content in before.items()}
    assert {key: added[key] for key in result} | {"probe_s": 0} == result | {"probe_s": 0}, "but for the time"
    assert added == RunFiles(folder).result()
    start = train_run(configure(*words, *MORE), tmp_path / "start", observer=RunReporter())
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


def test_a_run_stays_finished_when_it_is_stopped_while_it_is_completed(finished, tmp_path):
    words, original = finished
    folder = shutil.copytree(original, tmp_path / "run")
    result = RunFiles(folder).result()
    with pytest.raises(KeyboardInterrupt):
        train_run(configure(*words, *MORE), folder, observer=Failing())
    assert RunFiles(folder).result() == result
    completed = train_run(configure(*words, *MORE), folder, observer=RunReporter())
    assert completed.keys() - result.keys() == {"knn"}
    for name in ADDED:
        assert (folder / "analysis" / f"{name}.png").is_file()
        assert [row["step"] for row in read_analysis(folder, name)["rows"]].count(0) * 2 == len(
            read_analysis(folder, name)["rows"]
        )
    again = []
    assert train_run(configure(*words, *MORE), folder, progress=again.append) == completed
    assert not again


def test_a_study_gets_columns_and_figures_and_no_run_trains_again(tmp_path):
    folder = tmp_path / "study"
    words = ["scale", "models=[vit_nano]", "sizes=[60]", *WORDS[:-3], "budget.steps=6", "wandb.mode=off"]
    words += ["seeds=[0]", "--jobs", "1", "--out", folder]
    commands.succeed(*words)
    (run,) = [path.parent for path in folder.glob("*/result.json")]
    before = stamp(run)
    more = ["analyses=[attention_distance,cka]", "probes=[knn]", "trainer.evaluations=3"]
    done = commands.succeed(*words, *more)
    assert "1 finished already" in done.stderr
    assert "Adding cka, knn to 1 finished run" in done.stderr
    assert stamp(run) == before
    (row,) = csv.DictReader((folder / "results.csv").read_text().splitlines())
    assert 0 < float(row["knn"]) <= 1
    assert (run / "analysis" / "cka.png").is_file()
    done = commands.succeed(*words, *more)
    assert "Adding" not in done.stderr
