"""Choices on validation go by task.metric: on a set where a tenth of the items is of the second class."""

import numpy as np
import pytest

from tests.runs import train_run
from vitlab.config import TrainConfig, compose, identity, resolved
from vitlab.data.base import ImageData, Split
from vitlab.tasks.metrics import find_metric
from vitlab.training.files import RunFiles


def split(count, seed):
    """Plain pictures, those of every tenth item brighter, with brightnesses that overlap."""
    labels = (np.arange(count) % 10 == 9).astype(np.int64)
    level = np.random.default_rng(seed).normal(100 + 50 * labels, 25).clip(0, 255)
    return Split(labels, np.tile(level[:, None, None, None], (1, 1, 8, 8)).astype(np.uint8).__getitem__)


def load(config):
    return ImageData("uneven", ("often", "rare"), (8, 8), 1, split(300, 0), split(100, 1), split(200, 2))


@pytest.fixture
def trained(tmp_path):
    """Trains a run; gives its result, its folder and the last step and metrics of each evaluation."""
    (tmp_path / "uneven.yaml").write_text(f"kind: {__name__}\n")
    tiny = [f"data={tmp_path / 'uneven.yaml'}", "model=resnet_nano", "recipe.batch_size=32", "wandb.mode=off"]
    tiny += ["analyses=[]", "budget.steps=24", "trainer.precision=32-true", "trainer.evaluations=8", "seed=1"]

    def train(*words):
        folder = tmp_path / "run"
        result = train_run(compose(TrainConfig, [*tiny, *words]), folder)
        return result, folder, [row for row in RunFiles(folder).metrics() if "validation/accuracy" in row]

    return train


def step_of_best(rows, metric):
    return max(rows, key=lambda row: (row[f"validation/{metric}"], -row["validation/loss"]))["step"]


def test_the_best_weights_and_the_end_go_by_the_metric_of_the_study(trained):
    words = ["task.metric=macro_f1", "recipe.keep=best", "recipe.patience=2", "recipe.class_weights=balanced"]
    result, _, rows = trained(*words)
    best = step_of_best(rows, "macro_f1")
    assert best != step_of_best(rows, "accuracy"), "the set cannot tell them apart"
    assert (result["kept_step"], result["steps"]) == (best, best + 2 * 3)
    kept = next(row for row in rows if row["step"] == best)
    for name in ("accuracy", "macro_f1", "loss"):
        assert result[f"validation_{name}"] == pytest.approx(kept[f"validation/{name}"], rel=1e-4)


def test_a_run_that_chooses_nothing_has_the_metric_on_validation_too(trained):
    result, _, rows = trained("task.metric=macro_f1")
    assert result["validation_macro_f1"] == pytest.approx(rows[-1]["validation/macro_f1"], rel=1e-4)
    assert "kept_step" not in result


def test_a_smaller_calibration_error_is_better():
    assert find_metric("calibration_error").lead(0.1, 0.2) > 0


CHOOSING = ("recipe.keep=best", "recipe.patience=2")


@pytest.mark.parametrize("choosing", [[], *([word] for word in CHOOSING)])
def test_the_metric_is_part_of_a_run_s_identity_where_it_chooses(choosing):
    one, other = (
        identity(resolved(compose(TrainConfig, ["data=digits", *choosing, *words])), "contents")
        for words in ([], ["task.metric=macro_f1"])
    )
    assert (one != other) == bool(choosing)
