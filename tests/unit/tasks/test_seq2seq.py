"""Targets that are generated from a source: what a batch is, the loss, what is decoded."""

import warnings
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.learning import build_with_model, learn_by_heart
from tests.texts import END, START, TOKENIZER, WORDS, pairs_of, ragged, text_data, texts
from vitlab import models
from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.loader import eval_loader
from vitlab.data.opening import open_data
from vitlab.tasks.base import by_length, evaluate
from vitlab.tasks.measures import score_translation
from vitlab.training.writer import TextGenerator, write_lines

S, T = 11, 7  # tokens of a source and of a target


def pairs(count, seed=0):
    """A target is its source backwards."""
    generator = np.random.default_rng(seed)
    rows = [6 + generator.integers(0, WORDS, generator.integers(1, 6)) for _ in range(count)]
    return pairs_of(rows, [row[::-1] for row in rows])


def data(count=23):
    def decode(ids):
        return " ".join(str(i) for i in ids if i > 5)

    tokenizer = SimpleNamespace(**vars(TOKENIZER), decode=decode)
    found = text_data(pairs(count), pairs(5, seed=1), length=S)
    return replace(found, tokenizer=tokenizer, target_length=T, exact=True)


def build(*overrides, shown=None):
    words = ["task=translation", "model.width=32", "model.heads=2", "model.depth=2", *overrides]
    return build_with_model(words, shown or data())


def batch_of(task, split="train", size=64):
    return task.prepare(next(iter(eval_loader(getattr(task, split), batch_size=size))))


def test_a_batch_is_what_a_decoder_reads_and_predicts_without_needless_padding():
    task, _ = build(
        shown=replace(data(), train=replace(texts([[7, 8, 9]]), parts=(ragged([[7, 8, 9]]), ragged([[7]]))))
    )
    batch = batch_of(task)
    assert batch.inputs.tolist() == [[7, 8, 9, END]]
    assert batch.mask.all()
    assert batch.given.tolist() == [[START, 7]]
    assert batch.following.tolist() == [[7, END]]


def test_pairs_beyond_the_length_are_said_and_cut_or_left_out_or_refused_held_out_ones_too():
    rows = [list(range(6, 36)), [7]]
    long = replace(texts(rows), parts=(ragged(rows), ragged(rows)))
    whole = ragged([[7] * (S - 1)]), ragged([[7] * (T - 1)])  # with its end each fills the length
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(shown=replace(data(), train=replace(texts([[7]]), parts=whole)))
    shown = replace(data(), train=long, test=replace(pairs_of(rows, [[8], [8]])))
    line = rf"1 of 2 training pairs, 1 of 2 held-out pairs are longer in tokens than data.length={S} or data.target_le"
    with pytest.warns(UserWarning, match=f"{line}.*: cut there; task.long=leave_out leaves them out"):
        cut, _ = build(shown=shown)
    batch = batch_of(cut)
    assert batch.inputs[0].tolist() == [*range(6, 16), END]
    assert batch.following[0].tolist() == [*range(6, 12), END]
    assert cut.read(batch_of(cut, "test"))[1][0] == " ".join(map(str, rows[0]))  # scores read it whole
    with pytest.warns(UserWarning, match=f"{line}.*: left out"):
        left, _ = build("task.long=leave_out", shown=shown)
    assert [batch_of(left, split).inputs.tolist() for split in ("train", "test")] == [[[7, END]], [[7, END]]]
    with pytest.raises(UserError, match=f"{line}.*; give data.length=31 data.target_length=31, or task.long=cut|leave"):
        build("task.long=refuse", shown=shown)
    with pytest.raises(UserError, match=r"1 of 1 held-out pairs .*=31, or task.long=cut$"):
        build("task.long=leave_out", shown=replace(shown, test=replace(pairs_of(rows[:1], [[8]]))))


def test_a_test_takes_a_fixed_random_part_in_batches_by_length():
    shown = replace(data(), test=pairs(200, seed=1))
    whole, part, again = (
        build(*keys, shown=shown)[0] for keys in ((), ("task.test_items=50",), ("task.test_items=50", "seed=3"))
    )
    rows = [row.tolist() for row in part.test.read(np.arange(50))]
    assert rows == again.test.read(np.arange(50)).tolist()
    of_all = [row.tolist() for row in whole.test.read(np.arange(200))]
    places = [of_all.index(row) for row in rows]
    assert max(places) > 100  # not the first ones
    assert len(build("task.test_items=500", shown=shown)[0].test) == 200
    lengths = (part.test.read(by_length(part.test))[:, :S] >= 0).sum(axis=1)
    assert lengths.tolist() == sorted(lengths, reverse=True)
    assert len({*lengths}) > 2


@pytest.mark.parametrize("model", ["transformer_nano", "gpt_nano"])  # the latter reads one sequence
def test_a_reversal_is_learned_by_heart_and_decoded(model):
    task, model = build("recipe.label_smoothing=0", f"model={model}", shown=data(7))
    found, _ = learn_by_heart(task, model, batch_of(task), steps=150, rate=5e-3)
    assert found["exact_match"] == 1
    assert found["loss"] < 0.2  # label smoothing leaves about 0.1
    assert found["outcomes"].shape == (2, 7)


def test_a_run_scores_what_it_writes_as_generate_does_also_where_the_tokenizer_loses_a_part(tmp_path):
    rows = [f"wort {n}\tWord {n} \u2603" for n in range(9)]  # upper case, and a character that training texts lack
    for name, lines in (("train", [row[:-2] for row in rows]), ("test", rows)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["de\ten", *lines]))
    words = [f"data.{key}={tmp_path / name}.tsv" for key, name in (("path", "train"), ("test_path", "test"))]
    words += ["data=tsv", "data.text=[de,en]", "data.tokenizer=characters", "data.lowercase=true", "data.length=16"]
    data = open_data(compose(TrainConfig, ["task=translation", *words]).data)
    task, model = build(*words, shown=data)
    learn_by_heart(task, model, batch_of(task, "test"), steps=60, rate=5e-3)
    found = evaluate(model, task, task.test, nullcontext(), 0, detailed=True).compute()
    sources, wanted = zip(*(row.split("\t") for row in rows), strict=True)
    writer = TextGenerator(model, data.tokenizer, task.search)
    written = write_lines(writer, [writer.encode(text) for text in sources], T, task.search, 4, lambda *_: None)
    assert written[2].startswith("word 2")
    assert {name: float(found[name]) for name in ("bleu", "chrf")} == pytest.approx(score_translation(written, wanted))
    assert found["bleu"] < 50


def test_data_without_targets_and_models_without_a_decoder_are_refused():
    with pytest.raises(UserError, match="data=made: has 1 text an item; task=translation needs a source and a target"):
        build(shown=text_data())
    with pytest.raises(UserError, match="model=gpt_nano: has no decoder that reads a source"):
        build("model=gpt_nano", "task.one_sequence=false")
    config = compose(TrainConfig, ["task=causal_lm", "model=transformer_nano"])
    with pytest.raises(UserError, match="writes a target from a source; give task=translation"):
        models.build(config.model, vocabulary=9, length=8, head="next_token")
