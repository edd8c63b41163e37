"""Training and greedy decoding of models of text against Hugging Face's, with the same weights.

    uv run python scripts/bench/text.py --quick

A language model of 6 layers, 256 wide, 8,000 words of vocabulary, against GPT2LMHeadModel, and an encoder-decoder of
3 + 3 layers against T5ForConditionalGeneration. Without dropout, so that both compute the same: their losses and the
tokens that they write are compared, too. "Equal" is float32 and fused AdamW for both; "default" is what `vitlab train`
chooses on this machine against float32 with the fused AdamW that the Trainer of transformers has. Both clip gradients.
One thread; seconds are of the processor, which leaves out what other programs took.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from rounds import Row, compare, main
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration
from transformers.utils import logging

from vitlab.models.decoding import generate
from vitlab.models.huggingface import load_huggingface
from vitlab.training.settings import cpu_has_bf16

VOCABULARY, WIDTH, DEPTH, HEADS, LENGTH = 8000, 256, 6, 4, 256
PROMPT, NEW = 8, 120
LAYERS, LONGEST, PAD = 3, 40, 0  # of the encoder-decoder
Work = Callable[[], Tensor]  # gives logits, or the tokens (B, NEW) that it writes


def make_models(theirs: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Ours and theirs, of the same weights, by which they write ever other words."""
    for parameter in theirs.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.1)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return load_huggingface(folder)[0], theirs


def language_models() -> tuple[nn.Module, nn.Module]:
    shape = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": WIDTH, "n_layer": DEPTH, "n_head": HEADS}
    shape |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return make_models(GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=PAD, eos_token_id=None, pad_token_id=PAD)))


def encoder_decoders() -> tuple[nn.Module, nn.Module]:
    shape = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH, "num_heads": HEADS}
    shape |= {"num_layers": LAYERS, "dropout_rate": 0.0, "tie_word_embeddings": False}
    config = T5Config(**shape, pad_token_id=PAD, decoder_start_token_id=PAD, eos_token_id=None)
    return make_models(T5ForConditionalGeneration(config))


def rate(work: Callable[[], object], tokens: int) -> Callable[[], float]:
    """Make a function that measures the processor's tokens per second."""

    def measure() -> float:
        started = time.process_time()
        work()
        return tokens / (time.process_time() - started)

    return measure


def train_language_models(quick: bool) -> Iterator[Row]:
    (own, theirs), batch = language_models(), 4 if quick else 8
    words = torch.randint(1, VOCABULARY, (batch, LENGTH + 1))
    tokens, following = words[:, :-1], words[:, 1:]
    sides = (own, lambda: own(tokens)), (theirs, lambda: theirs(tokens, use_cache=False).logits)
    bf16 = cpu_has_bf16()
    kinds = {"equal, float32": False, f"default ({'bf16' if bf16 else 'float32'})": bf16}
    yield from compare_training("GPT-2's shape", sides, following, tokens.numel(), quick, kinds, 1.0)


def train_encoder_decoders(quick: bool) -> Iterator[Row]:
    (own, theirs), batch = encoder_decoders(), 16
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (2, batch, 1))
    mask, _ = masks = torch.arange(LONGEST) < lengths
    source, target = torch.randint(1, VOCABULARY, (2, batch, LONGEST)) * masks
    options = {"attention_mask": mask, "decoder_input_ids": target, "use_cache": False}
    sides = (own, lambda: own(source, target, mask)), (theirs, lambda: theirs(source, **options).logits)
    following, kinds = F.pad(target[:, 1:], (0, 1), value=PAD), {"equal, float32": False}
    yield from compare_training("T5's shape", sides, following, int(masks.sum()), quick, kinds)


def compare_training(
    shape: str,
    sides: tuple[tuple[nn.Module, Work], tuple[nn.Module, Work]],
    following: Tensor,
    tokens: int,
    quick: bool,
    kinds: dict[str, bool],
    floor: float | None = None,
) -> Iterator[Row]:
    """A row of each kind, of which ours is in bf16 or not, after a look that both have the same loss."""

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
        measured = [rate(step, tokens) for step in (make_step(*sides[0], bf16), make_step(*sides[1]))]
        yield compare(f"train {shape}, {kind}", *measured, 3 if quick else 9, floor=floor, unit="tokens/s")


def write_texts(quick: bool) -> Iterator[Row]:
    own, theirs = (model.eval() for model in language_models())

    def both(batch: int) -> tuple[Work, Work]:
        prompt = torch.randint(1, VOCABULARY, (batch, PROMPT))
        options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": NEW, "do_sample": False}
        return (
            lambda: torch.stack(generate(own.decoding(), prompt, NEW)),
            lambda: theirs.generate(prompt, **options)[:, PROMPT:],
        )

    yield from compare_writing("generate, GPT-2's shape", both, quick, 1.1)


def write_targets(quick: bool) -> Iterator[Row]:
    own, theirs = (model.eval() for model in encoder_decoders())

    def both(batch: int) -> tuple[Work, Work]:
        source = torch.randint(1, VOCABULARY, (batch, LONGEST))
        mask, start = torch.ones_like(source, dtype=torch.bool), torch.full((batch, 1), PAD)
        options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "num_beams": 1}
        return (
            torch.inference_mode()(lambda: torch.stack(generate(own.decoding(source, mask), start, NEW))),
            lambda: theirs.generate(source, attention_mask=mask.long(), **options)[:, 1:],
        )

    yield from compare_writing("decode, T5's shape", both, quick)


def compare_writing(
    name: str, both: Callable[[int], tuple[Work, Work]], quick: bool, floor: float | None = None
) -> Iterator[Row]:
    """Greedy decoding in float32, after a look that both write the same, and in bf16, as a run trained so is tested."""
    for batch in (1, 32):
        write, write_theirs = both(batch)
        own, theirs = write(), write_theirs()
        assert own.shape == theirs.shape == (batch, NEW), (own.shape, theirs.shape)
        same = (own == theirs).all(dim=1).float().mean()
        assert same > 0.9, f"{same:.0%} of the texts are the same"  # a tie by rounding changes all that follows
        assert len(own.unique()) > batch
        rounds = 3 if quick or batch > 1 else 9
        sides = [rate(work, batch * NEW) for work in (write, write_theirs)]
        yield compare(f"{name}, batch {batch}", *sides, rounds, floor=floor, unit="tokens/s")
        if batch > 1 and cpu_has_bf16():
            sides[0] = rate(torch.autocast("cpu", torch.bfloat16)(write), batch * NEW)
            yield compare(f"{name}, batch {batch}, default of a test (bf16)", *sides, rounds, unit="tokens/s")


def measure(quick: bool) -> Iterator[Row]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for rows in (train_language_models, write_texts, train_encoder_decoders, write_targets):
        yield from rows(quick)


if __name__ == "__main__":
    main(__doc__, measure)
