"""Training and cached decoding of an encoder-decoder against Hugging Face's MarianMTModel of the same size.

    uv run python scripts/bench_translation.py

Both have post-norm layers, ReLU, sine and cosine positions, one shared embedding and as many parameters, in one process
and thread. Rounds alternate between them; each gives a ratio. Seconds are of the processor, which leaves out what other
programs took. About four minutes on one core of an AMD EPYC.
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from vitlab.config import load
from vitlab.models import build
from vitlab.models.decoding.generate import generate

VOCABULARY, WIDTH, DEPTH, HEADS, PAD = 8000, 256, 3, 4, 0
BATCH, LONGEST, NEW = 32, 40, 128
ROUNDS = 5


def ours() -> nn.Module:
    sizes = {"depth": DEPTH, "width": WIDTH, "heads": HEADS, "dropout": 0.1}
    config = load("model", {"name": "transformer_base", **sizes})
    config.mixer = load("mixer", "attention")
    return build(config, vocabulary=VOCABULARY, length=NEW + 1, target_length=NEW + 1, head="seq2seq")


def theirs() -> MarianMTModel:
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=DEPTH,
        decoder_layers=DEPTH,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        activation_function="relu",
        dropout=0.1,
        activation_dropout=0.1,  # in the MLP, too, as here
        scale_embedding=True,
        max_position_embeddings=NEW + 1,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        eos_token_id=None,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


def trainable(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def compare(label: str, own: Callable[[], object], other: Callable[[], object], tokens: int) -> None:
    """Print tokens a second of both, and the ratios of the rounds."""
    own(), other()
    pairs = [(seconds(own), seconds(other)) for _ in range(ROUNDS)]
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    best = [tokens / min(column) for column in zip(*pairs, strict=True)]
    print(
        f"{label}: {best[0]:,.0f} tokens/s, Hugging Face {best[1]:,.0f}; "
        f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )


class Training:
    """Steps of AdamW on one batch with padding, by the logits of `forward(sources, given, mask)`."""

    def __init__(self, model: nn.Module, forward: Callable[[Tensor, Tensor, Tensor], Tensor]):
        self.forward = forward
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        torch.manual_seed(1)
        lengths = torch.randint(LONGEST // 2, LONGEST + 1, (2, BATCH, 1))
        masks = torch.arange(LONGEST) < lengths
        tokens = torch.randint(1, VOCABULARY, (2, BATCH, LONGEST)) * masks
        (self.sources, self.targets), (self.mask, used) = tokens, masks
        self.following = F.pad(self.targets[:, 1:], (0, 1), value=PAD).where(used, PAD)
        self.tokens = int(masks.sum())

    def step(self) -> None:
        logits = self.forward(self.sources, self.targets, self.mask)
        wanted = self.following.flatten()
        F.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=PAD, label_smoothing=0.1).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    own, other = ours(), theirs()
    counts = trainable(own), trainable(other)
    assert counts[0] == counts[1], counts
    print(f"{counts[0]:,} parameters each, one thread")

    training = [
        Training(own.train(), own),
        Training(
            other.train(),
            lambda sources, given, mask: other(sources, attention_mask=mask, decoder_input_ids=given).logits,
        ),
    ]
    compare("training", training[0].step, training[1].step, training[0].tokens)

    own.eval(), other.eval()
    for batch in (1, 32):
        sources = torch.randint(1, VOCABULARY, (batch, 32))
        mask, start = torch.ones_like(sources, dtype=torch.bool), torch.full((batch, 1), PAD)

        @torch.inference_mode()
        def write() -> list[Tensor]:
            return generate(own.decoding(sources, mask), start, NEW)  # noqa: B023

        def write_theirs() -> Tensor:
            options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "num_beams": 1}
            return other.generate(sources, attention_mask=mask.long(), **options)  # noqa: B023

        assert [len(write()[0]), write_theirs().shape[1] - 1] == [NEW, NEW]
        compare(f"greedy decoding of {NEW} tokens, batch {batch}", write, write_theirs, batch * NEW)


if __name__ == "__main__":
    main()
