"""Masked tokens, and whether one segment follows another (BERT: Devlin et al., 2019, section 3.1).

Shapes: B batch, N tokens of a sequence, K places that are predicted at most, V vocabulary.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torchmetrics import Metric, MetricCollection

from vitlab.config import UserError, choices_text
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import Split, TextData
from vitlab.data.masking import Random, RowGenerators, choose_tokens, corrupt, gather_chosen
from vitlab.data.sequences import IGNORE_INDEX, LEAST_PAIR, pack_texts, pair_segments
from vitlab.tasks.base import Task
from vitlab.tasks.common.metrics import ItemOutcomes, Mean, Perplexity, SumOfMeans
from vitlab.tasks.common.text import TokenInputs, refuse_image_recipe, refuse_several_parts

SEQUENCES = ("pairs", "stream", "documents")
MASKING = ("dynamic", "static")
LEAST_SHARE = 0.01  # of the tokens that are predicted
NEXT = "next_sentence"
SEED = 0x5EED  # of what held-out and statically masked sequences hide


@dataclass(frozen=True)
class Batch:
    """What the model sees: tokens (B, N), mask bool (B, N) or None where all are tokens, segments (B, N) or None.

    places (B, K) of the tokens to predict, targets (B, K), IGNORE_INDEX where a row has fewer; follows (B,) for pairs.
    """

    tokens: Tensor
    mask: Tensor | None
    segments: Tensor | None
    places: Tensor
    targets: Tensor
    follows: Tensor | None


class MaskedLM(Task):
    item = "sequence"
    head = "masked"

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        refuse_image_recipe(recipe)
        refuse_several_parts(data)
        self.eval_batch_size = recipe.batch_size
        refuse_options(config, data)
        self.tokenizer, self.share = data.tokenizer, config.share
        self.dynamic, self.pairs = config.masking == "dynamic", config.sequences == "pairs"
        self.shape = {**data.shape, "head": self.head}
        self.label_smoothing = recipe.label_smoothing
        parts = (data.train, data.validation, data.test)
        self.train, self.validation, self.test = (self.make_sequences(part, config, data.length) for part in parts)
        named = {"training": self.train, "validation": self.validation, "held-out": self.test}
        for name, split in named.items():
            if not len(split):
                raise UserError(
                    f"data={data.name}: its {name} texts do not fill one sequence of data.length={data.length} tokens; "
                    + ("pairs need several documents: give task.sequences=stream" if self.pairs else "give less")
                )

    @property
    def added(self) -> tuple[str, ...]:
        """The terms of the loss, by name."""
        return ("masked", NEXT) if self.pairs else ("masked",)

    @property
    def most(self) -> int:
        """The most tokens of a sequence that are predicted, K."""
        return math.ceil(self.share * self.shape["length"])

    def make_sequences(self, texts: Any, config: TaskConfig, length: int) -> Split:
        roles = self.tokenizer
        if self.pairs:
            return pair_segments(texts.parts[0], (roles.start, roles.separator, roles.end), length)
        within = config.sequences == "documents"
        split = pack_texts(texts.parts[0], roles.document_end, length - 2, within_texts=within)
        numbers = np.arange(len(split))
        return replace(split, targets=np.stack([np.zeros_like(numbers), numbers], axis=1))

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> Batch:
        """Masked at random with a generator; without one, or statically, a sequence is always masked the same way."""
        items, (follows, numbers) = batch[0], batch[1].unbind(1)
        tokens, segments = items.unbind(1) if self.pairs else (self.add_special_tokens(items), None)
        mask = tokens != IGNORE_INDEX
        tokens = tokens.where(mask, self.tokenizer.pad)
        maskable = mask & ~torch.isin(tokens, torch.tensor(self.tokenizer.special, device=tokens.device))
        if generator is None or not self.dynamic:
            generator = RowGenerators([SEED + number for number in numbers.tolist()])
        hidden = self.hide(tokens, maskable, generator)
        return self.batch(tokens, None if mask.all() else mask, segments, follows if self.pairs else None, hidden)

    def add_special_tokens(self, items: Tensor) -> Tensor:
        """start, the tokens, end; where a sequence has fewer the end follows its last."""
        edge = items.new_full((len(items), 1), IGNORE_INDEX)
        tokens = torch.cat([edge, items, edge], dim=1)
        last = (tokens != IGNORE_INDEX).sum(dim=1, keepdim=True) + 1
        tokens = tokens.scatter(1, last, self.tokenizer.end)
        tokens[:, 0] = self.tokenizer.start
        return tokens

    def hide(self, tokens: Tensor, maskable: Tensor, generator: Random) -> tuple[Tensor, ...]:
        """What the model sees for tokens (B, N), and the places (B, K) of what it predicts, with those that count."""
        chosen = choose_tokens(maskable, self.share, generator)
        return self.corrupt_tokens(tokens, chosen, generator), *gather_chosen(chosen, self.most)

    def corrupt_tokens(self, tokens: Tensor, chosen: Tensor, generator: Random, groups: Tensor | None = None) -> Tensor:
        return corrupt(
            tokens,
            chosen,
            mask_token=self.tokenizer.mask,
            vocabulary=self.tokenizer.size,
            special=self.tokenizer.special,
            generator=generator,
            groups=groups,
        )

    def batch(
        self,
        tokens: Tensor,
        mask: Tensor | None,
        segments: Tensor | None,
        follows: Tensor | None,
        hidden: tuple[Tensor, ...],
    ) -> Batch:
        seen, places, filled = hidden
        targets = tokens.gather(1, places).where(filled, IGNORE_INDEX)
        return Batch(seen, mask, segments, places, targets, follows)

    def inputs(self, batch: Batch) -> TokenInputs:
        """The texts as they were before anything was hidden."""
        tokens, rows = batch.tokens.clone(), torch.arange(len(batch.tokens), device=batch.tokens.device)[:, None]
        is_masked = batch.targets != IGNORE_INDEX
        tokens[rows.expand_as(is_masked)[is_masked], batch.places[is_masked]] = batch.targets[is_masked]
        return TokenInputs.of(tokens, batch.mask, batch.segments, self.tokenizer.special)

    def example(self) -> Batch:
        tokens = torch.zeros(1, self.shape["length"], dtype=torch.int64, device="meta")
        places = tokens[:, : self.most]
        segments, follows = (tokens, tokens[:, 0]) if self.pairs else (None, None)
        return Batch(tokens, None, segments, places, places, follows)

    def logits(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """(B, K, V) of the masked tokens, and the hidden states (B, N, D) that they are read from."""
        hidden = model(batch.tokens, batch.mask, batch.segments)
        return model.masked_logits(gather_states(hidden, batch.places)), hidden

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """What the loss adds up, by name: the logits (..., C) and the targets (...) of each term."""
        logits, hidden = self.logits(model, batch)
        terms = {"masked": (logits, batch.targets)}
        return terms if batch.follows is None else terms | {NEXT: (model.next_sentence_logits(hidden), batch.follows)}

    def count_targets(self, batch: Batch) -> Tensor:
        pairs = torch.tensor(len(batch.targets), device=batch.targets.device)
        masked = (batch.targets != IGNORE_INDEX).sum()
        return torch.stack([pairs if name == NEXT else masked for name in self.added])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum over masked tokens, and where there are pairs the sum over them."""
        terms = self.terms(model, batch)
        return torch.stack([self.cross_entropy(*terms[name], smoothed=name != NEXT) for name in self.added])

    def cross_entropy(self, logits: Tensor, targets: Tensor, smoothed: bool = True) -> Tensor:
        """(..., C), (...) -> the sum; 0 where nothing is to be predicted."""
        options = {"ignore_index": IGNORE_INDEX, "label_smoothing": self.label_smoothing if smoothed else 0.0}
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum", **options)

    def metrics(self, detailed: bool = False) -> MetricCollection:
        """loss (nats), the sum that training makes small, perplexity and masked_accuracy of the masked tokens.

        Where the sum has several terms each is a metric too: masked_loss and next_sentence_loss, with pairs, beside
        next_sentence_accuracy; boundary_loss of SpanBERT. `detailed` adds outcomes, each sequence's nats of its masked
        tokens.
        """
        metrics: dict[str, Metric] = {"loss": SumOfMeans(len(self.added))}
        metrics |= {"perplexity": Perplexity(), "masked_accuracy": Mean()}
        if len(self.added) > 1:
            metrics |= {f"{name}_loss": Mean() for name in self.added}
        if self.pairs:
            metrics["next_sentence_accuracy"] = Mean()
        if detailed:
            metrics["outcomes"] = ItemOutcomes()
        return MetricCollection(metrics, compute_groups=False)

    def update(self, metrics: MetricCollection, model: nn.Module, batch: Batch) -> None:
        terms = self.terms(model, batch)
        counts = {name: targets != IGNORE_INDEX for name, (_, targets) in terms.items()}
        terms = {
            name: (logits[counts[name]].float(), targets[counts[name]]) for name, (logits, targets) in terms.items()
        }
        nats = {name: F.cross_entropy(*term, reduction="none") for name, term in terms.items()}
        right = {name: (logits.argmax(-1) == targets).float() for name, (logits, targets) in terms.items()}
        metrics["loss"].update(*(nats[name] for name in self.added))
        metrics["perplexity"].update(nats["masked"])
        if "outcomes" in metrics:
            masked = counts["masked"]
            metrics["outcomes"].update(
                nats["masked"].new_zeros(masked.shape).masked_scatter(masked, nats["masked"]), masked
            )
        for name, metric in metrics.items():
            term, _, what = name.rpartition("_")
            if term:
                metric.update({"loss": nats, "accuracy": right}[what][term])


def gather_states(hidden: Tensor, places: Tensor) -> Tensor:
    """The states of (B, N, D) at places (B, K): (B, K, D)."""
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


def refuse_options(config: TaskConfig, data: TextData) -> None:
    """Raise UserError for invalid options, and for a tokenizer without a mask token."""
    problems = [
        f"task.{key}={vars(config)[key]}: unknown; {choices_text(vars(config)[key], choices)}"
        for key, choices in (("sequences", SEQUENCES), ("masking", MASKING))
        if key in vars(config) and vars(config)[key] not in choices
    ]
    if not LEAST_SHARE <= config.share < 1:
        problems.append(f"task.share={config.share}: must be at least {LEAST_SHARE} and below 1")
    if config.sequences == "pairs" and data.length < LEAST_PAIR:
        problems.append(f"data.length={data.length}: too short for a pair of segments; give at least {LEAST_PAIR}")
    if data.tokenizer.mask is None:
        problems.append("data.tokenizer: has no mask token; give a tokenizer of a masked language model")
    if problems:
        raise UserError(problems)


def build(config: TaskConfig, *, recipe: RecipeConfig, data: TextData, data_config: DataConfig) -> MaskedLM:
    return MaskedLM(config, recipe, data, data_config)
