"""The dataclasses that every configuration is checked against.

A field's metadata may give its range (`least`, `most`, `above`, `below`); `vitlab.config.checks` reads it. No torch
here: a mistake in a configuration must be answered at once.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Optional, Union

from omegaconf import MISSING

from vitlab.config.fields import LARGEST_IMAGE, LARGEST_LAYER, LARGEST_LENGTH, Choice, Extent, Modality, items, ranged


@dataclass
class AnalysisConfig(Choice):
    title: str = MISSING  # what its figures show
    note: str = ""  # how to read them
    examples: int = ranged(MISSING, least=1, most=1_000_000)  # held-out items that it looks at
    drawings: list[str] = items("heads")  # modules of vitlab.reports.drawings, or a user's own


@dataclass
class AugmentConfig:
    flip: bool = False  # mirror half of the images
    shift: int = ranged(0, least=0)  # pad by this many pixels, crop at random
    # [least, most]: cut out a random share of the area, of some aspect (width / height), resize it to the whole image
    crop_scale: Optional[list[float]] = ranged(None, above=0, most=1)
    crop_aspect: list[float] = items(0.75, 1.3333, above=0, most=100)


@dataclass
class DataConfig(Choice):
    modality: Modality = "image"
    task: str = "classification"  # the task of a run that names none
    sizes: list[Any] = items("all")  # training-set sizes of a study that names none
    cache: Literal["auto", "always", "never"] = "auto"  # auto: images decoded once as uint8, up to 2 GB; texts always


@dataclass
class ImageDataConfig(DataConfig):
    image_size: Extent = ranged(32, least=1, most=LARGEST_IMAGE)
    mean: list[float] = items(0.5)  # per channel, of pixels in 0..1
    std: list[float] = items(0.5, above=0)
    augment: AugmentConfig = field(default_factory=AugmentConfig)


@dataclass
class TextDataConfig(DataConfig):
    modality: Modality = "text"
    task: str = "causal_lm"
    length: int = ranged(128, least=4, most=LARGEST_LENGTH)  # tokens of a sequence
    # bpe, wordpiece, characters: trained on the training texts; or the path of a tokenizer.json
    tokenizer: str = "bpe"
    vocabulary: int = ranged(4096, least=16, most=LARGEST_LAYER)  # tokens of a trained tokenizer, at most
    lowercase: bool = False  # of a trained tokenizer
    split_digits: bool = False  # each digit is a token, of a trained bpe
    target_length: Optional[int] = ranged(None, least=2, most=LARGEST_LENGTH)  # tokens of a target; length if not given
    exact: bool = False  # of pairs: each source has one right target, so `exact_match` is measured


@dataclass
class TaskConfig(Choice):
    modality: Modality = "image"
    data: str = "glyphs"  # the data of a run that names none
    model: str = "vit_nano"  # and its model
    analyses: list[str] = items()  # and its analyses


@dataclass
class BudgetConfig:
    """How long a run trains: exactly one of the four."""

    steps: Optional[int] = ranged(None, least=1, most=2**40)
    epochs: Optional[float] = ranged(None, above=0, most=1e6)
    examples: Optional[int] = ranged(None, least=1, most=2**40)
    flops: Optional[float] = ranged(None, above=0)


@dataclass
class RandAugmentConfig:
    """RandAugment (Cubuk et al., 2020): `layers` random operations an image, off with 0. In data/transforms."""

    layers: int = ranged(0, least=0, most=100)
    magnitude: float = ranged(9.0, least=0, most=10)
    std: float = ranged(0.0, least=0)  # of the magnitude, drawn anew for each operation
    probability: float = ranged(1.0, least=0, most=1)  # that a drawn operation is applied
    increasing: bool = True  # whether every operation is the stronger, the larger the magnitude


@dataclass
class RecipeConfig(Choice):
    kind: Literal["recipe"] = "recipe"
    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    lr: float = ranged(1e-3, above=0, most=1e30)
    lr_batch: Optional[int] = ranged(None, least=1)  # the batch that lr is meant for; else lr is taken as it stands
    weight_decay: float = ranged(0.05, least=0)
    layer_decay: Optional[float] = ranged(None, above=0, most=1)  # rate of each layer against that of the next
    freeze: Optional[Literal["body"]] = None  # what does not train: all but the head
    betas: list[float] = items(0.9, 0.999, least=0, below=1)
    eps: float = ranged(1e-8, above=0)
    momentum: float = ranged(0.9, least=0, most=1)  # of sgd and muon
    nesterov: bool = False
    schedule: Literal["cosine", "linear", "constant", "rsqrt", "noam", "multistep"] = "cosine"
    warmup: Union[int, float] = ranged(0.05, least=0)  # below 1: a share of the steps
    cooldown: Union[int, float] = ranged(0, least=0)  # linear to 0 at the end; below 1: a share of the steps
    final_lr: float = ranged(0.0, least=0, most=1)  # where cosine and linear end, as a share of lr
    timescale: Optional[int] = ranged(None, least=1)  # of rsqrt, in steps; else the warm-up
    milestones: list[float] = items(above=0, below=1)  # of multistep, as shares of the steps
    decay_factor: float = ranged(0.1, above=0, most=1)  # of the rate at each milestone
    clip_norm: Optional[float] = ranged(1.0, above=0)
    batch_size: int = ranged(128, least=1, most=2**20)
    repeats: int = ranged(1, least=1)  # times that each image is in a batch, augmented anew
    label_smoothing: float = ranged(0.0, least=0, most=0.99)
    mixup: float = ranged(0.0, least=0)  # alpha of the Beta distribution that the shares are drawn from; 0: off
    cutmix: float = ranged(0.0, least=0)
    cutmix_share: float = ranged(0.5, least=0, most=1)  # of the batches, when mixup is on too
    rand_augment: RandAugmentConfig = field(default_factory=RandAugmentConfig)
    random_erasing: float = ranged(0.0, least=0, most=1)  # probability that a part of an image becomes noise
    patience: Optional[int] = ranged(None, least=1)  # evaluations without a better one on validation before it stops
    keep: Literal["last", "best"] = "last"  # which weights count: the last, or the best on validation
    ema: Optional[float] = ranged(None, above=0, below=1)  # decay of an average of the weights, which is what counts
    # or the mean of this many checkpoints, the last ones of a hundred that are evenly spaced
    average: Optional[int] = ranged(None, least=2, most=100)
    budget: BudgetConfig = field(default_factory=BudgetConfig)  # of `vitlab train`, when the user names none
    tuned_on: list[str] = items()  # names of the data that its values were chosen on, where this project chose them


@dataclass
class TrainerConfig:
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int = ranged(1, least=1, most=1024)  # of a machine, that share each batch: a process for each
    nodes: int = ranged(1, least=1, most=4096)  # machines, with as many devices each
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"  # of several devices; auto: ddp
    accumulate: int = ranged(1, least=1, most=2**20)  # parts of a batch that a device computes one after another
    checkpoint_activations: bool = False  # compute a block's activations again rather than keep them
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    memory_format: Literal["auto", "contiguous", "channels_last"] = "auto"
    threads: Union[int, Literal["auto"]] = ranged("auto", least=1, most=1024)
    compile: bool = False
    workers: Union[int, Literal["auto"]] = ranged("auto", least=0, most=256)  # processes that decode images
    deterministic: bool = True
    log_every: int = ranged(25, least=1)  # steps
    analyze_every: Optional[int] = ranged(None, least=1)  # steps between two looks of `analyses`; else before and after
    evaluations: int = ranged(8, least=1, most=10**6)  # on the validation data, evenly spaced, the last at the end
    checkpoint_every: float = ranged(60.0, least=0)  # seconds


@dataclass
class WandbConfig:
    mode: Literal["auto", "offline", "online", "off"] = "auto"  # auto: online when logged in, else offline
    project: str = "vitlab"
    entity: Optional[str] = None
    name: Optional[str] = None  # of the run, else its folder's; in a study what the names of all runs begin with
    tags: list[str] = items()  # beside the variant, the family, the data and the size
    notes: Optional[str] = None
    log_code: bool = False  # this program's source as an artifact
    log_model: bool = False  # the final weights as an artifact


@dataclass
class InitConfig:
    """Where a model's first weights come from; `init=SOURCE` is short for `init.weights=SOURCE`."""

    SHORTHAND: ClassVar[str] = "weights"

    weights: Optional[str] = None  # timm:NAME, the folder of a run or of Hugging Face, or a file; none: random
    encoder: Optional[str] = None  # the same for the transformer encoder alone, of images or of text
    head: Literal["auto", "keep", "new"] = "auto"  # auto: new unless it has the same classes


@dataclass
class TrainConfig:
    """One run: `vitlab train`."""

    model: Any = None  # the task's own
    data: Any = None  # the task's own
    task: Any = None  # the data's own; classification when neither is named
    recipe: Any = None  # the model's own
    variant: str = ""  # what tables call the run's model; empty: the model's name
    train_size: Union[int, float, str] = "all"  # a count, a share up to 1.0, or all
    seed: int = ranged(0, least=0, most=2**31 - 1)  # of the first weights, the order of batches, augmentation, dropout
    subset_seed: Optional[int] = ranged(None, least=0, most=2**31 - 1)  # of the training subset; none: seed
    init: InitConfig = field(default_factory=InitConfig)
    study: str = ""
    budget: BudgetConfig = field(default_factory=lambda: BudgetConfig(steps=1000))
    tune: dict[str, Any] = field(default_factory=dict)  # keys of recipe or model -> values, chosen on validation
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    analyses: Optional[list[str]] = None  # the task's own
    probes: list[str] = items()  # of the trained model's features


@dataclass
class RayConfig:
    address: str = "auto"  # of a cluster; auto: the one that this machine belongs to, else one is started here
    autoscaling: bool = False  # it adds nodes when runs wait: what none has yet is waited for


@dataclass
class SlurmConfig:
    """What sbatch is told. Keys that are missing here go into `options`."""

    partition: Optional[str] = None
    account: Optional[str] = None
    qos: Optional[str] = None
    hours: float = ranged(24.0, above=0, most=24 * 365)  # of an allocation; a run that takes longer is continued
    cells: int = ranged(1, least=1)  # runs one after the other in an allocation
    array: int = ranged(1000, least=1)  # jobs of an array, at most: the cluster's MaxArraySize
    submitted: int = ranged(1000, least=1)  # jobs submitted at a time, at most: the cluster's MaxSubmitJobs
    setup: list[str] = items()  # shell lines before Python starts
    options: dict[str, Any] = field(default_factory=dict)  # of sbatch, such as {constraint: a100}


@dataclass
class ExecutorConfig:
    """Where the runs of a study train; `executor=slurm` is short for `executor.kind=slurm`."""

    SHORTHAND: ClassVar[str] = "kind"

    kind: Literal["local", "ray", "slurm"] = "local"
    cpus: int = ranged(1, least=1)  # of a run on a cluster
    gpus: float = ranged(0, least=0)  # of a run on a cluster; below 1: several runs share one
    memory: Optional[float] = ranged(None, above=0)  # GB of a run on a cluster
    retries: int = ranged(2, least=0)  # of a run whose process, node or allocation was lost
    ray: RayConfig = field(default_factory=RayConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)


@dataclass
class StudyConfig:
    """A grid of runs, models x axes x sizes x seeds: `vitlab scale`."""

    name: str = MISSING
    # names; or variants by their names, each a model or {model: NAME, key: value, ...} with keys of its runs
    models: Any = items("vit_nano", "resnet_nano")
    grid: dict[str, Any] = field(default_factory=dict)  # axes: a key of runs -> its values; all combinations are run
    data: Any = None  # the task's own
    task: Any = None  # the data's own; classification when neither is named
    recipe: Optional[str] = None  # for every model; else each model's own
    sizes: Optional[list[Any]] = None  # counts, shares up to 1.0, or all; else the data set's own list
    seeds: list[int] = items(0, least=0, most=2**31 - 1)
    budget: BudgetConfig = field(default_factory=lambda: BudgetConfig(steps=1000))
    tune: dict[str, Any] = field(default_factory=dict)  # keys of recipe or model -> values, chosen on validation
    set: list[str] = items()  # key=value of every run
    per_model: dict[str, list[str]] = field(default_factory=dict)  # the same keys, by model
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    # of each variant the trainer's settings that `auto` came to at the first start, so that none changes later
    settled: dict[str, Any] = field(default_factory=dict)
    analyses: Optional[list[str]] = None  # the task's own
    probes: list[str] = items()  # of the trained model's features
    # points (of perplexity percent): models whose difference surely is within it are level; what --until aims at
    margin: float = ranged(1.0, above=0, most=100)


@dataclass
class DescribeConfig:
    """A model to count: `vitlab describe`."""

    model: Any = "vit_nano"
    data: Any = None  # when given, its image size and classes, or its length and vocabulary
    # for a model of images; none: the model's published ones, else 224, 1000 and 3
    image_size: Optional[Extent] = ranged(None, least=1, most=LARGEST_IMAGE)
    num_classes: Optional[int] = ranged(None, least=0, most=10**8)  # 0: features
    channels: Optional[int] = ranged(None, least=1, most=LARGEST_LAYER)
    # for a model of text: tokens of a sequence, and those there are; none: the model's published ones
    length: Optional[int] = ranged(None, least=1, most=LARGEST_LENGTH)
    vocabulary: Optional[int] = ranged(None, least=1, most=10**8)
