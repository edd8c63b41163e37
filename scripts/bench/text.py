"""Training and greedy decoding of models of text against Hugging Face's, with the same weights.

    uv run python scripts/bench/text.py --quick

A language model of 6 layers, 256 wide, 8,000 words of vocabulary, against GPT2LMHeadModel, and an encoder-decoder of
3 + 3 layers against MarianMTModel. Without dropout, so that both compute the same: their losses and the tokens that
they write are compared, too. "Equal" is float32 and fused AdamW for both; "default" is what `vitlab train` chooses on
this machine against float32 with the fused AdamW that the Trainer of transformers has. Both clip gradients. One
thread; seconds are of the processor, which leaves out what other programs took.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import torch
import torch.nn.functional as F
from rounds import Row, compare, main
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel
from transformers.utils import logging

from vitlab.config import load
from vitlab.models import build
from vitlab.models.decoding import generate
from vitlab.models.huggingface import load_huggingface
from vitlab.training.settings import cpu_has_bf16

VOCABULARY, WIDTH, DEPTH, HEADS, LENGTH = 8000, 256, 6, 4, 256
PROMPT, NEW = 8, 120
LAYERS, LONGEST, PAD = 3, 40, 0  # of the encoder-decoder
Loss = Callable[[], Tensor]
Write = Callable[[], Tensor]  # tokens (B, NEW)


def language_models() -> tuple[nn.Module, nn.Module]:
    """Ours and GPT-2, of the same weights."""
    shape = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": WIDTH, "n_layer": DEPTH, "n_head": HEADS}
    shape |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(**shape, bos_token_id=PAD, eos_token_id=None, pad_token_id=PAD)
    theirs = randomized(GPT2LMHeadModel(config), 0.1)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return load_huggingface(folder)[0], theirs


def encoder_decoders() -> tuple[nn.Module, nn.Module]:
    """Ours and Marian, of the same weights: post-norm, ReLU, sines and cosines."""
    shape = {"vocab_size": VOCABULARY, "d_model": WIDTH, "max_position_embeddings": LENGTH, "scale_embedding": True}
    for side in ("encoder", "decoder"):
        shape |= {f"{side}_layers": LAYERS, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": 4 * WIDTH}
    shape |= {"activation_function": "relu", "dropout": 0.0}
    shape |= {"pad_token_id": PAD, "decoder_start_token_id": PAD, "eos_token_id": None, "forced_eos_token_id": None}
    config = MarianConfig(**shape, tie_word_embeddings=False)  # random weights would write the same word for ever
    theirs = randomized(MarianMTModel(config), 0.03)
    fields = {"depth": LAYERS, "width": WIDTH, "heads": HEADS, "dropout": 0.0, "norm_eps": 1e-5}
    config = load("model", {"name": "transformer_base", **fields, "share_embeddings": "none"})
    config = replace(config, mixer=load("mixer", "attention"))
    own = build(config, vocabulary=VOCABULARY, length=LENGTH, target_length=LENGTH, head="seq2seq")
    own.load_state_dict(from_marian(theirs.state_dict()))
    for body in (own.text, own.decoder):  # theirs has all sines first, then all cosines
        body.embed.positions.copy_(theirs.model.decoder.embed_positions.weight.detach())
    return own, theirs


def randomized(model: nn.Module, std: float) -> nn.Module:
    """With weights of which it writes ever other words."""
    for parameter in model.parameters():
        if parameter.dim() > 1 and parameter.requires_grad:
            nn.init.normal_(parameter, std=0.1 if len(parameter) == VOCABULARY else std)
    return model


def from_marian(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of Marian in this project's names."""
    own = {"output.weight": state["lm_head.weight"]}
    names = {"self_attn.q_proj": "mixer.qkv", "self_attn.out_proj": "mixer.proj", "self_attn_layer_norm": "norm1"}
    names |= {"encoder_attn.q_proj": "cross.qkv", "encoder_attn.out_proj": "cross.proj"}
    names |= {"encoder_attn_layer_norm": "norm_cross", "fc1": "mlp.fc1", "fc2": "mlp.fc2", "final_layer_norm": "norm2"}
    for theirs, here in (("encoder", "text"), ("decoder", "decoder")):
        own[f"{here}.embed.tokens.weight"] = state[f"model.{theirs}.embed_tokens.weight"]
        for layer, (source, target), kind in product(range(LAYERS), names.items(), ("weight", "bias")):
            key = f"model.{theirs}.layers.{layer}.{source}.{kind}"
            if key in state:  # q_proj stands for all three
                parts = [state[key.replace("q_proj", f"{part}_proj")] for part in ("qkv" if "q_proj" in key else "q")]
                own[f"{here}.encoder.blocks.{layer}.{target}.{kind}"] = torch.cat(parts)
    return own


def trainer(model: nn.Module, loss: Loss, *, bf16: bool = False) -> Callable[[], None]:
    """What trains a model for one step."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5, fused=True)  # as transformers' Trainer has it

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def rate(work: Callable[[], object], tokens: int) -> Callable[[], float]:
    """What measures the tokens per second of the processor."""

    def measure() -> float:
        started = time.process_time()
        work()
        return tokens / (time.process_time() - started)

    return measure


def train_language_models(quick: bool) -> Iterator[Row]:
    (own, theirs), batch = language_models(), 4 if quick else 8
    words = torch.randint(VOCABULARY, (batch, LENGTH + 1))
    tokens, following = words[:, :-1], words[:, 1:]

    def loss() -> Tensor:
        return F.cross_entropy(own(tokens).flatten(0, 1), following.flatten())

    def their_loss() -> Tensor:  # `labels` would be shifted, which leaves the last one out
        return F.cross_entropy(theirs(tokens, use_cache=False).logits.flatten(0, 1), following.flatten())

    bf16 = cpu_has_bf16()
    kinds = {"equal, float32": False, f"default ({'bf16' if bf16 else 'float32'})": bf16}
    yield from compare_training("GPT-2's shape", (own, loss), (theirs, their_loss), tokens.numel(), quick, kinds, 1.0)


def train_encoder_decoders(quick: bool) -> Iterator[Row]:
    (own, theirs), batch = encoder_decoders(), 16
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (2, batch, 1))
    source_mask, target_mask = masks = torch.arange(LONGEST) < lengths
    source, target = torch.randint(1, VOCABULARY, (2, batch, LONGEST)) * masks
    following = F.pad(target[:, 1:], (0, 1), value=PAD).where(target_mask, PAD).flatten()

    def loss() -> Tensor:
        return F.cross_entropy(own(source, target, source_mask).flatten(0, 1), following, ignore_index=PAD)

    def their_loss() -> Tensor:
        logits = theirs(source, attention_mask=source_mask, decoder_input_ids=target, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), following, ignore_index=PAD)

    kinds = {"equal, float32": False}
    yield from compare_training("Marian's shape", (own, loss), (theirs, their_loss), int(masks.sum()), quick, kinds)


def compare_training(
    shape: str,
    own: tuple[nn.Module, Loss],
    theirs: tuple[nn.Module, Loss],
    tokens: int,
    quick: bool,
    kinds: dict[str, bool],
    floor: float | None = None,
) -> Iterator[Row]:
    """A row of each kind, of which ours is in bf16 or not, after a look that both have the same loss."""
    torch.testing.assert_close(own[1](), theirs[1](), rtol=1e-4, atol=1e-4)
    for kind, bf16 in kinds.items():
        measured = [rate(step, tokens) for step in (trainer(*own, bf16=bf16), trainer(*theirs))]
        yield compare(f"train {shape}, {kind}", *measured, 3 if quick else 9, floor=floor, unit="tokens/s")


def write_texts(quick: bool) -> Iterator[Row]:
    own, theirs = (model.eval() for model in language_models())

    def both(batch: int) -> tuple[Write, Write]:
        prompt = torch.randint(1, VOCABULARY, (batch, PROMPT))
        options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": NEW, "do_sample": False}
        return (
            lambda: torch.stack(generate(own.decoding(), prompt, NEW)),
            lambda: theirs.generate(prompt, **options)[:, PROMPT:],
        )

    yield from compare_writing("generate, GPT-2's shape", both, quick, 1.1)


def write_targets(quick: bool) -> Iterator[Row]:
    own, theirs = (model.eval() for model in encoder_decoders())

    def both(batch: int) -> tuple[Write, Write]:
        source = torch.randint(1, VOCABULARY, (batch, LONGEST))
        mask, start = torch.ones_like(source, dtype=torch.bool), torch.full((batch, 1), PAD)
        options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "num_beams": 1}
        return (
            torch.inference_mode()(lambda: torch.stack(generate(own.decoding(source, mask), start, NEW))),
            lambda: theirs.generate(source, attention_mask=mask.long(), **options)[:, 1:],
        )

    yield from compare_writing("decode, Marian's shape", both, quick)


def compare_writing(
    name: str, both: Callable[[int], tuple[Write, Write]], quick: bool, floor: float | None = None
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
