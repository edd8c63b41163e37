"""Scores of generated texts: values worked out by hand."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from torchmetrics import MetricCollection

from vitlab.tasks.measures import Decoded, score_captions, score_exact_match, score_summaries, score_translation

WORDS = [f"word{number}" for number in range(24)]

REFERENCES = ["The cat sat on the mat.", "It rained all day, so we stayed at home.", "Nobody came to the party"]
HYPOTHESES = ["A cat sat on the mat.", "It rained the whole day and we stayed home.", ""]


def test_rouge_is_the_mean_f_measure_of_the_texts():
    # "my name is john" and "is your name john": 3 words in common, no two in a row, "name john" in order
    found = score_summaries(["My name is John.", "the same"], ["Is your name John?", "The same"])
    assert found == pytest.approx({"rouge1": (0.75 + 1) / 2, "rouge2": (0 + 1) / 2, "rouge_l": (0.5 + 1) / 2})


def test_texts_of_all_batches_are_scored_together():
    metrics = MetricCollection({"decoded": Decoded(score_exact_match, score_summaries)})
    for rows in (slice(0, 2), slice(2, 3)):
        metrics["decoded"].update(REFERENCES[rows], [" " + REFERENCES[0], *REFERENCES[1:]][rows])
    found = metrics.compute()
    assert found.keys() == {"exact_match", "rouge1", "rouge2", "rouge_l"}
    assert all(float(value) == 1 for value in found.values())
    metrics.reset()
    metrics["decoded"].update(HYPOTHESES[:1] + REFERENCES[1:2], REFERENCES[:2])
    assert float(metrics.compute()["exact_match"]) == 0.5


def test_each_texts_influence_on_a_score_is_what_leaving_the_text_out_and_resampling_tell():
    draw = np.random.default_rng(0)
    right = [" ".join(draw.choice(WORDS, draw.integers(6, 30))) for _ in range(300)]
    ours = [" ".join(word if draw.random() < 0.7 else draw.choice(WORDS) for word in text.split()) for text in right]
    decoded = Decoded(score_translation)
    decoded.update(ours, right)
    whole, found = score_translation(ours, right)["bleu"], decoded.list_influences("bleu")
    without = score_translation(ours[:7] + ours[8:], right[:7] + right[8:])["bleu"]
    assert found[7] - whole == pytest.approx(299 * (whole - without))
    assert found.mean() == pytest.approx(whole, abs=0.02)
    half = BLEU().corpus_score(ours, [right], n_bootstrap=1000)._ci  # of 95%, by sacrebleu's own resampling
    assert 1.96 * found.std() / 300**0.5 == pytest.approx(half, rel=0.1)
    summaries = Decoded(score_summaries)
    summaries.update(HYPOTHESES, REFERENCES)
    assert summaries.list_influences("rouge_l").mean() == pytest.approx(float(summaries.compute()["rouge_l"]))
    several = Decoded(score_captions)
    several.update(["a b c d", "x y"], [("a b c d", "no"), ("z", "x y")])
    assert several.list_influences("rouge_l").tolist() == [1, 1]
