"""The average of the weights: by hand after some steps, in evaluation, and where it would be stale."""

import json
import re

import pytest
import torch
from rich.console import Console

import vitlab as api
from tests.integration.commands import TINY, vitlab
from tests.runs import train_run
from vitlab.config import TrainConfig, UserError, compose
from vitlab.studies.grid import compose_study
from vitlab.studies.plan import plan_study
from vitlab.training import optim
from vitlab.training.finished import read_checkpoint
from vitlab.training.loop import Loop

DECAY = 0.7
WORDS = [*TINY, "trainer.evaluations=4", "train_size=40", "recipe.batch_size=16", "wandb.mode=off", "analyses=[]"]
STEPS = 6


def weights(folder, key="state_dict"):
    return read_checkpoint(folder / "checkpoints" / "last.ckpt")[key]


def test_the_average_is_the_one_by_hand_and_is_what_counts(tmp_path, monkeypatch):
    words = [*WORDS, "model=resnet_nano", f"budget.steps={STEPS}"]  # BatchNorm's statistics are averaged too
    plain = compose(TrainConfig, [*words, "trainer.evaluations=1", "trainer.checkpoint_every=0"])
    path = []  # the weights after each step, of training without an average: the average does not change them
    save = Loop.save

    def keep(self, trainer):
        save(self, trainer)
        path.append(weights(tmp_path / "plain"))

    monkeypatch.setattr(Loop, "save", keep)
    train_run(plain, tmp_path / "plain")
    monkeypatch.undo()
    assert len(path) == STEPS

    result = train_run(compose(TrainConfig, [*words, f"recipe.ema={DECAY}"]), tmp_path / "ema")
    found = weights(tmp_path / "ema")
    for key in found:
        expected = path[0][key]
        for later in path[1:]:
            expected = DECAY * expected + (1 - DECAY) * later[key]
        if found[key].is_floating_point():
            torch.testing.assert_close(found[key], expected)
    assert any(not torch.equal(found[key], path[-1][key]) for key in found)

    train_run(compose(TrainConfig, [*words, "recipe.average=3"]), tmp_path / "checkpoints")  # after steps 4, 5 and 6
    for key, value in weights(tmp_path / "checkpoints").items():
        if value.is_floating_point():
            torch.testing.assert_close(value, sum(later[key] for later in path[-3:]) / 3)

    loaded = api.load_run(tmp_path / "ema").model.state_dict()
    assert all(torch.equal(loaded[key.removeprefix("model.")], value) for key, value in found.items())
    rows = [json.loads(line) for line in (tmp_path / "ema" / "metrics.jsonl").read_text().splitlines()]
    validation = {row["step"]: row["validation/loss"] for row in rows if "validation/loss" in row}
    assert sorted(validation) == [2, 4, 6]
    assert result["loss"] != pytest.approx(validation[6]), "of other images"
    evaluated = json.loads(vitlab("eval", tmp_path / "ema", "--json").stdout)
    assert result["loss"] == pytest.approx(evaluated["loss"], rel=1e-5), "of the average"


@pytest.mark.parametrize(("ema", "steps"), [(0.99996, 1000), (0.99, 60), (0.6, 2)])
def test_an_average_that_would_still_be_the_beginning_is_refused(ema, steps):
    options = compose(TrainConfig, [f"recipe.ema={ema}"]).recipe
    with pytest.raises(UserError, match=r"recipe\.ema=0\.\d+: after \d+ steps \d\d% of the average") as caught:
        optim.refuse_stale_average(options, steps)
    advice = float(str(caught.value).partition("give recipe.ema=")[2].partition(" ")[0])
    optim.refuse_stale_average(compose(TrainConfig, [f"recipe.ema={advice}"]).recipe, steps)


def test_a_run_has_as_many_checkpoints_as_it_averages():
    recipe = compose(TrainConfig, ["recipe.average=7"]).recipe
    with pytest.raises(UserError, match=r"recipe\.average=7: the run has only 6 steps; give at most 6"):
        optim.refuse_stale_average(recipe, 6)
    optim.refuse_stale_average(recipe, 7)
    recipe = compose(TrainConfig, ["recipe.average=100"]).recipe
    for steps in (100, 150, 199, 2050):
        averaged = optim.list_averaged_steps(recipe, steps)
        assert (len(averaged), min(averaged) > 0, averaged[-1]) == (100, True, steps)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["recipe=deit"], "recipe.ema=0.99996: after 6 steps 100%"),
        (["model=color_histogram", "recipe=muon"], "recipe.optimizer=muon: Muon needs linear layers"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused_before_anything_is_written(words, says, tmp_path):
    with pytest.raises(UserError, match=re.escape(says)):
        train_run(compose(TrainConfig, [*WORDS, "budget.steps=6", *words]), tmp_path / "run")
    study = compose_study(
        "quick", ["data=digits", "sizes=[100]", "budget.steps=6", "models=[color_histogram]", words[-1]]
    )
    with pytest.raises(UserError, match=re.escape(says)):
        plan_study(study, jobs=1, console=Console())
    assert not (tmp_path / "run").exists()
