"""`init=` of a text model: what of a pre-trained one fits another, what begins anew, what is refused."""

from dataclasses import replace

import pytest
import torch

from tests.learning import randomized
from tests.texts import text_data, texts
from vitlab import models
from vitlab.config import DescribeConfig, TrainConfig, compose
from vitlab.config.errors import UserError
from vitlab.data.text.tokenization import train
from vitlab.training import train as training
from vitlab.training.files import RunFiles
from vitlab.training.load import load_weights, refuse_tokenizer
from vitlab.training.run import plan_run, start_run

SIZES = {"width": 24, "depth": 2}
BODIES = {
    "gpt_nano": {**SIZES, "heads": 3, "positions": "learned"},
    "bert_nano": {**SIZES, "heads": 3, "positions": "learned", "pool": "token"},
    "lstm_nano": SIZES,
}
LENGTH, V = 13, 29
POOLER = ["pooler.weight", "pooler.bias"]


def build(name, head, seed=0, **shape):
    torch.manual_seed(seed)
    config = compose(DescribeConfig, base={"model": {"name": name, **BODIES[name]}}).model
    classes = {"num_classes": 5} if head in ("classes", "tags") else {}
    model = models.build(config, **{"length": LENGTH, "vocabulary": V, "head": head, **classes, **shape})
    return randomized(model, 0.3)


def same(one, other, names):
    theirs = other.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items() if name.startswith(names))


@pytest.mark.parametrize("head", ["classes", "tags"])
@pytest.mark.parametrize("name", ["gpt_nano", "lstm_nano"])
def test_of_a_language_model_the_body_is_loaded_and_the_head_is_new(name, head):
    source, target = build(name, "next_token"), build(name, head, seed=1)
    report = load_weights(target, source.state_dict())
    assert same(target, source, "text.")
    assert report.new == ["head.weight", "head.bias"]
    assert 0.01 < target.head.weight.std() < 0.03  # normal of 0.02; it was 0.3
    assert not target.head.bias.any()
    assert (report.missing, report.unused) == ([], [])
    tokens = torch.randint(V, (3, 7))
    torch.testing.assert_close(target.hidden(tokens), source.text(tokens))


@pytest.mark.parametrize(
    ("head", "kept", "new"),
    [("masked", ("text.", "pooler."), []), ("span", ("text.",), POOLER)],
)
def test_of_a_masked_model_berts_pooler_is_loaded_and_its_heads_are_not_used(head, kept, new):
    source, target = build("bert_nano", head), build("bert_nano", "classes", seed=1)
    report = load_weights(target, source.state_dict())
    assert same(target, source, kept)
    assert (report.new, report.missing) == (["head.weight", "head.bias"], new)
    assert {"transform.weight", "norm.bias", "bias"} <= {*report.unused}
    assert not [name for name in report.unused if name.startswith(kept)]
    assert "unused: " in str(report)
    tokens = build("bert_nano", "tags", seed=2)
    report = load_weights(tokens, source.state_dict())
    assert same(tokens, source, "text.")
    assert report.missing == []


def test_of_more_learned_positions_the_first_are_taken():
    source, target = build("gpt_nano", "next_token", length=17), build("gpt_nano", "classes", seed=1)
    report = load_weights(target, source.state_dict())
    assert torch.equal(target.text.embed.positions, source.text.embed.positions[:LENGTH])
    assert report.resized == ["text.embed.positions (17x24 -> 13x24)"]
    assert "text.embed.positions" in report.loaded


def test_another_tokenizer_of_the_same_size_is_refused(tmp_path):
    one, other = (train([text], "characters", 20) for text in ("abc", "xyz"))
    assert one.size == other.size
    files = RunFiles(tmp_path)
    refuse_tokenizer(files, one, "another")  # a source without one, such as a file of weights
    one.save(tmp_path / "tokenizer.json")
    refuse_tokenizer(files, one, "another")
    refuse_tokenizer(files, train(["cba"], "characters", 20), "another")
    refuse_tokenizer(files, None, "another")
    with pytest.raises(UserError, match="another"):
        refuse_tokenizer(files, other, "another")


def classified():
    """Texts of two classes: those of the first begin with even tokens."""
    rows = [[6 + 2 * (number % 17) + label, 9, 11] for number in range(24) for label in (0, 1)]
    made = texts(rows, labels=[0, 1] * 24)
    return replace(text_data(made, made), classes=("even", "odd"))


SHORT = ["trainer.accelerator=cpu", "trainer.evaluations=1", "budget.steps=4", "recipe.lr=0.01", "analyses=[]"]


def train_run(folder, data, *words):
    model = ["model=bert_nano", "model.depth=1", "model.pool=token", "model.width=24", "model.heads=3"]
    config = compose(TrainConfig, [*model, *SHORT, *words])
    run = start_run(plan_run(config, data), folder)
    run.write_start()
    return run, training.train(run).columns


def test_a_run_does_not_go_on_with_other_texts_of_the_same_tokens(tmp_path):
    words = ["task=text_classification"]
    data = classified()
    train_run(tmp_path / "run", data, *words)
    train_run(tmp_path / "run", classified(), *words)  # the same texts, read again
    for changed in (
        replace(data, train=replace(data.train, labels=1 - data.train.labels)),
        replace(data, test=texts([[6, 9, 12]] * 48, labels=[0, 1] * 24)),
    ):
        with pytest.raises(UserError, match=rf"--out {tmp_path}/run: data=made has changed since its run began; "):
            train_run(tmp_path / "run", changed, *words)
    (tmp_path / "run" / "data.json").unlink()  # as in a folder of an older version
    train_run(tmp_path / "run", changed, *words)
