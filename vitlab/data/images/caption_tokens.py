"""Captions of images as the tokens that a decoder reads and writes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from vitlab.config import UserError
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import CaptionData, ImageData
from vitlab.data.sequences.blocks import IGNORE_INDEX
from vitlab.data.text import tokenization
from vitlab.data.text.tokenization import Tokenizer

Captions = Sequence[Sequence[str]]  # of each image, one or several


def number_captions(data: ImageData, captions: Mapping[str, Captions]) -> tuple[ImageData, Captions]:
    """The images with a number each as target, and a list of captions in which it finds its own by that.

    So captions follow their images when another test set is drawn. captions: of each split, in its order.
    """
    texts, splits = [], {}
    for part, of_split in captions.items():
        numbers = np.arange(len(texts), len(texts) + len(of_split))
        splits[part] = replace(vars(data)[part], targets=numbers)
        texts += of_split
    return replace(data, **splits), texts


def add_captions(config: ImageDataConfig, data: ImageData, texts: Captions) -> CaptionData:
    """The images of a data set with their captions' tokens as targets, in place of the numbers of `number_captions`.

    A tokenizer that is not a file's is trained on the training captions. Raises UserError for captions that are longer
    than `data.target_length`.
    """
    captions = {
        part: [texts[number] for number in vars(data)[part].targets] for part in ("train", "validation", "test")
    }
    if tokenization.is_path(config.tokenizer):
        tokenizer = tokenization.from_file(config.tokenizer)
    else:
        texts = (text for of_image in captions["train"] for text in of_image)
        tokenizer = tokenization.train(texts, config.tokenizer, config.vocabulary, config.lowercase)
    encoded = {part: [tokenizer.encode(of_image) for of_image in captions[part]] for part in captions}
    problems = list(check_lengths(config, encoded))
    if problems:
        raise UserError(problems)
    splits = {
        part: replace(vars(data)[part], targets=pad_captions(rows, tokenizer, config.target_length))
        for part, rows in encoded.items()
    }
    about = {"tokenizer": tokenizer, "target_length": config.target_length, "exact": config.exact}
    return CaptionData(**{**vars(data), **splits}, **about)


def check_lengths(config: ImageDataConfig, encoded: Mapping[str, list[list[list[int]]]]) -> Iterator[str]:
    lengths = [len(ids) + 1 for rows in encoded.values() for of_image in rows for ids in of_image]
    if max(lengths) > config.target_length:
        long = sum(length > config.target_length for length in lengths)
        yield (
            f"data.target_length={config.target_length}: {long} of {len(lengths)} captions are longer, the longest has "
            f"{max(lengths)} tokens with its end; give data.target_length={max(lengths)}, or shorten them"
        )
    if min(lengths) == 1:
        yield f"data={config.name}: a caption has no tokens with data.tokenizer={config.tokenizer}; write another"


def pad_captions(rows: list[list[list[int]]], tokenizer: Tokenizer, length: int) -> np.ndarray:
    """int64 (N, most captions of an image, length + 1), see CaptionData."""
    targets = np.full((len(rows), max(map(len, rows)), length + 1), IGNORE_INDEX, dtype=np.int64)
    for row, of_image in enumerate(rows):
        for place, ids in enumerate(of_image):
            targets[row, place, : len(ids) + 2] = [tokenizer.decoder_start, *ids, tokenizer.end]
    return targets
