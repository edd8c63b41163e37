"""A run that was stopped or killed ends as one that was not: with the same weights and rows, bit for bit.

That of two devices is in tests/unit/training/test_devices.py, that of tar shards in test_webdataset.py.
"""

import itertools

import pytest

from tests.integration import commands
from tests.integration.commands import TINY, assert_same_training, rows
from tests.integration.test_train import EVERYTHING, RANDOM
from vitlab.config import TrainConfig, compose
from vitlab.studies.experiment import train_run
from vitlab.training.loop import Interrupted

GPT = ["task=causal_lm", "model=gpt_nano", "model.width=24", "model.depth=2", "model.dropout=0.2", "data=textfile"]
RUNS = {
    "vit_nano, everything random, the best average": ["model=vit_nano", *RANDOM, *EVERYTHING, "recipe.keep=best"],
    "resnet_nano, checkpoints averaged": ["model=resnet_nano", "recipe.average=3"],
    "gpt_nano": [*GPT, "data.length=16", "data.vocabulary=300", "train_size=0.5", "recipe.batch_size=8"],
}


def interrupt(config, folder, asked):
    """Train until a stop is asked for."""
    calls = itertools.count(1)
    with pytest.raises(Interrupted):
        train_run(config, folder, stop=lambda: next(calls) >= asked)
    assert not (folder / "result.json").exists()


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_a_run_that_is_stopped_twice_ends_as_one_that_is_not(words, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(f"the {n % 7} cats see {n % 11} dogs" for n in range(300)))
    data = [f"data.path={tmp_path / 'text.txt'}"] if "data=textfile" in words else ["train_size=50"]
    words = [*TINY, *data, *words, "budget.steps=14", "analyses=[]", "wandb.mode=off"]
    config = compose(TrainConfig, words)
    train_run(config, tmp_path / "whole")
    interrupt(config, tmp_path / "parts", asked=4)
    interrupt(config, tmp_path / "parts", asked=3)  # where the stop meets the evaluation of step 7
    train_run(config, tmp_path / "parts")
    assert_same_training(tmp_path / "whole", tmp_path / "parts")
    # as after a crash between the last step and the result: nothing is trained or written twice
    (tmp_path / "parts" / "result.json").unlink()
    train_run(config, tmp_path / "parts")
    assert_same_training(tmp_path / "whole", tmp_path / "parts")


def test_killed_in_the_middle_training_ends_with_the_same_weights_and_loses_no_row(tmp_path):
    words = [*TINY, *RANDOM, *EVERYTHING, "budget.steps=36", "train_size=90", "trainer.checkpoint_every=0.2"]
    words += ["wandb.mode=off", "analyses=[]"]
    folder = tmp_path / "killed"
    program = commands.Program("train", *words, "--out", folder)
    program.wait_for(lambda: (folder / "checkpoints" / "last.ckpt").exists() and len(rows(folder)) >= 3)
    program.kill()
    assert not (folder / "result.json").exists()
    commands.succeed("train", *words, "--out", folder)
    commands.succeed("train", *words, "trainer.workers=1", "--out", tmp_path / "whole")
    assert_same_training(tmp_path / "whole", folder)
