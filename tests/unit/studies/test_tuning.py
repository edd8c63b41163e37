"""Trials of a study that tunes: runs like others, of which the best on validation counts."""

import pytest

from vitlab.config import UserError, resolved
from vitlab.studies.grid import compose_models, compose_study, expand, list_study_changes, merge_variants
from vitlab.studies.results import Results, choose_trials, load_results
from vitlab.studies.store import StudyFiles
from vitlab.studies.worker import work

RATES = [1e-6, 0.05, 1e25]
TINY = ["data=digits", "sizes=[200]", "set=[recipe.batch_size=32]", "wandb.mode=off", "analyses=[]", "budget.steps=16"]


def study(*words, models="resnet_nano"):
    return compose_study("quick", [*TINY, f"models=[{models}]", "trainer.evaluations=2", *words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A study of three trials, by a worker that stops in the second and one that goes on."""
    files, config = StudyFiles(tmp_path_factory.mktemp("tuned") / "study"), study(f"tune.recipe.lr={RATES}")
    files.add_start(resolved(config), [spec[:3] for spec in expand(config, [200])])
    asked = iter([False] * 24 + [True] * 2)
    work(files.folder, 1, lambda: next(asked))
    assert len(files.finished_rows()) == 1
    work(files.folder, 1, lambda: False)
    return files


def test_a_trial_is_a_run_with_its_number_and_values_and_the_best_on_validation_counts(trained):
    rows, results = trained.finished_rows(), load_results(trained.folder)
    assert [(row["trial"], row["recipe.lr"], row["status"]) for row in rows] == [
        *((number, rate, "finished") for number, rate in enumerate(RATES[:2], 1)),
        (3, RATES[2], "diverged"),
    ]
    assert {row["model"] for row in rows} == {"resnet_nano"}
    assert rows[1]["validation_accuracy"] > rows[0]["validation_accuracy"]
    (chosen,) = results.rows
    assert (chosen["run"], chosen["tune_flops"]) == (
        "resnet_nano-trial-2-n200-s0",
        rows[0]["train_flops"] + rows[2]["train_flops"],
    )
    assert len(results.runs) == 3
    assert results.cells["mean"].tolist() == [rows[1]["accuracy"]]
    assert {path.name for path in trained.run(rows[0]["run"]).folder.iterdir()} >= {"heldout.npz", "log.txt"}


def test_a_choice_reads_validation_alone_and_of_equal_trials_the_lower_loss_counts():
    row = {"model": "m", "train_size": 10, "seed": 0, "train_flops": 1.0}
    found = [(0.8, 0.5, 0.1), (0.9, 0.5, 0.1), (0.7, 0.6, 0.3), (0.6, 0.6, 0.2), (None, None, None)]
    keys = ("accuracy", "validation_accuracy", "validation_loss")
    rows = [row | {"trial": k} | dict(zip(keys, values, strict=True)) for k, values in enumerate(found, 1)]
    assert [(one["trial"], one["tune_flops"]) for one in choose_trials(rows)] == [(4, 4.0)]
    assert Results(rows, outcomes={}).cells["mean"].tolist() == [0.6]
    assert choose_trials(rows[4:]) == rows[4:]


def test_trials_may_grow_and_not_change():
    old, more = (resolved(study(f"tune.recipe.lr={rates}")) for rates in ([1, 2], [1, 2, 3]))
    assert list_study_changes(more, old) == list_study_changes(old, more) == []
    assert merge_variants(old, more) == merge_variants(more, old) == {"tune": more["tune"]}
    other, none = (resolved(study(*words)) for words in (["tune.recipe.lr=[1,3]"], []))
    assert list_study_changes(other, old) == ["tune {'recipe.lr': [1, 2]} -> {'recipe.lr': [1, 3]}"]
    assert list_study_changes(none, old) == ["tune {'recipe.lr': [1, 2]} -> {}"]


def test_factors_are_of_each_model_s_own_values():
    models = compose_models(study("tune.recipe.lr=[x0.5,x2]", models="resnet_nano,vit_nano"))
    own = compose_models(study(models="resnet_nano,vit_nano"))
    assert {name: one.recipe.lr for name, one in models.items()} == {
        f"{name} trial={number}": by * one.recipe.lr for name, one in own.items() for number, by in ((1, 0.5), (2, 2))
    }


def test_trials_of_version_0_8_are_refused_in_one_line(tmp_path):
    files, config = StudyFiles(tmp_path), study("tune.recipe.lr=[1,2]")
    files.add_start(resolved(config), [("resnet_nano", 200, 0)])
    (tmp_path / "resnet_nano-n200-s0" / "tune" / "recipe.lr-1").mkdir(parents=True)
    with pytest.raises(UserError, match=r"has trials as vitlab 0\.8 kept them, below runs; give another --out$"):
        StudyFiles(tmp_path).config()
