"""Masked spans, and their tokens from the two beside each (SpanBERT: Joshi et al., 2020, sections 3.1 to 3.3).

Shapes: B batch, N tokens of a sequence, K places that are predicted at most, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import TextData
from vitlab.data.masking import Random, choose_spans, gather_chosen
from vitlab.models.heads import LONGEST_SPAN
from vitlab.tasks import masked_lm
from vitlab.tasks.masked_lm import MaskedLM, gather_states


@dataclass(frozen=True)
class Batch(masked_lm.Batch):
    """The places left and right of each predicted token's span (B, K), and its own place in it from 0 (B, K)."""

    left: Tensor
    right: Tensor
    index: Tensor


class SpanLM(MaskedLM):
    head = "span"
    added = ("masked", "boundary")

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        if config.sequences == "pairs":
            raise UserError("task.sequences=pairs: SpanBERT has no pairs; choices: stream, documents")
        super().__init__(config, recipe, data, data_config)

    @property
    def most(self) -> int:
        return int(self.share * self.shape["length"]) + LONGEST_SPAN

    def hide(self, tokens: Tensor, maskable: Tensor, generator: Random) -> tuple[Tensor, ...]:
        spans = choose_spans(maskable, self.share, generator, longest=LONGEST_SPAN)
        places, filled = gather_chosen(spans.chosen, self.most)
        beside = (part.gather(1, places) for part in (spans.left, spans.right, spans.index))
        return self.corrupt_tokens(tokens, spans.chosen, generator, spans.groups), places, filled, *beside

    def batch(
        self,
        tokens: Tensor,
        mask: Tensor | None,
        segments: Tensor | None,
        follows: Tensor | None,
        hidden: tuple[Tensor, ...],
    ) -> Batch:
        left, right, index = hidden[3:]
        base = super().batch(tokens, mask, segments, follows, hidden[:3])
        return Batch(**vars(base), left=left, right=right, index=(index - 1).clamp(min=0))

    def example(self) -> Batch:
        base = super().example()
        zeros = torch.zeros_like(base.places)
        return Batch(**vars(base), left=zeros, right=zeros, index=zeros)

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """The masked tokens from what the model makes of their places, and from the boundary: equation 2."""
        logits, hidden = self.logits(model, batch)
        boundary = model.boundary_logits(
            gather_states(hidden, batch.left), gather_states(hidden, batch.right), batch.index
        )
        return {"masked": (logits, batch.targets), "boundary": (boundary, batch.targets)}


def build(config: TaskConfig, *, recipe: RecipeConfig, data: TextData, data_config: DataConfig) -> SpanLM:
    return SpanLM(config, recipe, data, data_config)
