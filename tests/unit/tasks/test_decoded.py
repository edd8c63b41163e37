"""Scores of generated texts: values worked out by hand."""

import pytest
from torchmetrics import MetricCollection

from vitlab.tasks.measures import Decoded, score_exact_match, score_summaries

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
