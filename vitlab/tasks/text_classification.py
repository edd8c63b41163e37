"""Fine-tuning on texts: a class of a text or a pair, the right one of several choices, a number, a tag of each token,
or the place of a question's answer in a text.

The data decide which. Inputs are GPT's and BERT's (vitlab.data.sequences).

Shapes: B batch, S sequences of an item (absent if it is one), N tokens, D width.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor, nn

from vitlab.config.errors import raise_all
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import TextData
from vitlab.data.sequences import IGNORE_INDEX, frame_texts
from vitlab.data.text import NO_TAG
from vitlab.tasks.base import Measured, TargetTask, TokenInputs, find_batch_length, read_written, sum_cross_entropy
from vitlab.tasks.metrics import ANSWERS, CHOICES, NUMBERS, TAGS, TEXTS

if TYPE_CHECKING:
    from vitlab.data.text.tokenization import Tokenizer


class Batch(NamedTuple):
    """tokens (B, [S,] N), mask of the same shape, False for padding, None where there is none; segments; targets:
    classes, choices or numbers (B,), tags (B, N); written (B, W): texts and answers as read.
    """

    tokens: Tensor
    mask: Tensor | None
    segments: Tensor
    targets: Tensor
    written: Tensor | None = None

    def flatten(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """Flatten tokens, mask and segments to (B * S, N) each."""
        return tuple(None if part is None else part.flatten(0, -2) for part in self[:3])


class TextClassification(TargetTask):
    """Classification of texts, with `lm` times the next tokens' loss added (`task.auxiliary_lm`)."""

    item = "text"

    def __init__(
        self, recipe: RecipeConfig, data: TextData, of: str, outputs: int, lm: float = 0.0, both_orders: bool = False
    ):
        self.tokenizer, self.eval_batch_size, self.auxiliary_lm = data.tokenizer, recipe.batch_size, lm
        self.tagged, self.choices = of == TAGS, of == CHOICES
        self.sequences = outputs if self.choices else 1 + both_orders
        self.shape = {
            **data.shape,
            "num_classes": 1 if self.choices else outputs,
            "head": "tags" if self.tagged else "classes",
        }
        splits = (
            frame_texts(split, data.tokenizer, data.length, both_orders=both_orders)
            for split in (data.train, data.validation, data.test)
        )
        super().__init__(of, outputs, recipe, data, *splits)

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> Batch:
        planes, targets = batch
        return Batch(*read_planes(planes, self.tokenizer.pad), planes[..., 2, :] if self.tagged else targets)

    def inputs(self, batch: Batch) -> TokenInputs:
        return TokenInputs.of(*batch.flatten(), self.tokenizer.special)

    @cached_property
    def length(self) -> int:
        """The tokens of a training batch, in the mean, where padding is trimmed."""
        count = lambda rows: (self.train.read(rows)[..., 0, :] != IGNORE_INDEX).sum(axis=-1)  # noqa: E731
        return find_batch_length(count, len(self.train), self.eval_batch_size)

    def example(self) -> Batch:
        several = () if self.sequences == 1 else (self.sequences,)
        tokens = torch.zeros(1, *several, self.shape["length"], dtype=torch.int64, device="meta")
        targets = tokens if self.tagged else torch.zeros(1, dtype=self.dtype, device="meta")
        return Batch(tokens, None, tokens, targets)

    def count_targets(self, batch: Batch) -> Tensor:
        """Count the targets and, with `auxiliary_lm`, the next tokens."""
        counts = [int((batch.targets != NO_TAG).sum()) if self.tagged else len(batch.targets)]
        if self.auxiliary_lm:
            tokens, mask, _ = batch.flatten()
            counts.append(int((torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask)[:, 1:].sum()))
        return torch.tensor(counts, device=batch.tokens.device)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the targets' loss and, scaled by `auxiliary_lm`, the next tokens' (Radford et al., 2018, eq. 5)."""
        if not self.auxiliary_lm:
            return super().loss(model, batch)
        tokens, mask, segments = trim_padding(model, *batch.flatten(), self.length)
        hidden = model.hidden(tokens, mask, segments)
        logits = self.combine_sequences(model.logits(model.read(hidden, mask)), batch)
        lm = self.auxiliary_lm * next_token_loss(model, hidden, tokens, mask)
        return torch.stack([self.sum_losses(*logits), lm])

    def combine_sequences(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Combine logits of sequences (B * S, outputs) or tokens (B, M, C) into logits of items; return targets too.

        The logits of both orders are added: the head is linear, so it reads the sum of the body's outputs for both
        (Radford et al., 2018, section 3.3).
        """
        if self.tagged:
            return logits, batch.targets[:, : logits.shape[1]]
        if self.sequences == 1:
            return logits, batch.targets
        logits = logits.unflatten(0, (-1, self.sequences))
        return logits[..., 0] if self.choices else logits.sum(dim=1), batch.targets

    def answer(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the logits of a prepared batch; return its targets too."""
        return self.combine_sequences(model(*trim_padding(model, *batch.flatten(), self.length)).float(), batch)


LONGEST_ANSWER = 30  # tokens


class SpanExtraction(TextClassification):
    """Place of an answer in a text, as its first and last token: BERT's `start question separator text end`, two logits
    a token (Devlin et al., 2019, section 4.2). A question without an answer has it at the first token (section 4.3).
    """

    def __init__(self, recipe: RecipeConfig, data: TextData):
        super().__init__(recipe, data, TAGS, 2)
        self.of = ANSWERS

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> Batch:
        """Make marks (B, N) the targets: 0 for the text and the first token, 1 within the answer, NO_TAG elsewhere."""
        planes, written = batch[0].tensor_split([self.shape["length"]], -1)
        made = super().prepare((planes, batch[1]))
        made.targets[:, 0] = 0
        return made._replace(written=written[:, 0])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return count_span_nats(*self.answer(model, batch)).sum()[None]

    def count_targets(self, batch: Batch) -> Tensor:
        return torch.tensor([len(batch.tokens)], device=batch.tokens.device)

    def measure(self, model: nn.Module, batch: Batch, detailed: bool = False) -> Measured:
        """Return nats of both ends, and exact matches and F1 of words as SQuAD's (`score_answer`), one answer each,
        cut out of the text and compared as read.
        """
        from vitlab.tasks.measures import score_answer

        logits, marks = self.answer(model, batch)
        texts, given = zip(*read_written(batch.written), strict=True)
        pairs = zip(read_spans(self.tokenizer, texts, marks, find_spans(logits, marks)[0][:, 0]), given, strict=True)
        scores = torch.tensor([score_answer(*pair) for pair in pairs], device=logits.device)
        matches, f1 = scores.unbind(1)
        return {"loss": [count_span_nats(logits, marks)], "exact_match": [matches], "outcomes": [matches], "f1": [f1]}


def read_spans(tokenizer: "Tokenizer", texts: Sequence[str], marks: Tensor, spans: Tensor) -> list[str]:
    """Cut a span (2,) of tokens out of each text, which begins where marks (B, N) do; the first token is no text."""
    begins, found = 1 + (marks[:, 1:] != NO_TAG).int().argmax(dim=1), []
    for text, begin, (first, last) in zip(texts, begins.tolist(), spans.tolist(), strict=True):
        places = tokenizer.inner.encode(text, add_special_tokens=False).offsets
        found.append(text[places[first - begin][0] : places[last - begin][1]].strip() if last else "")
    return found


def find_answers(marks: Tensor) -> Tensor:
    """Find the first and last token (B, 2) of the answers that marks (B, N) tell; 0, 0 if there is none."""
    inside = (marks == 1).int()
    last = inside.shape[1] - 1 - inside.flip(1).argmax(dim=1)
    return torch.stack([inside.argmax(dim=1), last.where(inside.any(dim=1), 0)], dim=1)


def span_log_probabilities(logits: Tensor, marks: Tensor) -> Tensor:
    """Compute each token's log-probability to be an answer's first and last (B, N, 2), if marks allow it."""
    return logits.float().masked_fill((marks == NO_TAG)[..., None], -torch.inf).log_softmax(dim=1)


def count_span_nats(logits: Tensor, marks: Tensor) -> Tensor:
    """Compute the cross-entropy of both ends of each answer, added (B,)."""
    return -span_log_probabilities(logits, marks).gather(1, find_answers(marks)[:, None]).sum(dim=(1, 2))


def find_spans(logits: Tensor, marks: Tensor, count: int = 1) -> tuple[Tensor, Tensor]:
    """Find the likeliest spans (B, count, 2), of at most LONGEST_ANSWER tokens, and their log-probabilities (B, count).

    A span is likely as its first and its last token are; 0, 0 says that there is no answer.
    """
    first, last = span_log_probabilities(logits, marks).unbind(dim=-1)
    scores = first[:, :, None] + last[:, None, :]
    allowed = torch.ones_like(scores[0], dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
    allowed[0, 1:] = False
    best = scores.masked_fill(~allowed, -torch.inf).flatten(1).topk(count)
    return torch.stack([best.indices // first.shape[1], best.indices % first.shape[1]], dim=-1), best.values


def read_planes(planes: Tensor, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Read framed texts (..., 2 or 3, N) as tokens, mask and segments (..., N)."""
    tokens = planes[..., 0, :]
    mask = tokens != IGNORE_INDEX
    return tokens.where(mask, pad), mask, planes[..., 1, :]


def trim_padding(
    model: nn.Module, tokens: Tensor, mask: Tensor | None, segments: Tensor, length: int | None = None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Trim sequences (M, N) of the padding that all of them share, those without a mask to a length.

    A body that does not ignore padding gets whole sequences.
    """
    if not model.text.supports_padding_mask:
        return tokens, mask, segments
    longest = length if mask is None else int(mask.any(dim=0).sum())
    return tokens[:, :longest], None if mask is None else mask[:, :longest], segments[:, :longest]


def next_token_loss(model: nn.Module, hidden: Tensor, tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Sum the cross-entropy of the tokens (M, N) after the first by the hidden states (M, N, D) before them."""
    before, following = hidden[:, :-1], tokens[:, 1:]
    if mask is not None:
        before, following = before[mask[:, 1:]], following[mask[:, 1:]]
    return sum_cross_entropy(model.unembed(before), following)


def list_problems(config: TaskConfig, data: TextData) -> Iterator[str]:
    """Yield the reasons why a data set does not fit this task, one line per problem."""
    texts, parts = data.train, len(data.train.parts)
    if config.kind == "span_extraction":
        if texts.tags is None or parts != 2:
            yield f"data={data.name}: has no answers within texts; give data=facts, or data=squad data.path=FILE"
        return
    if texts.tags is not None and parts > 1:
        yield f"data={data.name}: has answers within texts; give task=span_extraction"
        return
    if config.both_orders and parts != 2:
        yield f"task.both_orders=true: is for pairs, data={data.name} has {parts} part{'s' * (parts > 1)}; give false"
    if texts.targets is not None or parts > 2:
        return
    if not data.classes:
        yield (
            f"data={data.name}: has no classes, targets or tags to predict; give data=docstrings, or task=causal_lm, "
            "which needs none"
        )
    elif len(data.classes) == 1:
        yield f"data={data.name}: has the one class '{data.classes[0]}'; give at least two"


def build(config: TaskConfig, *, recipe: RecipeConfig, data: TextData, data_config: DataConfig) -> TextClassification:
    raise_all(list_problems(config, data))
    texts = data.train
    if config.kind == "span_extraction":
        return SpanExtraction(recipe, data)
    of, outputs = TEXTS if texts.tags is None else TAGS, len(data.classes)
    if texts.targets is not None and texts.tags is None:
        of, outputs = NUMBERS, 1
    elif len(texts.parts) > 2:
        of, outputs = CHOICES, len(texts.parts) - 1
    return TextClassification(recipe, data, of, outputs, config.auxiliary_lm, config.both_orders)
