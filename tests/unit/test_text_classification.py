"""Text classification: metrics against scikit-learn and SciPy, batches learned by heart, padding without effect."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, matthews_corrcoef

from vitlab import models, tasks
from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.loader import Items, eval_loader
from vitlab.data.packing import NOTHING
from vitlab.data.text import NO_TAG, Ragged, TextData, Texts
from vitlab.training.run import train_flops

LENGTH, V = 13, 31
GPT = SimpleNamespace(pad=0, start=1, separator=2, end=3, document_end=3, size=V)
TINY = ["model.width=24", "model.depth=2"]
BODIES = {
    "bert": ["model=bert_nano", *TINY, "model.heads=3"],
    "gpt": ["model=gpt_nano", *TINY, "model.heads=3"],
    "lstm": ["model=lstm_nano", *TINY],
    "lstm both ways": ["model=lstm_nano", "model.causal=false", *TINY],
}
KINDS = ("classes", "pairs", "both orders", "choices", "numbers", "tags")


def ragged(rows):
    starts = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return Ragged(np.concatenate(rows).astype(np.int32), starts)


def texts(kind, count, seed=0):
    """`count` texts of 2 to 9 tokens, each with the first token of its own."""
    rng = np.random.default_rng(seed)
    parts = {"pairs": 2, "both orders": 2, "choices": 4}.get(kind, 1)
    rows = [[rng.integers(4, V, rng.integers(2, 10)) for _ in range(count)] for _ in range(parts)]
    tags = targets = None
    if kind == "tags":
        tags = ragged([np.where(row % 4 == 0, NO_TAG, row % 5) for row in rows[0]])
    if kind == "numbers":
        targets = rng.normal(70.0, 20.0, count).astype(np.float32)
    labels = rng.permutation(np.arange(count) % 3).astype(np.int64)
    return Texts(tuple(map(ragged, rows)), labels, targets, tags, size=0)


def data(kind="classes", count=17, **changes):
    classes = {"tags": tuple("abcde"), "numbers": ()}.get(kind, tuple("xyz"))
    splits = {"train": texts(kind, count), "test": texts(kind, count, seed=1)}
    return TextData(**{"name": "toy", "classes": classes, "length": LENGTH, "tokenizer": GPT, **splits, **changes})


def build(kind="classes", *words, of=None):
    """(task, configuration)"""
    words = [*BODIES["bert"], *words] if not any(word.startswith("model=") for word in words) else words
    options = ["task.both_orders=true"] if kind == "both orders" else []
    config = compose(TrainConfig, ["task=text_classification", *words, *options])
    found = tasks.build(config.task, recipe=config.recipe, data=of or data(kind), data_config=config.data)
    return found, config


def whole(task, split="train", rows=None):
    split = getattr(task, split)
    return task.prepare(Items(split).__getitems__(list(range(len(split)) if rows is None else rows)))


class Fixed(torch.nn.Module):
    """Logits that were drawn beforehand, the next ones at each call."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.seen = logits, 0
        self.text = SimpleNamespace(heeds_mask=True)

    def forward(self, tokens, mask, segments):
        first, self.seen = self.seen, self.seen + len(tokens)
        return (
            self.logits[first : self.seen, : tokens.shape[1]]
            if self.logits.dim() == 3
            else self.logits[first : self.seen]
        )


def measured(task, logits, batch_size=7):
    """The metrics of a model with such logits, over batches the last of which is short."""
    metrics, model = task.metrics(detailed=True), Fixed(logits)
    for batch in eval_loader(task.test, batch_size=batch_size):
        task.update(metrics, model, task.prepare(batch))
    return {name: value.tolist() for name, value in metrics.compute().items()}


# ---- metrics


@pytest.mark.parametrize("classes", [2, 3])
def test_metrics_of_classes_are_scikit_learns(classes):
    toy = data(classes=tuple("xyz")[:classes])
    toy.test.labels[:] %= classes
    task, _ = build(of=toy)
    logits = torch.randn(17, classes)
    found, y, guess = measured(task, logits), toy.test.labels, logits.argmax(1).numpy()
    assert found["accuracy"] == pytest.approx(accuracy_score(y, guess))
    average = {"average": "binary"} if classes == 2 else {"average": "macro"}
    assert found["f1"] == pytest.approx(f1_score(y, guess, **average))
    assert found["matthews"] == pytest.approx(matthews_corrcoef(y, guess))
    assert found["loss"] == pytest.approx(F.cross_entropy(logits, torch.from_numpy(y)).item())
    assert found["confusion_matrix"] == confusion_matrix(y, guess).tolist()
    assert {"calibration_error", "reliability"} <= found.keys()


def test_metrics_of_numbers_are_scipys_in_standard_deviations_of_training():
    task, _ = build("numbers")
    train, test = (getattr(data("numbers"), split).targets for split in ("train", "test"))
    guess = torch.randn(17, 1)
    found = measured(task, guess)
    assert found["pearson"] == pytest.approx(pearsonr(guess[:, 0], test).statistic, abs=1e-5)
    assert found["spearman"] == pytest.approx(spearmanr(guess[:, 0], test).statistic, abs=1e-5)
    standard = (test - train.mean()) / train.std()
    assert found["loss"] == pytest.approx(((guess[:, 0].numpy() - standard) ** 2).mean(), rel=1e-5)
    assert (set(task.metrics()), task.classes) == ({"loss", "pearson", "spearman"}, ())
    assert measured(task, torch.full((17, 1), 0.5))["pearson"] == 0, "undefined for a constant"


@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_of_tags_count_the_tokens_that_carry_one(classes):
    toy = data("tags", classes=tuple("abcde")[:classes])
    tags = toy.test.tags
    tags.values[tags.values != NO_TAG] %= classes
    task, _ = build(of=toy)
    logits = torch.randn(17, LENGTH, classes)
    pairs = [
        (int(tag), int(logits[row, 1 + place].argmax()), logits[row, 1 + place])
        for row in range(17)
        for place, tag in enumerate(tags[row])
        if tag != NO_TAG
    ]
    y, guess, rows = zip(*pairs, strict=True)
    found = measured(task, logits)
    assert found["accuracy"] == pytest.approx(accuracy_score(y, guess))
    assert found["f1"] == pytest.approx(f1_score(y, guess, average="macro"))
    assert found["loss"] == pytest.approx(F.cross_entropy(torch.stack(rows), torch.tensor(y)).item(), rel=1e-5)


def test_metrics_of_choices_compare_the_outputs_of_one_item():
    task, _ = build("choices")
    logits = torch.randn(17 * 3, 1)
    by_item, y = logits.view(17, 3), data("choices").test.labels
    found = measured(task, logits)
    assert found["accuracy"] == pytest.approx(accuracy_score(y, by_item.argmax(1)))
    assert found["loss"] == pytest.approx(F.cross_entropy(by_item, torch.from_numpy(y)).item())
    assert not {"f1", "confusion_matrix"} & found.keys()


def test_both_orders_are_added():
    task, _ = build("both orders")
    logits = torch.randn(17 * 2, 3)
    added, y = logits.view(17, 2, 3).sum(1), data("both orders").test.labels
    assert measured(task, logits)["loss"] == pytest.approx(F.cross_entropy(added, torch.from_numpy(y)).item())


# ---- training


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", ["bert", "gpt", "lstm"])
def test_a_batch_is_learned_by_heart(body, kind):
    task, config = build(kind, *BODIES[body], of=data(kind, count=6))
    model = models.build(config.model, **task.shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    batch = whole(task)
    for _ in range(300):
        loss = task.loss(model, batch)
        if loss < 0.01:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    metrics = task.metrics()
    task.update(metrics, model.eval(), batch)
    assert metrics["loss"].compute() < 0.05
    if kind != "numbers":
        assert metrics["accuracy"].compute() == 1
    assert all(p.grad is not None for name, p in model.named_parameters() if "segments" not in name)


def randomized(config, task):
    model = models.build(config.model, **task.shape)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES)
@torch.no_grad()
def test_padding_never_changes_a_result(body, kind):
    task, config = build(kind, *BODIES[body])
    model = randomized(config, task)
    batch = whole(task)
    together = task.of_items(model(*task.inputs(batch)), batch)[0]
    for row in range(5):
        one = whole(task, rows=[row])
        longest = int(one[1].sum(-1).max())
        cut = tuple(part[..., :longest] for part in one[:3])
        model.text.embed.tokens.weight[GPT.pad] = torch.randn(24)
        alone = task.of_items(model(*task.inputs((*cut, one[3]))), one)[0]
        shown = together[row, :longest] if kind == "tags" else together[row]
        torch.testing.assert_close(alone[0][: len(shown)], shown, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_batch_is_cut_to_its_longest_sequence_where_the_body_heeds_the_mask():
    seen = []
    for words in (BODIES["bert"], [*BODIES["bert"], "model.mixer=fourier"]):
        task, config = build("classes", *words)
        model = models.build(config.model, **task.shape)
        model.text.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
        batch = whole(task, rows=[0, 1, 2])
        task.loss(model, batch)
    assert seen == [int(batch[1].sum(1).max()), LENGTH]
    assert seen[0] < LENGTH


def test_prepared_tokens_are_all_of_the_vocabulary():
    task, _ = build("pairs")
    tokens, mask, segments, labels = whole(task)
    assert tokens.min() == GPT.pad != NOTHING
    assert (tokens[~mask] == GPT.pad).all()
    assert (mask.sum(1) == torch.from_numpy(task.train.read(np.arange(17))[:, 0] != NOTHING).sum(1)).all()
    assert labels.tolist() == data("pairs").train.labels.tolist()
    assert segments.unique().tolist() == [0, 1]


def test_a_text_without_a_tag_costs_nothing():
    toy = data("tags")
    toy.train.tags.values[: toy.train.tags.starts[1]] = NO_TAG
    task, config = build("tags", of=toy)
    loss = task.loss(models.build(config.model, **task.shape), whole(task, rows=[0]))
    assert loss == 0


def test_smoothing_is_of_the_training_loss_alone():
    logits = torch.randn(17, 3)
    labels = torch.from_numpy(data().train.labels)
    task, _ = build("classes", "recipe.label_smoothing=0.3")
    found = task.loss(Fixed(logits), whole(task))
    torch.testing.assert_close(found, F.cross_entropy(logits, labels, label_smoothing=0.3))
    y = torch.from_numpy(data().test.labels)
    assert measured(task, logits)["loss"] == pytest.approx(F.cross_entropy(logits, y).item())


@pytest.mark.parametrize("kind", ["classes", "choices", "tags"])
def test_the_auxiliary_loss_is_that_of_the_next_tokens(kind):
    plain, config = build(kind, *BODIES["gpt"])
    both, _ = build(kind, *BODIES["gpt"], "task.auxiliary_lm=0.5")
    model = randomized(config, plain)
    batch = whole(plain)
    tokens, mask, _ = plain.inputs(batch)
    nats = []
    for row, length in zip(tokens, mask.sum(1).tolist(), strict=True):
        logits = model.by_tokens(model.text(row[None, :length]))[0]
        nats.append(F.cross_entropy(logits[:-1], row[1:length], reduction="none"))
    expected = plain.loss(model, batch) + 0.5 * torch.cat(nats).mean()
    torch.testing.assert_close(both.loss(model, batch), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES)
def test_a_training_step_can_be_counted(body, kind):
    task, config = build(kind, *BODIES[body])
    whole_step = train_flops(config.model, task)
    assert 0 < train_flops(config.model, task, frozen=True) < whole_step
    if kind == "choices":
        single, _ = build("pairs", *BODIES[body])
        assert whole_step == pytest.approx(3 * train_flops(config.model, single), rel=0.01)


# ---- what is refused


@pytest.mark.parametrize(
    ("toy", "words", "says"),
    [
        (lambda: data(classes=()), [], "data=toy: has no classes, targets or tags to predict; give data=docstrings"),
        (lambda: data(classes=("x",)), [], "data=toy: has the one class 'x'; give at least two"),
        (lambda: data("choices", train=texts("choices", 17), test=texts("pairs", 17)), ["task.both_orders=true"],
         "task.both_orders=true: is for pairs, data=toy has 4 parts; give false"),
        (data, ["task.both_orders=true"], "task.both_orders=true: is for pairs, data=toy has 1 part; give false"),
        (data, ["recipe.mixup=0.2"], "recipe.mixup=0.2: is for images; give recipe.mixup=0"),
        (data, ["model=gpt_nano", "task.auxiliary_lm=-1"], "task.auxiliary_lm=-1.0: must be at least 0"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused_in_a_line(toy, words, says):
    with pytest.raises(UserError) as caught:
        build("", *words, of=toy())
    (line,) = caught.value.problems
    assert says in line
    assert "\n" not in line


def test_targets_that_cannot_be_learned_and_labels_that_are_no_choice_are_refused():
    toy = data("numbers")
    toy.train.targets[:] = 3.5
    with pytest.raises(UserError, match=r"all training targets are 3\.5, there is nothing to learn"):
        build(of=toy)
    toy.test.targets[4] = np.nan
    with pytest.raises(UserError, match="has targets that are no finite numbers"):
        build(of=toy)
    toy = data("choices")
    toy.test.labels[2] = 3
    with pytest.raises(UserError, match="has 3 choices, and a label of 3; labels count the choices from 0"):
        build(of=toy)


def test_an_auxiliary_loss_for_a_model_that_sees_the_next_token_is_refused_at_once():
    with pytest.raises(UserError, match=r"task\.auxiliary_lm=0\.5: model=bert_nano sees the tokens that it would"):
        compose(TrainConfig, ["task=text_classification", "task.auxiliary_lm=0.5"])
