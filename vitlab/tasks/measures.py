"""Metrics that torchmetrics does not have, or that treat missing values in another way; scores of generated texts.

BLEU and chrF are sacrebleu's, ROUGE and the scores of answers torchmetrics'.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor, distributed
from torchmetrics import Metric, PearsonCorrCoef, SpearmanCorrCoef
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MultilabelAveragePrecision,
)
from torchmetrics.functional.text import squad
from torchmetrics.functional.text.rouge import rouge_score
from torchmetrics.utilities import dim_zero_cat

BINS = 15  # of confidence
Accuracy = partial(MulticlassAccuracy, average="micro", validate_args=False)
Top5 = partial(Accuracy, top_k=5)
Spearman = SpearmanCorrCoef


class Mean(Metric):
    """The mean of all values, or the sum of several terms' means, in float64; a term without values counts as 0."""

    def __init__(self, outputs: int = 1):
        super().__init__()
        for name in ("totals", "counts"):  # in float32 a sum stands still at 2^24 times its values
            self.add_state(name, torch.zeros(1, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, *terms: Tensor) -> None:
        self.totals = self.totals + torch.stack([values.double().sum() for values in terms])
        self.counts = self.counts + self.counts.new_tensor([values.numel() for values in terms])

    def compute(self) -> Tensor:
        return (self.totals / self.counts.clamp(min=1)).sum()


class Perplexity(Mean):
    """The exponential of the mean nats per token."""

    def compute(self) -> Tensor:
        return super().compute().exp()


class Pearson(PearsonCorrCoef):
    """Pearson's correlation; 0 if one side is constant, which leaves it undefined."""

    def __init__(self, outputs: int):
        super().__init__(outputs)
        self.set_dtype(torch.float64)

    def compute(self) -> Tensor:
        return super().compute().nan_to_num(0.0)


class AbsoluteError(Mean):
    """The mean absolute error."""

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        super().update((predicted.double() - targets.double()).abs())


class AveragePrecision(MultilabelAveragePrecision):
    """The mean of the average precision over the labels that some item has."""

    def __init__(self, outputs: int):
        super().__init__(outputs, average="none", validate_args=False)

    def update(self, logits: Tensor, targets: Tensor) -> None:
        super().update(logits, targets.long())

    def compute(self) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of labels that no item has, which are left out here
            precisions = super().compute()
        there = (dim_zero_cat(self.target) == 1).any(dim=0)
        return precisions[there].mean() if there.any() else precisions.new_tensor(0.0)


class NormalisedError(Metric):
    """The root mean squared error over the targets' standard deviation; for equal targets 1, or 0 without an error.

    torchmetrics' sums of squares lose a spread that is small beside the numbers, or below 1e-4.
    """

    def __init__(self, outputs: int):
        super().__init__()
        for name in ("predicted", "targets"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        self.predicted.append(predicted.double())
        self.targets.append(targets.double())

    def compute(self) -> Tensor:
        targets = dim_zero_cat(self.targets)
        error, spread = (dim_zero_cat(self.predicted) - targets).norm(), (targets - targets.mean()).norm()
        return torch.where(spread > 0, error / spread, (error > 0).double())


class R2(NormalisedError):
    def compute(self) -> Tensor:
        return 1 - super().compute() ** 2


class ClassCounts(Metric):
    """Counts of each class being right, chosen and true, for metrics that follow from them.

    torchmetrics counts all pairs of classes, (classes, classes), in a deterministic run by an array of that for each
    example: 17 GB for a batch of 256 and 2,000 classes.
    """

    def __init__(self, classes: int):
        super().__init__()
        for name in ("right", "chosen", "true"):
            self.add_state(name, torch.zeros(classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Count a batch: logits (B, classes), labels (B,)."""
        chosen = logits.argmax(dim=-1)
        for counts, classes in ((self.right, labels[chosen == labels]), (self.chosen, chosen), (self.true, labels)):
            counts += torch.bincount(classes, minlength=len(counts))


class BalancedAccuracy(ClassCounts):
    """Each class's share of right items, averaged over the classes with an example (Brodersen et al., 2010)."""

    def compute(self) -> Tensor:
        return (self.right / self.true)[self.true > 0].mean()


class MacroF1(ClassCounts):
    """F1, averaged over the classes that are true or chosen anywhere."""

    def compute(self) -> Tensor:
        there = self.true + self.chosen
        return (2 * self.right / there)[there > 0].mean()


class F1(MacroF1):
    """F1 of the second of two classes; of more classes their mean."""

    def compute(self) -> Tensor:
        if len(self.true) != 2:
            return super().compute()
        return 2 * self.right[1] / (self.true + self.chosen)[1].clamp(min=1)


class Confusion(Metric):
    """Counts of each class being taken for each class: int64 (classes, classes), a row per true class."""

    def __init__(self, classes: int):
        super().__init__()
        self.add_state("counts", torch.zeros(classes, classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        pairs, times = (labels * len(self.counts) + logits.argmax(dim=-1)).unique(return_counts=True)
        self.counts.view(-1)[pairs] += times

    def compute(self) -> Tensor:
        return self.counts


class Matthews(Confusion):
    """Matthews' correlation of the true and the chosen classes (Gorodkin, 2004); 0 if one of them is constant."""

    def compute(self) -> Tensor:
        counts = self.counts.double()
        true, chosen, items = counts.sum(dim=1), counts.sum(dim=0), counts.sum()
        spreads = [items**2 - classes @ classes for classes in (true, chosen)]
        return ((counts.trace() * items - true @ chosen) / (spreads[0] * spreads[1]).sqrt()).nan_to_num(0.0).float()


class LargestShare(ClassCounts):
    """The share of the most frequent class: the accuracy of always choosing it."""

    def compute(self) -> Tensor:
        return self.true.max() / self.true.sum()


class ItemOutcomes(Metric):
    """The mean value of each item, and the number of answers that it is the mean of: (2, items)."""

    def __init__(self, outputs: int = 1):
        super().__init__()
        for name in ("means", "counts"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, values: Tensor, counted: Tensor | None = None) -> None:
        """Add items by their values (B,), or by (B, N) if bool `counted` (B, N) tells which values are answers."""
        if counted is None:
            values, counted = values[:, None], torch.ones_like(values[:, None], dtype=torch.bool)
        counts = counted.sum(dim=1)
        self.means.append(values.float().where(counted, 0).sum(dim=1) / counts.clamp(min=1))
        self.counts.append(counts)

    def compute(self) -> Tensor:
        return torch.stack([dim_zero_cat(self.means), dim_zero_cat(self.counts)])


class Calibration(MulticlassCalibrationError):
    """The distance of confidence from accuracy, over bins of confidence."""

    def __init__(self, classes: int):
        super().__init__(classes, n_bins=BINS, norm="l1", validate_args=False)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        super().update(logits.softmax(dim=1), labels)  # it would take logits in 0..1 for probabilities


class Reliability(Calibration):
    """The bins that the calibration error sums over: (3, bins).

    Rows: number of images, mean confidence, accuracy; the latter two are NaN in an empty bin. A bin includes its lower
    edge, the last one both edges; torchmetrics has one more bin, for a confidence of exactly 1.
    """

    def compute(self) -> Tensor:
        confidences, correct = dim_zero_cat(self.confidences), dim_zero_cat(self.accuracies).to(torch.float64)
        edges = torch.linspace(0, 1, self.n_bins + 1, dtype=confidences.dtype, device=confidences.device)
        bins = (torch.bucketize(confidences, edges, right=True) - 1).clamp(max=self.n_bins - 1)
        # index_add, as CUDA has no deterministic bincount with weights
        rows = torch.stack([torch.ones_like(correct), confidences.double(), correct])
        counts, *sums = rows.new_zeros(len(rows), self.n_bins).index_add(1, bins, rows)
        return torch.stack([counts, *(total / counts for total in sums)])


References = Sequence[str] | Sequence[tuple[str, ...]]  # of each text one that is right, or several
Score = Callable[[Sequence[str], References], dict[str, float]]  # of hypotheses and their references


class Decoded(Metric):
    """A metric that collects hypotheses and references and applies some functions to all, by the scores' names.

    Each name has the `suffix`; of no texts there are no scores.
    """

    def __init__(self, *scores: Score, suffix: str = ""):
        super().__init__()
        self.scores, self.suffix = scores, suffix
        for name in ("hypotheses", "references", "sources"):
            self.add_state(name, [], dist_reduce_fx=None)

    def update(self, hypotheses: Sequence[str], references: References, sources: Sequence[str] = ()) -> None:
        """Add hypotheses and references; `sources` are the texts that hypotheses were generated from, if any."""
        assert len(hypotheses) == len(references), f"{len(hypotheses)} hypotheses, {len(references)} references"
        self.sources += sources or [""] * len(hypotheses)
        self.hypotheses += hypotheses
        self.references += references

    def list_texts(self) -> list[dict[str, str]]:
        """List `{"source", "reference", "generated"}` of each item; several references are joined by `|`."""
        references = (text if isinstance(text, str) else " | ".join(text) for text in self.references)
        rows = zip(self.sources, references, self.hypotheses, strict=True)
        return [{"source": a, "reference": b, "generated": c} for a, b, c in rows]

    def list_influences(self, name: str) -> np.ndarray:
        """Compute a score plus each text's influence on it, float (n,), in the score's unit; `name`: bleu or rouge_l.

        Of ROUGE-L, a mean, these are the texts' own scores. BLEU follows from sums over the corpus: a text's influence
        is n - 1 times what the score loses without the text (the jackknife; Efron and Stein, 1981).
        """
        if name == "rouge_l":
            return np.array(
                [self.scores[-1]([a], [b])[name] for a, b in zip(self.hypotheses, self.references, strict=True)]
            )
        metric = BLEU()
        # the methods of which sacrebleu makes its own tests of significance
        counts = np.array(metric._extract_corpus_statistics(self.hypotheses, list_streams(self.references)))
        total = counts.sum(axis=0)
        whole, *others = (metric._compute_score_from_stats(list(sums)).score for sums in (total, *(total - counts)))
        return whole + (len(counts) - 1) * (whole - np.array(others))

    def _sync_dist(self, *_: Any, **__: Any) -> None:
        """Join the texts of all devices; torchmetrics' own joins tensors."""
        for name in self._reductions:
            parts: list[Any] = [None] * distributed.get_world_size()
            distributed.all_gather_object(parts, getattr(self, name))
            setattr(self, name, [text for part in parts for text in part])

    def compute(self) -> dict[str, Tensor]:
        scores = [score(self.hypotheses, self.references) for score in self.scores] if self.hypotheses else []
        return {f"{name}{self.suffix}": torch.tensor(value) for values in scores for name, value in values.items()}


def score_answer(written: str, given: str) -> tuple[float, float]:
    """Score an answer: 1 or 0 for a match, and F1 of the words, as SQuAD counts (Rajpurkar et al., 2016, 2018)."""
    asked = {"prediction_text": written, "id": ""}, {"answers": {"answer_start": [0], "text": [given]}, "id": ""}
    scores = squad(*asked)  # in percent
    return float(scores["exact_match"]) / 100, float(scores["f1"]) / 100


def score_exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Compute the share of hypotheses that are their reference, but for white space at the edges."""
    same = [ours.strip() == right.strip() for ours, right in zip(hypotheses, references, strict=True)]
    return {"exact_match": sum(same) / len(same)}


def score_translation(hypotheses: Sequence[str], references: References) -> dict[str, float]:
    """Compute BLEU and chrF of the corpus, 0 to 100, as the command `sacrebleu` counts them by default.

    Papineni et al., 2002, with the tokens of mteval-v13a and exponential smoothing; Popovic, 2015: chrF2.
    """
    scores = (("bleu", BLEU()), ("chrf", CHRF()))
    return {name: metric.corpus_score(hypotheses, list_streams(references)).score for name, metric in scores}


def list_streams(references: References) -> list[tuple[str | None, ...]]:
    """List the first reference of each text, then the second ones, as sacrebleu takes them."""
    return list(zip_longest(*([text] if isinstance(text, str) else text for text in references)))


def score_captions(hypotheses: Sequence[str], references: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Compute BLEU, chrF and ROUGE-L with all captions of a picture.

    ROUGE-L (Lin, 2004) is the mean over the pictures of the F-measure of the nearest caption, 0 to 1.
    """
    rouge = rouge_score(list(hypotheses), [list(texts) for texts in references], "best", rouge_keys="rougeL")
    return {**score_translation(hypotheses, references), "rouge_l": rouge["rougeL_fmeasure"].item()}


def score_summaries(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Compute ROUGE-1, -2 and -L (Lin, 2004): mean F-measure over the texts, 0 to 1, lower-cased words, not stemmed."""
    names = {"rouge1": "rouge1", "rouge2": "rouge2", "rougeL": "rouge_l"}
    rouge = rouge_score(list(hypotheses), list(references), rouge_keys=tuple(names))
    return {name: rouge[f"{key}_fmeasure"].item() for key, name in names.items()}
