"""Scores of generated texts: sacrebleu's own command, and values worked out by hand."""

import json
import subprocess
import sys

import pytest
from torchmetrics import MetricCollection

from vitlab.tasks.measures import Decoded, score_exact_match, score_summaries, score_translation

REFERENCES = ["The cat sat on the mat.", "It rained all day, so we stayed at home.", "Nobody came to the party"]
HYPOTHESES = ["A cat sat on the mat.", "It rained the whole day and we stayed home.", ""]


def test_bleu_and_chrf_are_those_of_the_command(tmp_path):
    (tmp_path / "hypotheses").write_text("".join(f"{line}\n" for line in HYPOTHESES))
    (tmp_path / "references").write_text("".join(f"{line}\n" for line in REFERENCES))
    files = [str(tmp_path / "references"), "-i", str(tmp_path / "hypotheses")]
    command = [sys.executable, "-m", "sacrebleu", *files, "-m", "bleu", "chrf", "-w", "6"]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    expected = {{"BLEU": "bleu", "chrF2": "chrf"}[found["name"]]: found["score"] for found in printed}
    assert score_translation(HYPOTHESES, REFERENCES) == pytest.approx(expected, abs=1e-6)


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
