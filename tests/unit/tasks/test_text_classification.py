"""Text classification: batches learned by heart, padding without effect, the auxiliary loss, what is refused."""

import pytest
import torch
import torch.nn.functional as F

from tests.classified import BODIES, GPT, KINDS, LENGTH, build, data, texts, whole
from tests.configurations import refused
from tests.learning import learn_by_heart, mean_loss, randomized
from vitlab import models
from vitlab.data.text import NO_TAG
from vitlab.tasks.text_classification import Batch


@pytest.mark.parametrize(
    ("body", "kind"),
    [("bert", "both orders"), ("bert", "numbers"), ("gpt", "tags"), ("lstm", "choices")],
)
def test_a_batch_is_learned_by_heart(body, kind):
    task, config = build(kind, *BODIES[body], of=data(kind, count=6))
    model = models.build(config.model, **task.shape)
    found, _ = learn_by_heart(task, model, whole(task), steps=300, rate=5e-3)
    assert found["loss"] < 0.05
    if kind != "numbers":
        assert found["accuracy"] == 1
    assert all(p.grad is not None for name, p in model.named_parameters() if "segments" not in name)


@pytest.mark.parametrize(
    ("body", "kind"),
    [*(("bert", kind) for kind in KINDS), *((body, kind) for body in BODIES for kind in ("pairs", "tags"))],
)
@torch.no_grad()
def test_padding_never_changes_a_result(body, kind):
    task, config = build(kind, *BODIES[body])
    model = randomized(models.build(config.model, **task.shape), 0.3)
    batch = whole(task)
    together = task.combine_sequences(model(*batch.flatten()), batch)[0]
    for row in range(5):
        one = whole(task, rows=[row])
        longest = int(one[1].sum(-1).max())
        cut = tuple(part[..., :longest] for part in one[:3])
        model.text.embed.tokens.weight[GPT.pad] = torch.randn(24)
        alone = task.combine_sequences(model(*Batch(*cut, one.targets).flatten()), one)[0]
        shown = together[row, :longest] if kind == "tags" else together[row]
        torch.testing.assert_close(alone[0][: len(shown)], shown, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_batch_is_cut_to_its_longest_sequence_where_the_body_heeds_the_mask():
    seen = []
    for words in (BODIES["bert"], [*BODIES["bert"], "model.mixer=fourier", "model.positions=learned"]):
        task, config = build("classes", *words)
        model = models.build(config.model, **task.shape)
        model.text.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
        batch = whole(task, rows=[0, 1, 2])
        mean_loss(task, model, batch)
    assert seen == [int(batch[1].sum(1).max()), LENGTH]
    assert seen[0] < LENGTH


def test_a_text_without_a_tag_costs_nothing():
    toy = data("tags")
    toy.train.tags.values[: toy.train.tags.starts[1]] = NO_TAG
    task, config = build("tags", of=toy)
    loss = mean_loss(task, models.build(config.model, **task.shape), whole(task, rows=[0]))
    assert loss == 0


@pytest.mark.parametrize("kind", ["classes", "choices", "tags"])
def test_the_auxiliary_loss_is_that_of_the_next_tokens(kind):
    plain, config = build(kind, *BODIES["gpt"])
    both, _ = build(kind, *BODIES["gpt"], "task.auxiliary_lm=0.5")
    model = randomized(models.build(config.model, **plain.shape), 0.3)
    batch = whole(plain)
    tokens, mask, _ = batch.flatten()
    nats = []
    for row, length in zip(tokens, mask.sum(1).tolist(), strict=True):
        logits = model.unembed(model.text(row[None, :length]))[0]
        nats.append(F.cross_entropy(logits[:-1], row[1:length], reduction="none"))
    expected = mean_loss(plain, model, batch) + 0.5 * torch.cat(nats).mean()
    torch.testing.assert_close(mean_loss(both, model, batch), expected)


@pytest.mark.parametrize(
    ("toy", "words", "says"),
    [
        (lambda: data(classes=()), [], "data=toy: has no classes, targets or tags to predict; give data=docstrings"),
        (lambda: data(classes=("x",)), [], "data=toy: has the one class 'x'; give at least two"),
        (lambda: data("choices", train=texts("choices", 17), test=texts("pairs", 17)), ["task.both_orders=true"],
         "task.both_orders=true: is for pairs, data=toy has 4 parts; give false"),
        (data, ["task.both_orders=true"], "task.both_orders=true: is for pairs, data=toy has 1 part; give false"),
        (data, ["recipe.mixup=0.2"], "recipe.mixup=0.2: is only for images; give recipe.mixup=0"),
        (data, ["model=gpt_nano", "task.auxiliary_lm=-1"], "task.auxiliary_lm=-1.0: must be at least 0"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused_in_a_line(toy, words, says):
    (line,) = refused(build, "", *words, of=toy())
    assert says in line
