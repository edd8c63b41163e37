"""The dataclasses of models, one for each kind."""

from dataclasses import dataclass
from typing import Any, Literal, Optional, Union

from omegaconf import MISSING

from vitlab.config.schema.fields import (
    LARGEST_DEPTH,
    LARGEST_IMAGE,
    LARGEST_LAYER,
    LARGEST_LENGTH,
    NO_EFFECT,
    WEIGHTS,
    Choice,
    Extent,
    Modality,
    setting,
)


@dataclass(frozen=True)
class ModelConfig(Choice):
    modality: Modality = setting("image", fixed=True)  # what the model takes
    family: str = ""  # groups models in figures; empty: the module that defines the model
    recipe: str = setting("adamw", affects=WEIGHTS, fixed=True)  # the recipe when the user names none
    init: Optional[str] = setting(None, affects=NO_EFFECT, fixed=True)  # the first weights when the user names none


@dataclass(frozen=True)
class ViTConfig(ModelConfig):
    """A vision transformer (Dosovitskiy et al., 2021, arXiv 2010.11929).

    A run has the images and classes of its data; `describe` and `build_model` take the published ones.
    """

    kind: str = setting("vit", fixed=True)
    family: str = "vit"
    published_image_size: Optional[Extent] = setting(None, least=1, most=LARGEST_IMAGE, affects=NO_EFFECT)
    published_channels: Optional[int] = setting(None, least=1, most=LARGEST_LAYER, affects=NO_EFFECT)
    published_num_classes: Optional[int] = setting(None, least=0, most=10**8, affects=NO_EFFECT)
    depth: int = setting(12, least=1, most=LARGEST_DEPTH)
    width: int = setting(768, least=1, most=LARGEST_LAYER)
    heads: int = setting(12, least=1, most=LARGEST_LAYER)
    head_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # width / heads when not given
    mlp_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # 4 * width when not given
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu", "geglu", "geglu_tanh"] = "gelu"
    patch_size: Union[int, list[int], Literal["auto"]] = setting(16, least=1)  # auto: see `checks.choose_patch`
    # blocks per stage of a ResNet before the patches; none: the image's own
    stem: list[int] = setting([], least=1, most=1000)
    mixer: Any = setting("attention", group="mixer")
    positions: Literal["learned", "sincos1d", "sincos2d", "rotary", "none"] = "learned"
    pool: Literal["token", "mean", "none"] = "token"
    class_token: Optional[bool] = None  # when not given: where pool=token
    registers: int = setting(0, least=0, most=LARGEST_LAYER)
    distillation: bool = False  # DeiT's second token and head
    prefix_positions: bool = True  # learned positions for class token and registers too
    norm: Literal["layernorm", "rmsnorm", "batchnorm"] = "layernorm"
    norm_eps: float = setting(1e-6, above=0, most=1)
    norm_first: bool = True  # pre-norm; else post-norm
    layer_scale: Optional[float] = setting(None, above=0, most=1e6)  # where its factors start; none: no LayerScale
    norm_pre: bool = False  # a norm before the first block and no bias in the patch embedding, as in CLIP
    fc_norm: bool = False  # the last norm after pooling, as in timm's mean-pooled models, not before
    pre_logits: bool = False  # the paper's pre-training head: a hidden tanh layer before the linear one
    dropout: float = setting(0.0, least=0, most=0.99)
    drop_path: float = setting(0.0, least=0, most=0.99)


@dataclass(frozen=True)
class TimmConfig(ModelConfig):
    """Any model of timm, by its name there."""

    kind: str = setting("timm", fixed=True)
    timm_name: str = MISSING
    pretrained: bool = False
    # auto: ImageNet's stem (stride 4) from 65 pixels up, else a 3x3 convolution of stride 1, as is usual for CIFAR
    stem: Literal["auto", "imagenet", "small"] = "imagenet"
    options: dict[str, Any] = setting({})  # passed to timm.create_model


@dataclass(frozen=True)
class ResNetConfig(ModelConfig):
    """A basic-block ResNet of any width and depth with a stride-1 stem, for small images."""

    kind: str = setting("resnet", fixed=True)
    family: str = "resnet"
    layers: list[int] = setting([1, 1, 1], least=1, most=LARGEST_DEPTH)  # blocks per stage
    widths: list[int] = setting([16, 32, 64], least=1, most=LARGEST_LAYER)  # channels of each stage


@dataclass(frozen=True)
class TextModelConfig(ModelConfig):
    """A model of text. A run has the vocabulary and the length of its data; `describe` counts with the published."""

    modality: Modality = setting("text", fixed=True)
    published_vocabulary: Optional[int] = setting(None, least=1, most=10**8, affects=NO_EFFECT)
    published_length: Optional[int] = setting(None, least=1, most=LARGEST_LENGTH, affects=NO_EFFECT)  # tokens


@dataclass(frozen=True)
class TextConfig(TextModelConfig):
    """A transformer over tokens: causal as GPT, or seeing both sides as BERT."""

    kind: str = setting("text", fixed=True)
    family: str = "transformer"
    causal: bool = True
    depth: int = setting(12, least=1, most=LARGEST_DEPTH)
    width: int = setting(768, least=1, most=LARGEST_LAYER)
    heads: int = setting(12, least=1, most=LARGEST_LAYER)
    mlp_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # 4 * width when not given
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu", "geglu", "geglu_tanh"] = "gelu_tanh"
    mixer: Any = setting("attention", group="mixer")
    positions: Literal["learned", "sincos", "rotary", "relative", "none"] = "learned"
    segments: int = setting(0, least=0, most=LARGEST_LAYER)  # kinds of segment embeddings; 2 for pairs
    pool: Literal["token", "mean"] = (
        "token"  # what a classifier reads: the last token of a causal model, else the first
    )
    norm: Literal["layernorm", "rmsnorm", "batchnorm"] = "layernorm"
    norm_eps: float = setting(1e-5, above=0, most=1)
    norm_first: bool = True  # pre-norm; else post-norm, with a norm of the embeddings too, as in BERT
    scaled_residuals: bool = False  # first weights of the layers that add to the residual stream by 1/sqrt(2 depth)
    dropout: float = setting(0.0, least=0, most=0.99)
    drop_path: float = setting(0.0, least=0, most=0.99)


@dataclass(frozen=True)
class EncoderDecoderConfig(TextModelConfig):
    """A transformer that reads a source and writes a target (Vaswani et al., 2017)."""

    kind: str = setting("encoder_decoder", fixed=True)
    family: str = "transformer"
    depth: int = setting(6, least=1, most=LARGEST_DEPTH)
    decoder_depth: Optional[int] = setting(None, least=1, most=LARGEST_DEPTH)  # depth when not given
    width: int = setting(512, least=1, most=LARGEST_LAYER)
    heads: int = setting(8, least=1, most=LARGEST_LAYER)
    head_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # width / heads when not given
    mlp_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # 4 * width when not given
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu", "geglu", "geglu_tanh"] = "relu"
    mixer: Any = setting("attention", group="mixer")  # of the encoder
    bias: bool = True  # of the linear layers of attention and MLPs
    positions: Literal["learned", "sincos", "rotary", "relative", "none"] = "sincos"  # relative: T5's
    # one matrix for the embeddings of source and target and for the output; for the last two; for the first; or three
    share_embeddings: Literal["all", "decoder", "inputs", "none"] = "all"
    norm: Literal["layernorm", "rmsnorm", "batchnorm"] = (
        "layernorm"  # batchnorm: of the encoder; the decoder has layernorm
    )
    norm_eps: float = setting(1e-6, above=0, most=1)
    norm_first: bool = True  # pre-norm; else post-norm
    dropout: float = setting(0.0, least=0, most=0.99)
    drop_path: float = setting(0.0, least=0, most=0.99)


@dataclass(frozen=True)
class CaptionerConfig(ModelConfig):
    """A vision transformer that a decoder of text looks at; the options are the decoder's."""

    kind: str = setting("captioner", fixed=True)
    family: str = "captioner"
    encoder: Any = setting("vit_nano", group="model")  # of images: a model of kind vit
    depth: int = setting(6, least=1, most=LARGEST_DEPTH)
    width: int = setting(512, least=1, most=LARGEST_LAYER)
    heads: int = setting(8, least=1, most=LARGEST_LAYER)
    mlp_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # 4 * width when not given
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu", "geglu", "geglu_tanh"] = "gelu"
    positions: Literal["learned", "sincos", "rotary", "none"] = "learned"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_eps: float = setting(1e-6, above=0, most=1)
    norm_first: bool = True  # pre-norm; else post-norm
    dropout: float = setting(0.0, least=0, most=0.99)
    drop_path: float = setting(0.0, least=0, most=0.99)


@dataclass(frozen=True)
class LSTMConfig(TextModelConfig):
    """A stack of LSTM layers over tokens (Hochreiter and Schmidhuber, 1997), in both directions unless causal."""

    kind: str = setting("lstm", fixed=True)
    family: str = "lstm"
    causal: bool = True
    depth: int = setting(2, least=1, most=LARGEST_DEPTH)
    width: int = setting(512, least=1, most=LARGEST_LAYER)
    segments: int = setting(0, least=0, most=LARGEST_LAYER)
    dropout: float = setting(0.0, least=0, most=0.99)


@dataclass(frozen=True)
class RecurrentConfig(TextModelConfig):
    """A recurrent encoder-decoder with attention (Bahdanau et al., 2015; Luong et al., 2015)."""

    kind: str = setting("recurrent", fixed=True)
    family: str = "rnn"
    cell: Literal["gru", "lstm"] = "gru"
    depth: int = setting(1, least=1, most=LARGEST_DEPTH)
    decoder_depth: Optional[int] = setting(None, least=1, most=LARGEST_DEPTH)  # depth when not given
    width: int = setting(512, least=1, most=LARGEST_LAYER)  # of the decoder, and of both directions of the encoder
    embedding: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # width when not given
    score: Literal["additive", "dot", "general", "scaled_dot", "cosine"] = "additive"  # of attention
    input_feeding: bool = False  # what a token found is read with the next one: slower, one token at a time
    # one matrix for the embeddings of source and target and for the output; for those of the decoder; or three
    share_embeddings: Literal["all", "decoder", "none"] = "all"
    dropout: float = setting(0.0, least=0, most=0.99)
