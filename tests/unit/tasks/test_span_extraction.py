"""Question answering: answers as tokens, losses and spans by their definitions, files of SQuAD, what is refused."""

import json
import re
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests import classified
from tests.configurations import refused
from vitlab import models, tasks
from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.loader import Items
from vitlab.data.opening import open_data
from vitlab.data.text import NO_TAG
from vitlab.data.text.texts import read
from vitlab.tasks.base import fill, read_written
from vitlab.tasks.measures import score_answer
from vitlab.tasks.text_classification import LONGEST_ANSWER, count_span_nats, find_answers, find_spans, read_spans

SMALL = ["task=span_extraction", "model.width=32", "model.depth=2", "model.heads=2"]


def build(*words):
    """(task, configuration, data)"""
    config = compose(TrainConfig, [*SMALL, *(words if "data=squad" in words else ["data.count=60", *words])])
    data = open_data(config.data)
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    return task, config, data


def whole(task, rows=None):
    return task.prepare(Items(task.train).__getitems__(list(range(len(task.train)) if rows is None else rows)))


def read_marked(task, batch):
    texts, answers = zip(*read_written(batch.written), strict=True)
    assert read_spans(task.tokenizer, texts, batch.targets, find_answers(batch.targets)) == list(answers)
    return answers


def test_marked_tokens_are_the_answer():
    task, _, data = build()
    batch = whole(task)
    _, mask, segments, marks, _ = batch
    for answer, question, context in zip(read_marked(task, batch), *data.train.parts, strict=True):
        color = data.tokenizer.decode(question).split()[3]
        assert f"The {color} box holds {answer}." in data.tokenizer.decode(context)
    assert (marks[:, 1:][segments[:, 1:] == 0] == NO_TAG).all()
    assert (marks[~mask] == NO_TAG).all()


def test_a_run_may_train_on_a_part_of_the_questions():
    task, _, _ = build()
    task.train_on(np.arange(5))
    assert (task.training_indices.tolist(), task.scale, task.strata) == ([0, 1, 2, 3, 4], None, ())


def test_an_answer_that_is_cut_off_counts_as_wrong():
    task, config, _ = build("data.length=16", "budget.steps=1")
    cut = ~(whole(task).targets == 1).any(dim=1)
    assert cut.any()
    metrics = task.metrics(detailed=True)
    model = models.build(config.model, **task.shape).eval()
    with torch.no_grad():
        fill(metrics, task.measure(model, whole(task, rows=np.flatnonzero(cut.numpy()).tolist())))
    assert metrics["exact_match"].compute() == 0


def test_the_likeliest_span_and_its_nats():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 50, 2, generator=generator)
    marks = torch.full((5, 50), NO_TAG)
    marks[:, 0], marks[:, 4:44] = 0, 0
    marks[1, 9:12], marks[2, 43] = 1, 1
    for row in range(5):
        allowed = marks[row] != NO_TAG
        first, last = (logits[row, :, side].where(allowed, -torch.inf).log_softmax(0) for side in (0, 1))
        spans = {
            (a, b): float(first[a] + last[b])
            for a, b in product(range(50), repeat=2)
            if a <= b < a + LONGEST_ANSWER and (a > 0 or b == 0)
        }
        found, logs = find_spans(logits[row : row + 1], marks[row : row + 1], 3)
        best = sorted(spans, key=spans.get, reverse=True)[:3]
        assert [tuple(span) for span in found[0].tolist()] == best
        torch.testing.assert_close(logs[0], torch.tensor([spans[span] for span in best]))
        given = {1: (9, 11), 2: (43, 43)}.get(row, (0, 0))
        assert tuple(find_answers(marks)[row].tolist()) == given
        assert float(count_span_nats(logits, marks)[row]) == pytest.approx(
            -float(first[given[0]] + last[given[1]]), 1e-5
        )


@pytest.mark.parametrize(
    ("written", "given", "exact", "f1"),
    [
        ("The red box.", "red box", 1, 1),
        ("forty two pens", "forty pens", 0, 0.8),
        ("a a b", "a b b", 0, 2 / 3),
        ("x y", "y x", 0, 1),
        ("", "the", 1, 1),
        ("", "yes", 0, 0),
    ],
)
def test_scores_leave_out_case_marks_and_articles(written, given, exact, f1):
    assert score_answer(written, given) == pytest.approx((exact, f1))


def squad_file(folder, count=30):
    """Paragraphs of two questions, the second one without an answer."""
    paragraphs = []
    for number in range(count):
        context = f"Köln lies on the Rhine. Line {number} goes there."
        first = {"text": f"Line {number}", "answer_start": context.index("Line")}
        asked = [{"question": "Which line goes there?", "answers": [first]}]
        asked.append({"question": "Who drives?", "answers": [], "is_impossible": True})
        paragraphs.append({"context": context, "qas": asked})
    path = folder / "train.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "x", "paragraphs": paragraphs}]}))
    return path


def test_files_of_squad(tmp_path):
    path = squad_file(tmp_path)
    words = ["data=squad", f"data.path={path}", "data.vocabulary=300", "data.length=64"]
    config = compose(TrainConfig, [*SMALL[:1], *words])
    corpus = read(config.data)
    assert not set(corpus.train.parts[1]) & set(corpus.test.parts[1])
    for (first, behind), text in zip(corpus.train.spans, corpus.train.parts[1], strict=True):
        assert text[first:behind] in ("", text.split(". ")[1].removesuffix(" goes there."))
    data = open_data(config.data)
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    read_again = set(read_marked(task, whole(task)))
    assert read_again <= {"", *(text.split(". ")[1].removesuffix(" goes there.") for text in corpus.train.parts[1])}
    assert len(read_again) > 10
    assert not {bytes(row) for row in data.train.parts[1]} & {bytes(row) for row in data.validation.parts[1]}


def test_answers_are_compared_as_read_also_where_the_tokenizer_loses_a_part(tmp_path):
    path = squad_file(tmp_path)
    path.write_text(path.read_text().replace("Line", "\u00c4\u2603"))  # characters too rare for the vocabulary
    lossy = ["data.tokenizer=characters", "data.lowercase=true", "data.vocabulary=16", "data.length=96"]
    task, _, _ = build("data=squad", f"data.path={path}", *lossy)
    batch = whole(task)
    answers = read_marked(task, batch)
    assert "\u00c4\u2603 3" in answers or "\u00c4\u2603 4" in answers
    for found, right in ((find_answers(batch.targets), 1), (torch.zeros(len(answers), 2).long(), 0.5)):
        logits = F.one_hot(found, batch.targets.shape[1]).transpose(1, 2) * 99.0
        task.answer = lambda *_, logits=logits: (logits, batch.targets)
        metrics = task.metrics(detailed=True)
        fill(metrics, task.measure(None, batch))
        assert metrics["exact_match"].compute() == metrics["f1"].compute() == right


LONG = "x" * 10**6


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        *(("answer_start", value, "paragraphs[3]: Value error, the answer 'Line 3'") for value in (-5, 12, 10**30)),
        *(("answer_start", value, ".answers[0].answer_start: ") for value in (None, "24", 24.5, float("inf"))),
        ("text", "", "the answer '' does not stand at character"),
        ("text", " ", "the answer ' ' does not stand at character"),
        ("text", LONG, " more ... x"),
        *(("context", value, "paragraphs[3].context: ") for value in (None, 3, ["a"], {"a": 1})),
        *(("question", value, "qas[0].question: ") for value in (None, 3, ["a"])),
    ],
)
def test_an_answer_that_does_not_stand_in_its_text_is_refused(tmp_path, key, value, place):
    path = squad_file(tmp_path)
    file = json.loads(path.read_text())
    paragraph = file["data"][0]["paragraphs"][3]
    asked = paragraph["qas"][0]
    next(each for each in (paragraph, asked, asked["answers"][0]) if key in each)[key] = value
    path.write_text(json.dumps(file))
    (line,) = refused(read, compose(TrainConfig, [*SMALL[:1], "data=squad", f"data.path={path}"]).data)
    assert line.startswith(f"data.path={path}: data[0].paragraphs[3]")
    assert line.endswith("; give data[].paragraphs[].qas[].answers[] as in SQuAD, answer_start in characters from 0")
    assert place in line
    assert len(line) <= 1000


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"data": ' + "[" * 100_000, '{"data": "\\ud800"}', '{"data": [{"paragraphs": [{}]}]}', "[]"],
)
def test_json_of_another_shape_is_one_line(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    (line,) = refused(read, compose(TrainConfig, [*SMALL[:1], "data=squad", f"data.path={tmp_path}/a.json"]).data)
    assert re.match(r"data\.path=.*; give data", line)


def test_what_does_not_fit_is_refused():
    _, config, data = build()
    for name, shown in (("text_classification", data), ("span_extraction", classified.data())):
        task = compose(TrainConfig, [f"task={name}"]).task
        with pytest.raises(UserError, match=r"span_extraction|answers within texts"):
            tasks.build(task, recipe=config.recipe, data=shown, data_config=config.data)
