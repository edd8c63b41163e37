"""Summaries by an encoder-decoder and by a language model, the lead baseline, and the parts of a mixture."""

from dataclasses import replace

import numpy as np
import pytest

from tests.learning import build_with_model
from tests.texts import END, PAD, SEPARATOR, pairs_of, ragged, texts
from tests.unit.tasks.test_seq2seq import batch_of, data
from vitlab.data.sequences import IGNORE_INDEX

HELD_OUT = ("validation", "test")
SIZES = ["model.width=32", "model.heads=2", "model.depth=2"]


def build(model, shown, *overrides):
    return build_with_model(["task=summarization", f"model={model}", *SIZES, *overrides], shown)


def summaries(count=23):
    """A summary is the last two tokens of its text."""
    generator = np.random.default_rng(0)
    rows = [6 + generator.integers(0, 40, generator.integers(3, 9)) for _ in range(count)]
    return pairs_of(rows, [row[-2:] for row in rows])


def test_a_language_model_reads_the_source_and_predicts_only_the_target():
    rows = [[7, 8, 9, 10], [11]]
    shown = replace(data(), train=replace(texts(rows), parts=(ragged(rows), ragged([[21], [22, 23]]))))
    task, _ = build("gpt_nano", shown)
    batch = batch_of(task)
    none = IGNORE_INDEX
    assert batch.given.tolist() == [[7, 8, 9, 10, SEPARATOR, 21], [11, SEPARATOR, 22, 23, END, PAD]]
    assert batch.following.tolist() == [[none, none, none, none, 21, END], [none, 22, 23, END, none, none]]
    assert batch.inputs[batch.mask].tolist() == [7, 8, 9, 10, SEPARATOR, 11, SEPARATOR]
    assert task.inputs(batch).mask.sum(1).tolist() == [6, 5]
    assert task.shape["length"] >= 11 + 7, "room for the longest source and target"


def test_the_lead_baseline_has_as_many_words_as_summaries_in_the_mean():
    rows = [[7, 8, 9, 10], [11, 12, 13, 14]]
    task, _ = build("transformer_nano", replace(data(), **dict.fromkeys(HELD_OUT, pairs_of(rows, [[8], [13, 12, 11]]))))
    assert task.words == 2
    metrics, batch = task.metrics(detailed=True), batch_of(task, "test")
    for name, given in task.compare_texts(batch, *[["8", "13 12 11"]] * 2, task.read(batch)[1]).items():
        metrics[name].update(*given)
    found = metrics["texts"].compute() | metrics["lead"].compute()
    assert found["rouge_l"] == 1
    # "7 8" against "8": precision 1/2, recall 1; "11 12" against "13 12 11": one word in order of 2 and of 3
    assert float(found["rouge_l_lead"]) == pytest.approx((2 / 3 + 2 / 5) / 2)


def test_each_part_of_a_mixture_has_its_own_scores():
    mixed = replace(summaries(), labels=np.arange(23) % 2)
    shown = replace(data(), train=mixed, **dict.fromkeys(HELD_OUT, mixed), classes=("even", "odd"))
    task, _ = build("transformer_nano", shown)
    batch, metrics = batch_of(task, "test"), task.metrics(detailed=True)
    wanted, sources = task.read(batch)
    written = [text if row % 2 else "" for row, text in enumerate(wanted)]
    for name, given in task.compare_texts(batch, written, wanted, sources).items():
        metrics[name].update(*given)
    for part, right in (("even", 0), ("odd", 1)):
        found = metrics[f"texts_{part}"].compute()
        assert found[f"exact_match_{part}"] == found[f"rouge_l_{part}"] == right
    assert task.strata == ("even", "odd"), "each training subset has its share of both"
