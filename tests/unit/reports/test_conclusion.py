import math

import pytest

from vitlab.reports.results.summary import sentence, size_table

SIZES = (500, 2000, 8000, 32000)


def rows_of(models, families=None, sizes=SIZES, key="accuracy"):
    """Rows of results.csv from model -> one value per size, or one tuple of values per size, a value per seed."""
    found = []
    for model, curve in models.items():
        for size, values in zip(sizes, curve, strict=False):
            for seed, value in enumerate(values if isinstance(values, tuple) else (values,)):
                row = {"model": model, "family": (families or {}).get(model, model), "train_size": size, "seed": seed}
                found.append({**row, key: value})
    return found


def both(vit, resnet, **options):
    return sentence(rows_of({"vit": vit, "resnet": resnet}, **options))


def test_one_family_ahead_everywhere():
    assert both((0.4, 0.62, 0.78, 0.88), (0.782, 0.87, 0.93, 0.961)) == (
        "ResNet leads at every size up to 32,000; the gap shrinks from 38.2 to 8.1 points."
    )
    assert both((0.40, 0.40, 0.40), (0.42, 0.45, 0.50)).endswith("the gap grows from 2.0 to 10.0 points.")
    assert both((0.40, 0.50, 0.60), (0.601, 0.70, 0.80)).endswith("the gap stays near 20.0 points.")
    assert both((0.30, 0.60, 0.70), (0.60, 0.65, 0.76)).endswith("the gap shrinks from 30.0 to 6.0 points.")
    assert both((0.30, 0.60, 0.70), (0.60, 0.65, 0.77)).endswith("with 7.0 points at 8,000.")
    assert both((0.40, 0.50, 0.40), (0.50, 0.90, 0.60)).endswith(
        "the gap varies between 10.0 and 40.0, with 20.0 points at 8,000."
    )


def test_crossover_between_two_sizes():
    assert both((0.4, 0.6, 0.9, 0.98), (0.7, 0.8, 0.85, 0.96)) == (
        "ResNet leads up to 2,000 and ViT from 8,000, by 2.0 points at 32,000; the curves cross in between."
    )
    assert both((0.4, 0.6, 0.7, 0.98), (0.7, 0.8, 0.85, 0.96)) == (
        "ResNet leads up to 8,000 and ViT at 32,000, by 2.0 points; the curves cross in between."
    )


def test_two_crossings_are_not_told_as_one():
    found = both((0.4, 0.9, 0.5, 0.5), (0.5, 0.5, 0.6, 0.6))
    assert found == "ResNet leads at 500; ViT leads at 2,000; ResNet leads from 8,000, by 10.0 points at 32,000."


def test_many_changes_are_counted():
    found = sentence(rows_of({"vit": (0.5, 0.4) * 3, "resnet": (0.4, 0.5) * 3}, sizes=range(100, 700, 100)))
    assert found == "The order changes 5 times over 6 sizes; at 600 ResNet leads, by 10.0 points."


def test_ties_within_the_spread_over_seeds():
    vit = ((0.40, 0.44), (0.60, 0.62), (0.84, 0.86), (0.95, 0.97))
    assert both(vit, ((0.70, 0.72), (0.80, 0.81), (0.85, 0.86), (0.96, 0.965))) == (
        "ResNet leads up to 2,000; ResNet and ViT are level within the spread over seeds from 8,000."
    )
    assert both(vit, ((0.70, 0.72), (0.80, 0.81), (0.85, 0.86), (0.90, 0.91))) == (
        "ResNet leads up to 2,000; ResNet and ViT are level within the spread over seeds at 8,000; "
        "ViT leads at 32,000, by 5.5 points; the curves cross between 2,000 and 32,000."
    )
    assert both(vit[3:], ((0.94, 0.99),)) == (
        "ResNet (96.5%) and ViT (96.0%) are level in accuracy at 500 training examples within the spread over seeds."
    )


def test_one_seed_ties_only_when_the_numbers_are_the_same():
    assert both((0.5,) * 4, (0.5,) * 4) == "ResNet and ViT are level at every size up to 32,000."
    assert "leads" in both((0.500,) * 4, (0.501,) * 4)
    assert "leads" not in both((0.50044,) * 4, (0.50047,) * 4)


def test_single_size_and_single_model():
    assert both((0.4,), (0.5,)) == "ResNet leads ViT at 500 training examples: 50.0% accuracy against 40.0%."
    assert sentence(rows_of({"vit_nano": (0.4, 0.5)})) == (
        "vit_nano reaches 50.0% accuracy with 2,000 training examples, up from 40.0% with 500."
    )
    assert "down from 50.0%" in sentence(rows_of({"vit_nano": (0.5, 0.4)}))
    assert sentence(rows_of({"m": (0.4,)}, sizes=(1,))) == "m reaches 40.0% accuracy with 1 training example."


def test_best_model_of_each_family_at_each_size():
    families = {"vit_s": "vit", "vit_l": "vit"}
    models = {"vit_s": (0.50, 0.60, 0.65, 0.70), "vit_l": (0.30, 0.50, 0.70, 0.90), "resnet": (0.6, 0.7, 0.75, 0.8)}
    assert sentence(rows_of(models, families)) == (
        "ResNet leads up to 8,000 and ViT at 32,000, by 10.0 points; the curves cross in between."
    )
    del models["resnet"]
    assert sentence(rows_of(models, families)) == (
        "vit_s leads up to 2,000 and vit_l from 8,000, by 20.0 points at 32,000; the curves cross in between."
    )


def test_three_families():
    models = {"vit": (0.4, 0.5, 0.6, 0.7), "resnet": (0.6, 0.65, 0.7, 0.75), "mixer": (0.3, 0.4, 0.5, 0.6)}
    assert sentence(rows_of(models)) == (
        "ResNet leads at every size up to 32,000; the gap to the next best shrinks from 20.0 to 5.0 points."
    )
    assert sentence(rows_of(models, sizes=(500,))) == (
        "ResNet leads at 500 training examples with 60.0% accuracy, ahead of ViT (40.0%) and Mixer (30.0%)."
    )


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_did_not_finish_or_has_no_number(value):
    assert sentence([]) == "No run has finished yet."
    assert sentence(rows_of({"vit": (value,), "resnet": (value,)})) == (
        "No finished run has a result on the held-out data."
    )
    found = both((0.4, value, 0.6), (0.5, 0.6, 0.8))
    assert found.startswith("ResNet leads at each of the 2 sizes that can be compared, up to 8,000;")
    apart = rows_of({"vit": (0.4,)}) + rows_of({"resnet": (0.5,)}, sizes=(2000,))
    assert "no training-set size in common" in sentence(apart)


def test_lower_is_better():
    rows = rows_of({"lstm": (50.0, 30.0), "transformer": (60.0, 20.0)}, key="perplexity")
    assert sentence(rows) == (
        "In perplexity, LSTM leads at 500 and Transformer at 2,000, by 10.0 in perplexity; the curves cross in between."
    )


def test_size_table():
    rows = rows_of({"vit": ((0.40, 0.44), 0.6), "resnet": (0.5, None)})
    assert size_table(rows) == (
        ["training examples", "vit", "resnet"],
        [["500", "42.0 ± 2.8%", "50.0%"], ["2,000", "60.0%", "\N{EN DASH}"]],
    )
    assert size_table([]) == (["training examples"], [])
