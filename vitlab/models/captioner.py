"""A ViT that a decoder of text looks at: captions of images (Vinyals et al., 2015; as a Transformer: Liu et al., 2021).

Shapes: B batch, C channels, Y x X pixels, M tokens of an image, N of a caption, D width, V vocabulary.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn

from vitlab.config.schema.models import CaptionerConfig
from vitlab.models import vit
from vitlab.models.encoder import make_norms
from vitlab.models.encoder_decoder import DecoderModel, reset_parameters
from vitlab.models.mixers.attention import Attention
from vitlab.models.text import TextEncoder, build_body
from vitlab.models.vit import ViT


class Captioner(DecoderModel):
    """Images (B, C, Y, X) and the captions so far (B, N) -> logits of each next token (B, N, V).

    The decoder looks at the tokens that `image` has before its head; `bridge` is a linear layer where their width is
    another one.
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
        """(B, C, Y, X) -> (B, M, D)"""
        return self.bridge(self.image.tokens(inputs))

    def no_weight_decay(self) -> set[str]:
        return {f"image.{name}" for name in self.image.no_weight_decay()} | {"decoder.embed.positions"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """The layer of each parameter, in the format of timm's layer-wise decay; the decoder's follow the image's."""
        return {
            "stem": r"^(?:image\.(?!encoder\.)|decoder\.embed)",
            "image": [(r"^image\.encoder\.blocks\.(\d+)", None), (r"^(?:image\.encoder\.norm|bridge)", (99999,))],
            "blocks": [(r"^decoder\.encoder\.blocks\.(\d+)", None), (r"^decoder\.encoder\.norm", (99999,))],
        }


def build(
    config: CaptionerConfig,
    *,
    image_size: tuple[int, int],
    channels: int,
    vocabulary: int,
    target_length: int,
    **_: Any,
) -> Captioner:
    norm, _ = make_norms(config.norm, config.norm_eps)
    attention = {"head_width": config.head_width, "dropout": config.dropout}
    attention |= {"attention_dropout": config.attention_dropout}
    decoder = build_body(
        config,
        vocabulary=vocabulary,
        length=target_length,
        norm=norm,
        depth=config.depth,
        causal=True,
        cross=partial(Attention, config.width, config.heads, **attention),
    )
    output = nn.Linear(config.width, vocabulary, bias=False)
    output.weight = decoder.embed.tokens.weight
    image = vit.build(config.encoder, num_classes=0, image_size=image_size, channels=channels)
    return Captioner(image, decoder, output)
