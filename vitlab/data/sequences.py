"""Sequences of one length for models of text: blocks, framed texts and pairs, sources with their targets.

A text ends with one of the tokenizer's end tokens; IGNORE_INDEX pads the sequence behind it.
Shapes: B batch, N tokens of a sequence, S sequences of an item; M sequences of a set.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from vitlab.data.base import Ragged, Split, Texts, take_items

if TYPE_CHECKING:
    from vitlab.data.text.tokenization import Tokenizer

IGNORE_INDEX = -100  # padding in place of a token; torch's cross-entropy ignores it
FOLLOWS, RANDOM = 0, 1  # the second segment of a pair, as BERT numbers them
LEAST = 2  # least tokens of a segment
SEQUENCES_OF_PART = 8  # sequences that fill one part of a lone text, which is cut into parts


# -- a stream cut into blocks, or each text in blocks of its own


@dataclass(frozen=True, eq=False)
class Blocks:
    """A reader of blocks: `length` tokens and the next `ahead` tokens of the stream, all texts with `end` after each.

    Blocks follow one another, or with `begins` (M,), their places in the stream, each stays in one text. IGNORE_INDEX
    stands behind the last text, or behind a block's text.
    """

    texts: Ragged
    end: int
    length: int
    ahead: int
    begins: np.ndarray | None = None

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """Read blocks: int64 (B,) -> int64 (B, length + ahead)."""
        firsts, begins = self.firsts, np.asarray(indices) * self.length if self.begins is None else self.begins[indices]
        places = begins[:, None] + np.arange(self.length + self.ahead)
        within = places if self.begins is None else places[:, :1]
        text = np.minimum(np.searchsorted(firsts, within, side="right") - 1, len(self.texts) - 1)
        offset, lengths = places - firsts[text], self.texts.lengths[text]
        inside = self.texts.starts[text] + np.minimum(offset, lengths - 1)
        tokens = self.texts.values[inside].astype(np.int64)
        return np.where(offset < lengths, tokens, np.where(offset == lengths, self.end, IGNORE_INDEX))

    @cached_property
    def firsts(self) -> np.ndarray:
        """The start of each text in the stream, int64 (N + 1,)."""
        return self.texts.starts + np.arange(len(self.texts.starts))


def pack_texts(
    texts: Ragged, end: int, length: int, *, within_texts: bool, ahead: int = 0, whole: bool = True
) -> Split:
    """Cut texts into sequences of `length` tokens and `ahead` more; only the tokens ahead are in two sequences.

    The texts make one stream, and sizes count tokens; with `within_texts` each text is cut by itself, and sizes count
    documents. `whole` drops the rest of the stream, which is less than a sequence.
    """
    if within_texts:
        spans = texts.lengths + 1 - ahead  # with its end; the last token has nothing to predict
        counts = np.ceil(np.maximum(spans, 0) / length).astype(np.int64)
        text = np.repeat(np.arange(len(texts)), counts)
        offset = (np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)) * length
        read = Blocks(texts, end, length, ahead, texts.starts[text] + text + offset)
        return Split(np.zeros(len(text), dtype=np.int64), read, unit="document", groups=text)
    tokens = len(texts.values) + len(texts) - ahead
    items = tokens // length if whole else -(-tokens // length)
    return Split(np.zeros(items, dtype=np.int64), Blocks(texts, end, length, ahead), unit="token", per_item=length)


# -- whole texts


@dataclass(frozen=True, eq=False)
class PairInputs:
    """A reader that frames a text, or a pair of texts, as a sequence of `length` tokens.

    A text becomes `start A end`, a pair `start A separator B end`, as in GPT (Radford et al., 2018, section 3.3) and
    BERT (Devlin et al., 2019, figure 4). The tokenizer's special tokens fill these roles; in BERT's [CLS] A [SEP] B
    [SEP] one token is separator and end.

    sequences: for each sequence of an item, its one or two parts, as indices into `parts`.
    frame: the tokens start, separator, end.
    tags: the class of each token of the last part, if it has tags.
    written: texts as read, behind the last token of each plane.
    """

    parts: tuple[Ragged, ...]
    sequences: tuple[tuple[int, ...], ...]
    frame: tuple[int, int, int]
    length: int
    tags: Ragged | None = None
    written: Ragged | None = None

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """Read items: int64 (B,) -> int64 (B, 2, N), or (B, S, 2, N) if an item has several sequences.

        Plane 0: tokens, IGNORE_INDEX behind the end. Plane 1: segments, 1 for B and its end token, else 0. With tags
        plane 2: tags, NO_TAG (equal to IGNORE_INDEX) for a token without a tag.
        """
        indices = np.asarray(indices)
        sequences = np.stack([self.read_sequence(indices, numbers) for numbers in self.sequences], axis=1)
        return append_written(sequences[:, 0] if len(self.sequences) == 1 else sequences, self.written, indices)

    def read_sequence(self, indices: np.ndarray, numbers: tuple[int, ...]) -> np.ndarray:
        """Read the planes (B, 2 or 3, N) of one sequence of each item."""
        planes = np.full((len(indices), 2 if self.tags is None else 3, self.length), IGNORE_INDEX, dtype=np.int64)
        tokens, segments = planes[:, 0], planes[:, 1]
        places, rows = np.arange(self.length), np.arange(len(indices))
        start, separator, end = self.frame
        tokens[:, 0], segments[:] = start, 0
        # truncate as BERT's _truncate_seq_pair: the longer part loses a token at a time, at a tie the second
        room = self.length - 1 - len(numbers)
        a, *b = (self.parts[number].lengths[indices] for number in numbers)
        counts = [np.minimum(a, np.maximum(room - b[0], room - room // 2) if b else room)]
        counts += [np.minimum(other, np.maximum(room - a, room // 2)) for other in b]
        first = np.ones(len(indices), dtype=np.int64)
        for segment, (number, count) in enumerate(zip(numbers, counts, strict=True)):
            last = first + count
            write_texts(tokens, self.parts[number], indices, first, count)
            tokens[rows, last] = end if segment == len(numbers) - 1 else separator
            segments[(places >= first[:, None]) & (places <= last[:, None])] = segment
            if self.tags is not None and segment == len(numbers) - 1:
                write_texts(planes[:, 2], self.tags, indices, first, count)
            first = last + 1
        return planes


def write_texts(into: np.ndarray, texts: Ragged, indices: np.ndarray, first: np.ndarray, count: np.ndarray) -> None:
    """Write the first `count` (B,) values of the texts at `indices` into the rows of an array, from place `first`."""
    row = np.repeat(np.arange(len(indices)), count)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    into[row, first[row] + offset] = texts.values[texts.starts[indices][row] + offset]


def append_written(items: np.ndarray, written: Ragged | None, indices: np.ndarray) -> np.ndarray:
    """Append texts as read to items (B, ..., N) -> (B, ..., N + W), IGNORE_INDEX behind each end."""
    if written is None:
        return items
    rows = np.full((len(indices), written.lengths[indices].max(initial=0)), IGNORE_INDEX, dtype=np.int64)
    write_texts(rows, written, indices, np.zeros_like(indices), written.lengths[indices])
    rows = rows.reshape(len(rows), *(1,) * (items.ndim - 2), -1)
    return np.concatenate([items, np.broadcast_to(rows, (*items.shape[:-1], rows.shape[-1]))], axis=-1)


def frame_texts(texts: Texts, tokenizer: "Tokenizer", length: int, *, both_orders: bool = False) -> Split:
    """Frame each text, or its parts, as an item; sizes count texts.

    Two parts make one sequence, or two with `both_orders`. Of more parts the first is paired with each other part, its
    choices.
    """
    parts = len(texts.parts)
    sequences = ((0,),) if parts == 1 else tuple((0, other) for other in range(1, parts))
    if both_orders and parts > 1:
        sequences = (0, 1), (1, 0)
    frame = tokenizer.start, tokenizer.separator, tokenizer.end
    read = PairInputs(texts.parts, sequences, frame, length, texts.tags, texts.tags and texts.written)
    return Split(texts.labels, read, texts.targets, unit="text")


# -- a source and the target generated from it


@dataclass(frozen=True, eq=False)
class SourceTarget:
    """A reader of pairs, `source end`, `start target end`, each cut to its length, and then both as `written`."""

    sources: Ragged
    targets: Ragged
    start: int
    end: int
    source_length: int
    target_length: int
    written: Ragged | None = None

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """Read pairs: int64 (B,) -> int64 (B, source_length + target_length + W), IGNORE_INDEX behind each end."""
        indices = np.asarray(indices)
        joined = np.full((len(indices), self.source_length + self.target_length), IGNORE_INDEX, dtype=np.int64)
        source, target = joined[:, : self.source_length], joined[:, self.source_length :]
        rows, zeros = np.arange(len(indices)), np.zeros(len(indices), dtype=np.int64)
        count = np.minimum(self.sources.lengths[indices], self.source_length - 1)
        write_texts(source, self.sources, indices, zeros, count)
        source[rows, count] = self.end
        target[:, 0] = self.start
        count = np.minimum(self.targets.lengths[indices], self.target_length - 2)
        write_texts(target, self.targets, indices, zeros + 1, count)
        target[rows, count + 1] = self.end
        return append_written(joined, self.written, indices)


def join_pairs(
    texts: Texts, tokenizer: "Tokenizer", source_length: int, target_length: int, *, whole: bool = False
) -> Split:
    """Make an item of each pair; sizes count pairs. A model reads and writes `target_length` tokens of a target.

    Cuts texts that are too long; with `whole` leaves out such pairs.
    """
    sources, targets = texts.parts
    lengths = source_length, target_length + 1
    read = SourceTarget(sources, targets, tokenizer.decoder_start, tokenizer.end, *lengths, texts.written)
    short_enough = np.flatnonzero((sources.lengths < source_length) & (targets.lengths < target_length))
    split = Split(texts.labels, read, unit="pair", lengths=np.minimum(sources.lengths, source_length))
    return take_items(split, short_enough) if whole and len(short_enough) < len(texts) else split


# -- next-sentence prediction


def pair_segments(texts: Ragged, frame: tuple[int, int, int], length: int, seed: int = 0) -> Split:
    """Draw pairs of segments from all texts, at most `length` tokens a pair, labelled FOLLOWS or RANDOM.

    A segment is contiguous text, not always a sentence (Devlin et al., 2019, section 3.1 and appendix A.2). In half of
    the pairs the second segment follows the first. In the other half another text gives the second segment, and the
    next pair begins behind the first one. Texts too short for a pair are left out; the result may be empty. A lone
    text is cut into several.
    """
    generator = np.random.default_rng(seed)
    room = length - 3
    long_enough = np.flatnonzero(texts.lengths >= 2 * LEAST)
    if len(long_enough) == 1:
        row = long_enough[0]
        parts = max(2, int(texts.lengths[row]) // (SEQUENCES_OF_PART * length))
        cuts = np.linspace(texts.starts[row], texts.starts[row + 1], parts + 1).astype(np.int64)
        texts = Ragged(texts.values, cuts)
        long_enough = np.flatnonzero(texts.lengths >= 2 * LEAST)
    pairs: list[tuple[int, ...]] = []
    for text in long_enough if len(long_enough) > 1 else ():
        begin, whole = 0, int(texts.lengths[text])
        while whole - begin >= 2 * LEAST:
            size = min(room, whole - begin)
            first = int(generator.integers(LEAST, size - LEAST + 1))
            if generator.random() < 0.5:
                pairs.append((text, begin, first, text, begin + first, size - first, FOLLOWS))
                begin += size
                continue
            other = long_enough[generator.integers(len(long_enough) - 1)]
            other = long_enough[-1] if other == text else other
            second = min(size - first, int(texts.lengths[other]))  # its length must not tell the label
            from_ = int(generator.integers(texts.lengths[other] - second + 1))
            pairs.append((text, begin, first, other, from_, second, RANDOM))
            begin += first
    table = np.array(pairs, dtype=np.int64).reshape(-1, 7)
    segments, labels = (cut_spans(texts, *table[:, columns].T) for columns in ([0, 1, 2], [3, 4, 5])), table[:, 6]
    read = PairInputs(tuple(segments), ((0, 1),), frame, length)
    return Split(labels, read, targets=np.stack([labels, np.arange(len(labels))], axis=1), unit="sequence")


def cut_spans(texts: Ragged, text: np.ndarray, offset: np.ndarray, size: np.ndarray) -> Ragged:
    """Copy M spans: `size` tokens from place `offset` of text number `text`, each (M,)."""
    starts = np.concatenate([[0], np.cumsum(size)])
    places = np.repeat(texts.starts[text] + offset - starts[:-1], size) + np.arange(starts[-1])
    return Ragged(texts.values[places], starts)
