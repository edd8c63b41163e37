"""The results of a study, loaded once from its folder."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tests.unit.reports.conftest import drawing  # noqa: F401 - reports without the files of their figures
from tests.unit.reports.html_page import Page
from tests.unit.reports.written_study import make_study
from vitlab.cli import main
from vitlab.commands.scale import show
from vitlab.config import TrainConfig, compose, resolved
from vitlab.files import write_json
from vitlab.reports.pages import study as study_page
from vitlab.reports.words import compare_sizes, headline, make_size_table, say_result
from vitlab.studies.results import Results, load_results
from vitlab.studies.rounds import Target, plan_round
from vitlab.studies.store import is_undertrained
from vitlab.tasks.metrics import find_metric
from vitlab.training.files import RunFiles

TEN = {str(name): [1, 2] for name in range(10)}
UNSEEN = {"validation_loss": 0.3}
OTHER_RECIPES = {"mixup": 0.2, "cutmix": 1.0, "class_weights": "balanced", "freeze": "body", "ema": 0.9, "average": 2}


def test_results_are_those_of_the_runs_folders_whatever_results_csv_says(tmp_path, capsys):
    study = make_study(tmp_path / "quick", sizes=(53, 59), seeds=(0,), failed=0)
    assert main(["report", str(study.folder)]) == 0
    written = [study.report_path, *(study.folder / "tables" / f"results.{suffix}" for suffix in ("md", "tex"))]
    assert capsys.readouterr().out.splitlines() == [*map(str, written)]
    rows, page, table = study.finished_rows(), study.report_path.read_text(), study.results_path.read_bytes()
    for damage in (
        lambda: study.results_path.unlink(),
        lambda: study.write_rows([{**row, "accuracy": 0.1} for row in rows[1:]]),
        lambda: study.results_path.write_text("broken"),
    ):
        damage()
        before = study.results_path.exists() and study.results_path.read_bytes()
        capsys.readouterr()
        assert main(["sync", str(study.folder)]) == 0
        assert capsys.readouterr().out.count("its offline files are gone") == 4
        assert load_results(study.folder).rows == rows
        assert (study.results_path.exists() and study.results_path.read_bytes()) == before, "a reader writes nothing"
    assert main(["report", str(study.folder)]) == 0
    assert (study.report_path.read_text(), study.results_path.read_bytes()) == (page, table)


def test_a_run_that_was_changed_deleted_or_completed_since_the_table_counts_as_it_is(tmp_path):
    study = make_study(tmp_path / "quick", sizes=(53, 59), seeds=(0,), failed=0)
    first, gone, *_ = (study.run(row["run"]) for row in study.finished_rows())
    write_json(first.result_path, first.result() | {"accuracy": 0.25, "fewshot_5": 0.5})
    shutil.rmtree(gone.folder)
    rows = load_results(study.folder).rows
    assert (len(rows), rows[0]["accuracy"], rows[0]["fewshot_5"]) == (3, 0.25, 0.5)


def test_the_copy_of_a_runs_folder_is_not_another_run(tmp_path):
    study = make_study(tmp_path / "quick", sizes=(53,), seeds=(0,), failed=0)
    rows = load_results(study.folder).rows
    shutil.copytree(study.run(rows[0]["run"]).folder, study.folder / "backup")
    assert load_results(study.folder).rows == rows
    shutil.rmtree(study.run(rows[0]["run"]).folder)
    assert {row["run"] for row in study.finished_rows()} == {"backup", rows[1]["run"]}, "a renamed folder is a run"


def test_only_the_cells_that_were_asked_for_are_missing(tmp_path, capsys):
    """Two starts, of other models and other sizes, are not the product of both."""
    study = make_study(tmp_path / "quick", models={"vit_nano": "vit"}, sizes=(53, 59), seeds=(0,), failed=0)
    study.add_start({**study.config(), "models": ["resnet_nano"]}, [("resnet_nano", 61, 0)])
    results = load_results(study.folder)
    assert results.unfinished == ["resnet_nano-n61-s0"]
    assert study_page.collect_caveats(results)[-1] == "1 run has not finished."
    results.rows[0] |= {"finetune_flops": 3e12}
    runs, *_, compute = study_page.make_tiles(results)
    assert (runs["value"], compute["value"]) == ("2 of 3", "7.20 TFLOP")
    assert main(["eval", str(study.folder)]) == 2
    assert f"give one of its finished runs, such as {study.folder}/vit_nano-n53-s0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tuned_on", "tune", "advised"),
    [
        ("[glyphs]", {}, True),
        ("[glyphs]", {"recipe.lr": [0.1, 0.2]}, False),
        ("[glyphs,pointer,fashion_mnist]", {}, False),
    ],
)
def test_recipes_that_were_tuned_on_few_other_data_are_named_with_the_words_that_tune_them(
    tuned_on, tune, advised, tmp_path, capsys
):
    study = make_study(tmp_path / "quick", sizes=(53, 59), seeds=(0,), failed=0)
    study.write_config({**study.config(), "data": {"name": "digits", "image_size": 24}, "tune": tune})
    for row in study.finished_rows():
        words = [f"model={row['model']}", "data=digits", f"recipe.tuned_on={tuned_on}"]
        study.run(row["run"]).write_config(resolved(compose(TrainConfig, words)))
    results = load_results(study.folder)
    show(results, {})
    shown = " ".join(capsys.readouterr().out.split())
    for text in (shown, Page(study_page.write_report(results).read_text()).text):
        assert ("recipes vit_nano and resnet_nano were tuned on glyphs, not on digits" in text) is advised
        assert ("tune.recipe.lr=[x0.5,x1,x2]" in text) is advised


# ---- every number right


def make_rows(curves, seeds=3, spread=0.02, sizes=(250, 1_000, 4_000, 16_000), **columns):
    """Rows of models with accuracies `curves[model]` at the sizes, seeds scattered by `spread`."""
    rng = np.random.default_rng(1)
    return [
        {"run": f"{model}-n{size}-s{seed}", "model": model, "family": model, "train_size": size, "seed": seed}
        | {
            "accuracy": float(accuracy + spread * rng.standard_normal()),
            "test_items": 200,
            "train_items": size,
            **columns,
        }
        for model, values in curves.items()
        for size, accuracy in zip(sizes, values, strict=True)
        for seed in range(seeds)
    ]


CURVES = {"a": (0.50, 0.60, 0.70, 0.75), "b": (0.55, 0.62, 0.68, 0.71)}


def half_width(rows, size=16_000, **options):
    return Results(rows, outcomes={}, **options).gap("a", "b", size).estimate.half_width


@pytest.mark.parametrize("holdout", ["repeated", None])
def test_a_run_that_failed_does_not_make_an_interval_narrower(holdout):
    """Uneven seeds keep the spread of the other sizes, and the correction for test sets that overlap."""
    for seed in range(10):
        rows = make_rows(CURVES, spread=0.01 + 0.002 * seed, holdout=holdout)
        whole, failed = half_width(rows), half_width([row for row in rows if row["run"] != "b-n16000-s2"])
        assert whole <= failed <= 2 * whole


def test_seeds_that_share_their_test_items_vary_too_little_with_uneven_seeds_too():
    rows = [row for row in make_rows(CURVES, sizes=(100, 200, 400, 800)) if row["run"] != "b-n800-s2"]
    drawn = [{**row, "holdout": "repeated"} for row in rows]
    assert half_width(drawn, 800) > 1.2 * half_width(rows, 800)
    even = make_rows(CURVES, sizes=(100, 200, 400, 800))
    grown = (1 + 3 * 200 / 800) ** 0.5  # three seeds, 200 test items of 800 to train on
    drawn, shared = ([{**row, "holdout": of} for row in even] for of in ("repeated", None))
    drawn, shared = (Results(rows, outcomes={}).gap("a", "b", 800).estimate for rows in (drawn, shared))
    assert drawn.error == pytest.approx(grown * shared.error)


def test_a_size_of_one_seed_has_the_spread_of_the_others_and_says_so():
    rows = make_rows({"a": (0.5, 0.6, 0.7, 0.80), "b": (0.5, 0.6, 0.7, 0.75)}, spread=0.03)
    rows = [row for row in rows if row["train_size"] < 16_000 or row["seed"] == 0]
    results = Results(rows, outcomes={run["run"]: np.arange(200) < 200 * run["accuracy"] for run in rows})
    last = results.gaps.iloc[-1]
    assert last.verdict == "undecided", "five points are within the spread of a seed"
    assert last.high - last.low > 2 * 1.96 * 0.03
    assert "One seed with 16,000: its interval borrows the spread of other sizes." in say_result(results)


@pytest.mark.parametrize(
    ("key", "columns"),
    [("bleu", {}), ("rouge_l", {}), ("f1", {}), ("mae", {}), ("pearson", {}), ("accuracy", {"holdout": "repeated"})],
)
def test_one_seed_without_an_interval_leads_nowhere(key, columns):
    """Also where each seed has test items of its own."""
    rows = [
        {"run": model, "model": model, "family": model, "train_size": 400, "seed": 0, key: value, "metric": key}
        | {"test_items": 100, "train_items": 400, **columns}
        for model, value in (("a", 0.2), ("b", 0.7))
    ]
    results = Results(rows)
    results.run_files = {row["run"]: SimpleNamespace(outcomes=None) for row in rows}
    (gap,) = results.gaps.itertuples()
    assert gap.verdict == "undecided"
    first, *_, last = say_result(results)
    assert "undecided" in first.lower()
    assert "leads" not in first
    assert "(one seed)" in first
    assert last == "One seed each: no interval."
    assert re.fullmatch(r"undecided \(one seed\): . ahead by .*", make_size_table(results).body[0][-1])


def test_no_mistakes_are_not_certainty():
    rows = make_rows({"a": (1.0,), "b": (1.0,)}, seeds=2, spread=0, sizes=(100,))
    results = Results(rows, outcomes={})
    cell, gap = results.cells.iloc[0], results.gaps.iloc[0]
    assert cell.high == 1.0
    assert cell.low <= 1 - 3 / 200
    assert gap.high >= 3 / 200
    items = {row["run"]: np.ones(200) for row in rows}
    assert Results(rows, outcomes=items).cells.iloc[0].low == pytest.approx(1 - 3 / 200)


def test_the_best_model_of_a_family_is_chosen_on_validation_items():
    values = {"a1": (0.80, 0.84), "a2": (0.82, 0.80), "b": (0.7, 0.7)}  # on test and on validation items
    rows = [
        {"run": model, "model": model, "family": model[0], "train_size": 100, "seed": 0, "accuracy": test}
        | {"validation_accuracy": validation}
        for model, (test, validation) in values.items()
    ]
    results = Results(rows, outcomes={})
    assert results.contenders == {"a": {100: "a1"}, "b": {100: "b"}}
    assert "Each family is shown by its best model on validation." in say_result(results)
    without = Results([{**row, "validation_accuracy": None} for row in rows], outcomes={})
    assert without.contenders["a"] == {100: "a2"}
    assert any("which flatters" in text for text in say_result(without))


@pytest.mark.parametrize(("models", "better", "fewest", "most"), [("abcd", 0, 0, 4), ("abcd", 4, 60, 100)])
def test_the_best_of_several_models_is_told_from_all_others_at_once(models, better, fewest, most):
    """Of equal models one is rarely named best, the one that is better by 4 spreads is in most of 100 studies."""
    named, rng = 0, np.random.default_rng(0)
    for _ in range(100):
        curves = {model: (0.8 + 0.01 * better * (model == "a"),) for model in models}
        rows = make_rows(curves, 3, 0.0, sizes=(100,))
        rows = [{**row, "accuracy": row["accuracy"] + 0.01 * rng.standard_normal()} for row in rows]
        (one,) = compare_sizes(Results(rows, outcomes={}), {m: {100: m} for m in models}).values()
        named += one.verdict == "lead" and one.best == "a" if better else one.verdict == "lead"
    assert fewest <= named <= most


@pytest.mark.parametrize(("shared", "said"), [(0.03, "equal seeds paired by their correlation, 0."), (0, "not paired")])
def test_seeds_are_paired_as_far_as_the_table_shows_them_to_go_together(shared, said):
    luck = shared * np.random.default_rng(2).standard_normal(5)
    rows = [{**row, "accuracy": row["accuracy"] + luck[row["seed"]]} for row in make_rows(CURVES, 5, 0.01)]
    results = Results(rows, outcomes={})
    assert said in make_size_table(results).note
    assert (results.correlation > 0.7) is bool(shared)


def test_chance_is_beaten_by_the_interval_that_the_table_shows():
    rows = make_rows({"a": (0.34, 0.35, 0.40, 0.50)}, spread=0.02, seeds=5, holdout="repeated", chance=0.33)
    drawn = Results([{**row, "train_items": 800, "test_items": 200} for row in rows], outcomes={})
    for cell in drawn.cells.itertuples():
        assert cell.beats_chance == (cell.low > 0.33)
    assert not drawn.cells.beats_chance.iloc[0]


# ---- undertrained cells


def judge_one(tmp_path, recipe=None, losses=(2.0, 1.0), task="classification", model="vit", **columns):
    """Whether a run that was evaluated with these losses is undertrained."""
    run = RunFiles(tmp_path / "run")
    config = {"task": {"kind": task}, "model": {"kind": model}, "trainer": {"evaluations": 2}, "recipe": recipe or {}}
    run.write_config({**config, "data": {}, "seed": 0})
    rows = [{"step": 50 * place, "validation/loss": loss} for place, loss in enumerate(losses, 1)]
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return is_undertrained(run, {"train_sample_loss": 0.5, "validation_loss": 1.0, "steps": 100, **columns})


@pytest.mark.parametrize(
    ("columns", "undertrained"),
    [
        ({"train_sample_loss": 0.31}, True),
        ({"train_sample_loss": 0.29}, False),
        ({"train_sample_loss": 0.0}, False),
        ({"train_sample_loss": None}, False),
        ({"validation_loss": None}, False),
        ({"validation_accuracy": 1}, False),  # no budget makes it better
        ({"validation_accuracy": 0.99}, True),
        ({"validation_loss": 0.0}, False),
        ({"losses": (1.0, 1.005)}, True),
        ({"losses": (1.0, 1.02)}, False),  # more steps made it worse
        ({"losses": ()}, True),
        ({"kept_step": 50}, False),  # the best weights are not the last
        ({"kept_step": 100}, True),
        ({"recipe": {"patience": 1}, "losses": (1.0,)}, False),  # it ended before its budget
        ({"recipe": {"patience": 1}}, True),
        # of 10 classes smoothed by .1 a model that has learned each by heart has a loss of .0943
        ({"recipe": {"label_smoothing": 0.1}, "train_sample_loss": 0.0943, "validation_loss": 0.3}, False),
        ({"recipe": {"label_smoothing": 0.1}, "by_class": TEN, "train_sample_loss": 0.0943, **UNSEEN}, False),
        ({"recipe": {"label_smoothing": 0.1}, "by_class": TEN, "train_sample_loss": 0.2, **UNSEEN}, True),
        ({"recipe": {"label_smoothing": 0.1}, "by_class": TEN, "validation_loss": 0.09}, False),
        ({"recipe": {"label_smoothing": 0.0, "mixup": 0.0, "freeze": None}}, True),
        *(({"recipe": {key: value}}, False) for key, value in OTHER_RECIPES.items()),
        *(
            ({"task": task}, False)
            for task in ("text_classification", "language", "seq2seq", "regression", "multilabel")
        ),
        ({"model": "color_histogram"}, False),  # it cannot learn its items by heart
    ],
)
def test_a_run_that_fits_its_own_items_hardly_better_than_new_ones_is_undertrained(columns, undertrained, tmp_path):
    assert judge_one(tmp_path, **columns) is undertrained


@pytest.mark.parametrize(
    ("runs", "undertrained"),
    [((True, True, False), True), ((True, False, False), False), ((True, False), False), ((True,), True), ((), False)],
)
def test_the_middle_run_says_whether_a_cell_is_undertrained(runs, undertrained):
    rows = [{"model": "vit", "train_size": 100, "seed": seed, "accuracy": 0.5} for seed in range(len(runs) or 2)]
    rows = [{**row, "undertrained": of_run} for row, of_run in zip(rows, runs, strict=True)] if runs else rows
    assert Results(rows, outcomes={}).by_model["vit"][100].undertrained is undertrained


# ---- metrics without bounds


def errors_of(key, factor, seeds=3):
    curves = {"a": (3.0, 2.0), "b": (3.3, 2.1)}
    return [
        {"model": model, "train_size": size, "seed": seed, "accuracy": None, "metric": key}
        | {key: factor * value * (1 + 0.03 * seed * (size / 100) ** 0.1)}  # no ties: rounding would break them
        for model, values in curves.items()
        for size, value in zip((100, 200), values, strict=True)
        for seed in range(seeds)
    ]


@pytest.mark.parametrize("key", ["mae", "loss", "bits_per_byte", "perplexity"])
def test_an_error_without_bounds_is_compared_by_ratios_so_its_unit_does_not_matter(key):
    texts, rounds = [], []
    for factor in (1.0, 400.0):
        rows = errors_of(key, factor)
        texts.append(say_result(Results(rows, {}, outcomes={})))
        rounds.append(plan_round(rows, Target(1.0)))
    assert texts[0] == texts[1]
    assert rounds[0] == rounds[1]
    assert find_metric(key).describe_margin(1) == "1%"


def test_an_error_of_0_has_a_place_on_the_scale_of_ratios():
    rows = [
        {**row, "run": f"{row['model']}{row['train_size']}{row['seed']}", "loss": 0.0} for row in errors_of("loss", 1)
    ]
    results = Results(rows, outcomes={row["run"]: np.zeros(9) for row in rows})
    assert np.isfinite(results.cells["mean"]).all()
    assert say_result(results)


def test_the_headline_says_how_much_more_compute_a_family_needs_for_the_same_accuracy():
    rows = [
        {"run": f"{family}{at}{seed}", "model": f"{family}{at}", "family": family, "train_size": 800, "seed": seed}
        | {"accuracy": accuracy + 0.01 * seed, "train_flops": factor * 10**at}
        for family, factor in (("vit", 3.0), ("resnet", 1.0))
        for at, accuracy in ((9, 0.6), (10, 0.8), (11, 0.9))
        for seed in (0, 1, 2)
    ]
    assert "At 91.0% ViT needs 3 (" in headline(Results(rows, outcomes={}))[1]
    assert Results([row for row in rows if row["model"][-1] == "9"], outcomes={}).compute is None, "one cost each"
