"""Generate texts with a trained model: continuations of prompts, or targets of sources; many at a time.

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
from vitlab.training.files import RunFiles
from vitlab.training.finished import LoadedRun, evaluation_accelerator, load_run, read_pictures
from vitlab.training.settings import evaluation_context

MOST_NAMED = 5  # too long texts that an error names


class TextGenerator:
    """Writes texts with a model: continuations of prompts, or a target for each source.

    A source is a text, or the path of a picture for the captioner of `run`. A language model continues prompts up to
    the end of a document; trained with `task.one_sequence`, it writes targets behind sources of at most
    `source_length` tokens. `search` holds the default options of decoding; by default a continuation is sampled.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        search: Mapping[str, Any] | None = None,
        source_length: int | None = None,
        run: LoadedRun | None = None,
    ):
        self.model, self.tokenizer, self.run = model, tokenizer, run
        self.reads_pictures = isinstance(model, Captioner)
        self.pads = not isinstance(model, LanguageModel)  # else the model reads together only rows of one length
        self.continues = not self.pads and search is None  # the text begins with the prompt
        self.end = tokenizer.document_end if self.continues else tokenizer.end
        self.search = dict(search or ({"temperature": 1.0} if self.continues else {"beams": 1}))
        length = None if self.reads_pictures else model.text.embed.length
        if self.continues:  # tokens of a row, and the default number of tokens to write
            self.longest, self.most_tokens = length, 100
        elif self.pads:
            self.longest, self.most_tokens = length or 1, model.target_length
        else:
            self.longest, self.most_tokens = source_length, length - source_length

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def encode(self, text: str) -> list[Any]:
        """Encode a prompt or a source as a row of model inputs; an empty prompt becomes the end of a document.

        Raises UserError for a missing picture.
        """
        if not self.reads_pictures:
            if self.continues:
                return self.tokenizer.ids(text) or [self.end]
            return [*self.tokenizer.ids(text), self.end if self.pads else self.tokenizer.separator]
        if not Path(text).expanduser().is_file():
            raise UserError(f"{text}: no such picture; give the path of a file")
        return [text]

    @torch.inference_mode()
    def begin(self, rows: Sequence[Sequence[Any]]) -> tuple[Decoding, Tensor]:
        """Start decoding B rows, of one length unless the model pads; return (the decoding, the tokens so far)."""
        if not self.pads:
            return self.model.decoding(), torch.tensor(rows, device=self.device)
        inputs = self.read_pictures(rows) if self.reads_pictures else self.pad(rows)
        start = torch.full((len(rows), 1), self.tokenizer.decoder_start, device=self.device)
        return self.model.decoding(*inputs), start

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        padded = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, self.tokenizer.pad)
        return padded.to(self.device), torch.arange(padded.shape[1], device=self.device) < lengths[:, None]

    def read_pictures(self, rows: Sequence[Sequence[str]]) -> tuple[Tensor]:
        data, paths = self.run.config.data, [str(Path(path).expanduser()) for (path,) in rows]
        form = self.run.shape["image_size"], self.run.shape["channels"], vars(data).get("bits", 16)
        images, errors = read_pictures(paths, *form)
        if errors:
            raise UserError([f"{rows[place][0]}: {why}" for place, why in errors.items()])
        return (normalize(torch.from_numpy(images).to(self.device), list(data.mean), list(data.std)),)


def load_writer(source: str) -> TextGenerator:
    """Load a finished run's or a Hugging Face folder's model, with its tokenizer, on a GPU if there is one.

    Raises UserError for models that write no text.
    """
    folder, accelerator, search, source_length, run = Path(source), "auto", None, None, None
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
    return TextGenerator(model, tokenizer, search, source_length, run)


def write_rows(
    writer: TextGenerator,
    rows: Sequence[Sequence[int]],
    steps: int,
    search: Mapping[str, Any],
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Tensor]:
    """Decode B rows of tokens together; return at most `steps` tokens for each row.

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

    Calls progress(done, total) with the number of rows.
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
    """Encode texts, keyed by their place. Raises UserError with the names of texts too long for the model."""
    rows = [writer.encode(text) for text in texts.values()]
    problems = [
        f"{place} has {len(row)} tokens, but the model of {source} takes {writer.longest}; shorten it"
        for place, row in zip(texts, rows, strict=True)
        if len(row) > writer.longest
    ]
    raise_all(cut_lines(problems, MOST_NAMED, " are too long"))
    return rows
