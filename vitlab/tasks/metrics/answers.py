"""Metrics of classes and labels, and of numbers: of pictures, how far off they are; of texts, their correlation.

Those of tokens and generated texts are computed by their tasks; the loss every task has.
"""

import sys
from typing import Any

from vitlab.tasks.metrics import CHOICES, CLASSES, LABELS, MEASURES, MOST_CONFUSED, NUMBERS, TAGS, TEXTS, Metric

BINS = 15  # of confidence
POINTS: dict[str, Any] = {"percent": True, "gap_unit": "points"}
PROBES = {"knn": "kNN accuracy", "linear_probe": "linear probe"}
PROBES |= {f"fewshot_{shots}": f"{shots}-shot accuracy" for shots in (1, 5, 10, 25)}
PROBES |= {f"finetune_{labels}": f"fine-tuned accuracy ({labels:,} labels)" for labels in (100, 1000)}
EVERY = (*CLASSES, CHOICES)
NUMBER: dict[str, Any] = {  # of one output
    "loss": "squared error of standardised numbers",
    "classes": (1, 1),
    "detailed": False,
}
WORSE: dict[str, Any] = {"higher_is_better": False, "is_error": True, "of": (MEASURES,), **NUMBER}
TEXT: dict[str, Any] = {"gap_unit": "in correlation", "of": (NUMBERS,), **NUMBER}
RELATIVE: dict[str, Any] = {"higher_is_better": False, "relative": True}
METRICS = (
    Metric("accuracy", "accuracy", **POINTS, priority=0, gives_error=True, of=EVERY, detailed=False),
    # the mean over the labels of the area under precision against recall, as of VOC and COCO
    Metric(
        "map",
        "mAP",
        **POINTS,
        loss="binary cross-entropy, nats",
        priority=10,
        gives_error=True,
        of=(LABELS,),
        classes=(1, sys.maxsize),
        detailed=False,
    ),
    Metric(
        "matthews",
        "Matthews correlation",
        gap_unit="in correlation",
        priority=40,
        of=(TEXTS, TAGS),
        classes=(2, MOST_CONFUSED),
        detailed=False,
    ),
    # of the second of two classes (MRPC and QQP of GLUE: Wang et al., 2019), else the mean over the classes
    Metric("f1", "F1", gap_unit="F1", priority=70, of=(TEXTS,), detailed=False),
    # the mean over the classes of the share that is right (Brodersen et al., 2010)
    Metric("balanced_accuracy", "balanced accuracy", **POINTS, priority=90, of=CLASSES),
    Metric("macro_f1", "macro F1", **POINTS, priority=100, of=CLASSES),
    Metric("chance", "chance", percent=True, priority=600, is_compared=False, of=EVERY),  # of the most frequent class
    Metric(
        "top5_accuracy",
        "top-5 accuracy",
        percent=True,
        priority=610,
        is_compared=False,
        of=EVERY,
        classes=(6, sys.maxsize),
    ),
    # how far confidence is from accuracy, over bins (Guo et al., 2017)
    Metric("calibration_error", "calibration error", False, False, priority=620, is_compared=False, of=EVERY),
    # over the standard deviation of the test targets: 1 is what always says their mean
    Metric("nrmse", "normalised RMSE", priority=20, gives_error=True, **WORSE),
    Metric("mae", "mean absolute error", relative=True, priority=30, **WORSE),
    Metric("r2", "R2", priority=40, of=(MEASURES,), **NUMBER),
    Metric("pearson", "Pearson correlation", priority=50, **TEXT),
    Metric("spearman", "Spearman correlation", priority=60, **TEXT),
    *(Metric(key, name, **POINTS, priority=700, is_compared=False) for key, name in PROBES.items()),
    Metric("exact_match", "exact match", priority=10, **POINTS),  # generated texts that are their reference
    Metric("bleu", "BLEU", gap_unit="BLEU", point=1.0, priority=20),  # 0 to 100 (Papineni et al., 2002)
    Metric("rouge_l", "ROUGE-L", gap_unit="ROUGE-L", priority=30),  # Lin, 2004
    Metric("perplexity", "perplexity", priority=110, **RELATIVE),
    Metric("bits_per_byte", "bits per byte", priority=120, is_error=True, **RELATIVE),
    Metric("unigram_perplexity", "unigram perplexity", priority=130, **RELATIVE),  # of the frequencies of tokens
    Metric("masked_accuracy", "masked accuracy", priority=140, **POINTS),
    Metric("next_sentence_accuracy", "next-sentence accuracy", priority=150, **POINTS),
    Metric("chrf", "chrF", gap_unit="chrF", point=1.0, priority=160),  # 0 to 100 (Popovic, 2015)
    Metric("rouge1", "ROUGE-1", gap_unit="ROUGE-1", priority=170),
    Metric("rouge2", "ROUGE-2", gap_unit="ROUGE-2", priority=180),
    Metric("rouge_l_lead", "ROUGE-L of the first words", gap_unit="ROUGE-L", priority=190),  # of the source
    Metric("loss", "loss", priority=1000, is_error=True, **RELATIVE),
)


def build(key: str, outputs: int) -> Any:
    import torch
    from torchmetrics import MeanAbsoluteError, SpearmanCorrCoef
    from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

    from vitlab.tasks import measures

    every = {"average": "micro", "validate_args": False}
    return {
        "accuracy": lambda: MulticlassAccuracy(outputs, **every),
        "map": lambda: measures.AveragePrecision(outputs, average="none", validate_args=False),
        "matthews": lambda: measures.Matthews(outputs),
        "f1": lambda: measures.SecondClassF1() if outputs == 2 else measures.MacroF1(outputs),
        "balanced_accuracy": lambda: measures.BalancedAccuracy(outputs),
        "macro_f1": lambda: measures.MacroF1(outputs),
        "chance": lambda: measures.LargestShare(outputs),
        "top5_accuracy": lambda: MulticlassAccuracy(outputs, top_k=5, **every),
        "calibration_error": lambda: MulticlassCalibrationError(outputs, n_bins=BINS, norm="l1", validate_args=False),
        "nrmse": measures.NormalisedError,
        "mae": lambda: MeanAbsoluteError().set_dtype(torch.float64),
        "r2": measures.R2,
        "pearson": lambda: measures.Pearson().set_dtype(torch.float64),
        "spearman": SpearmanCorrCoef,
    }[key]()
