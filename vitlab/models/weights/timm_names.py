"""How timm names the parameters of a model of this project, where timm has the same model."""

import re

from torch import nn

from vitlab.models.encoder import TokenBatchNorm
from vitlab.models.mixers.attention import Attention
from vitlab.models.mixers.token_mlp import TokenMLP
from vitlab.models.resnet import ResNet
from vitlab.models.vit import ViT


def name_in_timm(model: nn.Module, name: str) -> str:
    """A parameter's name in timm's VisionTransformer, VisionTransformerDistilled, MlpMixer or ResNet.

    Other models keep their names.
    """
    if isinstance(model, ResNet):
        name = name.replace("stem.0.", "conv1.").replace("stem.1.", "bn1.").replace("head.", "fc.")
        return re.sub(r"^stages\.(\d+)\.", lambda match: f"layer{int(match[1]) + 1}.", name)
    if not isinstance(model, ViT):
        return name
    name = name.removeprefix("encoder.").replace("pre_logits.0.", "pre_logits.fc.")
    if not isinstance(model.encoder.blocks[0].mixer, TokenMLP):
        return name.replace(".mixer.", ".attn.")
    name = name.replace("patch_embed.", "stem.").replace(".mlp.", ".mlp_channels.")
    return name.replace(".mixer.mlp_channels.", ".mlp_tokens.")


def find_lacking(model: nn.Module) -> str | None:
    """An option of this model that timm's do not have."""
    if not isinstance(model, ViT):
        return None
    block, mixer = model.encoder.blocks[0], model.encoder.blocks[0].mixer
    if not mixer.in_timm:
        return f"mixer {type(mixer).__name__}"
    if isinstance(mixer, Attention) and mixer.proj.in_features != model.width:
        return f"head_width={mixer.proj.in_features // mixer.heads} with width={model.width}"
    if isinstance(mixer, TokenMLP) and (model.num_prefix_tokens or model.pos_embed is not None):
        return "MLP-Mixer with positions or prefix tokens"
    if not block.norm_first:
        return "post-norm blocks (norm_first=false)"
    if isinstance(block.norm1, TokenBatchNorm):
        return "batch norm over tokens (norm=batchnorm)"
    return None if model.rotary is None else "rotary positions"
