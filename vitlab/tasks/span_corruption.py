"""Spans that a sentinel stands for are to be written out: T5's pre-training (Raffel et al., 2020, section 3.1.4).

Shapes: B batch, L tokens of a text, S of what the encoder reads, N of the target.
"""

from dataclasses import replace

import numpy as np
import torch.nn.functional as F
from torch import Generator, Tensor

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import Split, TextData, Texts
from vitlab.data.masking import Random, RowGenerators, choose_corrupted, corrupt_spans, plan_lengths
from vitlab.data.sequences import IGNORE_INDEX, pack_texts
from vitlab.data.text.corpus import join_rows
from vitlab.tasks.common.seq2seq import SequenceToSequence, SourceTargetBatch
from vitlab.tasks.common.text import refuse_image_recipe
from vitlab.tasks.masked_lm import LEAST_SHARE, SEED

SENTINELS = 100  # of T5's tokenizer


class SpanCorruption(SequenceToSequence):
    """Sequences of a stream over all texts, each as long as fills `data.length` tokens of the encoder.

    Pairs are texts one after the other, so that a model can be pre-trained on what it is to learn, held-out texts left
    out.
    """

    item = "sequence"
    scores = ()  # what stands in a span is too open for whole texts to be compared
    exact = False

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        refuse_image_recipe(recipe)
        problems = []
        if not LEAST_SHARE <= config.share <= 0.5:
            problems.append(f"task.share={config.share}: must be from {LEAST_SHARE} to 0.5")
        if config.mean_span < 1:
            problems.append(f"task.mean_span={config.mean_span}: must be at least 1")
        if problems:
            raise UserError(problems)
        self.share, self.mean_span = config.share, config.mean_span
        self.plan = plan_lengths(data.length, config.share, config.mean_span)
        self.tokenizer = data.tokenizer.with_sentinels(max(SENTINELS, self.plan.spans + 1))
        self.label_smoothing = recipe.label_smoothing
        self.eval_batch_size = max(recipe.batch_size, 64)
        # a summary that the run is fine-tuned for may be longer than the spans
        target_length = max(self.plan.target, data_config.target_length or 0)
        self.shape = {"length": data.length, "target_length": target_length, "vocabulary": self.tokenizer.size}
        self.shape["head"] = "seq2seq"
        self.train, self.validation, self.test = (
            self.make_sequences(texts, whole=texts is data.train) for texts in (data.train, data.validation, data.test)
        )
        if not len(self.train):
            need = f"less than one sequence of {self.plan.tokens} tokens; give a smaller data.length"
            raise UserError(f"data={data.name}: its training texts are {need}")

    def make_sequences(self, texts: Texts, whole: bool) -> Split:
        end, length = self.tokenizer.document_end, self.plan.tokens
        parts = texts.parts
        each = parts[0] if len(parts) == 1 else join_rows([part[row] for row in range(len(texts)) for part in parts])
        split = pack_texts(each, end, length, within_texts=False, whole=whole)
        return replace(split, targets=np.arange(len(split)))

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> SourceTargetBatch:
        """Random spans with a generator; without one, a sequence always has the same spans."""
        tokens, numbers = batch
        draw: Random = generator or RowGenerators([SEED + number for number in numbers.tolist()])
        lengths = (tokens != IGNORE_INDEX).sum(dim=1)
        corrupted = choose_corrupted(lengths, tokens.shape[1], self.share, self.mean_span, draw)
        source, target = corrupt_spans(
            tokens, corrupted, self.tokenizer.sentinels, self.tokenizer.end, self.plan.source, self.plan.target
        )
        return self.make_batch(source, F.pad(target, (1, 0), value=self.tokenizer.decoder_start))


def build(config: TaskConfig, *, recipe: RecipeConfig, data: TextData, data_config: DataConfig) -> SpanCorruption:
    return SpanCorruption(config, recipe, data, data_config)
