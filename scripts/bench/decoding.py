"""Greedy decoding with caches against reading all tokens anew at each step.

    uv run python scripts/bench/decoding.py

transformer_nano with the vocabulary of data=numbers and transformer_base's layers, 3 + 3 of them, 256 wide. Targets of
128 tokens from sources of 32, batches of 1 and 32, one thread. Seconds are of the processor, which leaves out what
other programs took. About three minutes on one core of an AMD EPYC.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from rounds import Row, compare, main
from torch import Tensor, nn

from vitlab.config import load
from vitlab.models import build
from vitlab.models.decoding import Decoding
from vitlab.models.decoding.generate import generate

SOURCE, TARGET, ROUNDS = 32, 128, 5
MODELS = {  # vocabulary, fields
    "transformer_nano": (420, {"name": "transformer_nano"}),
    "transformer_base": (8000, {"name": "transformer_base", "depth": 3, "width": 256, "heads": 4}),
}


class Anew:
    """A decoding that reads all tokens at each step, as in training; the source is read once here, too."""

    def __init__(self, model: nn.Module, sources: Tensor):
        self.model, self.context, self.room = model, model.encode(sources), TARGET
        self.tokens = sources[:, :0]

    def __call__(self, tokens: Tensor) -> Tensor:
        self.tokens = torch.cat([self.tokens, tokens], dim=1)
        return self.model.decode(self.tokens, self.context)[:, -1]


def encoder_decoder(vocabulary: int, fields: dict[str, Any]) -> nn.Module:
    config = load("model", fields)
    config = replace(config, mixer=load("mixer", "attention"))
    return build(config, vocabulary=vocabulary, length=TARGET, target_length=TARGET, head="seq2seq")


@torch.inference_mode()
def seconds(begin: Callable[[], Decoding], batch: int) -> float:
    """Of the processor, for a batch of targets."""
    started = time.process_time()
    rows = generate(begin(), torch.zeros(batch, 1, dtype=torch.int64), TARGET)
    assert [len(row) for row in rows] == [TARGET] * batch
    return time.process_time() - started


def measure(quick: bool) -> Iterator[Row]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for label, (vocabulary, fields) in MODELS.items():
        model = encoder_decoder(vocabulary, fields).eval()
        for batch in (1,) if quick else (1, 32):
            sources = torch.randint(vocabulary, (batch, SOURCE))
            yield compare(
                f"{label}, batch {batch}",
                lambda: seconds(lambda: model.decoding(sources), batch),  # noqa: B023
                lambda: seconds(lambda: Anew(model, sources), batch),  # noqa: B023
                ROUNDS if batch == 1 else 1,
                floor=2.0,
            )


if __name__ == "__main__":
    main(__doc__, measure)
