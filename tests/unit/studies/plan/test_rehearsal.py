"""Planted delays are found where they are, and a run's time is made of them."""

import time

import pytest
from rich.console import Console

from tests.integration.commands import TINY
from vitlab.config import TrainConfig, compose
from vitlab.studies.experiment import Observer
from vitlab.studies.grid import compose_study
from vitlab.studies.plan.rehearsal import RehearsalJob, Times, count_evaluations
from vitlab.studies.plan.study import plan_study
from vitlab.tasks.classification import Classification
from vitlab.training.run import Run

STEP, TEST = 0.2, 0.4  # seconds
WORDS = [
    "models=[vit_nano]",
    "sizes=[40]",
    "seeds=[0]",
    "budget.steps=1000",
    "wandb.mode=off",
    "analyses=[]",
    "set=[recipe.batch_size=4]",
]


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    words = [word for word in TINY if word.startswith("data")]
    return plan_study(compose_study("quick", [*words, *WORDS]), jobs=2, console=Console())


def test_planted_delays_are_found_where_they_are(plan, tmp_path, monkeypatch):
    loss, test = Classification.loss, Run.test

    def slow_loss(self, model, batch):
        time.sleep(STEP)
        return loss(self, model, batch)

    def slow_test(self):
        time.sleep(TEST)
        return test(self)

    monkeypatch.setattr(Classification, "loss", slow_loss)
    monkeypatch.setattr(Run, "test", slow_test)
    rehearsed = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        job = RehearsalJob(folder, plan, Observer)
        job.lengths["vit_nano"] = 4
        rehearsed.append(job(plan.specs[0], lambda progress: None, lambda: False))
    found = min(rehearsed, key=lambda times: times.evaluation)  # other programs may have disturbed one
    assert STEP < found.step < 4 * STEP
    assert found.test > TEST
    assert found.evaluation < found.test
    # 1,000 steps in all, of which 4 were trained
    assert 1000 * STEP < sum(found.of_run(plan.by_variant["vit_nano"].config, 1000).values()) < 4000 * STEP + 4 * TEST


def test_a_run_is_its_steps_its_evaluations_its_checkpoints_and_its_looks():
    words = ["trainer.evaluations=4", "trainer.checkpoint_every=10", "trainer.analyze_every=30"]
    config = compose(TrainConfig, words)
    times = Times(step=0.5, evaluation=2.0, test=3.0, checkpoint=0.25, look=7.0, once=1.0)
    assert times.of_run(config, 100) == {
        "training": 50.0,
        "evaluation": 4 * 2 + 3,
        "analyses": 7.0 * (2 + 3),  # before and after, and at steps 30, 60 and 90
        "rest": 1 + 0.25 * (1 + 5),
    }
    config.trainer.devices = 2
    assert times.of_training(config, 100) == (25.0, 4.0)
    assert count_evaluations(10, 10, config) == 4  # after 3, 6, 9 and 10 steps
    assert count_evaluations(5, 100, config) == 1


def test_variants_that_cost_the_same_are_counted_once(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    words = [word for word in TINY if word.startswith("data")]
    study = compose_study("quick", [*words, *WORDS, "grid.recipe.lr=[0.1,0.2]", "grid.model.width=[32,64]"])
    plans = plan_study(study, jobs=1, console=Console()).by_variant.values()
    assert [one.config.recipe.lr for one in plans] == [0.1, 0.1, 0.2, 0.2]
    assert len({one.params for one in plans}) == 2
