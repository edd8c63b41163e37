"""Analyses while a run trains: at which steps, of which weights; test_resume.py: that training does not notice."""

import json
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests import runs
from tests.integration import commands
from tests.integration.commands import TINY
from vitlab.analysis import examine
from vitlab.config import TrainConfig, compose, load
from vitlab.data.opening import open_data
from vitlab.reports.wandb import RunReporter
from vitlab.studies import experiment
from vitlab.training import loop
from vitlab.training.finished import read_checkpoint
from vitlab.training.loop import Interrupted
from vitlab.training.run import plan_run, start_run

STEPS, EVERY = 14, 4
SHORT = [*TINY, f"budget.steps={STEPS}", "train_size=50", "wandb.mode=off"]
LOOKED = [0, 4, 8, 12, 14]


def train_run(config, folder, **options):
    return runs.train_run(config, folder, observer=RunReporter(), **options)


def composed(*words):
    return compose(TrainConfig, [*SHORT, *words])


def interrupted(config, folder, at):
    """Train until a stop is asked for the `at`-th time; no evaluation follows that step."""
    asked = iter(range(at))
    with pytest.raises(Interrupted):
        train_run(config, folder, stop=lambda: next(asked) == at - 1)


def found(folder, name="attention_distance"):
    return json.loads((folder / "analysis" / f"{name}.json").read_text())["rows"]


@pytest.mark.parametrize("ema", ["null", "0.7"])
def test_it_looks_at_the_weights_that_are_evaluated(ema, tmp_path):
    config = composed(f"recipe.ema={ema}", "trainer.analyze_every=4", "analyses=[attention_distance]")
    interrupted(config, tmp_path / "run", at=4)
    state = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert state["global_step"] == 4
    run = start_run(plan_run(config, open_data(config.data)), tmp_path / "other")
    run.model.load_state_dict({key.removeprefix("model."): value for key, value in state["state_dict"].items()})
    expected = examine(run.model, run.task, load("analysis", "attention_distance"), 4).rows
    assert [row for row in found(tmp_path / "run") if row["step"] == 4] == expected
    assert expected != [{**row, "step": 4} for row in found(tmp_path / "run") if row["step"] == 0]


def test_the_time_of_analyses_is_not_the_runs(tmp_path, monkeypatch):
    look = Mock(side_effect=examine)
    monkeypatch.setattr(experiment.analysis, "examine", look)
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + 1000 * look.call_count)  # each takes so long
    monkeypatch.setattr(loop, "time", clock)
    words = [f"trainer.analyze_every={EVERY}", "trainer.checkpoint_every=1e6"]
    result = train_run(composed("analyses=[attention_distance]", *words), tmp_path / "run")
    assert look.call_count == len(LOOKED)
    assert result["wall_s"] < 1000
    assert result["images_per_s"] > STEPS * 64 / 1000


@pytest.mark.slow
def test_a_resumed_run_has_every_picture_of_every_step_in_wandb(tmp_path):
    words = ["wandb.mode=offline", f"trainer.analyze_every={EVERY}", "analyses=[attention_distance,cka]"]
    interrupted(composed(*words), tmp_path / "run", at=9)
    train_run(composed(*words), tmp_path / "run")
    logged = {}
    history = commands.wandb_history(tmp_path / "run")
    for item in history:
        for key in item:
            if key.endswith("/picture._type"):
                logged.setdefault(key.removesuffix("._type"), []).append(item["trainer/global_step"])
                path = tmp_path / "run" / "wandb" / "latest-run" / "files" / item[f"{key.removesuffix('_type')}path"]
                assert path.stat().st_size > 1000
    assert logged == {
        "attention_distance/picture": LOOKED,
        "attention_distance-by-step/picture": LOOKED[2:],
        "cka/picture": LOOKED,
    }
    captions = {item.get("cka/picture.caption") for item in history} - {None}
    ends = {"run: similarity of layers (CKA)"}
    assert captions == ends | {f"run at step {step}: similarity of layers (CKA)" for step in LOOKED[1:-1]}
    assert not (tmp_path / "run" / "wandb" / "figures").exists(), "kept for a resumption alone"


def test_a_run_that_ended_after_its_last_look_has_that_once(tmp_path, monkeypatch):
    config = composed("wandb.mode=offline", "analyses=[cka,receptive_field]")
    monkeypatch.setattr(experiment, "measure_probes", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "run")
    monkeypatch.undo()
    train_run(config, tmp_path / "run")
    history = commands.wandb_history(tmp_path / "run")
    for key in ("cka/picture._type", "reach/layer1"):
        assert [item["trainer/global_step"] for item in history if key in item] == [0, STEPS]


def test_random_weights_are_not_taken_for_the_first_ones_of_a_resumed_run(finished, tmp_path):
    config = composed("analyses=[cka]", f"init={finished}")
    interrupted(config, tmp_path / "run", at=4)
    path = tmp_path / "run" / "analysis" / "cka.json"
    path.unlink()
    train_run(config, tmp_path / "run")
    assert {row["step"] for row in json.loads(path.read_text())["rows"]} == {STEPS}
