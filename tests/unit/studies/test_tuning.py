"""Trials of a study that tunes: runs like others, of which the best on validation counts."""

from itertools import combinations, product

import numpy as np
import pytest

from vitlab.config import resolved
from vitlab.config.checks import list_settings
from vitlab.studies.grid import compose_models, compose_study, expand, list_study_changes, merge_variants
from vitlab.studies.results import Results, choose_trials, load_results
from vitlab.studies.store import StudyFiles
from vitlab.studies.worker import work

RATES = [1e-6, 0.05, 1e25]
TINY = [
    "data=digits",
    "sizes=[200]",
    "seeds=[0]",
    "set=[recipe.batch_size=32]",
    "wandb.mode=off",
    "analyses=[]",
    "budget.steps=16",
]


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
    assert chosen["run"] == "resnet_nano-trial-2-n200-s0"
    assert results.effort.loc["resnet_nano"].to_dict() == {
        "steps": sum(row["steps"] for row in rows),
        "FLOPs": sum(row["train_flops"] for row in rows),
        "hours": pytest.approx(sum(row.get("wall_s") or 0 for row in rows) / 3600),
        "trials": "3",
    }
    assert len(results.runs) == 3
    assert results.cells["mean"].tolist() == [rows[1]["accuracy"]]
    assert {path.name for path in trained.run(rows[0]["run"]).folder.iterdir()} >= {"heldout.npz", "log.txt"}


def test_a_choice_reads_validation_alone_and_of_equal_trials_the_lower_loss_counts():
    row = {"model": "m", "train_size": 10, "seed": 0}
    found = [(0.8, 0.5, 0.1), (0.9, 0.5, 0.1), (0.7, 0.6, 0.3), (0.6, 0.6, 0.2), (None, None, None)]
    keys = ("accuracy", "validation_accuracy", "validation_loss")
    rows = [row | {"trial": k} | dict(zip(keys, values, strict=True)) for k, values in enumerate(found, 1)]
    assert [one["trial"] for one in choose_trials(rows)] == [4]
    assert Results(rows, outcomes={}).cells["mean"].tolist() == [0.6]
    assert choose_trials(rows[4:]) == rows[4:]
    by_f1 = [one | {"metric": "macro_f1", "validation_macro_f1": 1 / k} for k, one in enumerate(rows[:4], 1)]
    assert [one["trial"] for one in choose_trials(by_f1)] == [1]  # a study may be about another metric


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


def draw_trials(rng, missing):
    """Eight trials of two seeds; on validation some tie, some of these with the same loss; some are missing."""
    rows = []
    for seed, trial in product(range(2), range(1, 9)):
        value, loss = rng.integers(0, 3) / 10, rng.integers(0, 2) / 10
        row = {"run": f"s{seed}-t{trial}", "model": "m", "train_size": 10, "seed": seed, "trial": trial}
        row |= {"accuracy": rng.random(), "validation_accuracy": value, "validation_loss": loss, "test_items": 50}
        rows.append(row | ({"accuracy": None} if trial in missing else {}))
    return rows


@pytest.mark.parametrize("missing", [(), (1,), (2, 3, 7), range(2, 9)])
@pytest.mark.parametrize("best_of", range(1, 9))
def test_the_best_of_k_is_expected_as_the_mean_over_all_choices_of_k(best_of, missing):
    rows = draw_trials(np.random.default_rng(best_of), missing)
    means = []
    for seed in range(2):
        trials = combinations([row for row in rows if row["seed"] == seed], best_of)
        finished = [[row for row in some if row["accuracy"] is not None] for some in trials]
        order = lambda row: (-row["validation_accuracy"], row["validation_loss"])  # noqa: E731
        best = [min(some, key=order) for some in finished if some]
        means.append(np.mean([row["accuracy"] for row in best]))
    items = {row["run"]: np.full(50, row["accuracy"]) for row in rows if row["accuracy"] is not None}
    results = Results(rows, outcomes=items)
    found = results.expect_best(best_of)
    assert [row["accuracy"] for row in found.rows] == pytest.approx(means, abs=1e-12)
    assert [found.outcomes[row["run"]].mean() for row in found.rows] == pytest.approx(means)
    assert results.best_of.query("trials == @best_of")["mean"].tolist() == pytest.approx([np.mean(means)])
    if best_of == 8:
        assert [row["accuracy"] for row in results.rows] == pytest.approx(means)


def test_the_luck_of_the_recipes_widens_intervals_and_is_the_same_at_all_sizes():
    rng, rows = np.random.default_rng(0), []
    for model, size, seed, trial in product("ab", (10, 20), range(3), range(1, 9)):
        value = 0.7 + 0.02 * trial + 0.001 * rng.standard_normal()
        row = {"run": f"{model}{size}{seed}{trial}", "model": model, "train_size": size, "seed": seed, "trial": trial}
        rows.append(row | {"accuracy": value, "validation_accuracy": value})
    drawn, given = (Results(rows, {"tune": tune}, outcomes={}) for tune in ({"a": "log(1,2)", "trials": 8}, {"a": []}))
    one, alone = drawn.expect_best(2), given.expect_best(2)
    assert alone.luck == {}, "the values of a grid are no luck"
    assert np.corrcoef(one.luck["a", 10], one.luck["a", 20])[0, 1] > 0.99
    assert abs(np.corrcoef(one.luck["a", 10], one.luck["b", 10])[0, 1]) < 0.1
    for size in (10, 20):
        wide, narrow = (some.by_model["a"][size].interval.half_width for some in (one, alone))
        assert wide > 5 * narrow
        assert one.gap("a", "b", size).estimate.error > 5 * alone.gap("a", "b", size).estimate.error
    spread = np.std([0.02 * trial for trial in range(1, 9)])
    assert drawn.expect_best(1).luck["a", 10].std() == pytest.approx(spread / 8**0.5, rel=0.05)


def test_ranges_are_drawn_by_one_sequence_whose_first_points_are_a_design_of_their_own():
    tune = {"recipe.lr": "log(1e-3, 3e-2)", "recipe.weight_decay": "uniform(0, .3)", "recipe.warmup": [0, 0.05, 0.2]}
    drawn = list_settings({**tune, "trials": 64})
    assert list_settings({**tune, "trials": 11}) == drawn[:11]
    rates, decays, warmups = (np.array([values[key] for values in drawn]) for key in tune)
    shares = np.log(rates / 1e-3) / np.log(30), decays / 0.3
    for share in shares:
        assert np.histogram(share, 8, (0, 1))[0].tolist() == [8] * 8
    assert {*warmups} == {0, 0.05, 0.2}
    assert all(17 <= (warmups == value).sum() <= 26 for value in (0, 0.05, 0.2))
    own = compose_models(study("tune.recipe.lr=log(x0.1,x10)", "tune.trials=4"))
    other = compose_models(study("tune.recipe.lr=log(x0.1,x10)", "tune.trials=4", "set=[recipe.lr=1e-3]"))
    times = [one.recipe.lr / 1e-3 for one in other.values()]
    base = compose_models(study())["resnet_nano"].recipe.lr
    assert [one.recipe.lr / base for one in own.values()] == pytest.approx(times, rel=1e-4)
