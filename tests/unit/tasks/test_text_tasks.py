"""Language models, BERT and SpanBERT as tasks: what is predicted from what, and how well."""

import math

import numpy as np
import pytest
import torch

from tests.configurations import refused
from tests.learning import mean_loss
from tests.texts import MASK, STOP, TOKENIZER, WORDS, counting, text_data, texts
from vitlab import models, tasks
from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.loader import Items
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.models.counting import flops, meta
from vitlab.tasks.base import fill
from vitlab.tasks.language import SEED

TINY = {"gpt_nano": ["model.width=24", "model.heads=3"], "bert_nano": ["model.width=24", "model.heads=3"]}
TINY["lstm_nano"] = ["model.width=24"]
FOR = {"causal_lm": "gpt_nano", "masked_lm": "bert_nano", "span_lm": "bert_nano"}


def configuration(task, *words, model=None):
    model = model or FOR[task]
    return compose(TrainConfig, [f"task={task}", "data=pydoc", f"model={model}", *TINY[model], *words])


def task_of(task, *words, data=None, model=None):
    config = configuration(task, *words, model=model)
    return tasks.build(config.task, recipe=config.recipe, data=data or text_data(), data_config=config.data), config


def batch_of(task, rows, generator=None, split="train"):
    return task.prepare(Items(getattr(task, split)).__getitems__(list(rows)), generator)


def built(task, config):
    torch.manual_seed(3)
    return models.build(config.model, **task.shape)


@pytest.mark.parametrize("name", FOR)
def test_operations_of_an_example_are_counted(name):
    task, config = task_of(name)
    example = task.example()
    net = meta(config.model, **task.shape)
    forward, training = flops(net, task.shape, lambda net: task.loss(net, example))
    forward, body = sum(forward.values()), sum(flops(net, task.shape)[0].values())
    assert body <= forward < training
    head = 2 * 24 * task.shape["vocabulary"]
    predicted = {"causal_lm": 16, "masked_lm": math.ceil(0.15 * 16), "span_lm": 2 * (int(0.15 * 16) + 10)}[name]
    if name == "causal_lm":
        assert forward == body
    elif name == "masked_lm":  # transform, tokens; pooler, next sentence
        assert forward - body == predicted * (head + 2 * 24 * 24) + 2 * 24 * 24 + 2 * 24 * 2
    else:  # transform, boundary of three and one widths, tokens
        assert forward - body == predicted * head + (predicted // 2) * (2 * 24 * 24) * (1 + 3 + 1)


def test_a_language_models_metrics_are_those_by_hand():
    task, config = task_of("causal_lm", data=text_data(length=7))
    net, metrics = built(task, config).eval(), task.metrics()
    nats, unigram = [], []
    for rows in ([0, 1, 2], range(3, len(task.test))):
        batch = batch_of(task, rows, split="test")
        fill(metrics, task.measure(net, batch))
        tokens, following = batch
        chances = net(tokens).log_softmax(-1)
        for row, column in (following != IGNORE_INDEX).nonzero().tolist():
            nats.append(-chances[row, column, following[row, column]].item())
            unigram.append(following[row, column].item())
    found = metrics.compute()
    documents = counting(13, seed=1)
    stream = [token for row in documents for token in (*row, STOP)]
    assert unigram == stream[1:]
    assert found["loss"].item() == pytest.approx(np.mean(nats), rel=1e-4)
    assert found["perplexity"].item() == pytest.approx(math.exp(np.mean(nats)), rel=1e-4)
    size = 5 * sum(map(len, documents))
    assert found["bits_per_byte"].item() == pytest.approx(np.mean(nats) * len(stream) / size / math.log(2), rel=1e-4)
    stream = [t for row in counting(60) for t in (*row, STOP)]
    counts = np.bincount(stream[1 : len(task.train) * 7 + 1], minlength=TOKENIZER.size) + 1
    expected = math.exp(-np.mean(np.log(counts / counts.sum())[unigram]))
    assert found["unigram_perplexity"].item() == pytest.approx(expected, rel=1e-4)


def test_nothing_behind_a_text_is_predicted():
    task, config = task_of("causal_lm", "task.pack=documents", data=text_data(length=11))
    tokens, following = batch_of(task, range(len(task.train)))
    assert (tokens >= 0).all()
    assert not torch.isin(following, torch.tensor(TOKENIZER.special[:3])).any()
    net = built(task, config).eval()
    row = int((following == IGNORE_INDEX).any(dim=1).nonzero()[0])
    changed, last = tokens[row : row + 1].clone(), int((following[row] != IGNORE_INDEX).sum())
    changed[0, last:] = 17
    found, expected = (
        mean_loss(task, net, (one, following[row : row + 1])) for one in (changed, tokens[row : row + 1])
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("name", "words", "terms"),
    [
        ("masked_lm", [], ["masked_loss", "next_sentence_loss"]),
        ("masked_lm", ["task.sequences=stream"], []),
        ("span_lm", [], ["masked_loss", "boundary_loss"]),
    ],
)
def test_the_held_out_loss_is_the_sum_that_training_makes_small(name, words, terms):
    task, config = task_of(name, *words)
    net, metrics = built(task, config).eval(), task.metrics()
    whole = batch_of(task, range(len(task.test)), split="test")
    for rows in (range(5), range(5, len(task.test))):  # uneven batches
        fill(metrics, task.measure(net, batch_of(task, rows, split="test"), detailed=True))
    found = {key: value.item() for key, value in metrics.compute().items()}
    assert found["loss"] == pytest.approx(mean_loss(task, net, whole).item(), rel=1e-5)
    kept = whole.targets != IGNORE_INDEX
    logits = task.logits(net, whole)[0]
    masked = torch.nn.functional.cross_entropy(logits[kept], whole.targets[kept]).item()
    assert found["perplexity"] == pytest.approx(math.exp(masked), rel=1e-5)
    assert found["masked_accuracy"] == pytest.approx((logits.argmax(-1) == whole.targets)[kept].float().mean().item())
    assert {key for key in found if key.endswith("_loss")} == set(terms)
    if terms:
        assert found["masked_loss"] == pytest.approx(masked, rel=1e-5)
        assert found["loss"] == pytest.approx(sum(found[key] for key in terms), rel=1e-5)


def test_what_is_hidden_and_what_is_seen():
    task, _ = task_of("masked_lm", data=text_data(train=texts(counting(300)), length=24))
    whole = [batch_of(task, range(i, i + 50), torch.Generator().manual_seed(i)) for i in range(0, 400, 50)]
    plain = [torch.from_numpy(task.train.read(np.arange(i, i + 50)))[:, 0] for i in range(0, 400, 50)]
    chosen = kept = masked = 0
    for batch, tokens in zip(whole, plain, strict=True):
        filled = batch.targets != IGNORE_INDEX
        assert (tokens.gather(1, batch.places)[filled] == batch.targets[filled]).all()
        assert (batch.targets[filled] >= 6).all(), "special tokens are not predicted"
        seen = batch.tokens.gather(1, batch.places)[filled]
        chosen, masked = chosen + len(seen), masked + (seen == MASK).sum()
        kept += (tokens >= 6).sum()
        other = torch.ones_like(tokens, dtype=torch.bool).scatter(1, batch.places.where(filled, 0), False)
        other[:, 0] = True
        assert (batch.tokens[other] == tokens.where(tokens != IGNORE_INDEX, 0)[other]).all()
    assert chosen / kept == pytest.approx(0.15, abs=0.01)
    assert masked / chosen == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("name", ["masked_lm", "span_lm"])
def test_each_held_out_sequence_hides_what_its_number_alone_seeds(name):
    task, _ = task_of(name, "task.sequences=stream", data=text_data(length=61))
    rows = [4, 0, 6, 2]
    together = batch_of(task, rows, split="test")
    tokens = task.add_special_tokens(torch.from_numpy(task.test.read(np.array(rows))))
    for row, number in enumerate(rows):
        own = torch.Generator().manual_seed(SEED + number)
        alone = task.hide(tokens[row : row + 1], tokens[row : row + 1] > 5, own)
        assert torch.equal(together.tokens[row], alone[0][0])
        assert torch.equal(together.places[row], alone[1][0])
        assert torch.equal(together.targets[row] != IGNORE_INDEX, alone[2][0])


@pytest.mark.parametrize("name", ["masked_lm", "span_lm"])
def test_masking_is_dynamic_in_training_unless_it_is_static(name):
    task, _ = task_of(name)
    one, other = (batch_of(task, range(8), torch.Generator().manual_seed(seed)).tokens for seed in (1, 2))
    assert not torch.equal(one, other)
    static, _ = task_of(name, "task.masking=static")
    one, other = (batch_of(static, range(8), torch.Generator().manual_seed(seed)).tokens for seed in (1, 2))
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("causal_lm", ["task.pack=both"]),
        ("masked_lm", ["task.masking=some", "task.share=1.5"]),
        ("span_lm", ["task.sequences=pairs"]),
        ("causal_lm", ["recipe.mixup=0.8", "recipe.repeats=3"]),
        ("causal_lm", ["recipe.rand_augment.layers=2"]),
    ],
)
def test_options_that_mean_nothing_are_refused(name, words):
    assert [line.partition(": ")[0] for line in refused(task_of, name, *words)] == words


def test_texts_and_models_that_are_not_for_a_task_are_refused():
    with pytest.raises(UserError, match=r"shorter than data\.length=4096"):
        task_of("causal_lm", data=text_data(length=4096))
    for name, model, words, says in (
        ("causal_lm", "bert_nano", [], "give task=masked_lm"),
        ("masked_lm", "gpt_nano", [], "give model.causal=false"),
        ("causal_lm", "gpt_nano", ["model.mixer=fourier"], "needs model.mixer=attention"),
        ("masked_lm", "lstm_nano", ["model.causal=false", "model.width=23"], "needs an even width"),
    ):
        task, config = task_of(name, *words, model=model)
        with pytest.raises(UserError, match=says):
            built(task, config)
    assert TOKENIZER.size == WORDS + 6
