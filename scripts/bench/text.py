"""Training and greedy decoding of models of text against Hugging Face's, with the same weights.

    uv run python scripts/bench/text.py --quick

A language model of 6 layers, 256 wide, 8,000 words of vocabulary, against GPT2LMHeadModel. Without dropout, so that
both compute the same: their losses and the tokens that they write are compared, too. "Equal" is float32 and
fused AdamW for both; "default" is what `vitlab train` chooses on this machine against float32 with the fused AdamW that
the Trainer of transformers has. Both clip gradients. One thread; seconds are of the processor, which leaves out what
other programs took.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from rounds import Row, compare, main
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PretrainedConfig,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging

from vitlab.models.decoding import generate
from vitlab.models.huggingface import load_huggingface
from vitlab.training.settings import cpu_has_bf16

VOCABULARY, WIDTH, DEPTH, HEADS, LENGTH = 8000, 256, 6, 4, 256
PROMPT, NEW = 8, 120
PAD = 0
Work = Callable[[], Tensor]  # gives logits, or the tokens (B, NEW) that it writes


SHAPE = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": WIDTH, "n_layer": DEPTH, "n_head": HEADS}
SHAPE |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
GPT2 = GPT2Config(**SHAPE, bos_token_id=PAD, eos_token_id=None, pad_token_id=PAD)


def make_models(
    kind: type[PreTrainedModel] = GPT2LMHeadModel, config: PretrainedConfig = GPT2
) -> tuple[nn.Module, nn.Module]:
    """Ours and theirs, of the same weights, by which they write ever other words."""
    theirs = kind(config)
    for parameter in theirs.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.1)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return load_huggingface(folder)[0], theirs


def rate(work: Callable[[], object], tokens: int) -> Callable[[], float]:
    """Make a function that measures the processor's tokens per second."""

    def measure() -> float:
        started = time.process_time()
        work()
        return tokens / (time.process_time() - started)

    return measure


def compare_training(quick: bool) -> Iterator[Row]:
    """Measure a row of each kind, ours in bf16 or not, once both sides have given the same loss."""
    (own, theirs), batch, bf16 = make_models(), 4 if quick else 8, cpu_has_bf16()
    words = torch.randint(1, VOCABULARY, (batch, LENGTH + 1))
    tokens, following = words[:, :-1], words[:, 1:]
    sides = (own, lambda: own(tokens)), (theirs, lambda: theirs(tokens, use_cache=False).logits)
    kinds = {"equal, float32": False, f"default ({'bf16' if bf16 else 'float32'})": bf16}

    def loss(logits: Work) -> Tensor:
        return F.cross_entropy(logits().flatten(0, 1), following.flatten(), ignore_index=PAD)

    def make_step(model: nn.Module, logits: Work, bf16: bool = False) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5, fused=True)

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
                value = loss(logits)
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return step

    torch.testing.assert_close(loss(sides[0][1]), loss(sides[1][1]), rtol=1e-4, atol=1e-4)
    for kind, bf16 in kinds.items():
        measured = [rate(step, tokens.numel()) for step in (make_step(*sides[0], bf16), make_step(*sides[1]))]
        yield compare(f"train GPT-2's shape, {kind}", *measured, 3 if quick else 9, floor=1.0, unit="tokens/s")


def compare_writing(quick: bool) -> Iterator[Row]:
    """Greedy decoding in float32, after a look that both write the same, and in bf16, as a run trained so is tested."""
    name, (own, theirs) = "generate, GPT-2's shape", (model.eval() for model in make_models())

    def both(batch: int) -> tuple[Work, Work]:
        prompt = torch.randint(1, VOCABULARY, (batch, PROMPT))
        options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": NEW, "do_sample": False}
        return (
            lambda: torch.stack(generate(own.decoding(), prompt, NEW)),
            lambda: theirs.generate(prompt, **options)[:, PROMPT:],
        )

    for batch in (1, 32):
        write, write_theirs = both(batch)
        ours, wanted = write(), write_theirs()
        assert ours.shape == wanted.shape == (batch, NEW), (ours.shape, wanted.shape)
        same = (ours == wanted).all(dim=1).float().mean()
        assert same > 0.9, f"{same:.0%} of the texts are the same"  # a tie by rounding changes all that follows
        assert len(ours.unique()) > batch
        rounds = 3 if quick or batch > 1 else 9
        sides = [rate(work, batch * NEW) for work in (write, write_theirs)]
        yield compare(f"{name}, batch {batch}", *sides, rounds, floor=1.1, unit="tokens/s")
        if batch > 1 and cpu_has_bf16():
            sides[0] = rate(torch.autocast("cpu", torch.bfloat16)(write), batch * NEW)
            yield compare(f"{name}, batch {batch}, default of a test (bf16)", *sides, rounds, unit="tokens/s")


def compare_translation(quick: bool) -> Iterator[Row]:
    """Greedy writing from sources of 3 to 60 tokens in batches of 64, by length, as a test of translation writes."""
    shape = {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "d_kv": WIDTH // HEADS,
        "d_ff": 4 * WIDTH,
        "num_layers": 3,
        "num_heads": HEADS,
        "decoder_start_token_id": PAD,
    }
    own, theirs = make_models(T5ForConditionalGeneration, T5Config(**shape))
    own, theirs, batches = own.eval(), theirs.eval(), []
    lengths = torch.randint(3, 61, (128 if quick else 1024,)).sort(descending=True)[0]
    for part in lengths.split(64):
        mask = torch.arange(int(part[0])) < part[:, None]
        batches.append((torch.randint(2, VOCABULARY, mask.shape).where(mask, PAD), mask))

    def write(end: int | None = None) -> list[Tensor]:
        given = torch.full((64, 1), PAD)
        return [row for each in batches for row in generate(own.decoding(*each), given, NEW // 2, end=end)]

    end = int(torch.cat(write()).mode()[0])  # texts that end at any length, some never
    options = {"max_new_tokens": NEW // 2, "do_sample": False, "eos_token_id": end}

    def write_theirs() -> list[Tensor]:
        pairs = ((theirs.generate(tokens, attention_mask=mask.long(), **options)) for tokens, mask in batches)
        return [row[1:] for rows in pairs for row in rows]

    found, wanted = write(end), write_theirs()
    same = [torch.equal(ours, row[: len(ours)]) for ours, row in zip(found, wanted, strict=True)]
    assert sum(same) > 0.9 * len(same), f"{sum(same)} of {len(same)} texts are the same"
    sides = [rate(work, len(found)) for work in (lambda: write(end), write_theirs)]
    yield compare("translate, T5's shape, batches of 64", *sides, 2 if quick else 5, floor=1.2, unit="texts/s")


def measure(quick: bool) -> Iterator[Row]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    yield from compare_training(quick)
    yield from compare_writing(quick)
    yield from compare_translation(quick)


if __name__ == "__main__":
    main(__doc__, measure)
