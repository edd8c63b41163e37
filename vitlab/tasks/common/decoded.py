"""Scores of generated texts against references: BLEU and chrF by sacrebleu, ROUGE by torchmetrics, exact match."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor, distributed
from torchmetrics import Metric
from torchmetrics.functional.text.rouge import rouge_score

References = Sequence[str] | Sequence[tuple[str, ...]]  # of each text one that is right, or several
Score = Callable[[Sequence[str], References], dict[str, float]]  # of hypotheses and their references


class Decoded(Metric):
    """Collects hypotheses and references, and gives what some functions make of all of them, by the scores' names.

    Each name has the `suffix`; of no texts there are no scores.
    """

    def __init__(self, *scores: Score, suffix: str = ""):
        super().__init__()
        self.scores, self.suffix = scores, suffix
        for name in ("hypotheses", "references", "sources"):
            self.add_state(name, [], dist_reduce_fx=None)

    def update(self, hypotheses: Sequence[str], references: References, sources: Sequence[str] = ()) -> None:
        """`sources` are what the hypotheses were generated from, where that is text."""
        assert len(hypotheses) == len(references), f"{len(hypotheses)} hypotheses, {len(references)} references"
        self.sources += sources or [""] * len(hypotheses)
        self.hypotheses += hypotheses
        self.references += references

    def list_texts(self) -> list[dict[str, str]]:
        """`{"source", "reference", "generated"}` of each item; of several references all, `|` between them."""
        references = (text if isinstance(text, str) else " | ".join(text) for text in self.references)
        rows = zip(self.sources, references, self.hypotheses, strict=True)
        return [{"source": a, "reference": b, "generated": c} for a, b, c in rows]

    def _sync_dist(self, *_: Any, **__: Any) -> None:
        """Join the texts of all devices; torchmetrics' own joins tensors."""
        for name in self._reductions:
            parts: list[Any] = [None] * distributed.get_world_size()
            distributed.all_gather_object(parts, getattr(self, name))
            setattr(self, name, [text for part in parts for text in part])

    def compute(self) -> dict[str, Tensor]:
        scores = [score(self.hypotheses, self.references) for score in self.scores] if self.hypotheses else []
        return {f"{name}{self.suffix}": torch.tensor(value) for values in scores for name, value in values.items()}


def score_exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The share of hypotheses that are their reference, but for white space at the edges."""
    same = [ours.strip() == right.strip() for ours, right in zip(hypotheses, references, strict=True)]
    return {"exact_match": sum(same) / len(same)}


def score_translation(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of the corpus, 0 to 100, as the command `sacrebleu` counts them when nothing else is asked for.

    Papineni et al., 2002, with the tokens of mteval-v13a and exponential smoothing; Popovic, 2015: chrF2.
    """
    return {
        name: metric.corpus_score(hypotheses, [references]).score
        for name, metric in (("bleu", BLEU()), ("chrf", CHRF()))
    }


def score_summaries(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """ROUGE-1, -2 and -L (Lin, 2004): the mean F-measure over the texts, 0 to 1, of lower-cased words, not stemmed."""
    names = {"rouge1": "rouge1", "rouge2": "rouge2", "rougeL": "rouge_l"}
    rouge = rouge_score(list(hypotheses), list(references), rouge_keys=tuple(names))
    return {name: rouge[f"{key}_fmeasure"].item() for key, name in names.items()}
