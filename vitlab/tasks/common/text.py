"""What the text tasks share."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.config import UserError
from vitlab.config.exclusions import find_excluded
from vitlab.config.schema import RecipeConfig
from vitlab.data.base import TextData


class TokenInputs(NamedTuple):
    """Texts as a model takes them: tokens (B, N), mask bool (B, N), False at padding, segments (B, N) or None.

    special bool (B, N) is True at special tokens such as [CLS]. Of sources, `given` (B, T) is what a decoder reads of
    their targets, and `following` (B, T) what it predicts, IGNORE_INDEX at padding.
    """

    tokens: Tensor
    mask: Tensor
    segments: Tensor | None
    special: Tensor
    given: Tensor | None = None
    following: Tensor | None = None

    @classmethod
    def of(cls, tokens: Tensor, mask: Tensor | None, segments: Tensor | None, special: Sequence[int]) -> "TokenInputs":
        mask = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        return cls(tokens, mask, segments, torch.isin(tokens, torch.tensor(special, device=tokens.device)))

    def split(self, size: int) -> list["TokenInputs"]:
        """The same texts in chunks of at most `size`."""
        firsts = range(0, len(self.tokens), size)
        return [TokenInputs(*(None if part is None else part[k : k + size] for part in self)) for k in firsts]

    @property
    def options(self) -> dict[str, Tensor]:
        """What a model's forward takes beside the tokens."""
        return {"mask": self.mask} | ({} if self.segments is None else {"segments": self.segments})


def refuse_several_parts(data: TextData) -> None:
    """Raise UserError for data of pairs or choices: a language model would only read the first part."""
    if len(data.train.parts) > 1:
        raise UserError(
            f"data={data.name}: its texts have {len(data.train.parts)} parts; give one column of text, or "
            "task=text_classification, or task=translation for pairs"
        )


def refuse_image_recipe(recipe: RecipeConfig) -> None:
    """Raise UserError for a recipe with augmentation that is only for images."""
    problems = list(find_excluded(recipe, "text", "recipe"))
    if problems:
        raise UserError(problems)
