"""Dataclasses that every configuration is checked against: this module has the ones of runs and studies.

A field says its range and what a value changes (see fields.py): a run's identity, the keys of caches and the settings
that may differ within a study are derived from that. No torch here: a mistake must be answered at once.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Optional, Union

from omegaconf import MISSING

from vitlab.config.schema.fields import (
    COST,
    LARGEST_IMAGE,
    LARGEST_LAYER,
    LARGEST_LENGTH,
    NO_EFFECT,
    ON,
    WEIGHTS,
    Choice,
    Extent,
    Modality,
    choice,
    setting,
)


@dataclass(frozen=True)
class Targeted(Choice):
    of: list[str] = setting([], affects=NO_EFFECT, fixed=True)  # kinds of targets (vitlab.tasks.metrics); none: any


@choice("probe", "")
class ProbeConfig(Targeted):
    of: list[str] = setting(["images"], affects=NO_EFFECT, fixed=True)


@choice("analysis", "")
class AnalysisConfig(Targeted):
    title: str = MISSING  # what its figures show
    note: str = ""  # how to read them
    examples: int = setting(MISSING, least=1, most=1_000_000)  # validation items that it looks at
    drawings: list[str] = setting(["heads"])  # functions below vitlab.reports.figures, or a user's own module


@choice("mixer", "")
class MixerConfig(Choice):
    attends: bool = setting(False, affects=NO_EFFECT, fixed=True)  # its heads divide the width


@choice("mixer", "attention")
class AttentionConfig(MixerConfig):
    qkv_bias: bool = True
    qk_norm: bool = False  # the model's norm over each head's queries and keys (Dehghani et al., 2023)


@choice("mixer", "depthwise", "pooling")
class KernelConfig(MixerConfig):
    kernel: int = setting(3, least=1, most=999)  # an odd number


@choice("mixer", "token_mlp")
class TokenMLPConfig(MixerConfig):
    # width of the hidden layer; half of the model's width when not given, as in the paper
    hidden: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)


@choice("task", "")
class TaskConfig(Targeted):
    modality: Modality = setting("image", fixed=True)
    data: str = setting("glyphs", affects=NO_EFFECT, fixed=True)  # the data of a run that names none
    model: str = setting("vit_nano", affects=NO_EFFECT, fixed=True)  # and its model
    analyses: list[str] = setting([], affects=NO_EFFECT, fixed=True)  # and its analyses
    # what a study is about, and its choices on validation go by, such as macro_f1; none: the task's own
    metric: Optional[str] = setting(None, affects=NO_EFFECT)


@choice("task", "text_classification")
class TextClassificationConfig(TaskConfig):
    both_orders: bool = False
    auxiliary_lm: float = setting(0.0, least=0)


@choice("task", "causal_lm")
class CausalLMConfig(TaskConfig):
    pack: Literal["stream", "documents"] = "stream"


@choice("task", "masked_lm")
class MaskedLMConfig(TaskConfig):
    share: float = setting(0.15, least=0.01, below=1)
    masking: Literal["dynamic", "static"] = "dynamic"
    sequences: Literal["pairs", "stream", "documents"] = "pairs"


@choice("task", "span_lm")
class SpanLMConfig(MaskedLMConfig):
    sequences: Literal["stream", "documents"] = "stream"


@choice("task", "span_corruption")
class SpanCorruptionConfig(TaskConfig):
    share: float = setting(0.15, least=0.01, most=0.5)
    mean_span: float = setting(3.0, least=1)


@choice("task", "captioning")
class WritingConfig(TaskConfig):
    beams: int = setting(1, least=1, most=100)
    length_penalty: float = setting(0.6, least=0, most=10, when={"beams": range(2, 101)})
    # of the test set, a random part that all runs share; none: all. As many validation items have texts written
    test_items: Optional[int] = setting(None, least=1)


@choice("task", "translation", "summarization")
class TranslationConfig(WritingConfig):
    long: Literal["cut", "leave_out", "refuse"] = "cut"
    one_sequence: Optional[bool] = None


@dataclass(frozen=True)
class BudgetConfig:
    """Length of a run: exactly one of the four."""

    steps: Optional[int] = setting(None, least=1, most=2**40)
    epochs: Optional[float] = setting(None, above=0, most=1e6)
    examples: Optional[int] = setting(None, least=1, most=2**40)
    flops: Optional[float] = setting(None, above=0)


@dataclass(frozen=True)
class RandAugmentConfig:
    """RandAugment (Cubuk et al., 2020): `layers` operations an image, off with 0. In data/augment/rand_augment.py."""

    layers: int = setting(0, least=0, most=100)
    magnitude: float = setting(9.0, least=0, most=10, when={"layers": ON})
    std: float = setting(0.0, least=0, when={"layers": ON})  # of the magnitude, drawn for each operation
    probability: float = setting(1.0, least=0, most=1, when={"layers": ON})  # that a drawn operation is applied
    increasing: bool = setting(True, when={"layers": ON})  # whether every operation is the stronger, the larger it is


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adaptation (Hu et al., 2021): only the head and, in each chosen linear layer, a product B A train."""

    rank: Optional[int] = setting(None, least=1, most=2**16)  # of B A; none: off
    on: list[str] = setting([], when={"rank": ON})  # the layers' names in blocks, such as qkv, proj, fc1; none: all


ADAM, MOMENTUM = {"optimizer": ("adamw", "muon")}, {"optimizer": ("sgd", "muon")}
MULTISTEP = {"schedule": ("multistep",)}


@choice("recipe", "", "recipe")
class RecipeConfig(Choice):
    kind: Literal["recipe"] = setting("recipe", fixed=True)
    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    lr: float = setting(1e-3, above=0, most=1e30, affects=WEIGHTS)
    # the batch that lr is meant for; else lr is taken as it stands
    lr_batch: Optional[int] = setting(None, least=1, affects=WEIGHTS)
    weight_decay: float = setting(0.05, least=0, affects=WEIGHTS)
    # rate of each layer against that of the next
    layer_decay: Optional[float] = setting(None, above=0, most=1, affects=WEIGHTS, when={"freeze": (None,)})
    # what does not train: all but the head; features: those of each picture are computed once, without augmentation
    freeze: Optional[Literal["body", "features"]] = None
    lora: LoraConfig = setting(LoraConfig)
    betas: list[float] = setting([0.9, 0.999], least=0, below=1, affects=WEIGHTS, when=ADAM)
    eps: float = setting(1e-8, above=0, affects=WEIGHTS, when=ADAM)
    momentum: float = setting(0.9, least=0, most=1, when=MOMENTUM)
    nesterov: bool = setting(False, when={**MOMENTUM, "momentum": ON})
    schedule: Literal["cosine", "linear", "constant", "noam", "multistep"] = setting("cosine", affects=WEIGHTS)
    warmup: Union[int, float] = setting(0.05, least=0, affects=WEIGHTS)  # below 1: a share of the steps
    # the rate at the end, as a share of lr
    final_lr: float = setting(0.0, least=0, most=1, affects=WEIGHTS, when={"schedule": ("cosine", "linear")})
    # the last share of the steps, in which the rate falls to 0
    cooldown: float = setting(0.0, least=0, below=1, affects=WEIGHTS, when={"schedule": ("constant",)})
    milestones: list[float] = setting([], above=0, below=1, affects=WEIGHTS, when=MULTISTEP)  # shares of the steps
    decay_factor: float = setting(0.1, above=0, most=1, affects=WEIGHTS, when=MULTISTEP)  # of the rate at milestones
    clip_norm: Optional[float] = setting(1.0, above=0)
    batch_size: int = setting(128, least=1, most=2**20)
    repeats: int = setting(1, least=1)  # copies of each image in a batch, augmented differently
    label_smoothing: float = setting(0.0, least=0, most=0.99, affects=WEIGHTS)
    # balanced: in the loss an item weighs items / (classes * items of its class), of the training set
    class_weights: Optional[Literal["balanced"]] = setting(None, affects=WEIGHTS)
    # alpha of the Beta distribution that the shares are drawn from; 0: off
    mixup: float = setting(0.0, least=0)
    cutmix: float = setting(0.0, least=0)
    rand_augment: RandAugmentConfig = setting(RandAugmentConfig)
    # probability that a part of an image becomes noise
    random_erasing: float = setting(0.0, least=0, most=1)
    # evaluations without a better one on validation before it stops
    patience: Optional[int] = setting(None, least=1, affects=WEIGHTS)
    # which weights count: the last, or the best on validation
    keep: Literal["last", "best"] = "last"
    # decay of an average of the weights, which is what counts
    ema: Optional[float] = setting(None, above=0, below=1)
    # or the mean of this many checkpoints, the last ones of a hundred that are evenly spaced
    average: Optional[int] = setting(None, least=2, most=100)
    budget: BudgetConfig = setting(BudgetConfig, affects=NO_EFFECT)  # of `vitlab train`, when the user names none
    # names of the data that its values were chosen on, where this project chose them
    tuned_on: list[str] = setting([], affects=NO_EFFECT)


@dataclass(frozen=True)
class TrainerConfig:
    accelerator: Literal["auto", "cpu", "gpu"] = setting("auto", per="study")
    # of a machine, that share each batch: a process for each
    devices: int = setting(1, least=1, most=1024, affects=COST)
    nodes: int = setting(1, least=1, most=4096, affects=COST)  # machines, with as many devices each
    # parts of a batch that a device computes one after another
    accumulate: int = setting(1, least=1, most=2**20, affects=COST)
    # compute a block's activations again rather than keep them
    checkpoint_activations: bool = setting(False, affects=COST)
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = setting("auto", per="study")
    memory_format: Literal["auto", "contiguous", "channels_last"] = setting("auto", per="study")
    threads: Union[int, Literal["auto"]] = setting("auto", least=1, most=1024, per="study")
    compile: bool = False
    # processes that decode images
    workers: Union[int, Literal["auto"]] = setting("auto", least=0, most=256, affects=COST)
    deterministic: bool = True
    log_every: int = setting(25, least=1, affects=COST)  # steps
    # steps between two looks of `analyses`; else before and after
    analyze_every: Optional[int] = setting(None, least=1, affects=COST)
    # on the validation data, evenly spaced, the last at the end
    evaluations: int = setting(8, least=1, most=10**6, affects=COST)
    checkpoint_every: float = setting(60.0, least=0, affects=COST)  # seconds


@dataclass(frozen=True)
class WandbConfig:
    """A run in W&B, whose own variables give the rest: WANDB_ENTITY, WANDB_NAME, WANDB_TAGS, WANDB_NOTES."""

    mode: Literal["auto", "offline", "online", "off"] = "auto"  # auto: online when logged in, else offline
    project: str = "vitlab"


@dataclass(frozen=True)
class InitConfig:
    """Source of a model's first weights; `init=SOURCE` is short for `init.weights=SOURCE`."""

    SHORTHAND: ClassVar[str] = "weights"

    weights: Optional[str] = None  # timm:NAME, the folder of a run or of Hugging Face, or a file; none: random
    encoder: Optional[str] = None  # the same for the transformer encoder alone, of images or of text
    # auto: new unless it has the same classes
    head: Literal["auto", "keep", "new"] = setting("auto", when={"weights": ON})


@dataclass(frozen=True)
class TrainConfig:
    """One run: `vitlab train`."""

    model: Any = setting(None, group="model")  # the task's own
    data: Any = setting(None, group="data", per="study")  # the task's own
    task: Any = setting(None, group="task", per="study")  # the data's own; classification when neither is named
    recipe: Any = setting(None, group="recipe")  # the model's own
    # what tables call the run's model; empty: the model's name
    variant: str = setting("", affects=NO_EFFECT, per="study")
    # a count, a share up to 1.0, or all
    train_size: Union[int, float, str] = setting("all", affects=WEIGHTS, per="study")
    # of the first weights, the order of batches, augmentation, dropout
    seed: int = setting(0, least=0, most=2**31 - 1, affects=WEIGHTS, per="study")
    # of the training subset; none: seed
    subset_seed: Optional[int] = setting(None, least=0, most=2**31 - 1, affects=WEIGHTS)
    # nested: random subsets that keep each class's share; or PACKAGE.MODULE whose `order(split, seed)` orders the items
    subset: str = setting("nested", affects=WEIGHTS)
    init: InitConfig = setting(InitConfig, affects=WEIGHTS)
    study: str = setting("", affects=NO_EFFECT, per="study")
    budget: BudgetConfig = setting(lambda: BudgetConfig(steps=1000), affects=WEIGHTS)
    # of a study that tunes: the number of the combination of values that this run tries
    trial: Optional[int] = setting(None, least=1, affects=NO_EFFECT, per="study")
    trainer: TrainerConfig = setting(TrainerConfig)
    wandb: WandbConfig = setting(WandbConfig, affects=NO_EFFECT, per="study")
    analyses: Optional[list[str]] = setting(None, affects=COST)  # the task's own
    probes: list[str] = setting([], affects=COST)  # of the trained model's features
    # other test data with the same classes, read once at the end: names, with changes as in glyphs@rotate=30
    eval_on: list[str] = setting([], affects=COST)


@dataclass(frozen=True)
class RayConfig:
    address: str = "local"  # of a cluster; auto: the one that this machine belongs to; local: one is started here
    autoscaling: bool = False  # it adds nodes when runs wait: what none has yet is waited for


@dataclass(frozen=True)
class SlurmConfig:
    """Options of sbatch. Further ones go into `executor.options`, under submitit's names."""

    partition: Optional[str] = None
    account: Optional[str] = None
    qos: Optional[str] = None
    hours: float = setting(24.0, above=0, most=24 * 365)  # of an allocation; a run that takes longer is continued


@dataclass(frozen=True)
class ExecutorConfig:
    """Place where the runs of a study train; `executor=slurm` is short for `executor.kind=slurm`."""

    SHORTHAND: ClassVar[str] = "kind"

    kind: str = "local"  # local, slurm, ray, or PACKAGE.MODULE with a function `start`
    cpus: int = setting(1, least=1)  # of a run on a cluster
    gpus: float = setting(0, least=0)  # of a run on a cluster; below 1: several runs share one
    memory: Optional[float] = setting(None, above=0)  # GB of a run on a cluster
    retries: int = setting(2, least=0)  # of a run whose process, node or allocation was lost
    ray: RayConfig = setting(RayConfig)
    slurm: SlurmConfig = setting(SlurmConfig)
    options: dict[str, Any] = setting({})  # of submitit, such as {setup: [module load cuda]}, or of your own


@dataclass(frozen=True)
class StudyConfig:
    """A grid of runs, models x axes x sizes x seeds: `vitlab scale`."""

    name: str = MISSING
    # names; or variants by their names, each a model or {model: NAME, key: value, ...} with keys of its runs
    models: Any = setting(["vit_nano", "resnet_nano"])
    grid: dict[str, Any] = setting({})  # axes: a key of runs -> its values; all combinations are run
    data: Any = setting(None, group="data")  # the task's own
    task: Any = setting(None, group="task")  # the data's own; classification when neither is named
    recipe: Optional[str] = None  # for every model; else each model's own
    sizes: Optional[list[Any]] = None  # counts, shares up to 1.0, or all; else the data set's own list
    seeds: list[int] = setting([0], least=0, most=2**31 - 1)
    budget: BudgetConfig = setting(lambda: BudgetConfig(steps=1000))
    tune: dict[str, Any] = setting({})  # keys of recipe or model -> values; a run of each combination is a trial
    set: list[str] = setting([])  # key=value of every run
    trainer: TrainerConfig = setting(TrainerConfig)
    wandb: WandbConfig = setting(WandbConfig)
    executor: ExecutorConfig = setting(ExecutorConfig)
    # of each variant the trainer's settings that `auto` came to at the first start, so that none changes later
    settled: dict[str, Any] = setting({})
    analyses: Optional[list[str]] = None  # the task's own
    probes: list[str] = setting([])  # of the trained model's features
    eval_on: list[str] = setting([])  # other test data with the same classes: digits, glyphs@rotate=30
    # points (of perplexity percent): models whose difference surely is within it are level
    margin: float = setting(1.0, above=0, most=100)
    plain_tables: bool = False  # tables/results.md and .tex without brackets and the column of differences
    until: Optional[float] = setting(None, above=0, most=100)  # as `--until`, whose looks widen the intervals


@dataclass(frozen=True)
class DescribeConfig:
    """A model to count: `vitlab describe`."""

    model: Any = setting("vit_nano", group="model")
    data: Any = setting(None, group="data")  # when given, its image size and classes, or its length and vocabulary
    # for a model of images; none: the model's published ones, else 224, 1000 and 3
    image_size: Optional[Extent] = setting(None, least=1, most=LARGEST_IMAGE)
    num_classes: Optional[int] = setting(None, least=0, most=10**8)  # 0: features
    channels: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)
    # for a model of text: tokens of a sequence, and those there are; none: the model's published ones
    length: Optional[int] = setting(None, least=1, most=LARGEST_LENGTH)
    vocabulary: Optional[int] = setting(None, least=1, most=10**8)
