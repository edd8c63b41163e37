"""Tokenizers: trained on a corpus or read from a file, by the `tokenizers` library.

- `bpe`: byte-level BPE (Radford et al., 2019, GPT-2): any text is encoded, and decoded without loss.
- `wordpiece`: BERT's normalizer, pre-tokenizer and WordPiece (Devlin et al., 2019).
- `characters`: one token for each Unicode character of the training texts, the most frequent if they are too many.
- else the path of a `tokenizer.json` by `Tokenizer.save` or Hugging Face, or the path of its folder.

Text is never taken for a special token, whatever it spells.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, takewhile
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from vitlab.config import UserError, choices_text, first_line
from vitlab.data.text import NO_TAG
from vitlab.files import check_regular, reading, write_text

KINDS = ("bpe", "wordpiece", "characters")
FILE = "tokenizer.json"
CHUNK = 200_000  # characters encoded at a time: their encodings take up to 60 times as many bytes
LONG = 10_000  # characters; longer texts are encoded in pieces, with less memory and on all cores
WORD = 256  # characters; trainers get longer words in pieces, because their time grows with a word's square
LONG_WORD = re.compile(rf"(\S{{{WORD + 1},}}|\s{{{WORD + 1},}})")  # or white space
ALPHABET = 1000  # characters that WordPiece keeps at most, as BERT's trainer does

# Names of GPT (Radford et al., 2018: start, delimiter, extract), BERT and RoBERTa/T5, then of Llama and Gemma.
ROLES = {
    "pad": ("<|pad|>", "[PAD]", "<pad>"),
    "unknown": ("<|unk|>", "[UNK]", "<unk>"),
    "start": ("<|start|>", "[CLS]", "<s>", "<|begin_of_text|>", "<bos>"),
    "separator": ("<|delimiter|>", "[SEP]", "</s>"),
    "end": ("<|extract|>", "[SEP]", "</s>", "<|end_of_text|>", "<eos>"),
    "document_end": ("<|endoftext|>", "</s>", "[SEP]", "<|end_of_text|>", "<eos>"),
    "mask": ("<|mask|>", "[MASK]", "<mask>"),
}
SENTINEL = "<extra_id_{}>"  # T5's, in the place of a span
GPT = ("<|pad|>", "<|start|>", "<|delimiter|>", "<|extract|>", "<|mask|>", "<|endoftext|>")
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Tokenizer:
    """Encodes texts, decodes tokens, and holds the ids of special tokens by their roles.

    pad, start, separator, end, document_end: a role without its own token takes another role's token: in GPT-2's
        file all roles share one token, in BERT's [SEP] is the separator and both ends.
    decoder_start: the token that a decoder reads first: start if the file has it, else pad, as in T5.
    unknown: None if no text is unknown, as in byte-level BPE.
    mask: None if the file has none.
    special: the ids of all special tokens, sorted.
    size: the largest id plus 1: the number of tokens, special ones included.
    """

    def __init__(self, inner: tokenizers.Tokenizer):
        """Find the special tokens. Raises UserError for a tokenizer without any token that could end a text."""
        inner.no_truncation()  # Hugging Face's files may ask for both
        inner.no_padding()
        inner.encode_special_tokens = True  # as plain text
        self.inner = inner
        vocabulary = inner.get_vocab(with_added_tokens=True)
        ids = {
            role: next(vocabulary[name] for name in names if name in vocabulary)
            for role, names in ROLES.items()
            if not vocabulary.keys().isdisjoint(names)
        }
        last = ids.get("document_end", ids.get("end"))
        if last is None:
            end_tokens = dict.fromkeys(ROLES["document_end"] + ROLES["end"])
            raise UserError(f"no token for the end of a text; known are {', '.join(end_tokens)}")
        self.document_end: int = last
        self.end: int = ids.get("end", last)
        self.separator: int = ids.get("separator", self.end)
        self.start: int = ids.get("start", last)
        self.pad: int = ids.get("pad", last)
        self.decoder_start: int = ids.get("start", self.pad)
        self.unknown: int | None = ids.get("unknown")
        self.mask: int | None = ids.get("mask")
        flagged = {id for id, token in inner.get_added_tokens_decoder().items() if token.special}
        self.special: tuple[int, ...] = tuple(sorted(flagged | set(ids.values())))
        self.size: int = max(vocabulary.values()) + 1
        self.spaced = self.ids("a") != self.ids(" a")  # whether the space before a word is part of its tokens
        self.apart = self.ids("a\nb") == self.ids("a\n") + self.ids("b")  # whether lines are tokens of their own

    def __reduce__(self):
        return from_text, (self.inner.to_str(),)

    def ids(self, text: str) -> list[int]:
        return self.inner.encode(text, add_special_tokens=False).ids

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode texts as lists of ids, without adding special ones. A str is one text."""
        texts = [texts] if isinstance(texts, str) else texts
        return [row.tolist() for row in self.rows(texts)]

    def rows(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Yield each text's ids as `encode` does, int32 (length,). Encodes batches of texts on all cores."""
        pieces: list[np.ndarray] = []  # ids of a text's pieces
        for batch in self.batch_pieces(texts):
            with reading("data.tokenizer", "its pattern does not end on these texts; give another one"):
                encodings = self.inner.encode_batch_fast([piece for piece, _ in batch], add_special_tokens=False)
            for (_, last), encoding in zip(batch, encodings, strict=True):
                pieces.append(np.asarray(encoding.ids, dtype=np.int32))
                if last:
                    yield np.concatenate(pieces)
                    pieces = []

    def batch_pieces(self, texts: Iterable[str]) -> Iterator[list[tuple[str, bool]]]:
        """Yield batches of (piece of a text, whether it is the text's last), about CHUNK characters at a time."""
        batch: list[tuple[str, bool]] = []
        held = 0
        for text in texts:
            cut = list(cut_pieces(text)) if self.apart else [text]
            for number, piece in enumerate(cut, 1):
                batch.append((piece, number == len(cut)))
                held += len(piece)
                if held >= CHUNK:
                    yield batch
                    batch, held = [], 0
        if batch:
            yield batch

    def encode_tags(self, words: Sequence[str], tags: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Encode words as ids int32 (N,) and tags int32 (N,): a word's first token has its tag, the others NO_TAG."""
        spaced = [" " + word if number and self.spaced else word for number, word in enumerate(words)]
        encoding = self.inner.encode(spaced, is_pretokenized=True, add_special_tokens=False)
        numbers = np.asarray(encoding.word_ids, dtype=np.int64)
        is_first = np.diff(numbers, prepend=-1) != 0
        carried = np.where(is_first, np.asarray(tags, dtype=np.int32)[numbers], np.int32(NO_TAG))
        return np.asarray(encoding.ids, dtype=np.int32), carried

    def encode_span(self, text: str, span: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Encode a text as (ids, inside), int32 (N,): 1 for tokens in a span of characters (first, behind last)."""
        encoding = self.inner.encode(text, add_special_tokens=False)
        inside = [start < span[1] and end > span[0] for start, end in encoding.offsets]
        return np.asarray(encoding.ids, dtype=np.int32), np.asarray(inside, dtype=np.int32)

    def decode(self, ids: Iterable[int], keep_special: bool = False) -> str:
        """Decode ids to a text; special tokens appear only with `keep_special`."""
        return self.inner.decode([int(id) for id in ids], skip_special_tokens=not keep_special)

    def token_texts(self, ids: Iterable[int]) -> list[str]:
        """Decode each token for display, with a leading space that belongs to it. Special tokens appear as written, a
        piece within a word as `##ing` if the tokenizer writes it so. Tokens that share one character become the
        replacement character each.
        """
        return [self.decode([id], keep_special=True) for id in ids]

    def with_sentinels(self, wanted: int) -> "Tokenizer":
        """Return a tokenizer with at least `wanted` of T5's special tokens <extra_id_0>, <extra_id_1>, ...

        Returns this tokenizer if it has enough, as T5's own has.
        """
        if len(self.sentinels) >= wanted:
            return self
        inner = tokenizers.Tokenizer.from_str(self.inner.to_str())
        names = (SENTINEL.format(number) for number in range(wanted))
        inner.add_special_tokens([tokenizers.AddedToken(name, special=True, normalized=False) for name in names])
        return Tokenizer(inner)

    @property
    def sentinels(self) -> tuple[int, ...]:
        """The ids of <extra_id_0>, <extra_id_1>, ..., up to the first missing one."""
        ids = (self.inner.token_to_id(SENTINEL.format(number)) for number in count())
        return tuple(takewhile(lambda id: id is not None, ids))

    def framing(self, single: str, pair: str | None = None) -> "Tokenizer":
        """Return a copy for other programs that frames each text, or pair, as models read them here: `$A {end}`."""
        other, ids = from_text(self.inner.to_str()), {role: vars(self)[role] for role in ("start", "separator", "end")}
        tokens = {role: self.inner.id_to_token(number) for role, number in ids.items()}
        templates = {"single": single} | ({"pair": pair} if pair else {})
        other.inner.post_processor = processors.TemplateProcessing(
            **{name: text.format(**tokens) for name, text in templates.items()},
            special_tokens=[*dict(zip(tokens.values(), ids.values(), strict=True)).items()],
        )
        return other

    def save(self, path: str | Path) -> None:
        """Write a `tokenizer.json` that `from_file` and Hugging Face read."""
        write_text(path, self.inner.to_str(pretty=True))


def from_text(text: str) -> Tokenizer:
    """Make a tokenizer from the content of a `tokenizer.json`."""
    return Tokenizer(tokenizers.Tokenizer.from_str(text))


def locate_file(path: str | Path) -> Path:
    """Locate the `tokenizer.json` that a path means: the file, or the one in a folder."""
    path = Path(path).expanduser()
    return path / FILE if path.is_dir() else path


def from_file(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a `tokenizer.json`, or of a folder that holds one. Raises UserError, one line."""
    file, source, choices = locate_file(path), f"data.tokenizer={path}", f"give a tokenizer.json, or {', '.join(KINDS)}"
    if not file.exists():
        raise UserError(f"{source}: no such file; {choices}")
    check_regular(file, source)
    with reading(source, choices):
        try:
            return from_text(file.read_text(encoding="utf-8"))
        except UserError as error:
            raise UserError(f"{source}: {first_line(error)}") from None


def is_path(tokenizer: str) -> bool:
    """Return True if `data.tokenizer` is a path, False if a kind. Raises UserError for anything else."""
    if tokenizer in KINDS:
        return False
    if tokenizer.endswith(".json") or "/" in tokenizer or "\\" in tokenizer or Path(tokenizer).expanduser().exists():
        return True
    choices = choices_text(tokenizer, KINDS)
    raise UserError(f"data.tokenizer={tokenizer}: unknown kind; {choices}, or the path of a tokenizer.json")


def train(
    texts: Iterable[str], kind: str, vocabulary: int, lowercase: bool = False, split_digits: bool = False
) -> Tokenizer:
    """Train a tokenizer of a kind with at most `vocabulary` tokens, special ones included; fewer from a small corpus.

    With `split_digits` a bpe makes each digit a token of its own. The same texts give the same tokenizer, on any
    number of cores. Raises UserError.
    """
    cut = (part for text in texts for piece in cut_pieces(text) for part in cut_words(piece))
    if kind == "bpe":
        return train_bpe(cut, vocabulary, lowercase, split_digits)
    return {"wordpiece": train_wordpiece, "characters": train_characters}[kind](cut, vocabulary, lowercase)


def train_bpe(texts: Iterable[str], vocabulary: int, lowercase: bool, split_digits: bool = False) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    check_vocabulary(vocabulary, len(alphabet) + len(GPT), f"{len(alphabet)} bytes and {len(GPT)} special tokens")
    inner = tokenizers.Tokenizer(models.BPE())
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_of_words]) if split_digits else bytes_of_words
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(GPT), initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(texts, trainer)
    return Tokenizer(inner)


def train_wordpiece(texts: Iterable[str], vocabulary: int, lowercase: bool) -> Tokenizer:
    texts = list(texts)
    pipeline = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters = [c for c in rank_characters(map(pipeline.normalizer.normalize_str, texts)) if not c.isspace()]
    # each letter takes two tokens: where a word begins, and within a word
    letters = sorted(letters[: min(ALPHABET, (vocabulary - len(BERT)) // 2)])
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        # the trainer numbers letters within words in a hash table's order, which changes each time, and breaks ties
        # by these numbers; special tokens keep the given order
        special_tokens=[*BERT, *letters, *(f"##{letter}" for letter in letters)],
        limit_alphabet=0,
        show_progress=False,
    )
    pipeline.train_from_iterator(texts, trainer)
    inner = tokenizers.Tokenizer(models.WordPiece(pipeline.get_vocab(), unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = pipeline.normalizer, pipeline.pre_tokenizer
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens(list(BERT))
    return Tokenizer(inner)


def train_characters(texts: Iterable[str], vocabulary: int, lowercase: bool) -> Tokenizer:
    specials = ("<|unk|>", *GPT)
    check_vocabulary(vocabulary, len(specials) + 1, f"{len(specials)} special tokens and a character")
    normalizer = normalizers.Lowercase()
    letters = rank_characters(map(normalizer.normalize_str, texts) if lowercase else texts)
    alphabet = sorted(letters[: vocabulary - len(specials)])
    # BPE without a merge: the only model of the library that takes a text character by character as it is
    numbered = {token: id for id, token in enumerate([*specials, *alphabet])}
    inner = tokenizers.Tokenizer(models.BPE(numbered, [], unk_token="<|unk|>", cache_capacity=0))
    if lowercase:
        inner.normalizer = normalizer
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(list(specials))
    return Tokenizer(inner)


def rank_characters(texts: Iterable[str]) -> list[str]:
    """Rank the characters of some texts, the most frequent first."""
    counts = Counter(chain.from_iterable(texts))
    return sorted(counts, key=lambda character: (-counts[character], character))


def cut_words(text: str) -> Iterator[str]:
    """Yield a text in pieces: cuts words longer than WORD, such as DNA, and keeps the text between them whole."""
    for number, part in enumerate(LONG_WORD.split(text)):
        step = WORD if number % 2 else len(part)
        yield from (part[start : start + step] for start in range(0, len(part), step or 1))


def check_vocabulary(vocabulary: int, least: int, what: str) -> None:
    if vocabulary < least:
        raise UserError(f"data.vocabulary={vocabulary}: give at least {least}, for {what}")


def cut_pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of about LONG characters, cut behind a line break with no other white space beside it."""
    start = 0
    for cut in re.compile(r"(?<=\S\n)(?=\S)").finditer(text, LONG) if len(text) > LONG else ():
        if cut.start() - start >= LONG:
            yield text[start : cut.start()]
            start = cut.start()
    yield text[start:]
