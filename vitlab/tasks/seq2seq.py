"""Tasks whose target is generated from an input: translation, summaries, T5's pre-training, captions.

Shapes: B batch, S tokens of a source, N of a target, V vocabulary; C channels, Y x X pixels, K captions of a picture.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torchmetrics import MetricCollection

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import BREAK, CaptionData, Split, TextData, Texts
from vitlab.data.masking import Random, choose_corrupted, corrupt_spans, plan_lengths
from vitlab.data.sequences import IGNORE_INDEX, join_pairs, pack_texts
from vitlab.data.text.corpus import SPLITS, join_rows
from vitlab.formatting import plural
from vitlab.models.decoding import write
from vitlab.tasks.base import (
    Measured,
    Task,
    TokenInputs,
    count_nats,
    find_batch_length,
    read_written,
    sum_cross_entropy,
)
from vitlab.tasks.images import ImagePreparation
from vitlab.tasks.language import SEED
from vitlab.tasks.measures import Decoded, Score, score_captions, score_exact_match, score_summaries, score_translation
from vitlab.tasks.metrics import CAPTIONS, TARGETS


class SourceTargetBatch(NamedTuple):
    """inputs: tokens (B, S), or images (B, C, Y, X); mask bool (B, S), False at padding, or None; given (B, N): tokens
    for the decoder; following (B, N): tokens to predict, IGNORE_INDEX where there is none; part (B,): of a mixture;
    written (B, W): held-out sources and targets as read, or of images (B, K, W) all captions.
    """

    inputs: Tensor
    mask: Tensor | None
    given: Tensor
    following: Tensor
    part: Tensor | None = None
    written: Tensor | None = None


SENTINELS = 100  # of T5's tokenizer


class SequenceToSequence(Task):
    """A task with teacher forcing: cross-entropy of each target token, given the input and the tokens before it.

    A `decoder_only` model reads a source and its target as one sequence: a batch's `given` then holds whole sequences,
    `inputs` the part before the target. Of summaries `words` is their mean number of words in validation.
    """

    item, of, writes_texts = "pair", TARGETS, True
    decoder_only, words = False, None

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        if len(data.train.parts) != 2:
            raise UserError(
                f"data={data.name}: has {plural(len(data.train.parts), 'text')} an item; task={config.name} needs a "
                "source and a target, such as data=numbers, or data=tsv with data.text=[SOURCE,TARGET]"
            )
        treat_long_pairs(data, config.long)
        self.set_options(config, recipe, data)
        self.ends, self.decoder_only = (data.length, data.length + data.target_length + 1), bool(config.one_sequence)
        if self.decoder_only:
            self.shape = {**data.shape, "length": data.length + data.target_length, "head": "next_token"}
        if config.kind == "summarization":
            self.scores = (score_summaries,)
            counts = [len(bytes(row).split(BREAK)[1].decode().split()) for row in data.validation.written]
            self.words = round(sum(counts) / len(counts))
        self.train, self.validation, self.test = (
            join_pairs(texts, data.tokenizer, data.length, data.target_length, whole=config.long == "leave_out")
            for texts in (data.train, data.validation, data.test)
        )

    def set_options(self, config: TaskConfig, recipe: RecipeConfig, data: TextData | CaptionData) -> None:
        """Set the options that do not depend on the kind of the inputs."""
        self.tokenizer, self.exact, self.target_length = data.tokenizer, data.exact, data.target_length
        self.outputs = data.tokenizer.size
        self.strata = data.classes  # of a mixture: the names of its parts
        self.search = {key: vars(config)[key] for key in ("beams", "length_penalty") if key in vars(config)}
        self.label_smoothing, self.batch_size = recipe.label_smoothing, recipe.batch_size
        self.eval_batch_size = max(recipe.batch_size, 64)
        self.shape = {**data.shape, "target_length": data.target_length, "head": "seq2seq"}
        # these compare generated texts with the wanted ones
        self.scores: tuple[Score, ...] = (score_exact_match if self.exact else score_translation,)

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> SourceTargetBatch:
        tokens, part = batch
        source, target, written = tokens.tensor_split(self.ends, 1)
        made = make_batch(source, target, self.tokenizer.pad, part)._replace(written=written)
        return join_sequences(made, self.tokenizer) if self.decoder_only else made

    def inputs(self, batch: SourceTargetBatch) -> TokenInputs:
        """Return the sources, with the decoder's inputs and targets; or the whole sequences."""
        if self.decoder_only:
            used = batch.mask.sum(dim=1) + (batch.following != IGNORE_INDEX).sum(dim=1)
            mask = torch.arange(batch.given.shape[1], device=used.device) < used[:, None]
            return TokenInputs.of(batch.given, mask, None, self.tokenizer.special)
        made = TokenInputs.of(batch.inputs, batch.mask, None, self.tokenizer.special)
        return made._replace(given=batch.given, following=batch.following)

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """The tokens of `inputs` and `given` of a training batch, in the mean: padding is trimmed."""
        size, first = (len(self.train), self.batch_size), self.shape["length"] - self.target_length * self.decoder_only
        parts = slice(first), slice(first + 1, None), slice(None)
        used = [lambda rows, part=part: (self.train.read(rows)[:, part] != IGNORE_INDEX).sum(1) for part in parts]
        source, target, both = (find_batch_length(count, *size) for count in used)
        return source, both - 2 if self.decoder_only else target

    def example(self) -> SourceTargetBatch:
        source, target = (torch.zeros(1, length, dtype=torch.int64, device="meta") for length in self.lengths)
        return SourceTargetBatch(source, None, target, target)

    def logits(self, model: nn.Module, batch: SourceTargetBatch) -> Tensor:
        """Compute logits (B, N, V) of the token after each token of `given`."""
        if self.decoder_only:  # padding needs no mask: it is behind all that is predicted, where no token looks
            return model(batch.given)
        return model(batch.inputs, batch.given, batch.mask)

    def count_targets(self, batch: SourceTargetBatch) -> Tensor:
        return (batch.following != IGNORE_INDEX).sum()[None]

    def loss(self, model: nn.Module, batch: SourceTargetBatch) -> Tensor:
        return sum_cross_entropy(self.logits(model, batch), batch.following, self.label_smoothing)[None]

    def metrics(self, detailed: bool = False) -> MetricCollection:
        """Make the metrics of targets; `detailed` adds those of generated texts, and of each part of a mixture, such as
        `exact_match_NAME`. Outcomes are whether each text is right, or else each target's nats.

        Of summaries it also adds rouge1_lead, rouge2_lead, rouge_l_lead, which score the lead baseline: the first words
        of each text, as many as a validation summary has in the mean.
        """
        metrics = super().metrics(detailed)
        if detailed and self.writes_texts:
            scores = dict.fromkeys((score_exact_match, *self.scores))
            texts = {f"texts_{name}": Decoded(*scores, suffix=f"_{name}") for name in self.strata}
            metrics.add_metrics({"texts": Decoded(*self.scores), **texts})
        if detailed and self.words is not None:
            metrics.add_metrics({"lead": Decoded(*self.scores, suffix="_lead")})
        return metrics

    def measure(self, model: nn.Module, batch: SourceTargetBatch, detailed: bool = False) -> Measured:
        nats, counts = count_nats(self.logits(model, batch), batch.following), batch.following != IGNORE_INDEX
        measured = {"": [nats[counts]], "outcomes": (nats, counts)}
        if detailed and self.writes_texts:
            written, (wanted, *sources) = self.write(model, batch), self.read(batch)
            measured |= self.compare_texts(batch, written, wanted, *sources)
            if self.exact:
                right = [text.strip() == other.strip() for text, other in zip(written, wanted, strict=True)]
                measured["outcomes"] = [torch.tensor(right, device=counts.device)]
        return measured

    def read(self, batch: SourceTargetBatch) -> tuple[list[Any], ...]:
        """Return the texts that are right, as `scores` take them, and the sources: as read, which lossy tokenizers do
        not give back.
        """
        sources, wanted = map(list, zip(*read_written(batch.written), strict=True))
        return wanted, sources

    def compare_texts(
        self, batch: SourceTargetBatch, written: list[str], wanted: list[Any], sources: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the texts written for a batch, the wanted ones and the sources, by the metric that compares them."""
        whole, compared = (written, wanted, sources), {}
        for number, name in enumerate(self.strata):
            rows = (batch.part == number).nonzero()[:, 0].tolist()
            compared[f"texts_{name}"] = [[texts[row] for row in rows] for texts in whole]
        if self.words is not None:
            compared["lead"] = [" ".join(text.split()[: self.words]) for text in sources], wanted
        return {"texts": whole, **compared}

    def write(self, model: nn.Module, batch: SourceTargetBatch) -> list[str]:
        """Generate texts from the inputs, up to the end; a decoder-only model reads sources of one length together."""
        options = {**self.search, "end": self.tokenizer.end}
        if not self.decoder_only:
            decoding = model.decoding(batch.inputs, batch.mask)
            return [self.decode(row) for row in write(decoding, batch.given[:, :1], self.target_length, **options)]
        texts, lengths = [""] * len(batch.inputs), batch.mask.sum(dim=1)
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero()[:, 0].tolist()
            written = write(model.decoding(), batch.inputs[rows, :length], self.target_length, **options)
            for row, tokens in zip(rows, written, strict=True):
                texts[row] = self.decode(tokens)
        return texts

    def decode(self, tokens: Any) -> str:
        return self.tokenizer.decode(tokens.tolist())


def make_batch(source: Tensor, target: Tensor, pad: int, part: Tensor | None = None) -> SourceTargetBatch:
    """Make a batch of sources (B, S) and targets (B, 1 + T), which begin with the decoder's start token."""
    source, target = trim(source), trim(target)
    mask, given = source != IGNORE_INDEX, target[:, :-1]
    given = given.where(given != IGNORE_INDEX, pad)
    return SourceTargetBatch(source.where(mask, pad), mask, given, target[:, 1:], part)


def join_sequences(batch: SourceTargetBatch, tokenizer: Any) -> SourceTargetBatch:
    """Join each source and its target to one sequence; what ends the source separates the two."""
    inputs = batch.inputs.scatter(1, batch.mask.sum(dim=1, keepdim=True) - 1, tokenizer.separator)
    tokens = torch.cat([inputs.where(batch.mask, IGNORE_INDEX), batch.following], dim=1)
    # padding between the two moves to the end
    order = (tokens == IGNORE_INDEX).int().argsort(dim=1, stable=True)
    tokens = trim(tokens.gather(1, order))
    of_target = order[:, : tokens.shape[1]] >= inputs.shape[1]
    given = tokens.where(tokens != IGNORE_INDEX, tokenizer.pad)[:, :-1]
    return batch._replace(inputs=inputs, given=given, following=tokens.where(of_target, IGNORE_INDEX)[:, 1:])


@cache  # a study builds the task of its data many times
def say(line: str) -> None:
    warnings.warn(line, stacklevel=1)


def treat_long_pairs(data: TextData, long: str) -> None:
    """Say how many pairs of each split have a text beyond the data's lengths, and what `task.long` does with them.

    Raises UserError where it refuses them, or would leave none of a split.
    """
    room, needed = np.array([data.length, data.target_length]), np.zeros(2, dtype=int)
    counts, empty = [], False
    for split, texts in data.splits.items():
        lengths = np.stack([part.lengths for part in texts.parts], axis=1) + 1  # with the end
        needed = np.maximum(needed, lengths.max(axis=0))
        if count := int((lengths > room).any(axis=1).sum()):
            counts.append(f"{count:,} of {len(texts):,} {SPLITS[split]} pairs")
            empty |= count == len(texts)
    if not counts:
        return
    short = [(f"data.{key}=", *both) for key, *both in zip(("length", "target_length"), room, needed, strict=True)]
    keys = " or ".join(f"{key}{have}" for key, have, most in short if most > have)
    enough = " ".join(f"{key}{most}" for key, have, most in short if most > have)
    line = f"data={data.name}: {', '.join(counts)} are longer in tokens than {keys}"
    if long == "refuse" or (long == "leave_out" and empty):
        raise UserError(f"{line}; give {enough}, or task.long=cut{'' if empty else '|leave_out'}")
    advice = "" if empty else "; task.long=leave_out leaves them out"
    say(f"{line}: {'left out' if long == 'leave_out' else f'cut there{advice}'}")


def trim(tokens: Tensor) -> Tensor:
    """Trim columns at the end of (B, N) that are padding in every row."""
    used = (tokens != IGNORE_INDEX).any(dim=0).sum()
    return tokens[:, : int(used)]


class SpanCorruption(SequenceToSequence):
    """Sequences of a stream over all texts, each long enough to fill `data.length` tokens of the encoder.

    Pairs are read as texts one after the other, so that a model can be pre-trained on the training texts of its later
    task, without the held-out ones.
    """

    item = "sequence"
    writes_texts = False  # what stands in a span is too open for whole texts to be compared

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        self.share, self.mean_span = config.share, config.mean_span
        self.plan = plan_lengths(data.length, config.share, config.mean_span)
        self.lengths = self.plan.source, self.plan.target
        tokenizer = data.tokenizer.with_sentinels(max(SENTINELS, self.plan.spans + 1))
        # a summary that the run is fine-tuned for may be longer than the spans
        length = max(self.plan.target, data_config.target_length or 0)
        self.set_options(
            config, recipe, replace(data, tokenizer=tokenizer, target_length=length, exact=False, classes=())
        )
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
        """Corrupt random spans with a generator; without it, a sequence always has the same spans."""
        tokens, numbers = batch
        draw: Random = generator or [Generator().manual_seed(SEED + number) for number in numbers.tolist()]
        lengths = (tokens != IGNORE_INDEX).sum(dim=1)
        corrupted = choose_corrupted(lengths, tokens.shape[1], self.share, self.mean_span, draw)
        source, target = corrupt_spans(
            tokens, corrupted, self.tokenizer.sentinels, self.tokenizer.end, self.plan.source, self.plan.target
        )
        return make_batch(source, F.pad(target, (1, 0), value=self.tokenizer.decoder_start), self.tokenizer.pad)


class Captioning(SequenceToSequence):
    """Captions with teacher forcing: training takes a caption of each picture at random, evaluation the first."""

    item, of = "image", CAPTIONS

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: CaptionData, data_config: DataConfig):
        if not isinstance(data, CaptionData):
            raise UserError(f"data={data.name}: has no captions; give data=captioned_glyphs, or data=captions")
        self.set_options(config, recipe, data)
        self.scores = self.scores if self.exact else (score_captions,)
        self.images = ImagePreparation(recipe, data_config)
        self.train, self.validation, self.test = data.train, data.validation, data.test

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> SourceTargetBatch:
        images, captions = batch
        captions, written = captions.tensor_split([self.target_length + 1], 2)
        target = captions[:, 0]
        if generator is not None and captions.shape[1] > 1:
            counts = (captions[:, :, 0] != IGNORE_INDEX).sum(dim=1)
            shares = torch.rand(len(counts), generator=generator, device=generator.device)
            places = shares.to(counts.device).mul(counts).long()
            target = captions[torch.arange(len(counts), device=counts.device), places]
        target = trim(target)
        given = target[:, :-1]
        given = given.where(given != IGNORE_INDEX, self.tokenizer.pad)
        return SourceTargetBatch(self.images(images, generator), None, given, target[:, 1:], written=written)

    def inputs(self, batch: SourceTargetBatch) -> Tensor:
        return batch.inputs

    def example(self) -> SourceTargetBatch:
        images = torch.zeros(1, self.shape["channels"], *self.shape["image_size"], device="meta")
        count = lambda rows: (self.train.targets[rows, 0] != IGNORE_INDEX).sum(axis=1) - 1  # noqa: E731
        length = find_batch_length(count, len(self.train), self.batch_size)
        tokens = torch.zeros(1, length, dtype=torch.int64, device="meta")
        return SourceTargetBatch(images, None, tokens, tokens)

    def read(self, batch: SourceTargetBatch) -> tuple[list[str] | list[tuple[str, ...]]]:
        """Return the caption of each picture, or all of its captions if several are right."""
        captions = [tuple(text for [text] in read_written(rows) if text) for rows in batch.written]
        return ([texts[0] for texts in captions] if self.exact else captions,)
