"""`vitlab generate`: text from a language model."""

import json
from pathlib import Path

import torch
from rich.console import Console

from vitlab.config import UserError, printable
from vitlab.data.opening import progress_bar
from vitlab.data.text.tokenization import Tokenizer
from vitlab.models.generate import beam_search, generate
from vitlab.models.heads import LanguageModel
from vitlab.models.weights.huggingface import load_huggingface
from vitlab.training.files import RunFiles
from vitlab.training.load import load_run


def write(
    source: str,
    prompt: str,
    *,
    tokens: int,
    samples: int,
    seed: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    beams: int | None,
    length_penalty: float,
    as_json: bool,
) -> int:
    """Print what follows a prompt, `samples` times or by beam search; the exit code. Raises UserError."""
    model, tokenizer = language_model(source)
    refuse_bytes("--prompt", prompt)
    # without a prompt: as after the end of another document
    given = tokenizer.encode([prompt])[0] or [tokenizer.document_end]
    room = model.text.embed.length - len(given)
    if room < 1:
        raise UserError(
            f"--prompt: is {len(given)} tokens long, {source} takes {model.text.embed.length} in all; give a "
            "shorter one"
        )
    start, end = torch.tensor(given), tokenizer.document_end
    with progress_bar(Console(stderr=True)) as progress:

        def report(done: int, total: int) -> None:
            progress("tokens", done, total)

        if beams is None:
            generator = torch.Generator().manual_seed(seed)
            options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "generator": generator}
            rows = generate(model, start.expand(samples, -1), tokens, **options, end=end, progress=report)
        else:
            options = {"beams": beams, "length_penalty": length_penalty}
            rows = [beam_search(model, start, tokens, **options, end=end, progress=report)]
    found = [
        {"text": tokenizer.decode(row.tolist()), "tokens": len(row), "ended": ending(row, end, tokens, room)}
        for row in rows
    ]
    if as_json:
        print(json.dumps({"run": source, "prompt": prompt, "samples": found}, indent=1, ensure_ascii=False))
        return 0
    for number, one in enumerate(found, start=1):
        if len(found) > 1:
            print(f"--- {number} of {len(found)}")
        print("".join(letter if letter in "\n\t" else printable(letter) for letter in prompt + one["text"]))
        if one["ended"] == "model":
            Console(stderr=True).print(f"(ended at the {model.text.embed.length} tokens that {source} takes)")
    return 0


def refuse_bytes(key: str, text: str) -> None:
    """Raise UserError for an argument that is no text: bytes that are not UTF-8 come as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{key}: is not UTF-8 text") from None


def ending(row: torch.Tensor, end: int, asked: int, room: int) -> str:
    """Why a text ended: its own end, the tokens asked for, or all that the model takes."""
    if len(row) and row[-1] == end:
        return "end"
    return "model" if room < asked else "tokens"


def language_model(source: str) -> tuple[LanguageModel, Tokenizer]:
    """A finished run's model and its tokenizer, or those of a folder of Hugging Face's. Raises UserError."""
    folder = Path(source)
    if not RunFiles(folder).config_path.exists() and (folder / "config.json").exists():
        model, report = load_huggingface(folder)
        if lacking := [name for name in report.missing if name.startswith("text.")]:
            raise UserError(f"{source}: its weights lack {len(lacking)} of the model's, {lacking[0]} among them")
        path = folder / "tokenizer.json"
    else:
        model, path = load_run(source).model, RunFiles(source).tokenizer_path
    if not isinstance(model, LanguageModel):
        raise UserError(f"{source}: is a {type(model).__name__}, which continues no text; give a run of task=causal_lm")
    if not path.is_file():
        raise UserError(f"{source}: holds no tokenizer.json; text cannot become tokens without it")
    tokenizer = Tokenizer.load(path)
    if tokenizer.size > model.vocabulary:
        raise UserError(f"{path}: has {tokenizer.size} tokens, the model {model.vocabulary}; it is another model's")
    return model, tokenizer
