"""Analyses and probes that fail: a run that is trained keeps its result, and only what failed is tried again."""

import json
import shutil
import sys

import pytest
import yaml

from tests.integration.commands import PLAIN, assert_same_training, succeed, vitlab
from vitlab.commands import scale
from vitlab.config import groups
from vitlab.console import Console
from vitlab.studies.grid import compose_study
from vitlab.studies.plan import plan_study
from vitlab.studies.results import load_results
from vitlab.studies.status import StatusReader
from vitlab.studies.store import StudyFiles
from vitlab.studies.worker import work

ANALYSIS = """
UNIT, NEEDS = "", "a model"
calls, failing = [], ()  # of `calls`, by their number
def applies(model):
    return True
def run(model, inputs, config):
    calls.append(config.name)
    model.eval()  # and leaves the model so
    if len(calls) - 1 in failing:
        raise failing[len(calls) - 1]
    return [{"value": 1.0}]
"""
PROBE = """
failing = []
def run(train, test, config, progress=None):
    if failing:
        raise failing[0]
    return {"cracked": 0.5}
"""
WORDS = [*PLAIN, "model=resnet_nano", "train_size=60", "budget.steps=6", "trainer.analyze_every=3"]
ERROR = ValueError("planted\nof two lines")


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """An own analysis and an own probe, both called cracked; gives their modules."""
    shutil.copytree(groups.config_dir(), tmp_path / "configs")
    monkeypatch.setattr(groups, "config_dir", lambda: tmp_path / "configs")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "planted").mkdir()
    for name, text in (("analysis", ANALYSIS), ("probe", PROBE)):
        (tmp_path / "planted" / f"{name}.py").write_text(text)
        options = "title: Cracked\nquestion: none\nreading: none\nexamples: 4\ndrawings: []\n"
        lines = f"kind: planted.{name}\n{options * (name == 'analysis')}"
        (tmp_path / "configs" / name / "cracked.yaml").write_text(lines)
    import planted.analysis
    import planted.probe

    yield planted
    for name in [name for name in sys.modules if name.partition(".")[0] == "planted"]:
        del sys.modules[name]


def read(run, name):
    text = (run / name).read_text()
    return yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)


@pytest.mark.parametrize("at", [1, 2])
def test_an_analysis_that_fails_ends_no_run_that_has_begun(planted, tmp_path, at):
    run, words = tmp_path / "run", [*WORDS, "analyses=[cracked]"]
    planted.analysis.failing = {at: ERROR, 3: ERROR}
    first = succeed("train", *words, "--out", run)
    assert "cracked failed: ValueError: planted (step " in first.stderr
    told = "cracked failed: ValueError: planted; the run is kept; to try again, give its command once more"
    assert (f"{told}, or vitlab analyze {run} cracked" in first.stderr) == (at == 2)
    result = read(run, "result.json")
    assert result["status"] == "finished"
    succeed("train", *WORDS, "--out", tmp_path / "plain")
    assert_same_training(run, tmp_path / "plain")
    trained = (run / "checkpoints" / "last.ckpt").stat().st_mtime_ns
    again = succeed("train", *words, "--out", run)
    assert len(planted.analysis.calls) == (3 if at == 1 else 4)  # of the middle is no other chance
    assert (told in again.stderr) == (at == 2)
    succeed("train", *words, "--out", run)
    assert len(planted.analysis.calls) == (3 if at == 1 else 5)
    assert told not in succeed("train", *words, "--out", run).stderr
    assert len(planted.analysis.calls) == (3 if at == 1 else 5)
    steps = [row["step"] for row in read(run, "analysis/cracked.json")["rows"]]
    assert steps == ([0, 6] if at == 1 else [0, 3, 6])
    assert read(run, "result.json") == result
    assert read(run, "config.yaml")["analyses"] == ["cracked"]
    assert (run / "checkpoints" / "last.ckpt").stat().st_mtime_ns == trained


def test_an_analysis_that_fails_before_the_first_step_ends_the_run(planted, tmp_path):
    planted.analysis.failing = {0: ERROR}
    assert vitlab("train", *WORDS, "analyses=[cracked]", "--out", tmp_path / "run").returncode == 1
    assert not (tmp_path / "run" / "metrics.jsonl").read_text()


def test_ctrl_c_in_an_analysis_is_no_failure_of_it(planted, tmp_path):
    planted.analysis.failing = {2: KeyboardInterrupt()}
    assert vitlab("train", *WORDS, "analyses=[cracked]", "--out", tmp_path / "run").returncode == 130
    assert not (tmp_path / "run" / "result.json").exists()
    succeed("train", *WORDS, "analyses=[cracked]", "--out", tmp_path / "run")


def test_a_probe_that_fails_takes_no_other_number_with_it(planted, tmp_path):
    run, words = tmp_path / "run", [*WORDS, "probes=[cracked,knn]", "eval_on=[digits@rotate=10]"]
    planted.probe.failing = [ERROR]
    done = succeed("train", *words, "--out", run)
    assert f"once more, or vitlab eval {run} 'probes=[cracked]'" in done.stderr
    result = read(run, "result.json")
    assert {"knn", "accuracy", "accuracy@digits@rotate=10"} <= result.keys()
    assert "cracked" not in result
    planted.probe.failing = []
    assert "failed" not in succeed("train", *words, "--out", run).stderr
    completed = read(run, "result.json")
    assert {**result, "cracked": 0.5, "probe_s": completed["probe_s"]} == completed


def test_a_probe_of_a_wrong_module_is_refused_before_the_first_step(planted, tmp_path):
    (tmp_path / "configs" / "probe" / "lost.yaml").write_text("kind: planted.nowhere\n")
    refused = vitlab("train", *WORDS, "probes=[lost]", "--out", tmp_path / "run")
    assert (refused.returncode, "no module named planted.nowhere" in refused.stderr) == (2, True)
    assert not (tmp_path / "run" / "metrics.jsonl").read_text()


def test_a_studys_run_whose_analysis_fails_has_finished_and_its_next_start_tries_again(planted, tmp_path):
    words = [*PLAIN, "models=[resnet_nano]", "seeds=[0]", "sizes=[50]", "budget.steps=2", "analyses=[cracked]"]
    plan = plan_study(compose_study("quick", words), jobs=1, console=Console())
    files = StudyFiles(tmp_path / "study")
    scale.add_runs(files, plan)
    planted.analysis.failing = {1: ERROR}

    def state():
        (run,) = StatusReader(files, plan.variants).read().runs
        assert load_results(files.folder).failures == []
        return run.state, len(planted.analysis.calls)

    for _ in range(2):  # another worker leaves the run alone
        work(files.folder, 1, stop=lambda: False)
        assert state() == ("finished", 2)
    assert [*scale.find_missing(files, plan, Console()).values()] == [["cracked"]]
    work(files.folder, 1, stop=lambda: False)
    assert state() == ("finished", 3)
    assert not scale.find_missing(files, plan, Console())
    (row,) = load_results(files.folder).rows
    assert row["accuracy"] is not None
