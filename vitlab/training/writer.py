"""Texts that a trained model generates: continuations of prompts, or targets of sources; many at a time.

Shapes: B texts.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.config import UserError, raise_all, resolved
from vitlab.data.augment import normalize
from vitlab.data.text.tokenization import Tokenizer, from_file
from vitlab.formatting import cut_lines
from vitlab.models.base import as_model
from vitlab.models.decoding import Decoding, write
from vitlab.models.encoder_decoder import Captioner
from vitlab.models.huggingface import load_huggingface
from vitlab.models.text import LanguageModel
from vitlab.training.checkpoints import LoadedRun, evaluation_accelerator, load_run
from vitlab.training.files import RunFiles
from vitlab.training.predict import read_pictures
from vitlab.training.settings import evaluation_context

MOST_NAMED = 5  # texts that are too long


class Continuations:
    """A language model that continues prompts up to the end of a document."""

    continues = True  # a prompt is the beginning of the text
    pads = False  # prompts of different lengths are not read together
    most_tokens = 100  # after a prompt, when nothing else is asked for

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer):
        self.model, self.tokenizer = model, tokenizer
        self.end = tokenizer.document_end
        self.longest = model.text.embed.length  # tokens of a prompt
        self.search: dict[str, Any] = {"temperature": 1.0}  # when nothing else is asked for

    def encode(self, text: str) -> list[int]:
        """Encode a prompt as the tokens that the model reads; "" becomes the end of the document before."""
        return self.tokenizer.ids(text) or [self.tokenizer.document_end]

    def begin(self, rows: Sequence[Sequence[int]]) -> tuple[Decoding, Tensor]:
        """Start decoding after B prompts of one length: (the decoding, the prompts' tokens)."""
        return self.model.decoding(), torch.tensor(rows, device=device_of(self.model))


class TargetsBehind(Continuations):
    """A language model that writes targets behind sources and a delimiter, as `OneSequence` trains it."""

    continues = False

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, source_length: int, search: Mapping[str, Any]):
        super().__init__(model, tokenizer)
        self.end, self.search = tokenizer.end, dict(search)
        self.longest, self.most_tokens = source_length, self.longest - source_length

    def encode(self, text: str) -> list[int]:
        return [*self.tokenizer.ids(text), self.tokenizer.separator]


class Targets:
    """An encoder-decoder that writes targets for sources."""

    continues, pads = False, True

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, search: Mapping[str, Any] | None = None):
        self.model, self.tokenizer = model, tokenizer
        self.end = tokenizer.end
        self.longest = model.text.embed.length
        self.most_tokens = model.target_length
        self.search = dict(search or {"beams": 1})

    def encode(self, text: str) -> list[int]:
        return [*self.tokenizer.ids(text), self.tokenizer.end]

    def begin(self, rows: Sequence[Sequence[int]]) -> tuple[Decoding, Tensor]:
        """Start decoding targets for B sources: (the decoding, their start tokens (B, 1))."""
        device = device_of(self.model)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        padded = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, self.tokenizer.pad).to(device)
        mask = torch.arange(padded.shape[1], device=device) < lengths[:, None]
        return self.begin_with(padded, mask)

    @torch.inference_mode()
    def begin_with(self, *inputs: Tensor) -> tuple[Decoding, Tensor]:
        """Start decoding from B sources in the form that the model takes: (the decoding, their start tokens (B, 1))."""
        start = torch.full((len(inputs[0]), 1), self.tokenizer.decoder_start, device=inputs[0].device)
        return self.model.decoding(*inputs), start


class Captions(Targets):
    """A captioner that describes pictures; a source is the path of a file."""

    longest = 1

    def __init__(self, run: LoadedRun, tokenizer: Tokenizer, search: Mapping[str, Any]):
        self.model, self.tokenizer, self.search = run.model, tokenizer, dict(search)
        self.end, self.most_tokens = tokenizer.end, run.model.target_length
        self.form = run.shape["image_size"], run.shape["channels"], vars(run.config.data).get("bits", 16)
        self.mean, self.std = list(run.config.data.mean), list(run.config.data.std)

    def encode(self, text: str) -> list[str]:
        if not Path(text).expanduser().is_file():
            raise UserError(f"{text}: no such picture; give the path of a file")
        return [text]

    def begin(self, rows: Sequence[Sequence[str]]) -> tuple[Decoding, Tensor]:
        paths = [str(Path(path).expanduser()) for (path,) in rows]
        images, errors = read_pictures(paths, *self.form)
        if errors:
            raise UserError([f"{rows[place][0]}: {why}" for place, why in errors.items()])
        pixels = torch.from_numpy(images).to(device_of(self.model))
        return self.begin_with(normalize(pixels, self.mean, self.std))


TextGenerator = Continuations | Targets


def load_writer(source: str) -> TextGenerator:
    """Load a finished run's or a Hugging Face folder's model, with its tokenizer, on a GPU if there is one.

    Raises UserError for models that write no text.
    """
    folder, accelerator, search, source_length = Path(source), "auto", None, None
    if not RunFiles(folder).config_path.exists() and (folder / "config.json").exists():
        model, path = load_huggingface(folder)[0], folder / "tokenizer.json"
    else:
        run = load_run(source)
        model, path, accelerator = run.model, RunFiles(source).tokenizer_path, evaluation_accelerator(run.config)
        task, data = resolved(run.config.task), resolved(run.config.data)
        if "beams" in task:
            search = {"beams": task["beams"], "length_penalty": task["length_penalty"]}
            source_length = data.get("length")
    if as_model(model).decoding is None:
        raise UserError(
            f"{source}: {type(model).__name__} writes no text; give a run of a task that does, such as task=causal_lm "
            "or task=translation"
        )
    if not path.is_file():
        raise UserError(f"{source}: has no tokenizer.json, which turns text into tokens")
    tokenizer = from_file(path)
    if tokenizer.size > model.vocabulary:
        raise UserError(
            f"{path}: has {tokenizer.size} tokens, but the model has {model.vocabulary}; it belongs to another model"
        )
    model.to(evaluation_context("32-true", accelerator)[0])
    if isinstance(model, Captioner):
        return Captions(run, tokenizer, search)
    if not isinstance(model, LanguageModel):
        return Targets(model, tokenizer, search)
    return Continuations(model, tokenizer) if search is None else TargetsBehind(model, tokenizer, source_length, search)


def write_rows(
    writer: TextGenerator,
    rows: Sequence[Sequence[int]],
    steps: int,
    search: Mapping[str, Any],
    progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:
    """Decode B rows of tokens that the writer reads together; return at most `steps` tokens for each row.

    `search` are options of `vitlab.models.decoding.write`.
    """
    return write(*writer.begin(rows), steps, **search, end=writer.end, progress=progress)


def write_lines(
    writer: TextGenerator,
    rows: Sequence[Sequence[int]],
    steps: int,
    search: Mapping[str, Any],
    size: int,
    progress: Callable[[int, int], None],
) -> list[str]:
    """Decode any number of rows, `size` at a time; return one line of text for each row, in the rows' order.

    progress(done, total) is called with the number of rows.
    """
    lines, done = [""] * len(rows), 0
    longest_first = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
    by_length = (list(places) for _, places in groupby(longest_first, key=lambda place: len(rows[place])))
    groups = [longest_first] if writer.pads else by_length
    for places in (group[first : first + size] for group in groups for first in range(0, len(group), size)):
        for place, tokens in zip(places, write_rows(writer, [rows[i] for i in places], steps, search), strict=True):
            lines[place] = " ".join(writer.tokenizer.decode(tokens.tolist()).splitlines())
        done += len(places)
        progress(done, len(rows))
    return lines


def encode_texts(writer: TextGenerator, source: str, texts: Mapping[str, str]) -> list[list[int]]:
    """Encode texts, keyed by their place. Raises UserError that names the texts too long for the model."""
    rows = [writer.encode(text) for text in texts.values()]
    problems = [
        f"{place} has {len(row)} tokens, but the model of {source} takes {writer.longest}; shorten it"
        for place, row in zip(texts, rows, strict=True)
        if len(row) > writer.longest
    ]
    raise_all(cut_lines(problems, MOST_NAMED, " are too long"))
    return rows


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
