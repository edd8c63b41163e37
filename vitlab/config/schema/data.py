"""The dataclasses of data sets, one for kinds with the same keys."""

from dataclasses import dataclass
from typing import Any, Literal, Optional, Union

from vitlab.config.schema.fields import (
    CACHE,
    COST,
    LARGEST_IMAGE,
    LARGEST_LAYER,
    LARGEST_LENGTH,
    MISSING,
    NO_EFFECT,
    ON,
    WEIGHTS,
    Choice,
    Extent,
    Modality,
    choice,
    setting,
)

WRITES = {"..task.kind": ("translation", "summarization", "span_corruption")}
WHOLE = dict.fromkeys(("test_path", "test_source", "test_files", "test_split", "test"), (None,))
TRAINING = f"{WEIGHTS} {COST}"  # but not what the cache holds


@dataclass(frozen=True)
class AugmentConfig:
    """The keys of the augmentations (vitlab.data.augment)."""

    flip: bool = False  # mirror half of the images
    shift: int = setting(0, least=0)  # pad by this many pixels, crop at random
    # [least, most]: cut out a random share of the area, of some aspect (width / height), resize it to the whole image
    crop_scale: Optional[list[float]] = setting(None, above=0, most=1)
    crop_aspect: list[float] = setting([0.75, 1.3333], above=0, most=100, when={"crop_scale": ON})

    def describe_flip(self) -> str:
        """Say that training mirrors pictures, and which key switches it off; empty if it mirrors none."""
        off = "data.augment.flip=false where left and right differ, as in letters and digits"
        return f"training mirrors half of the pictures: give {off}" if self.flip else ""


@choice("data", "")
class DataConfig(Choice):
    modality: Modality = setting("image", affects=TRAINING, fixed=True)
    task: str = setting("classification", affects=NO_EFFECT, fixed=True)  # the task of a run that names none
    sizes: list[Any] = setting(["all"], affects=NO_EFFECT)  # training-set sizes of a study that names none
    # of items with one class each: the share of training labels that become another class, drawn by the run's seed
    label_noise: float = setting(0.0, least=0, most=1, affects=WEIGHTS)
    # and a long tail: how many times the items of the smallest class the largest has in the training set
    imbalance: float = setting(1.0, least=1, affects=WEIGHTS)
    # auto: images decoded once as uint8, up to 2 GB; texts always
    cache: Literal["auto", "always", "never"] = setting("auto", affects=COST)


@choice("data", "image")
class ImageDataConfig(DataConfig):
    image_size: Extent = setting(32, least=1, most=LARGEST_IMAGE)
    mean: list[float] = setting([0.5], affects=TRAINING)  # per channel, of pixels in 0..1
    std: list[float] = setting([0.5], above=0, affects=TRAINING)
    augment: AugmentConfig = setting(AugmentConfig, affects=TRAINING)
    # repeated: each seed of a study draws its own test images out of all; a number is that seed
    holdout: Union[int, Literal["fixed", "repeated"]] = setting("fixed", least=0, affects=TRAINING)


@choice("data", "text")
class TextDataConfig(DataConfig):
    modality: Modality = setting("text", affects=TRAINING, fixed=True)
    task: str = setting("causal_lm", affects=NO_EFFECT, fixed=True)
    length: int = setting(128, least=4, most=LARGEST_LENGTH, affects=TRAINING)  # tokens of a sequence
    # bpe, wordpiece, characters: trained on the training texts; or the path of a tokenizer.json
    tokenizer: str = "bpe"
    vocabulary: int = setting(4096, least=16, most=LARGEST_LAYER)  # tokens, at most
    lowercase: bool = False
    split_digits: bool = False  # each digit is a token
    # tokens of a target; length if not given
    target_length: Optional[int] = setting(None, least=2, most=LARGEST_LENGTH, affects=TRAINING, when=WRITES)
    # of pairs: each source has one right target, so `exact_match` is measured
    exact: bool = setting(False, affects=TRAINING, when=WRITES)


@choice("data", "glyphs")
class GlyphsConfig(ImageDataConfig):
    train_images: int = setting(16000, least=1)
    test_images: int = setting(2000, least=1)
    seed: int = setting(0, least=0)
    rotation: float = setting(0.0, least=0)  # radians, either way
    shift: float = setting(0.0, least=0)  # of half the image or cell, either way
    scale: list[float] = setting([0.85, 0.95], above=0)  # a character's larger side against the image's or cell's
    noise: float = setting(0.05, least=0)  # standard deviation, of pixels in 0..1


@choice("data", "pointer")
class PointerConfig(GlyphsConfig):
    cell: int = setting(8, least=1)  # pixels a side
    reach: int = setting(1, least=1)  # cells from the arrow to its digit, in 8 directions; 2 needs 5 x 5 cells


@choice("data", "arrow")
class ArrowConfig(GlyphsConfig):
    reach: int = setting(4, least=1)  # cells from the arrow to its digit, at most; its angle says which
    alone: float = setting(0.5, least=0, most=1)  # share of the pictures without other digits


@choice("data", "digits")
class DigitsConfig(ImageDataConfig):
    target: Literal["class", "labels", "number"] = "class"
    test_share: float = setting(0.2, above=0, below=1)


@choice("data", "torchvision")
class TorchvisionConfig(ImageDataConfig):
    root: str = setting("data", path=True)
    download: bool = setting(True, affects=NO_EFFECT)
    dataset: str = MISSING
    options: dict[str, Any] = setting({})  # of the set: split=balanced for EMNIST, size=160px for Imagenette
    test_share: float = setting(0.2, above=0, below=1)  # held out of a set that comes without a split


@dataclass(frozen=True)
class PictureFilesConfig(ImageDataConfig):
    # white is 2^bits - 1 in files with more than 8 bits of grey; `vitlab data` names the bits that they use
    bits: int = setting(16, least=8, most=32, affects=f"{WEIGHTS} {CACHE}")


@choice("data", "webdataset")
class WebDatasetConfig(PictureFilesConfig):
    train: Any = setting(None, path=True)
    validation: Any = setting(None, path=True)  # without it up to 5,000 of the training samples, by their keys
    test: Any = setting(None, path=True)  # without it a share of the training samples, by their keys
    test_share: float = setting(0.1, above=0, below=1, when=WHOLE)
    image: list[str] = setting(["jpg", "jpeg", "png", "webp"])  # extensions; the first that a sample has
    label: str = "cls"  # an extension (cls, txt), or a field of a sample's JSON: json.FIELD
    classes: Any = setting(None)  # how many, their names, or a file with a name a line; else the training labels say


@choice("data", "imagefolder")
class FolderConfig(PictureFilesConfig):
    root: str = setting(MISSING, path=True)
    skip_unreadable: bool = False  # leave out pictures that cannot be read, rather than refuse them
    test_share: float = setting(0.2, above=0, below=1, when={"split": (None,)})
    seed: int = setting(0, least=0, when={"split": (None,)})


@choice("data", "imagetable")
class ImageTableConfig(FolderConfig):
    path: str = setting(MISSING, path=True)
    file: str = "file"  # the column of the pictures' paths, below root
    label: str = "label"  # the column of what they show
    target: Literal["class", "labels", "number"] = "class"  # labels: several, separated by ";"
    group: Optional[str] = None  # the column of patients, cameras, films, ...: pictures of one are never in two splits
    split: Optional[str] = None  # the column that says train, val or test


@dataclass(frozen=True)
class CaptionedConfig(ImageDataConfig):
    """Images with captions, which are tokenized beside the cache; the cache holds the images."""

    # or wordpiece, characters, trained on the training captions; or the path of a tokenizer.json
    tokenizer: str = setting("bpe", affects=TRAINING)
    vocabulary: int = setting(4096, least=16, most=LARGEST_LENGTH, affects=TRAINING)
    lowercase: bool = setting(False, affects=TRAINING)
    target_length: int = setting(64, least=2, most=LARGEST_LENGTH, affects=TRAINING)  # tokens of a caption with its end
    exact: bool = setting(False, affects=TRAINING)  # a caption is the only right one: then exact_match is measured


@choice("data", "captions")
class CaptionsConfig(CaptionedConfig, FolderConfig):
    path: str = setting(MISSING, path=True)
    image_column: str = "image"  # the file of a picture, below root
    caption_column: str = "caption"


@choice("data", "captioned_glyphs")
class CaptionedGlyphsConfig(CaptionedConfig, GlyphsConfig):
    glyphs: list[int] = setting([2, 3], least=1)  # characters a picture may have
    large: list[float] = setting([0.29, 0.33], above=0)  # as `scale`, of large characters


@choice("data", "pydoc", "summaries")
class HeldOutTextsConfig(TextDataConfig):
    test_share: float = setting(0.1, above=0, below=1, when=WHOLE)  # held out if no other texts are given for it


@choice("data", "numbers", "facts")
class CountedTextsConfig(HeldOutTextsConfig):
    count: int = setting(10000, least=2)  # different texts


@choice("data", "docstrings")
class DocstringsConfig(HeldOutTextsConfig):
    classes: int = setting(20, least=2)  # the packages with the most docstrings
    pairs: bool = False


@choice("data", "squad")
class FileConfig(HeldOutTextsConfig):
    """Text of one file or folder, and of another one for the held-out texts."""

    path: str = setting(MISSING, path=True)
    test_path: Optional[str] = setting(None, path=True)  # of the held-out texts; without it a share of the texts


@choice("data", "textfile")
class TextFileConfig(FileConfig):
    extensions: list[str] = setting([".txt", ".md", ".rst"])
    split_on: Literal["file", "blank_line"] = "file"  # blank_line: each paragraph is a document


@choice("data", "conll")
class CoNLLConfig(FileConfig):
    word: int = 0  # columns, from 0; -1 is the last
    tag: int = -1


@dataclass(frozen=True)
class ColumnsConfig(HeldOutTextsConfig):
    text: Any = setting(None)  # the column 'text' when not given; [a,b] for pairs; more for a text and its choices
    label: Any = setting(None)  # column of the class, number, tags or right choice; of classes the column 'label'
    target: Literal["class", "number", "tags"] = "class"  # tags: one for each word, both lists or with spaces between
    group: Optional[str] = None  # the column of sources, authors, ...: rows of one are never on two sides of a split
    skip: list[Any] = setting([])  # labels whose rows are left out, such as SNLI's '-'


@choice("data", "table")
class TableConfig(ColumnsConfig, FileConfig):
    delimiter: str = ","
    quoting: bool = True  # a field in quotes may hold the delimiter and line ends
    header: bool = True


@choice("data", "parallel")
class ParallelConfig(HeldOutTextsConfig):
    source: str = setting(MISSING, path=True)
    target: str = setting(MISSING, path=True)
    validation_source: Optional[str] = setting(None, path=True)  # without these, of the training pairs
    validation_target: Optional[str] = setting(None, path=True)
    test_source: Optional[str] = setting(None, path=True)  # without these a share of the pairs is held out
    test_target: Optional[str] = setting(None, path=True)
    skip_empty: bool = False  # leave out pairs with an empty line, rather than refuse the files


@choice("data", "huggingface")
class HuggingFaceConfig(ColumnsConfig):
    dataset: str = MISSING  # a name on the Hub, a folder, or a format with data.files
    subset: Optional[str] = None  # the configuration of a data set that has several
    revision: Optional[str] = None  # of a data set on the Hub; a new one is not noticed without it
    files: Any = setting(None, path=True)  # one, or a list
    test_files: Any = setting(None, path=True)
    split: str = "train"
    test_split: Optional[str] = None  # test, validation, ...; without it a share of each class's rows is held out


@choice("data", "mixture")
class MixtureConfig(TextDataConfig):
    parts: Any = setting(None)  # {NAME: DATA, ...}; null: {numbers: numbers, summarize: summaries}
    limit: Optional[int] = setting(None, least=1)  # the most training texts of each part
