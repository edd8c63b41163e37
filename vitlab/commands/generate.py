"""`vitlab generate`: text that a trained model writes: after a prompt, or from a source; of a whole file."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab.commands.arguments import (
    CommandParser,
    digits,
    non_empty_path,
    number_between,
    positive_integer,
    seed_number,
    status_line,
    typed,
    utf8_text,
)
from vitlab.config import UserError, collecting, raise_all
from vitlab.console import Console
from vitlab.data.opening import progress_bar
from vitlab.files import read_utf8, write_text
from vitlab.formatting import plural
from vitlab.training.files import RunFiles, refuse_unwritable

if TYPE_CHECKING:
    from vitlab.training.writer import TextGenerator

DESCRIPTION = """Continue a text with a run's language model, or write one from a source, a text or a picture:
  vitlab generate runs/gpt --prompt "Return the" --temperature 0.8 --top-p 0.9
  vitlab generate runs/gpt --prompt "Return the" --beams 4 --tokens 40
  vitlab generate runs/numbers --prompt "forty two"
  vitlab generate runs/captions --prompt photo.jpg
  vitlab generate runs/de-en --input test.de --out test.hyp --reference test.en --beams 5 --length-penalty 0.6
Each line of --input is a source (of a captioning run the file of a picture), or a prompt of a language model; --out has
what is written from it on the same line, so an empty line, or one that is too long for the model, is refused."""
MOST = 1000  # texts, or beams, that are generated at a time
MOST_NAMED = 5  # wrong lines that are named one by one
up_to_most = typed(digits, f"an integer from 1 to {MOST}", lambda value: 1 <= value <= MOST)


def main(words: Sequence[str]) -> int:
    parser = CommandParser("generate", DESCRIPTION)
    add = parser.add_argument
    add("run", metavar="RUN", help="the run's folder, or one of Hugging Face's with a GPT-2 or T5")
    add("--prompt", type=utf8_text, metavar="TEXT", help="the text to continue, or the source")
    add("--input", type=non_empty_path, metavar="FILE", help="a text file, a source or prompt a line")
    add("--out", type=non_empty_path, metavar="FILE", help="where what is written from --input goes")
    about = "the wanted lines, for BLEU, chrF and exact matches"
    add("--reference", type=non_empty_path, metavar="FILE", help=about)
    add("--batch-size", type=positive_integer, default=32, metavar="N", help="lines read together (default: 32)")
    about = "maximum new tokens (default: 100 after a prompt, of a source what the model can write)"
    add("--tokens", type=positive_integer, metavar="N", help=about)
    add("--samples", type=up_to_most, default=1, metavar="N", help="texts to sample (default: 1)")
    about = "0: greedy (default: 1 where it samples)"
    add("--temperature", type=number_between(0, 1e6), metavar="T", help=about)
    add("--top-k", type=positive_integer, metavar="K", help="top-k sampling: from the K most likely tokens")
    about = "nucleus sampling: from the most likely tokens, with probability P in all"
    add("--top-p", type=number_between(0, 1), metavar="P", help=about)
    about = "beam search with N beams, no sampling (default: none after a prompt, of a source the run's task.beams)"
    add("--beams", type=up_to_most, metavar="N", help=about)
    about = "of beam search: log probability / ((5 + tokens) / 6)^A (default: the run's task.length_penalty, else 0)"
    add("--length-penalty", type=number_between(0, 10), metavar="A", help=about)
    add("--seed", type=seed_number, default=0, metavar="N", help="of the sampling (default: 0)")
    parser.add_json()
    args = parser.parse_args(words)
    sampling = ["--samples"] if args.samples > 1 else []
    sampling += [f"--{key.replace('_', '-')}" for key in ("temperature", "top_k", "top_p") if key in given(args)]
    raise_all([*find_conflicts(args, sampling)])
    lines = read_lines(args) if args.input else {}
    folder = Path(args.run)
    if (folder / "config.yaml").exists() or not (folder / "config.json").exists():
        RunFiles(folder).finished_result()
    with status_line("loading torch, lightning and timm", quiet=args.json):
        from vitlab.training.writer import load_writer

    writer = load_writer(args.run)
    search = choose_search(args, writer, bool(sampling))
    return write_file(args, writer, search, lines) if args.input else write_prompt(args, writer, search)


def find_conflicts(args: argparse.Namespace, sampling: Sequence[str]) -> Iterator[str]:
    """What is wrong with the arguments together; `sampling` are the options of sampling that are given."""
    if args.beams is not None and sampling:
        yield f"--beams cannot be combined with sampling options ({', '.join(sampling)})"
    if args.beams is None and args.length_penalty is not None:
        yield "--length-penalty only works with beam search; give --beams N too"
    if args.input is None:
        yield from (f"--{option}: needs --input FILE" for option in ("out", "reference") if option in given(args))
        return
    if args.prompt is not None:
        yield "--prompt and --input: give one of them"
    if args.samples > 1:
        yield f"--samples {args.samples}: a line of --input gets one text; leave it out"
    if args.out is None:
        yield "--input: give --out FILE, which gets what is written"
    elif args.out.is_dir():
        yield f"--out {args.out}: is a folder; give a file"
    else:
        for option in ("input", "reference"):
            if (read := given(args).get(option)) and read.resolve() == args.out.resolve():
                yield f"--out {args.out}: is the file of --{option}; give another"


def given(args: argparse.Namespace) -> dict[str, Any]:
    return {key: value for key, value in vars(args).items() if value is not None}


def read_lines(args: argparse.Namespace) -> dict[str, list[str]]:
    """The lines of --input and --reference. Raises UserError with all problems, also of --out."""
    columns, problems = {}, []
    for option in ("input", "reference"):
        if (path := given(args).get(option)) is None:
            continue
        with collecting(problems):
            lines = columns[option] = read_utf8(path, f"--{option}").removesuffix("\n").split("\n")
            if empty := [str(number) for number, line in enumerate(lines, start=1) if not line.strip()]:
                places = ", ".join(empty[:MOST_NAMED]) + (" ..." if len(empty) > MOST_NAMED else "")
                raise UserError(f"--{option}={path}: has no text on line {places}; give one on each")
    if len({len(lines) for lines in columns.values()}) > 1:
        problems.append(
            f"--reference={args.reference}: has {plural(len(columns['reference']), 'line')}, but "
            f"--input={args.input} has {len(columns['input'])}; give a reference for each line"
        )
    with collecting(problems):
        refuse_unwritable(args.out.absolute().parent)
    raise_all(problems)
    return columns


def choose_search(args: argparse.Namespace, writer: "TextGenerator", sampling: bool) -> dict[str, Any]:
    """The options of sampling or of the beam search: those given, else the writer's own."""
    if args.beams is not None:
        own = writer.search.get("length_penalty", 0.0)
        return {"beams": args.beams, "length_penalty": own if args.length_penalty is None else args.length_penalty}
    if not sampling and "beams" in writer.search:
        return writer.search
    import torch

    temperature = 1.0 if args.temperature is None else args.temperature
    generator = torch.Generator(next(writer.model.parameters()).device).manual_seed(args.seed)
    return {"temperature": temperature, "top_k": args.top_k, "top_p": args.top_p, "generator": generator}


def write_file(
    args: argparse.Namespace, writer: "TextGenerator", search: dict[str, Any], lines: dict[str, list[str]]
) -> int:
    """Write a line for each line of --input, and print how well they match --reference. Raises UserError."""
    from vitlab.tasks.measures import score_exact_match, score_translation
    from vitlab.training.writer import encode_lines, write_lines

    rows, steps = encode_lines(writer, args.run, args.input, lines["input"]), args.tokens or writer.most_tokens
    try:
        with progress_bar(None if args.json else Console(stderr=True)) as progress:
            written = write_lines(writer, rows, steps, search, args.batch_size, partial(progress, "lines"))
    except KeyboardInterrupt:
        print(f"vitlab: stopped; nothing was written to {args.out}", file=sys.stderr)
        return 130
    try:
        write_text(args.out, "".join(line + "\n" for line in written))
    except OSError as error:
        raise UserError(f"--out {args.out}: cannot write it ({error.strerror}); give another file") from None
    scores = {}
    if references := lines.get("reference"):
        scores = score_translation(written, references) | score_exact_match(written, references)
    if args.json:
        print(json.dumps({"run": args.run, "out": str(args.out), "lines": len(written), **scores}, indent=1))
        return 0
    print(f"{args.out}: {len(written):,} lines")
    if scores:
        print(f"BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f}, exact matches {scores['exact_match']:.1%}")
    return 0


def write_prompt(args: argparse.Namespace, writer: "TextGenerator", search: dict[str, Any]) -> int:
    """Print what is written from --prompt, `--samples` of it or one by beam search. Raises UserError."""
    from vitlab.training.writer import write_rows

    prompt = args.prompt or ""
    if not writer.continues and not prompt.strip():
        raise UserError(f"--prompt: {args.run} writes a text from a source; give --prompt TEXT, or --input FILE")
    tokens, steps = writer.encode(prompt), args.tokens or writer.most_tokens
    if len(tokens) > writer.longest:
        raise UserError(
            f"--prompt: its {len(tokens)} tokens are more than the {writer.longest} that {args.run} reads; give a "
            "shorter one"
        )
    with progress_bar(None if args.json else Console(stderr=True)) as progress:
        rows = write_rows(writer, [tokens] * args.samples, steps, search, partial(progress, "tokens"))
    texts = [
        {
            "text": writer.tokenizer.decode(row.tolist()),
            "tokens": len(row),
            "ended": "end" if writer.end in row[-1:] else "tokens" if len(row) == steps else "model",
        }
        for row in rows
    ]
    if args.json:
        print(json.dumps({"run": args.run, "prompt": prompt, "samples": texts}, indent=1, ensure_ascii=False))
        return 0
    for number, written in enumerate(texts, start=1):
        if len(texts) > 1:
            print(f"--- {number} of {len(texts)}")
        print(prompt + written["text"] if writer.continues else written["text"])
        if written["ended"] == "model":
            Console(stderr=True).print(f"(stopped at the length of {args.run})")
    return 0
