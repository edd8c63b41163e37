"""Encoder-decoders: the transformer of "Attention is all you need" (Vaswani et al., 2017), and captioners of images.

Both parts are the shared encoder; the decoder attends to the encoder's output. In a captioner the encoder is a ViT.

Shapes: B batch, S tokens of a source, N of a target or a caption, D width, V vocabulary; C channels, Y x X pixels, M
tokens of an image.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.config.schema.models import CaptionerConfig, EncoderDecoderConfig
from vitlab.models import vit
from vitlab.models.base import Model
from vitlab.models.decoding import Decoding
from vitlab.models.text import TextEncoder, TextModel, build_body, match_two_parts
from vitlab.models.vit import ViT


class DecoderModel(Model):
    """The base class: an input and the target so far (B, N) -> logits of each next token of the target (B, N, V).

    A subclass has `encode`, `decoder` and `output`.
    """

    decoder: TextEncoder
    output: nn.Linear

    @property
    def target_length(self) -> int:
        return self.decoder.embed.length

    def encode(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode B inputs, mask bool (B, S), False at padding -> the decoder's context (B, S, D)."""
        raise NotImplementedError

    def decode(
        self, target: Tensor, context: Tensor, mask: Tensor | None = None, caches: Sequence[Any] | None = None
    ) -> Tensor:
        """Decode tokens (B, N) after the cached ones, context (B, S, D), mask bool (B, S) -> logits (B, N, V)."""
        return self.output(self.decoder(target, context=context, context_mask=mask, caches=caches))

    def forward(self, inputs: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.decode(target, self.encode(inputs, mask), mask)

    def decoding(self, inputs: Tensor, mask: Tensor | None = None) -> Decoding:
        """Start the decoding of the inputs' targets."""
        context = self.encode(inputs, mask), mask
        return Decoding(self, self.decoder.new_caches(), self.target_length, context)

    def next_logits(self, tokens: Tensor, caches: Sequence[Any], context: Tensor, mask: Tensor | None = None) -> Tensor:
        """Read tokens (B, N) after the cached ones and return logits (B, V) of the next token."""
        return self.decode(tokens, context, mask, caches)[:, -1]


class EncoderDecoder(DecoderModel, TextModel):
    """A source (B, S) and the target so far (B, N) -> logits of each next token of the target (B, N, V)."""

    def __init__(self, text: TextEncoder, decoder: TextEncoder, output: nn.Linear):
        super().__init__(text)
        self.decoder = decoder
        self.output = output
        reset_parameters(text, decoder, output)

    encode = TextModel.features

    def no_weight_decay(self) -> set[str]:
        return {"text.embed.positions", "decoder.embed.positions"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return match_two_parts(r"encoder\.blocks\.(\d+)")


def build(
    config: EncoderDecoderConfig | CaptionerConfig,
    *,
    vocabulary: int,
    head: str = "",
    length: int = 0,
    target_length: int = 0,
    **images: Any,
) -> DecoderModel:
    """Build an encoder-decoder or a captioner. Raises ValueError for a head of another kind of model."""
    if isinstance(config, CaptionerConfig):
        shape = {"vocabulary": vocabulary, "length": target_length, "depth": config.depth}
        decoder = build_body(config, **shape, causal=True, decoder=True)
        output = nn.Linear(config.width, vocabulary, bias=False)
        output.weight = decoder.embed.tokens.weight
        return Captioner(vit.build(config.encoder, num_classes=0, **images), decoder, output)
    if head != "seq2seq":
        raise ValueError("writes a target from a source; give task=translation, or a model such as gpt_nano, bert_nano")
    shape = {"vocabulary": vocabulary, "bias": config.bias}
    text = build_body(config, **shape, length=length, depth=config.depth, causal=False)
    depth = config.decoder_depth or config.depth
    decoder = build_body(config, **shape, length=target_length, depth=depth, causal=True, decoder=True)
    output = nn.Linear(config.width, vocabulary, bias=False)
    if config.share_embeddings in ("all", "decoder"):
        output.weight = decoder.embed.tokens.weight
    if config.share_embeddings in ("all", "inputs"):
        text.embed.tokens.weight = decoder.embed.tokens.weight
    return EncoderDecoder(text, decoder, output)


@torch.no_grad()
def reset_parameters(*parts: nn.Module) -> None:
    """Set matrices to Glorot's uniform (as in Vaswani et al.'s code), embeddings to std D^-0.5, biases to zero."""
    for name, parameter in nn.ModuleList(parts).named_parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    for body in (part for part in parts if isinstance(part, TextEncoder)):
        std = body.embed.tokens.embedding_dim**-0.5
        nn.init.normal_(body.embed.tokens.weight, std=std)
        if isinstance(body.embed.positions, nn.Parameter):
            nn.init.normal_(body.embed.positions, std=std)
        if body.relative is not None:
            nn.init.normal_(body.relative.bias, std=std)


class Captioner(DecoderModel):
    """Images (B, C, Y, X) and the captions so far (B, N) -> logits of each next token (B, N, V).

    Vinyals et al., 2015; as a Transformer: Liu et al., 2021.

    The decoder looks at the tokens that `image` has before its head; `bridge` is a linear layer if their widths
    differ.
    """

    def __init__(self, image: ViT, decoder: TextEncoder, output: nn.Linear):
        super().__init__()
        self.image = image
        self.bridge = nn.Identity() if image.width == output.in_features else nn.Linear(image.width, output.in_features)
        self.decoder = decoder
        self.output = output
        reset_parameters(self.bridge, decoder, output)

    @property
    def vocabulary(self) -> int:
        return self.output.out_features

    def encode(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode images (B, C, Y, X) -> tokens (B, M, D)."""
        return self.bridge(self.image.tokens(inputs))

    def no_weight_decay(self) -> set[str]:
        return {f"image.{name}" for name in self.image.no_weight_decay()} | {"decoder.embed.positions"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Map each parameter to its layer for timm's layer-wise decay; the image model's layers come first."""
        return {
            "stem": r"^(?:image\.(?!encoder\.)|decoder\.embed)",
            "image": [(r"^image\.encoder\.blocks\.(\d+)", None), (r"^(?:image\.encoder\.norm|bridge)", (99999,))],
            "blocks": [(r"^decoder\.encoder\.blocks\.(\d+)", None), (r"^decoder\.encoder\.norm", (99999,))],
        }
