"""A batch that is computed in parts has the loss and the gradients of the whole where nothing is drawn at random."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests import captioned, classified
from tests.texts import text_data
from vitlab.config import TrainConfig, compose
from vitlab.data.base import ImageData, Split
from vitlab.data.loader import Items, Part, train_loader
from vitlab.training.distributed import ALONE, Ranks
from vitlab.training.module import TrainingModule
from vitlab.training.run import plan_run, start_run

TINY = ["model.width=24", "model.heads=3", "model.depth=1"]
VIT = ["data=cifar10", "model=vit_nano", "model.patch_size=4", *TINY]
AUGMENTED = ["recipe.random_erasing=0.5", "data.augment.flip=true", "data.augment.shift=2"]
AUGMENTED += ["recipe.rand_augment.layers=2", "recipe.mixup=0.3"]
PLAIN = ["data.augment.flip=false", "data.augment.shift=0"]
BERT = ["data=pydoc", "model=bert_nano", *TINY, "model.dropout=0"]
STATIC = ["task.masking=static"]


def images():
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (40, 3, 8, 12), dtype=np.uint8)
    split = Split(rng.integers(0, 5, 40), pictures.__getitem__)
    return ImageData("noise", tuple("abcde"), (8, 12), 3, split, split, split)


CASES = {
    "images": ([*VIT, *PLAIN], images),
    "captions": (
        ["task=captioning", "data=captioned_glyphs", "model=vit_caption_nano", *PLAIN],
        lambda: captioned.captioned(size=(12, 12)),
    ),
    "next tokens": (["task=causal_lm", "data=pydoc", "model=gpt_nano", *TINY, "task.pack=documents"], text_data),
    "masked tokens": (["task=masked_lm", *BERT, *STATIC, "task.sequences=pairs"], text_data),
    "masked spans": (["task=span_lm", *BERT, *STATIC, "task.sequences=documents"], text_data),
    "tags": (["task=text_classification", *BERT], lambda: classified.data("tags", 24)),
    "numbers": (["task=text_classification", *BERT], lambda: classified.data("numbers", 24)),
    "classes and next tokens": (
        ["task=text_classification", "data=pydoc", "model=gpt_nano", *TINY, "task.auxiliary_lm=0.5"],
        lambda: classified.data("classes", 24),
    ),
}


def build_module(words, data, ranks=ALONE):
    """The module in its step 3, without dropout, and a batch of 12."""
    config = compose(TrainConfig, [*words, "recipe.batch_size=12", "recipe.label_smoothing=0.1"])
    run = start_run(plan_run(config, data), "nowhere", ranks)
    for module in run.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    module = TrainingModule(run)
    backward = SimpleNamespace(backward=lambda loss, _: loss.backward())
    module._trainer = SimpleNamespace(strategy=backward, global_step=3)
    return module, Items(run.task.train).__getitems__(list(range(3, 15)))


def train_step(words, data, accumulate):
    """The loss of a step and the gradients."""
    module, batch = build_module([*words, f"trainer.accumulate={accumulate}"], data)
    module.training_step(batch, 0).backward()
    return module.loss, {name: p.grad for name, p in module.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("case", CASES)
def test_parts_of_a_batch_add_up_to_it(case):
    words, data = CASES[case]
    data = data()
    loss, gradients = train_step(words, data, 1)
    for parts in (2, 6):
        found, of_parts = train_step(words, data, parts)
        torch.testing.assert_close(found, loss, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(of_parts, gradients, rtol=1e-3, atol=2e-6)


def test_what_a_part_draws_depends_on_its_number_in_the_batch_not_on_who_computes_it():
    alone, batch = build_module([*VIT, *AUGMENTED, "trainer.accumulate=4"], images())
    parts = [alone.prepare(batch, number) for number in range(4)]
    for device in range(2):
        half = [Part(device, 2).of(rows) for rows in batch]
        shared, _ = build_module([*VIT, *AUGMENTED, "trainer.accumulate=2"], images(), Ranks(device, 2))
        for number in range(2):
            assert shared.step_seed("dropout", number) == alone.step_seed("dropout", 2 * device + number)
            for own, expected in zip(shared.prepare(half, number), parts[2 * device + number], strict=True):
                assert torch.equal(own, expected)
    again = alone.prepare([rows[:3].repeat(4, *[1] * (rows.ndim - 1)) for rows in batch], 1)
    assert not torch.equal(again[0], parts[0][0]), "the same images as the first part's"


def test_devices_share_the_batches_of_a_run():
    split = Split(np.zeros(50, dtype=np.int64), lambda rows: rows[:, None].astype(np.int64))
    options = {"batch_size": 8, "steps": 9, "seed": 1, "repeats": 2}
    whole = [items[:, 0].tolist() for items, _ in train_loader(split, np.arange(50), **options)]
    halves = [
        [items[:, 0].tolist() for items, _ in train_loader(split, np.arange(50), **options, part=Part(device, 2))]
        for device in (0, 1)
    ]
    assert whole == [first + second for first, second in zip(*halves, strict=True)]
