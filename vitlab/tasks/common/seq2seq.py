"""What the tasks share whose target is generated from an input: translation, summaries, captions.

Shapes: B batch, S tokens of a source, N of a target, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torchmetrics import MetricCollection

from vitlab.config import UserError, choices_text
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import CaptionData, TextData
from vitlab.data.sequences import IGNORE_INDEX, join_pairs
from vitlab.data.text.corpus import SPLITS
from vitlab.formatting import plural
from vitlab.models.decoding import Decoding
from vitlab.models.decoding.beam_search import beam_search
from vitlab.models.decoding.generate import generate
from vitlab.tasks.base import Task
from vitlab.tasks.common.decoded import Decoded, Score, score_exact_match, score_translation
from vitlab.tasks.common.metrics import ItemOutcomes, Mean, Perplexity
from vitlab.tasks.common.text import TokenInputs, refuse_image_recipe

MOST_BEAMS = 100
LONG = ("refuse", "cut", "leave_out")  # what becomes of texts longer than the model takes


class SourceTargetBatch(NamedTuple):
    """inputs: tokens (B, S), or images; mask bool (B, S), False at padding, or None; given (B, N): what a decoder
    reads; following (B, N): what it predicts, IGNORE_INDEX where there is nothing; part (B,): of a mixture.
    """

    inputs: Tensor
    mask: Tensor | None
    given: Tensor
    following: Tensor
    part: Tensor | None = None


class SequenceToSequence(Task):
    """Teacher forcing: cross-entropy of each token of the target, given the input and the tokens before it."""

    item = "pair"

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        refuse_image_recipe(recipe)
        if len(data.train.parts) != 2:
            raise UserError(
                f"data={data.name}: has {plural(len(data.train.parts), 'text')} an item; task={config.name} needs a "
                "source and a target, such as data=numbers, or data=tsv with data.text=[SOURCE,TARGET]"
            )
        problems = [*check_search(config), *list_long_texts(data, config.long)]
        if problems:
            raise UserError(problems)
        self.set_options(config, recipe, data)
        self.source_length = data.length
        self.train, self.validation, self.test = (
            join_pairs(texts, data.tokenizer, data.length, data.target_length, whole=config.long == "leave_out")
            for texts in (data.train, data.validation, data.test)
        )

    def set_options(self, config: TaskConfig, recipe: RecipeConfig, data: TextData | CaptionData) -> None:
        """What does not depend on what the inputs are."""
        self.tokenizer, self.exact, self.target_length = data.tokenizer, data.exact, data.target_length
        self.strata = data.classes  # of a mixture: the names of its parts
        self.beams, self.length_penalty = config.beams, config.length_penalty
        self.label_smoothing = recipe.label_smoothing
        self.eval_batch_size = max(recipe.batch_size, 64)
        self.shape = {**data.shape, "target_length": data.target_length, "head": "seq2seq"}

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> SourceTargetBatch:
        tokens, part = batch
        source, target = tokens.split([self.source_length, tokens.shape[1] - self.source_length], dim=1)
        return self.make_batch(source, target, part)

    def make_batch(self, source: Tensor, target: Tensor, part: Tensor | None = None) -> SourceTargetBatch:
        """Of sources (B, S) and targets (B, 1 + T) that begin with what a decoder reads first."""
        source, target = trim(source), trim(target)
        mask = source != IGNORE_INDEX
        given, following = target[:, :-1], target[:, 1:]
        pad = self.tokenizer.pad
        return SourceTargetBatch(
            source.where(mask, pad), mask, given.where(given != IGNORE_INDEX, pad), following, part
        )

    def inputs(self, batch: SourceTargetBatch) -> TokenInputs:
        """The sources, with what a decoder reads and predicts of their targets."""
        made = TokenInputs.of(batch.inputs, batch.mask, None, self.tokenizer.special)
        return made._replace(given=batch.given, following=batch.following)

    def example(self) -> SourceTargetBatch:
        source, target = (
            torch.zeros(1, self.shape[key], dtype=torch.int64, device="meta") for key in ("length", "target_length")
        )
        return SourceTargetBatch(source, None, target, target)

    def logits(self, model: nn.Module, batch: SourceTargetBatch) -> Tensor:
        """(B, N, V) of what follows each token of `given`."""
        return model(batch.inputs, batch.given, batch.mask)

    def count_targets(self, batch: SourceTargetBatch) -> Tensor:
        return (batch.following != IGNORE_INDEX).sum()[None]

    def loss(self, model: nn.Module, batch: SourceTargetBatch) -> Tensor:
        logits = self.logits(model, batch).flatten(0, 1)
        options = {"ignore_index": IGNORE_INDEX, "label_smoothing": self.label_smoothing, "reduction": "sum"}
        return F.cross_entropy(logits, batch.following.flatten(), **options)[None]

    @property
    def scores(self) -> tuple[Score, ...]:
        """What compares generated texts with the wanted ones."""
        return (score_exact_match if self.exact else score_translation,)

    def metrics(self, detailed: bool = False) -> MetricCollection:
        """loss (nats per token of the targets) and perplexity; `detailed` adds those of the generated texts, and
        outcomes, whether each is right or else the nats of each target. Of a mixture's parts it adds all of these and
        exact matches, as `exact_match_NAME`.
        """
        metrics: dict[str, Any] = {"loss": Mean(), "perplexity": Perplexity()}
        if detailed:
            metrics["outcomes"] = ItemOutcomes()
            if self.scores:
                metrics["texts"] = Decoded(*self.scores)
            scores = dict.fromkeys((score_exact_match, *self.scores))
            metrics |= {f"texts_{name}": Decoded(*scores, suffix=f"_{name}") for name in self.strata}
        return MetricCollection(metrics, compute_groups=False)

    def update(self, metrics: MetricCollection, model: nn.Module, batch: SourceTargetBatch) -> None:
        logits = self.logits(model, batch).flatten(0, 1).float()
        following, counts = batch.following, batch.following != IGNORE_INDEX
        nats = F.cross_entropy(logits, following.flatten(), reduction="none", ignore_index=IGNORE_INDEX).view_as(counts)
        for name in ("loss", "perplexity"):
            metrics[name].update(nats[counts])
        right = None
        if "texts" in metrics:
            written, wanted = self.write(model, batch), self.wanted(batch)
            self.compare_texts(metrics, batch, written, wanted)
            if self.exact:
                right = [text.strip() == other.strip() for text, other in zip(written, wanted, strict=True)]
        if "outcomes" in metrics:
            if right is None:
                metrics["outcomes"].update(nats, counts)
            else:
                metrics["outcomes"].update(torch.tensor(right, device=following.device))

    def wanted(self, batch: SourceTargetBatch) -> list[Any]:
        """The texts that are right, as `scores` take them."""
        return [self.decode(row[row != IGNORE_INDEX]) for row in batch.following]

    def compare_texts(
        self, metrics: MetricCollection, batch: SourceTargetBatch, written: list[str], wanted: list[Any]
    ) -> None:
        """Add what was written for a batch, beside what was wanted."""
        sources = self.describe_sources(batch)
        metrics["texts"].update(written, wanted, sources)
        for number, name in enumerate(self.strata):
            rows = (batch.part == number).nonzero()[:, 0].tolist()
            metrics[f"texts_{name}"].update(*([texts[row] for row in rows] for texts in (written, wanted, sources)))

    def write(self, model: nn.Module, batch: SourceTargetBatch) -> list[str]:
        """The texts that the model generates from the inputs."""
        return self.generate_texts(model.decoding(batch.inputs, batch.mask), batch.given[:, :1])

    def generate_texts(self, decoding: Decoding, given: Tensor) -> list[str]:
        """What follows the tokens given (B, n), up to the end."""
        steps, end = self.target_length, self.tokenizer.end
        if self.beams == 1:
            rows = generate(decoding, given, steps, end=end)
        else:
            search = {"beams": self.beams, "length_penalty": self.length_penalty}
            rows = beam_search(decoding, given, steps, end=end, **search)
        return [self.decode(row) for row in rows]

    def describe_sources(self, batch: SourceTargetBatch) -> list[str]:
        """The inputs as text; none where they are not."""
        return [self.decode(row[mask]) for row, mask in zip(batch.inputs, batch.mask, strict=True)]

    def decode(self, tokens: Tensor) -> str:
        return self.tokenizer.decode(tokens.tolist())


def check_search(config: TaskConfig) -> Iterator[str]:
    """Options of the beam search that have no meaning or take too much memory."""
    if not 1 <= config.beams <= MOST_BEAMS:
        yield f"task.beams={config.beams}: must be from 1 (greedy) to {MOST_BEAMS}"
    if not 0 <= config.length_penalty <= 10:
        yield f"task.length_penalty={config.length_penalty}: must be from 0 (none) to 10"


def list_long_texts(data: TextData, long: str) -> Iterator[str]:
    """What is too long for the lengths of the data and may not be, a line for sources and one for targets.

    References are never cut and never left out: scores would be better than they are.
    """
    if long not in LONG:
        yield f"task.long={long}: unknown; {choices_text(long, LONG)}"
        return
    for side, key in enumerate(("length", "target_length")):
        room, counts, needed = vars(data)[key], {}, 0
        for split in SPLITS:
            reference = split == "test" and side == 1
            if (long == "cut" and not reference) or (long == "leave_out" and split != "test"):
                continue
            lengths = data.splits[split].parts[side].lengths + 1  # with the end
            if count := int((lengths > room).sum()):
                counts[split], needed = count, max(needed, int(lengths.max()))
        if counts:
            instead = f", or task.long={'cut' if 'test' in counts else 'cut|leave_out'}"
            which = ", ".join(f"{count:,} {SPLITS[split]}" for split, count in counts.items())
            which += f" {('source', 'target')[side]}{' is' if sum(counts.values()) == 1 else 's are'} longer"
            need = f"give data.{key}={needed}{'' if side == 1 and 'test' in counts else instead}"
            yield f"data.{key}={room}: {which}, the longest {needed} tokens with its end; {need}"


def trim(tokens: Tensor) -> Tensor:
    """(B, N) without the columns at the end that are padding in every row."""
    used = (tokens != IGNORE_INDEX).any(dim=0).sum()
    return tokens[:, : int(used)]
