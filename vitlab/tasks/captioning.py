"""A picture in words: a decoder looks at the patches of a ViT (Vinyals et al., 2015; Xu et al., 2015).

Shapes: B batch, C channels, Y x X pixels, K captions of a picture, N tokens of a caption.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import torch
from sacrebleu.metrics import BLEU, CHRF
from torch import Generator, Tensor
from torchmetrics.functional.text.rouge import rouge_score

from vitlab.config import UserError
from vitlab.config.exclusions import find_excluded
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import CaptionData
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.tasks.common.decoded import Score, score_exact_match
from vitlab.tasks.common.images import ImagePreparation
from vitlab.tasks.common.seq2seq import SequenceToSequence, check_search, trim


class CaptionBatch(NamedTuple):
    """A `SourceTargetBatch` of images (B, C, Y, X), with all captions of each, (B, K, N)."""

    inputs: Tensor
    mask: None
    given: Tensor
    following: Tensor
    captions: Tensor


class Captioning(SequenceToSequence):
    """Teacher forcing: in training a caption of each picture at random, in evaluation the first."""

    item = "image"

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: CaptionData, data_config: DataConfig):
        if not isinstance(data, CaptionData):
            raise UserError(f"data={data.name}: has no captions; give data=captioned_glyphs, or data=captions")
        problems = list(check_search(config))
        problems += find_excluded(recipe, "captions", "recipe")
        if problems:
            raise UserError(problems)
        self.set_options(config, recipe, data)
        self.images = ImagePreparation(recipe, data, data_config)
        self.train, self.validation, self.test = data.train, data.validation, data.test

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> CaptionBatch:
        images, captions = batch
        target = captions[:, 0]
        if generator is not None and captions.shape[1] > 1:
            counts = (captions[:, :, 0] != IGNORE_INDEX).sum(dim=1)
            shares = torch.rand(len(counts), generator=generator, device=generator.device)
            places = shares.to(counts.device).mul(counts).long()
            target = captions[torch.arange(len(counts), device=counts.device), places]
        target = trim(target)
        given = target[:, :-1]
        given = given.where(given != IGNORE_INDEX, self.tokenizer.pad)
        return CaptionBatch(self.images(images, generator), None, given, target[:, 1:], captions)

    def inputs(self, batch: CaptionBatch) -> Tensor:
        return batch.inputs

    def example(self) -> CaptionBatch:
        height, width = self.shape["image_size"]
        images = torch.zeros(1, self.shape["channels"], height, width, device="meta")
        tokens = torch.zeros(1, self.shape["target_length"], dtype=torch.int64, device="meta")
        return CaptionBatch(images, None, tokens, tokens, tokens[:, None])

    @property
    def scores(self) -> tuple[Score, ...]:
        return (score_exact_match if self.exact else score_captions,)

    def describe_sources(self, batch: CaptionBatch) -> list[str]:
        return []

    def wanted(self, batch: CaptionBatch) -> list[str] | list[tuple[str, ...]]:
        """The caption of each picture, or where several are right all of them."""
        captions = [
            tuple(self.decode(row[row != IGNORE_INDEX]) for row in rows if row[0] != IGNORE_INDEX)
            for rows in batch.captions
        ]
        return [texts[0] for texts in captions] if self.exact else captions


def score_captions(hypotheses: Sequence[str], references: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """BLEU and chrF of the corpus, 0 to 100, by sacrebleu, and ROUGE-L, 0 to 1, with all captions of a picture.

    Of ROUGE-L (Lin, 2004) it is the mean over the pictures of the F-measure of the nearest caption.
    """
    streams = list(zip_longest(*references))
    scores = {
        name: metric.corpus_score(hypotheses, streams).score for name, metric in (("bleu", BLEU()), ("chrf", CHRF()))
    }
    rouge = rouge_score(list(hypotheses), [list(texts) for texts in references], "best", rouge_keys="rougeL")
    return {**scores, "rouge_l": rouge["rougeL_fmeasure"].item()}


def build(config: TaskConfig, *, recipe: RecipeConfig, data: CaptionData, data_config: DataConfig) -> Captioning:
    return Captioning(config, recipe, data, data_config)
