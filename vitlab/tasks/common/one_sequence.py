"""A source and its target as one sequence, source, delimiter, target, for a language model (Radford et al., 2018,
section 3.3; Liu et al., 2018): it predicts the target alone.

Shapes: B batch, S tokens of a source with the delimiter, N of a sequence, V vocabulary.
"""

from collections import defaultdict

import torch
from torch import Generator, Tensor, nn

from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import TextData
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.tasks.common.seq2seq import SequenceToSequence, SourceTargetBatch, trim
from vitlab.tasks.common.text import TokenInputs


class OneSequence(SequenceToSequence):
    """Of a batch `given` holds whole sequences, `inputs` what comes before the target."""

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        super().__init__(config, recipe, data, data_config)
        self.shape = {**data.shape, "length": data.length + data.target_length, "head": "next_token"}

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> SourceTargetBatch:
        inputs, mask, _, following, part = super().prepare(batch, generator)
        # what ends the source separates it from the target
        inputs = inputs.scatter(1, mask.sum(dim=1, keepdim=True) - 1, self.tokenizer.separator)
        tokens = torch.cat([inputs.where(mask, IGNORE_INDEX), following], dim=1)
        # padding between the two moves to the end
        order = (tokens == IGNORE_INDEX).int().argsort(dim=1, stable=True)
        tokens = trim(tokens.gather(1, order))
        of_target = order[:, : tokens.shape[1]] >= inputs.shape[1]
        given = tokens.where(tokens != IGNORE_INDEX, self.tokenizer.pad)
        return SourceTargetBatch(inputs, mask, given[:, :-1], tokens.where(of_target, IGNORE_INDEX)[:, 1:], part)

    def inputs(self, batch: SourceTargetBatch) -> TokenInputs:
        used = batch.mask.sum(dim=1) + (batch.following != IGNORE_INDEX).sum(dim=1)
        mask = torch.arange(batch.given.shape[1], device=used.device) < used[:, None]
        return TokenInputs.of(batch.given, mask, None, self.tokenizer.special)

    def example(self) -> SourceTargetBatch:
        tokens = torch.zeros(1, self.shape["length"], dtype=torch.int64, device="meta")
        return SourceTargetBatch(tokens, None, tokens, tokens)

    def logits(self, model: nn.Module, batch: SourceTargetBatch) -> Tensor:
        # padding needs no mask: it is behind all that is predicted, and a causal model does not look there
        return model(batch.given)

    def write(self, model: nn.Module, batch: SourceTargetBatch) -> list[str]:
        lengths: dict[int, list[int]] = defaultdict(list)
        for row, length in enumerate(batch.mask.sum(dim=1).tolist()):
            lengths[length].append(row)
        texts = [""] * len(batch.inputs)
        for length, rows in lengths.items():
            for row, text in zip(rows, self.generate_texts(model.decoding(), batch.inputs[rows, :length]), strict=True):
                texts[row] = text
        return texts
