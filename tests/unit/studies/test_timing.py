"""Planted delays are found where they are, and a run's time is made of them."""

import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.integration.commands import TINY
from vitlab.studies import plan as timing
from vitlab.studies.grid import compose_study
from vitlab.studies.plan import estimate_run, plan_study
from vitlab.tasks.images import ImageTask

STEP, EVALUATION = 0.1, 0.4  # seconds
WORDS = ["models=[vit_nano]", "sizes=[40]", "seeds=[0]", "wandb.mode=off", "analyses=[]", "set=[recipe.batch_size=4]"]


@pytest.fixture
def make_plan():
    words = [word for word in TINY if word.startswith("data")]

    def make(*more):
        return plan_study(compose_study("quick", [*words, *WORDS, *more]), jobs=2, console=Console())

    return make


def slow(before, seconds):
    def after(*args):
        time.sleep(seconds)
        return before(*args)

    return after


def test_planted_delays_are_found_where_they_are(make_plan, monkeypatch):
    monkeypatch.setattr(ImageTask, "loss", slow(ImageTask.loss, STEP))
    monkeypatch.setattr(ImageTask, "measure", slow(ImageTask.measure, EVALUATION))
    plan = make_plan("budget.steps=1000", "trainer.accumulate=2", "trainer.checkpoint_activations=true")
    monkeypatch.setitem(vars(plan.task.test), "read", None)  # what is forecast looks at no test data
    found = timing.time_run(plan, plan.specs[0])
    assert 2 * STEP < found.step < 6 * STEP, "a batch in two parts"
    for seconds, split in ((found.validation, plan.task.validation), (found.test, plan.task.test)):
        assert EVALUATION < seconds * len(split) < 4 * EVALUATION


def test_a_run_is_its_start_its_steps_and_its_evaluations(make_plan, capsys):
    plan = make_plan("budget.steps=100", "trainer.evaluations=7")
    times = timing.Times(start=1.0, step=0.5, validation=0.25, test=0.125)
    [spec] = plan.specs
    assert plan.evaluations(spec) == 7  # after 15, 30, ... 90 and 100 steps
    held_out = 7 * 0.25 * len(plan.task.validation) + 0.125 * len(plan.task.test)
    assert estimate_run(plan, spec, times) == 1.0 + 50.0 + held_out
    timing.show_plan(make_plan("budget.steps=100", "tune={recipe.lr: [0.1, 0.2]}"), {}, 0.0)
    out = capsys.readouterr().out
    assert "2 runs (1 model x 1 size x 1 seed x 2 trials)" in out
    assert f"{spec.name.replace('-n', '-trial-2-n')} 100 400" in " ".join(out.split())


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ("budget.steps=15", "40 training images are seen 1.5 times by small; "),
        ("budget.steps=7", "40 training images are seen 0.7 times by small; 1.4 times by large: "),
        ("budget.steps=20", ""),
        ("budget.epochs=2", ""),
        ("budget.epochs=1", "40 training images are seen 1 times by small, large: "),
    ],
)
def test_models_that_see_the_largest_size_less_than_twice_are_named(make_plan, budget, says):
    models = "models={small: vit_nano, large: {model: resnet_nano, recipe.batch_size: 8}}"
    warning = make_plan(models, "sizes=[20,40]", "seeds=[0,1]", budget).warn_of_unseen()
    assert warning.startswith(says.removesuffix("; ") if says else "")
    assert ("budget.steps=20 or budget.epochs=2 shows each 2 times" in warning) == bool(says) == bool(warning)


def test_default_sizes_hold_an_item_of_each_class_and_no_two_hold_the_same_items():
    task = SimpleNamespace(train=SimpleNamespace(total=100, per_item=4), strata=range(3))
    assert timing.choose_sizes([1, 14, 50, 500], task) == [14, 50, 100]
    assert timing.choose_sizes([1], task) == [12]


def test_as_many_runs_train_at_once_as_there_are_and_as_their_threads_or_devices_have_room_for(monkeypatch):
    monkeypatch.setattr(timing, "count_cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    trainer = SimpleNamespace(trainer=SimpleNamespace(devices=2))
    for accelerator, threads, most in (("cpu", 1, 4), ("cpu", 8, 1), ("gpu", 1, 1)):
        variant = SimpleNamespace(config=trainer, settled={"accelerator": accelerator, "threads": threads})
        assert [timing.choose_jobs({"a": variant}, runs) for runs in (1, 9)] == [1, most]
