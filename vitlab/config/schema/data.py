"""The dataclasses of data sets. The shipped ones have more keys, in their YAML files, typed by their values there."""

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
    WEIGHTS,
    Choice,
    Extent,
    Modality,
    setting,
)

TRAINING = f"{WEIGHTS} {COST}"  # but not what the cache holds


@dataclass(frozen=True)
class AugmentConfig:
    """The keys of the augmentations (vitlab.data.augment)."""

    flip: bool = False  # mirror half of the images
    shift: int = setting(0, least=0)  # pad by this many pixels, crop at random
    # [least, most]: cut out a random share of the area, of some aspect (width / height), resize it to the whole image
    crop_scale: Optional[list[float]] = setting(None, above=0, most=1)
    crop_aspect: list[float] = setting([0.75, 1.3333], above=0, most=100)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class ImageDataConfig(DataConfig):
    image_size: Extent = setting(32, least=1, most=LARGEST_IMAGE)
    mean: list[float] = setting([0.5], affects=TRAINING)  # per channel, of pixels in 0..1
    std: list[float] = setting([0.5], above=0, affects=TRAINING)
    augment: AugmentConfig = setting(AugmentConfig, affects=TRAINING)
    # repeated: each seed of a study draws its own test images out of all; a number is that seed
    holdout: Union[int, Literal["fixed", "repeated"]] = setting("fixed", least=0, affects=TRAINING)


@dataclass(frozen=True)
class TextDataConfig(DataConfig):
    modality: Modality = setting("text", affects=TRAINING, fixed=True)
    task: str = setting("causal_lm", affects=NO_EFFECT, fixed=True)
    length: int = setting(128, least=4, most=LARGEST_LENGTH, affects=TRAINING)  # tokens of a sequence
    # bpe, wordpiece, characters: trained on the training texts; or the path of a tokenizer.json
    tokenizer: str = "bpe"
    vocabulary: int = setting(4096, least=16, most=LARGEST_LAYER)  # tokens of a trained tokenizer, at most
    lowercase: bool = False  # of a trained tokenizer
    split_digits: bool = False  # each digit is a token, of a trained bpe
    # tokens of a target; length if not given
    target_length: Optional[int] = setting(None, least=2, most=LARGEST_LENGTH, affects=TRAINING)
    # of pairs: each source has one right target, so `exact_match` is measured
    exact: bool = setting(False, affects=TRAINING)


@dataclass(frozen=True)
class PictureFilesConfig(ImageDataConfig):
    # white is 2^bits - 1 in files with more than 8 bits of grey; `vitlab data` names the bits that they use
    bits: int = setting(16, least=8, most=32, affects=f"{WEIGHTS} {CACHE}")


@dataclass(frozen=True)
class FolderConfig(PictureFilesConfig):
    root: str = setting(MISSING, path=True)


@dataclass(frozen=True)
class TorchvisionConfig(ImageDataConfig):
    root: str = setting("data", path=True)
    download: bool = setting(True, affects=NO_EFFECT)


@dataclass(frozen=True)
class WebDatasetConfig(PictureFilesConfig):
    train: Any = setting(None, path=True)
    validation: Any = setting(None, path=True)
    test: Any = setting(None, path=True)


@dataclass(frozen=True)
class CaptionedConfig(ImageDataConfig):
    """Images with captions, which are tokenized beside the cache; the cache holds the images."""

    tokenizer: str = setting("bpe", affects=TRAINING)
    vocabulary: int = setting(4096, least=16, most=LARGEST_LENGTH, affects=TRAINING)
    lowercase: bool = setting(False, affects=TRAINING)
    target_length: int = setting(64, least=2, most=LARGEST_LENGTH, affects=TRAINING)
    exact: bool = setting(False, affects=TRAINING)


@dataclass(frozen=True)
class CaptionsConfig(CaptionedConfig, PictureFilesConfig):
    root: str = setting(MISSING, path=True)
    path: str = setting(MISSING, path=True)


@dataclass(frozen=True)
class ImageTableConfig(PictureFilesConfig):
    root: str = setting(MISSING, path=True)
    path: str = setting(MISSING, path=True)
    file: str = "file"
    label: str = "label"
    target: Literal["class", "labels", "number"] = "class"
    group: Optional[str] = None
    split: Optional[str] = None
    test_share: float = setting(0.2, above=0, below=1)
    seed: int = setting(0, least=0)


@dataclass(frozen=True)
class FileConfig(TextDataConfig):
    """Text of one file or folder, and of another one for the held-out texts."""

    path: str = setting(MISSING, path=True)
    test_path: Optional[str] = setting(None, path=True)


@dataclass(frozen=True)
class ParallelConfig(TextDataConfig):
    source: str = setting(MISSING, path=True)
    target: str = setting(MISSING, path=True)
    validation_source: Optional[str] = setting(None, path=True)
    validation_target: Optional[str] = setting(None, path=True)
    test_source: Optional[str] = setting(None, path=True)
    test_target: Optional[str] = setting(None, path=True)


@dataclass(frozen=True)
class HuggingFaceConfig(TextDataConfig):
    files: Any = setting(None, path=True)
    test_files: Any = setting(None, path=True)
