"""The next token of each (Radford et al., 2019): cross-entropy, perplexity, bits per byte.

Shapes: B batch, N tokens of a sequence, V vocabulary.
"""

import math
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torchmetrics import MetricCollection

from vitlab.config import UserError, choices_text
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import TextData
from vitlab.data.sequences import IGNORE_INDEX, pack_texts
from vitlab.tasks.base import Task
from vitlab.tasks.common.metrics import ItemOutcomes, Mean, Perplexity
from vitlab.tasks.common.text import TokenInputs, refuse_image_recipe, refuse_several_parts

Batch = tuple[Tensor, Tensor]  # tokens (B, N), the next of each (B, N), IGNORE_INDEX where there is none
PACKING = ("stream", "documents")
CHUNK = 4096  # sequences counted at a time


class CausalLM(Task):
    item = "sequence"

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        refuse_image_recipe(recipe)
        refuse_several_parts(data)
        self.eval_batch_size = recipe.batch_size
        if config.pack not in PACKING:
            raise UserError(f"task.pack={config.pack}: unknown; {choices_text(config.pack, PACKING)}")
        self.shape = {**data.shape, "head": "next_token"}
        self.tokenizer = data.tokenizer
        self.pad, self.special = data.tokenizer.pad, data.tokenizer.special
        self.label_smoothing = recipe.label_smoothing
        options = {"end": data.tokenizer.document_end, "length": data.length, "ahead": 1}
        options["within_texts"] = config.pack == "documents"
        self.train = pack_texts(data.train.parts[0], **options)
        self.validation, self.test = (
            pack_texts(texts.parts[0], **options, whole=False) for texts in (data.validation, data.test)
        )
        named = {"training": self.train, "validation": self.validation, "held-out": self.test}
        for name, split in named.items():
            if not len(split):
                raise UserError(
                    f"data={data.name}: its {name} texts are shorter than data.length={data.length} tokens; give less"
                )
        self.vocabulary = data.tokenizer.size
        tokens = len(data.test.parts[0].values) + len(data.test)
        self.bits_per_nat = tokens / data.test.size / math.log(2)  # bits per byte for each nat per token

    def prepare(self, batch: tuple[Tensor, Tensor], generator: Generator | None = None) -> Batch:
        sequences = batch[0]
        tokens = sequences[:, :-1]
        return tokens.where(tokens != IGNORE_INDEX, self.pad), sequences[:, 1:]

    def inputs(self, batch: Batch) -> TokenInputs:
        tokens, following = batch
        return TokenInputs.of(tokens, following != IGNORE_INDEX, None, self.special)

    def example(self) -> Batch:
        tokens = torch.zeros(1, self.shape["length"], dtype=torch.int64, device="meta")
        return tokens, tokens

    def count_targets(self, batch: Batch) -> Tensor:
        return (batch[1] != IGNORE_INDEX).sum()[None]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        # padding needs no mask: it is behind all that is predicted, and a causal model does not look there
        tokens, following = batch
        logits = model(tokens).flatten(0, 1)
        options = {"ignore_index": IGNORE_INDEX, "label_smoothing": self.label_smoothing, "reduction": "sum"}
        return F.cross_entropy(logits, following.flatten(), **options)[None]

    @cached_property
    def log_unigram(self) -> Tensor:
        """The logarithm of each token's share of what training predicts (V,), with Laplace smoothing."""
        indices = np.arange(len(self.train)) if self.training_indices is None else self.training_indices
        counts = np.ones(self.vocabulary)
        for first in range(0, len(indices), CHUNK):
            following = self.train.read(indices[first : first + CHUNK])[:, 1:]
            counts += np.bincount(following[following != IGNORE_INDEX], minlength=self.vocabulary)
        return torch.from_numpy(np.log(counts / counts.sum())).float()

    def metrics(self, detailed: bool = False) -> MetricCollection:
        """loss (nats per token), perplexity, bits_per_byte, and unigram_perplexity.

        unigram_perplexity is what each token's share of the training tokens gives, without looking at its context. A
        byte is one of the test texts in UTF-8 (validation texts are taken to have as many per token): bits per byte
        compare models of different tokenizers, if these are lossless; unknown tokens and lower case are cheaper.
        `detailed` adds outcomes, the nats of each sequence.
        """
        metrics = {
            "loss": Mean(),
            "perplexity": Perplexity(),
            "bits_per_byte": Perplexity(lambda nats: nats * self.bits_per_nat),
            "unigram_perplexity": Perplexity(),
        }
        return MetricCollection(metrics | ({"outcomes": ItemOutcomes()} if detailed else {}), compute_groups=False)

    def update(self, metrics: MetricCollection, model: nn.Module, batch: Batch) -> None:
        tokens, following = batch
        counts = following != IGNORE_INDEX
        logits = model(tokens).flatten(0, 1).float()
        nats = F.cross_entropy(logits, following.flatten(), reduction="none", ignore_index=IGNORE_INDEX).view_as(counts)
        if "outcomes" in metrics:
            metrics["outcomes"].update(nats, counts)
        nats, following = nats[counts], following[counts]
        unigram = -self.log_unigram.to(following.device)[following]
        for name, metric in metrics.items():
            if name != "outcomes":
                metric.update(unigram if name == "unigram_perplexity" else nats)


def build(config: TaskConfig, *, recipe: RecipeConfig, data: TextData, data_config: DataConfig) -> CausalLM:
    return CausalLM(config, recipe, data, data_config)
