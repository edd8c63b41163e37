"""A batch that is computed in parts has the loss and the gradients of the whole, whatever is drawn for its examples."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests import captioned, classified
from tests.texts import text_data
from vitlab import models, tasks
from vitlab.config import TrainConfig, compose
from vitlab.data.base import ImageData, Split
from vitlab.data.loader import Items, train_loader
from vitlab.data.parts import Part, PartGenerator, draw
from vitlab.training.module import TrainingModule

TINY = ["model.width=24", "model.heads=3", "model.depth=1"]
VIT = ["data=cifar10", "model=vit_nano", "model.patch_size=4", *TINY]
EVERYTHING = ["recipe.random_erasing=0.5", "data.augment.flip=true", "data.augment.shift=2"]
EVERYTHING += ["data.augment.crop_scale=[0.3,1]", "recipe.rand_augment.layers=2", "recipe.rand_augment.std=0.5"]
BERT = ["data=pydoc", "model=bert_nano", *TINY, "model.dropout=0"]


def images():
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (40, 3, 8, 12), dtype=np.uint8)
    split = Split(rng.integers(0, 5, 40), pictures.__getitem__)
    return ImageData("noise", tuple("abcde"), (8, 12), 3, split, split, split)


CASES = {
    "images": ([*VIT, *EVERYTHING], images),
    "mixed images": ([*VIT, *EVERYTHING, "recipe.mixup=0.3", "recipe.cutmix=1"], images),
    "captions": (
        ["task=captioning", "data=captioned_glyphs", "model=vit_caption_nano"],
        lambda: captioned.captioned(captions=2, size=(12, 12)),
    ),
    "next tokens": (["task=causal_lm", "data=pydoc", "model=gpt_nano", *TINY, "task.pack=documents"], text_data),
    "masked tokens": (["task=masked_lm", *BERT, "task.sequences=pairs"], text_data),
    "masked spans": (["task=span_lm", *BERT, "task.sequences=documents"], text_data),
    "tags": (["task=text_classification", *BERT], lambda: classified.data("tags", 24)),
    "classes and next tokens": (
        ["task=text_classification", "data=pydoc", "model=gpt_nano", *TINY, "task.auxiliary_lm=0.5"],
        lambda: classified.data("classes", 24),
    ),
}


def train_step(words, data, accumulate):
    """The loss of a step and the gradients."""
    config = compose(TrainConfig, [*words, "recipe.batch_size=12", "recipe.label_smoothing=0.1"])
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    torch.manual_seed(0)
    model = models.build(config.model, **task.shape).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # it draws for each part anew
    options = {"steps": 9, "seed": 5, "shape": task.shape, "classes": task.classes, "accumulate": accumulate}
    module = TrainingModule(model, task, config.recipe, **options, part=Part(context=task.context))
    backward = SimpleNamespace(backward=lambda loss, _: loss.backward())
    module._trainer = SimpleNamespace(strategy=backward, global_step=3)
    batch = Items(task.train).__getitems__(list(range(3, 15)))
    module.training_step(batch, 0).backward()
    return module.loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("case", CASES)
def test_parts_of_a_batch_add_up_to_it(case):
    words, data = CASES[case]
    data = data()
    loss, gradients = train_step(words, data, 1)
    for parts in (2, 6):
        found, of_parts = train_step(words, data, parts)
        torch.testing.assert_close(found, loss, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(of_parts, gradients, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("context", [0, 1, 3, 99])
def test_parts_read_and_draw_what_the_whole_does(context):
    whole = torch.rand(12, 3, generator=torch.Generator().manual_seed(7))
    rows = torch.arange(12)
    of_device = Part(1, 2, context)
    read = rows[of_device.places(12)]
    for part in of_device.split(3):
        generator = PartGenerator(torch.device("cpu"), part, 12).manual_seed(7)
        own = part.take(read, of_device, 12)
        assert own.tolist() == part.places(12).tolist()
        assert own[generator.context :].tolist() == [part.number * 2, part.number * 2 + 1]
        assert own[: generator.context].tolist() == [
            (own[generator.context] - k) % 12 for k in range(min(context, 10), 0, -1)
        ]
        assert torch.equal(draw(torch.rand, (len(own), 3), generator), whole[own])
    transposed = draw(torch.rand, (3, 12), torch.Generator().manual_seed(1), rows=1)
    generator = PartGenerator(torch.device("cpu"), of_device, 12).manual_seed(1)
    assert torch.equal(draw(torch.rand, (3, len(read)), generator, rows=1), transposed[:, read])


def test_devices_share_the_batches_of_a_run():
    split = Split(np.zeros(50, dtype=np.int64), lambda rows: rows[:, None].astype(np.int64))
    options = {"batch_size": 8, "steps": 9, "seed": 1, "repeats": 2}
    whole = [items[:, 0].tolist() for items, _ in train_loader(split, np.arange(50), **options)]
    halves = [
        [items[:, 0].tolist() for items, _ in train_loader(split, np.arange(50), **options, part=Part(device, 2))]
        for device in (0, 1)
    ]
    assert whole == [first + second for first, second in zip(*halves, strict=True)]
