"""Span corruption as a task: what the model reads, what is the same each time."""

from dataclasses import replace

import pytest
import torch

from tests.learning import build_with_model
from tests.texts import ragged, texts
from tests.unit.tasks.test_text_tasks import batch_of
from vitlab.config import TrainConfig, compose
from vitlab.data import load
from vitlab.data.sequences import IGNORE_INDEX


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "counting.txt"
    path.write_text("\n\n".join(" ".join(str((n + k) % 10) for k in range(60)) for n in range(40)))
    words = ["task=span_corruption", "data=textfile", f"data.path={path}", "data.split_on=blank_line"]
    config = compose(TrainConfig, [*words, "data.tokenizer=characters", "data.length=24", "data.cache=never"])
    return load(config.data)


def build(shown, *overrides):
    return build_with_model(["task=span_corruption", "model.width=32", "model.heads=2", *overrides], shown)


def test_the_target_is_what_stands_in_the_spans(shown):
    task, _ = build(shown)
    raw = task.train.read([0, 3])
    batch = batch_of(task, [0, 3], torch.Generator().manual_seed(0))
    assert batch.inputs.shape == (2, 24), "sequences fill what the encoder reads"
    assert (batch.given[:, 0] == task.tokenizer.decoder_start).all()
    assert len(task.tokenizer.sentinels) == 100
    sentinels = torch.tensor([*task.tokenizer.sentinels, task.tokenizer.end, IGNORE_INDEX])
    for row, *parts in zip(raw.tolist(), batch.inputs, batch.following, strict=True):
        assert sorted(row) == sorted(torch.cat([part[~torch.isin(part, sentinels)] for part in parts]).tolist())
    assert task.tokenizer.size == task.shape["vocabulary"], "the tokenizer that the run saves has the sentinels"


def test_spans_are_drawn_anew_in_training_and_are_always_the_same_when_measured(shown):
    task, _ = build(shown)
    generator = torch.Generator().manual_seed(0)
    first, second = (batch_of(task, [1], generator).inputs for _ in range(2))
    assert not torch.equal(first, second)
    last = len(task.test) - 1  # not a whole sequence
    alone = batch_of(task, [last], split="test")
    beside = batch_of(task, [0, last], split="test")
    used = int((alone.following != IGNORE_INDEX).sum())
    assert torch.equal(alone.following[0, :used], beside.following[1, :used])
    assert alone.mask.sum() == beside.mask[1].sum() < 24


def test_pairs_are_texts_one_after_the_other(shown):
    pairs = replace(texts([[7] * 9, [8] * 9]), parts=(ragged([[7] * 9, [8] * 9]), ragged([[17] * 9, [18] * 9])))
    task, _ = build(replace(shown, train=pairs))
    end = task.tokenizer.document_end
    assert task.train.read([0])[0].tolist() == ([7] * 9 + [end] + [17] * 9 + [end] + [8] * 9)[: task.plan.tokens]
