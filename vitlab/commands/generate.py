"""`vitlab generate`: text from a language model."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from vitlab.commands.arguments import (
    CommandParser,
    number_between,
    positive_integer,
    seed_number,
    status_line,
    utf8_text,
)
from vitlab.config import UserError, printable
from vitlab.data.opening import progress_bar
from vitlab.training.files import RunFiles

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = """Continue a text with a run's language model:
  vitlab generate runs/gpt --prompt "Return the" --temperature 0.8 --top-p 0.9
  vitlab generate runs/gpt --prompt "Return the" --beams 4 --tokens 40"""
MOST_SAMPLES = 1000  # generated at a time


def main(words: Sequence[str]) -> int:
    args = parse(words)
    folder = Path(args.run)
    if (folder / "config.yaml").exists() or not (folder / "config.json").exists():
        RunFiles(folder).finished_result()
    return write(args)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments. Raises UserError for sampling options together with a beam search."""
    parser = CommandParser("generate", DESCRIPTION)
    parser.add_argument("run", metavar="RUN", help="the run's folder, or one of Hugging Face's with a GPT-2")
    parser.add_argument(
        "--prompt", type=utf8_text, default="", metavar="TEXT", help="the text to continue (default: none)"
    )
    parser.add_argument(
        "--tokens", type=positive_integer, default=100, metavar="N", help="most tokens to generate (default: 100)"
    )
    parser.add_argument("--samples", type=positive_integer, default=1, metavar="N", help="texts to sample (default: 1)")
    parser.add_argument("--temperature", type=number_between(0, 1e6), metavar="T", help="0: greedy (default: 1)")
    parser.add_argument("--top-k", type=positive_integer, metavar="K", help="sample from the K most likely tokens")
    parser.add_argument(
        "--top-p",
        type=number_between(0, 1),
        metavar="P",
        help="sample from the most likely tokens, of probability P in all",
    )
    parser.add_argument("--beams", type=positive_integer, metavar="N", help="beam search with N beams, no sampling")
    parser.add_argument(
        "--length-penalty", type=number_between(0, 100), metavar="A", help="of beam search (default: 0)"
    )
    parser.add_argument("--seed", type=seed_number, default=0, metavar="N", help="of the sampling (default: 0)")
    parser.add_json()
    args = parser.parse_args(words)
    if args.samples > MOST_SAMPLES:
        raise UserError(f"--samples {args.samples}: too many at a time; give at most {MOST_SAMPLES}")
    sampling = {"--samples": args.samples > 1, "--temperature": args.temperature is not None}
    sampling |= {"--top-k": args.top_k is not None, "--top-p": args.top_p is not None}
    if args.beams is not None and any(sampling.values()):
        given = ", ".join(option for option, is_given in sampling.items() if is_given)
        raise UserError(f"--beams cannot be combined with sampling options ({given})")
    if args.beams is None and args.length_penalty is not None:
        raise UserError("--length-penalty only works with beam search; give --beams N too")
    args.temperature = 1.0 if args.temperature is None else args.temperature
    args.length_penalty = args.length_penalty or 0.0
    return args


def write(args: argparse.Namespace) -> int:
    """Print continuations of a prompt, `--samples` of them or one by beam search; the exit code. Raises UserError."""
    with status_line("loading torch, lightning and timm", quiet=args.json):
        import torch

        from vitlab.models.decoding.beam_search import beam_search
        from vitlab.models.decoding.generate import generate
        from vitlab.training.load import load_language_model

    model, tokenizer = load_language_model(args.run)
    # without a prompt: the start of a document
    given = tokenizer.encode([args.prompt])[0] or [tokenizer.document_end]
    context = model.text.embed.length
    room = context - len(given)
    if room < 1:
        raise UserError(
            f"--prompt: its {len(given)} tokens leave no room in the {context} tokens of {args.run}'s context; give a "
            "shorter one"
        )
    device, end = next(model.parameters()).device, tokenizer.document_end
    start = torch.tensor(given, device=device)
    with progress_bar(Console(stderr=True)) as progress:

        def report(done: int, total: int) -> None:
            progress("tokens", done, total)

        if args.beams is None:
            generator = torch.Generator(device).manual_seed(args.seed)
            options = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p}
            options |= {"generator": generator, "end": end, "progress": report}
            rows = generate(model.decoding(), start.expand(args.samples, -1), args.tokens, **options)
        else:
            options = {"beams": args.beams, "length_penalty": args.length_penalty}
            rows = beam_search(model.decoding(), start[None], args.tokens, **options, end=end, progress=report)
    texts = [
        {"text": tokenizer.decode(row.tolist()), "tokens": len(row), "ended": why_it_ended(row, end, args.tokens, room)}
        for row in rows
    ]
    if args.json:
        print(json.dumps({"run": args.run, "prompt": args.prompt, "samples": texts}, indent=1, ensure_ascii=False))
        return 0
    for number, one in enumerate(texts, start=1):
        if len(texts) > 1:
            print(f"--- {number} of {len(texts)}")
        print("".join(letter if letter in "\n\t" else printable(letter) for letter in args.prompt + one["text"]))
        if one["ended"] == "model":
            Console(stderr=True).print(f"(stopped at the {context} tokens of the context of {args.run})")
    return 0


def why_it_ended(row: "Tensor", end: int, asked: int, room: int) -> str:
    """Why a text ended: with the end token, after the tokens asked for, or at the model's length."""
    if len(row) and row[-1] == end:
        return "end"
    return "model" if room < asked else "tokens"
