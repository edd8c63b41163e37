"""Captions: what a batch holds, what is learned, how several right answers are scored."""

import pytest
import torch

from tests import learning
from tests.captioned import captioned
from tests.configurations import refused
from tests.learning import learn_by_heart
from vitlab.data.loader import Items
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.models import build
from vitlab.tasks.base import fill
from vitlab.tasks.measures import score_captions, score_exact_match

TINY = ["task=captioning", "data.image_size=[10,14]", "model.encoder.patch_size=[5,14]", "model.depth=1"]
TINY += ["model.encoder.depth=1", "recipe=adamw", "recipe.lr=5e-3", "recipe.betas=[0.9,0.95]"]


def built(data, *words):
    return learning.build([*TINY, *words], data)


def batch_of(task, rows, generator=None):
    return task.prepare(Items(task.test).__getitems__(rows), generator)


def test_a_decoder_reads_a_caption_and_predicts_its_next_tokens():
    task, _ = built(captioned())
    batch = batch_of(task, [0, 1, 2])
    assert batch.inputs.shape == (3, 1, 10, 14)
    assert batch.given.shape == batch.following.shape == (3, 4)
    assert batch.given[:, 0].tolist() == [task.tokenizer.decoder_start] * 3
    assert torch.equal(batch.given[:, 1:], batch.following[:, :-1])
    assert [task.decode(row) for row in batch.following] == ["dark above grey", "dark above light", "grey above dark"]
    assert batch.following[:, -1].tolist() == [task.tokenizer.end] * 3


def test_training_takes_any_of_a_pictures_captions_and_evaluation_compares_with_all():
    task, _ = built(captioned(captions=2))
    drawn = {
        task.decode(row[row != IGNORE_INDEX])
        for seed in range(20)
        for row in batch_of(task, [0, 1], torch.Generator().manual_seed(seed)).following
    }
    assert drawn == {"dark above grey", "dark above light", "the light below dark"}
    batch = batch_of(task, [0, 1])
    assert task.read(batch)[0] == [("dark above grey",), ("dark above light", "the light below dark")]
    assert set(task.metrics(detailed=True)["texts"].scores) == {score_captions}


def test_the_nearest_of_several_captions_counts():
    scores = score_captions(["a cat sat on the mat", "two dogs"], [("no", "a cat sat on the mat"), ("two dogs",)])
    assert scores["rouge_l"] == pytest.approx(1.0)
    assert scores["bleu"] == pytest.approx(100.0)
    assert score_captions(["a cat sat on the mat", "two dogs"], [("no",), ("two dogs",)])["rouge_l"] == pytest.approx(
        0.5
    )


def test_captions_of_small_pictures_are_learned_and_counted_as_exact_matches():
    torch.manual_seed(1)
    task, config = built(captioned())
    batch = batch_of(task, list(range(12)))
    found, _ = learn_by_heart(task, build(config.model, **task.shape), batch, steps=160, rate=5e-3)
    assert found["exact_match"] == 1.0
    assert found["outcomes"].shape == (2, 12)


@pytest.mark.parametrize(("captions", "score"), [(1, score_exact_match), (2, score_captions)])
def test_captions_are_compared_as_read_also_where_the_tokenizer_loses_a_part(captions, score):
    lossy = {"tokenizer": "characters", "lowercase": True, "vocabulary": 20, "target_length": 24}  # 7 are special
    task, config = built(captioned(captions, count=6, written=lambda text: f"{text.title()} \u2603", **lossy))
    batch, model = batch_of(task, list(range(6))), build(config.model, **task.shape).eval()
    task.write = lambda *_: [task.decode(row[row != IGNORE_INDEX]) for row in batch.following]
    metrics = task.metrics(detailed=True)
    fill(metrics, task.measure(model, batch, detailed=True))
    found, read = metrics.compute(), [row[0] for row in task.read(batch)[0]] if captions > 1 else task.read(batch)[0]
    assert read[1] == "Dark Above Light \u2603"
    wanted = score(task.write(), task.read(batch)[0])
    assert {name: float(found[name]) for name in wanted} == pytest.approx(wanted)
    assert found["bleu" if captions > 1 else "exact_match"] < 50 * (captions - 1) + 0.01


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("recipe.mixup=0.2", "a caption does not say what it makes of a picture"),
        ("model=vit_nano", "is not for task=captioning; choices: vit_caption_nano"),
        ("model.encoder=resnet_nano", "gives no tokens of patches"),
        ("model.heads=5", "does not divide model.width=64"),
        ("model.encoder.heads=5", "does not divide model.encoder.width=64"),
        ("model.encoder.patch_size=3", "3 does not divide the image height of 10 pixels"),
    ],
)
def test_what_does_not_go_with_captions_is_one_line(word, says):
    own = ("model.encoder=", "model.encoder.patch")
    base = [given for given in TINY if "patch_size" not in given or not word.startswith(own)]
    data = captioned()
    assert any(line.startswith(f"{word}: {says}") for line in refused(learning.build, [*base, word], data))
