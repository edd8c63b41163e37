"""The numbers of a step."""

import pytest
import torch

from tests.unit.training.test_fit import prepare_run
from vitlab.training.callbacks import Diverged
from vitlab.training.module import seed_dropout
from vitlab.training.train import train

TINY = ("recipe=adamw", "model.depth=1", "model.width=16", "model.heads=2", "recipe.batch_size=4")


def rows(folder, *words):
    run = prepare_run(folder, *TINY, "trainer.log_every=1", *words)
    train(run)
    return [{k: v for k, v in row.items() if not k.endswith(("_s", "per_s"))} for row in run.files.metrics()]


def test_rows_have_the_gradients_norm_with_and_without_clipping(tmp_path):
    plain = rows(tmp_path / "plain", "recipe.clip_norm=null")
    assert plain == rows(tmp_path / "loose", "recipe.clip_norm=1e6"), "which clips nothing"
    assert len({row["train/grad_norm"] for row in plain if "train/grad_norm" in row}) == 4
    clipped = rows(tmp_path / "clipped", "recipe.clip_norm=0.01")
    assert clipped[0]["train/grad_norm"] == plain[0]["train/grad_norm"], "the norm is that before clipping"
    assert clipped != plain


def test_a_training_loss_that_is_not_finite_ends_the_run_at_the_next_row(tmp_path):
    run = prepare_run(tmp_path / "run", *TINY, "trainer.log_every=3", "recipe.lr=1e30", "trainer.evaluations=1")
    with pytest.raises(Diverged, match=r"the loss is nan at step 3: try a lower recipe\.lr \(now 1e\+30\)"):
        train(run)


def test_dropout_is_seeded_as_torch_does_it():
    seed_dropout(2**31 + 5, torch.device("cpu"))
    found = torch.rand(7)
    torch.manual_seed(2**31 + 5)
    assert torch.equal(found, torch.rand(7))
