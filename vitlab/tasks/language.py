"""Models of language: next tokens (Radford et al., 2019), masked tokens and whether one segment follows another (BERT:
Devlin et al., 2019, section 3.1), masked spans (SpanBERT: Joshi et al., 2020, sections 3.1 to 3.3).

Shapes: B batch, N tokens of a sequence, K predicted places at most, V vocabulary.
"""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import Split, TextData
from vitlab.data.masking import Random, choose_spans, choose_tokens, corrupt, gather_chosen
from vitlab.data.sequences import IGNORE_INDEX, pack_texts, pair_segments
from vitlab.models.text import LONGEST_SPAN
from vitlab.tasks.base import (
    Measured,
    Task,
    TokenInputs,
    count_nats,
    sum_cross_entropy,
)
from vitlab.tasks.metrics import MASKED, PAIRS, SPANS, TOKENS

CausalBatch = tuple[Tensor, Tensor]  # tokens (B, N); the token after each (B, N), else IGNORE_INDEX
CHUNK = 4096  # sequences counted at a time


class SequenceTask(Task):
    """The base of tasks that cut texts into sequences."""

    item, head = "sequence", ""

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        if len(data.train.parts) > 1:  # a language model would only read the first
            raise UserError(
                f"data={data.name}: its texts have {len(data.train.parts)} parts; give one column of text, or "
                "task=text_classification, or task=translation for pairs"
            )
        self.eval_batch_size, self.label_smoothing = recipe.batch_size, recipe.label_smoothing
        self.tokenizer, self.outputs = data.tokenizer, data.tokenizer.size
        self.shape = {**data.shape, "head": self.head}


class CausalLM(SequenceTask):
    """Predicts each next token: cross-entropy, perplexity, bits per byte."""

    of, head = TOKENS, "next_token"

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        super().__init__(config, recipe, data, data_config)
        options = {"end": data.tokenizer.document_end, "length": data.length, "ahead": 1}
        options["within_texts"] = config.pack == "documents"
        self.train = pack_texts(data.train.parts[0], **options)
        self.validation, self.test = (
            pack_texts(texts.parts[0], **options, whole=False) for texts in (data.validation, data.test)
        )
        refuse_empty(self, data, f"are shorter than data.length={data.length} tokens; give less")
        tokens = len(data.test.parts[0].values) + len(data.test)
        self.bits_per_nat = tokens / data.test.size / math.log(2)  # bits per byte for each nat per token

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> CausalBatch:
        sequences = batch[0]
        tokens = sequences[:, :-1]
        return tokens.where(tokens != IGNORE_INDEX, self.tokenizer.pad), sequences[:, 1:]

    def inputs(self, batch: CausalBatch) -> TokenInputs:
        tokens, following = batch
        return TokenInputs.of(tokens, following != IGNORE_INDEX, None, self.tokenizer.special)

    def example(self) -> CausalBatch:
        tokens = torch.zeros(1, self.shape["length"], dtype=torch.int64, device="meta")
        return tokens, tokens

    def count_targets(self, batch: CausalBatch) -> Tensor:
        return (batch[1] != IGNORE_INDEX).sum()[None]

    def loss(self, model: nn.Module, batch: CausalBatch) -> Tensor:
        # padding needs no mask: it follows all predicted tokens, and a causal model does not look ahead
        tokens, following = batch
        return sum_cross_entropy(model(tokens), following, self.label_smoothing)[None]

    @cached_property
    def log_unigram(self) -> Tensor:
        """Log share of each token among the predicted tokens of training (V,), with Laplace smoothing."""
        indices = np.arange(len(self.train)) if self.training_indices is None else self.training_indices
        counts = np.ones(self.outputs)
        for first in range(0, len(indices), CHUNK):
            following = self.train.read(indices[first : first + CHUNK])[:, 1:]
            counts += np.bincount(following[following != IGNORE_INDEX], minlength=self.outputs)
        return torch.from_numpy(np.log(counts / counts.sum())).float()

    def measure(self, model: nn.Module, batch: CausalBatch, detailed: bool = False) -> Measured:
        """Return the nats of tokens; for unigram_perplexity, from the tokens' shares in training, without context.

        Counts bytes of the test texts in UTF-8 (validation texts: as many per token), so bits per byte compare models
        of different tokenizers if these are lossless; unknown tokens and lower case are cheaper.
        """
        tokens, following = batch
        counts = following != IGNORE_INDEX
        nats = count_nats(model(tokens), following)
        unigram = -self.log_unigram.to(following.device)[following[counts]]
        bits, own = nats[counts] * self.bits_per_nat, {"unigram_perplexity": [unigram], "outcomes": (nats, counts)}
        return {"": [nats[counts]], "bits_per_byte": [bits], **own}


NEXT = "next_sentence"
SEED = 0x5EED  # of the masks of held-out and statically masked sequences


class MaskedBatch(NamedTuple):
    """Hold a masked batch: tokens (B, N), mask bool (B, N) or None without padding, segments (B, N) or None.

    places (B, K) of the tokens to predict, targets (B, K), IGNORE_INDEX if a row has fewer; follows (B,) for pairs. For
    spans: the places left and right of each predicted token's span (B, K), and the token's place in it from 0 (B, K).
    """

    tokens: Tensor
    mask: Tensor | None
    segments: Tensor | None
    places: Tensor
    targets: Tensor
    follows: Tensor | None
    left: Tensor | None = None
    right: Tensor | None = None
    index: Tensor | None = None


class MaskedLM(SequenceTask):
    """Predicts masked tokens, and with `sequences=pairs` whether one segment follows another."""

    of = head = MASKED

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        super().__init__(config, recipe, data, data_config)
        if data.tokenizer.mask is None:
            raise UserError("data.tokenizer: has no mask token; give a tokenizer of a masked language model")
        self.share, self.dynamic = config.share, config.masking == "dynamic"
        self.pairs = config.sequences == "pairs"
        self.of = PAIRS if self.pairs else self.of
        parts = (data.train, data.validation, data.test)
        self.train, self.validation, self.test = (self.make_sequences(part, config, data.length) for part in parts)
        advice = "pairs need several documents: give task.sequences=stream" if self.pairs else "give less"
        refuse_empty(self, data, f"do not fill one sequence of data.length={data.length} tokens; {advice}")

    @property
    def added(self) -> tuple[str, ...]:
        """The terms of the loss, by name."""
        return ("masked", NEXT) if self.pairs else ("masked",)

    @property
    def most(self) -> int:
        """The largest number K of predicted tokens in a sequence."""
        return math.ceil(self.share * self.shape["length"])

    def make_sequences(self, texts: Any, config: TaskConfig, length: int) -> Split:
        roles = self.tokenizer
        if self.pairs:
            return pair_segments(texts.parts[0], (roles.start, roles.separator, roles.end), length)
        within = config.sequences == "documents"
        split = pack_texts(texts.parts[0], roles.document_end, length - 2, within_texts=within)
        numbers = np.arange(len(split))
        return replace(split, targets=np.stack([np.zeros_like(numbers), numbers], axis=1))

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> MaskedBatch:
        """Mask sequences: at random with a generator; without one, or with static masks, always in the same places."""
        items, (follows, numbers) = batch[0], batch[1].unbind(1)
        tokens, segments = items.unbind(1) if self.pairs else (self.add_special_tokens(items), None)
        mask = tokens != IGNORE_INDEX
        tokens = tokens.where(mask, self.tokenizer.pad)
        maskable = mask & ~torch.isin(tokens, torch.tensor(self.tokenizer.special, device=tokens.device))
        if generator is None or not self.dynamic:
            generator = [Generator().manual_seed(SEED + number) for number in numbers.tolist()]
        seen, places, filled, *beside = self.hide(tokens, maskable, generator)
        targets, mask = tokens.gather(1, places).where(filled, IGNORE_INDEX), None if mask.all() else mask
        return MaskedBatch(seen, mask, segments, places, targets, follows if self.pairs else None, *beside)

    def add_special_tokens(self, items: Tensor) -> Tensor:
        """Put the start token before each sequence and the end token behind its last token."""
        edge = items.new_full((len(items), 1), IGNORE_INDEX)
        tokens = torch.cat([edge, items, edge], dim=1)
        last = (tokens != IGNORE_INDEX).sum(dim=1, keepdim=True) + 1
        tokens = tokens.scatter(1, last, self.tokenizer.end)
        tokens[:, 0] = self.tokenizer.start
        return tokens

    def hide(self, tokens: Tensor, maskable: Tensor, generator: Random) -> tuple[Tensor, ...]:
        """Hide tokens (B, N); return the model's input, the places (B, K) to predict, and whether each is filled."""
        chosen = choose_tokens(maskable, self.share, generator)
        return self.corrupt_tokens(tokens, chosen, generator), *gather_chosen(chosen, self.most)

    def corrupt_tokens(self, tokens: Tensor, chosen: Tensor, generator: Random, groups: Tensor | None = None) -> Tensor:
        roles = self.tokenizer
        options = {"mask_token": roles.mask, "vocabulary": roles.size, "special": roles.special, "groups": groups}
        return corrupt(tokens, chosen, generator=generator, **options)

    def inputs(self, batch: MaskedBatch) -> TokenInputs:
        """Return the texts before masking."""
        tokens, rows = batch.tokens.clone(), torch.arange(len(batch.tokens), device=batch.tokens.device)[:, None]
        is_masked = batch.targets != IGNORE_INDEX
        tokens[rows.expand_as(is_masked)[is_masked], batch.places[is_masked]] = batch.targets[is_masked]
        return TokenInputs.of(tokens, batch.mask, batch.segments, self.tokenizer.special)

    def example(self) -> MaskedBatch:
        tokens = torch.zeros(1, self.shape["length"], dtype=torch.int64, device="meta")
        places = tokens[:, : self.most]
        segments, follows = (tokens, tokens[:, 0]) if self.pairs else (None, None)
        beside = [places] * 3 if self.of == SPANS else ()
        return MaskedBatch(tokens, None, segments, places, places, follows, *beside)

    def logits(self, model: nn.Module, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
        """Compute logits (B, K, V) of the masked tokens; return them with the hidden states (B, N, D)."""
        hidden = model(batch.tokens, batch.mask, batch.segments)
        return model.masked_logits(gather_states(hidden, batch.places)), hidden

    def terms(self, model: nn.Module, batch: MaskedBatch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the logits (..., C) and the targets (...) of each term of the loss, by name."""
        logits, hidden = self.logits(model, batch)
        terms = {"masked": (logits, batch.targets)}
        return terms if batch.follows is None else terms | {NEXT: (model.next_sentence_logits(hidden), batch.follows)}

    def count_targets(self, batch: MaskedBatch) -> Tensor:
        pairs = torch.tensor(len(batch.targets), device=batch.targets.device)
        masked = (batch.targets != IGNORE_INDEX).sum()
        return torch.stack([pairs if name == NEXT else masked for name in self.added])

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        """Sum the loss over masked tokens, and with pairs also over pairs; return an entry for each term."""
        terms = self.terms(model, batch).items()
        losses = [sum_cross_entropy(*term, 0.0 if name == NEXT else self.label_smoothing) for name, term in terms]
        return torch.stack(losses)

    def measure(self, model: nn.Module, batch: MaskedBatch, detailed: bool = False) -> Measured:
        """Return the nats of each term of the loss, and the outcomes of each sequence's masked tokens."""
        measured: dict[str, Any] = {"loss": []}
        for name, (logits, targets) in self.terms(model, batch).items():
            nats, counts = count_nats(logits, targets), targets != IGNORE_INDEX
            measured["loss"].append(nats[counts])
            measured[f"{name}_loss"] = [nats[counts]]
            measured[f"{name}_accuracy"] = [(logits.argmax(-1) == targets)[counts].float()]
            if name == "masked":
                measured |= {"perplexity": [nats[counts]], "outcomes": (nats, counts)}
        return measured


def refuse_empty(task: Task, data: TextData, problem: str) -> None:
    """Raise UserError with `problem` if the texts of a split give no sequence."""
    for name, split in (("training", task.train), ("validation", task.validation), ("held-out", task.test)):
        if not len(split):
            raise UserError(f"data={data.name}: its {name} texts {problem}")


def gather_states(hidden: Tensor, places: Tensor) -> Tensor:
    """Gather the states at places (B, K) of (B, N, D): (B, K, D)."""
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


class SpanLM(MaskedLM):
    """Predicts the tokens of masked spans, also from the two tokens beside each span."""

    of, head = SPANS, "span"
    added = ("masked", "boundary")

    @property
    def most(self) -> int:
        return int(self.share * self.shape["length"]) + LONGEST_SPAN

    def hide(self, tokens: Tensor, maskable: Tensor, generator: Random) -> tuple[Tensor, ...]:
        spans = choose_spans(maskable, self.share, generator, longest=LONGEST_SPAN)
        places, filled = gather_chosen(spans.chosen, self.most)
        left, right, index = (part.gather(1, places) for part in (spans.left, spans.right, spans.index))
        seen = self.corrupt_tokens(tokens, spans.chosen, generator, spans.groups)
        return seen, places, filled, left, right, (index - 1).clamp(min=0)

    def terms(self, model: nn.Module, batch: MaskedBatch) -> dict[str, tuple[Tensor, Tensor]]:
        """Predict masked tokens from the states at their places (masked) and at the span's boundary: equation 2."""
        logits, hidden = self.logits(model, batch)
        boundary = model.boundary_logits(
            gather_states(hidden, batch.left), gather_states(hidden, batch.right), batch.index
        )
        return {"masked": (logits, batch.targets), "boundary": (boundary, batch.targets)}
