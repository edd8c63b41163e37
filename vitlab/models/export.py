"""Weights and whole models for other programs: timm's names, safetensors, ONNX."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from safetensors.torch import save
from timm.models import save_for_hf
from torch import Tensor, nn

from vitlab.config import UserError, choices_text
from vitlab.config.schema.models import TimmConfig
from vitlab.files import replacing
from vitlab.models import timm_adapter
from vitlab.models.base import Model
from vitlab.models.text import MaskedModel, TextEncoder, TextModel
from vitlab.models.vit import ViT
from vitlab.models.weights import find_lacking, name_in_timm

FORMATS = ("own", "timm")


def export_weights(model: nn.Module, format: str = "timm") -> dict[str, Tensor]:
    """Return the model's state dict in timm's names, or with format="own" in this project's.

    timm's VisionTransformer, VisionTransformerDistilled, MlpMixer or ResNet of the same sizes loads timm's names and
    gives the same logits. Fixed positions become `pos_embed`. Raises UserError for a model that timm does not have.
    """
    if format not in FORMATS:
        raise UserError(f"format={format}: unknown format; {choices_text(format, FORMATS)}")
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    if format == "own" or not isinstance(model, Model):  # timm's own models have its names
        return state
    if isinstance(model, TextModel):
        raise UserError("format=timm: timm has no models of text; give format=own")
    if lacking := find_lacking(model):
        raise UserError(f"format=timm: timm's models have no {lacking}; give format=own (--names own)")
    positions = model.position_table
    if positions is not None and "pos_embed" not in state:
        state["pos_embed"] = positions.detach().cpu()
    return {name_in_timm(model, name): value for name, value in state.items()}


def save_safetensors(
    model: nn.Module, path: str | Path, format: str = "timm", about: Mapping[str, str] | None = None
) -> None:
    """Write the weights as one safetensors file, atomically; `about` goes into its header."""
    # contiguous, and of tied weights a copy under each name, as any reader finds them
    state = {
        name: value.clone(memory_format=torch.contiguous_format)
        for name, value in export_weights(model, format).items()
    }
    with replacing(Path(path)) as file:
        file.write(save(state, metadata={"format": "pt", **(about or {})}))


class ForOnnx(nn.Module):
    """A model with the inputs and outputs that optimum gives an exported one of its kind."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model.eval().cpu()
        self.reads_text = isinstance(model, TextModel)
        segments = isinstance(model, TextModel) and getattr(model.text.embed, "segments", None) is not None
        self.inputs = ["input_ids", "attention_mask", *["token_type_ids"] * segments] if self.reads_text else ["images"]

    def forward(self, *inputs: Tensor) -> Tensor:
        if not self.reads_text:
            return self.model(*inputs)
        tokens, mask, *segments = inputs
        found = self.model(tokens, mask.bool(), *segments)
        return self.model.masked_logits(found) if isinstance(self.model, MaskedModel) else found

    def draw(self, batch: int, tokens: int) -> dict[str, Tensor]:
        """Draw inputs by name: images (B, C, Y, X), or tokens (B, N); the first text is padded."""
        generator, shape = torch.Generator().manual_seed(0), self.model.vitlab_shape
        if not self.reads_text:
            size = batch, shape["channels"], *shape["image_size"]
            return {"images": torch.randn(*size, generator=generator)}
        ids = torch.randint(shape["vocabulary"], (batch, min(tokens, shape["length"])), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, ids.shape[1] // 2 :] = 0
        return dict(zip(self.inputs, (ids, mask, torch.zeros_like(ids)), strict=False))


def save_onnx(model: nn.Module, path: str | Path, *, about: Mapping[str, str] | None = None) -> None:
    """Write the model as ONNX, for any batch size: normalised `images` float32 (batch, C, Y, X) -> `logits`.

    Of a model of text int64 `input_ids` and `attention_mask` (batch, sequence), and `token_type_ids` where it has
    segments, -> `logits`, for any number of tokens up to its length. `about` goes into the file's metadata. Raises
    UserError without the packages for ONNX, and for a model that writes texts from sources.
    """
    try:
        import onnxscript  # noqa: F401  (torch's exporter asks for it only deep inside)
    except ImportError:
        raise UserError("exporting ONNX needs the packages onnx and onnxscript: pip install 'vitlab[onnx]'") from None
    if "target_length" in model.vitlab_shape or (
        isinstance(model, TextModel) and not isinstance(model.text, TextEncoder)
    ):
        raise UserError(f"{path}: ONNX has no {type(model).__name__}; export to a .safetensors file instead")
    whole = ForOnnx(model)
    axes = {0: torch.export.Dim("batch")}
    axes |= {1: torch.export.Dim("sequence", max=model.vitlab_shape["length"])} if whole.reads_text else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that inputs share their axes
        program: Any = torch.onnx.export(
            whole.eval(),
            tuple(whole.draw(2, 7).values()),
            input_names=whole.inputs,
            output_names=["logits"],
            dynamic_shapes=((axes,) * len(whole.inputs),),  # of *inputs
            dynamo=True,
            verbose=False,
        )
    proto = program.model_proto
    for key, value in (about or {}).items():
        proto.metadata_props.add(key=key, value=value)
    with replacing(Path(path)) as file:
        file.write(proto.SerializeToString())


def compare_onnx(model: nn.Module, path: str | Path) -> float | None:
    """Compare an ONNX file with its model: the largest difference of their logits over the largest logit.

    The inputs are three random ones, another batch size and length than in the export. None without onnxruntime.
    """
    try:
        import onnxruntime
    except ImportError:
        return None
    whole = ForOnnx(model)
    inputs = whole.draw(3, 11)
    with torch.inference_mode():
        wanted = whole(*inputs.values()).float().numpy()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    if found.ndim == 3 and "attention_mask" in inputs:  # outputs at padding do not count
        shown = inputs["attention_mask"].numpy().astype(bool)
        found, wanted = found[shown], wanted[shown]
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-6))


def save_timm(model: nn.Module, folder: Path, classes: Sequence[str] = (), **seen: Any) -> float:
    """Write a folder for timm; return the largest difference of logits, as timm loads it, over the largest logit.

    `seen` is the preprocessing of the images. Raises UserError, and writes nothing, if timm has no such model.
    """
    config, shape = model.vitlab_config, model.vitlab_shape
    try:
        if isinstance(config, TimmConfig):
            twin = timm_adapter.build(replace(config, pretrained=False, stem="imagenet"), **shape)
        else:
            name, options = describe_in_timm(model)
            options |= {
                "num_classes": shape["num_classes"],
                "in_chans": shape["channels"],
                "img_size": shape["image_size"],
            }
            twin = timm_adapter.create(name, f"model={config.name}", **options)
        twin.load_state_dict(export_weights(model))
    except (UserError, RuntimeError) as error:
        lacking = find_lacking(model) or f"model={config.name} as it is here"
        raise UserError(f"timm has no {lacking}; export to a .safetensors file instead") from error
    size = (shape["channels"], *shape["image_size"])
    twin.pretrained_cfg |= {"license": None, "tag": None}  # of other weights
    seen |= {"input_size": size, "crop_pct": 1.0}
    save_for_hf(twin, folder, {"label_names": list(classes)}, safe_serialization=True, data_config=seen)
    images = torch.randn(3, *size, generator=torch.Generator().manual_seed(0))
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True)
    with torch.inference_mode():
        wanted, found = (one.eval().cpu()(images) for one in (model, theirs))
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-6))


def describe_in_timm(model: nn.Module) -> tuple[str, dict[str, Any]]:
    """Describe a ViT or Mixer as a name of timm and its options. Raises UserError for another model."""
    config = model.vitlab_config
    if find_lacking(model) or not isinstance(model, ViT):
        raise UserError(config.name)
    ratio, mixer = (config.mlp_width or 4 * config.width) / config.width, config.mixer
    if mixer.kind == "token_mlp":  # of timm's own sizes alone
        letter, patch = {512: "s", 768: "b", 1024: "l"}.get(config.width), model.patch_embed.patch_size[0]
        ratios = (mixer.hidden or config.width // 2) / config.width, ratio
        return f"mixer_{letter}{patch}_224", {"mlp_ratio": ratios}
    sizes = {"patch_size": model.patch_embed.patch_size, "embed_dim": config.width}
    sizes |= {"depth": config.depth, "num_heads": config.heads, "mlp_ratio": ratio, "act_layer": config.mlp}
    sizes |= {"qkv_bias": mixer.qkv_bias, "qk_norm": mixer.qk_norm, "norm_layer": config.norm}
    sizes |= {"init_values": config.layer_scale, "pre_norm": config.norm_pre, "fc_norm": config.fc_norm}
    sizes |= {"reg_tokens": config.registers, "no_embed_class": not model.prefix_positions}
    sizes |= {"class_token": model.cls_token is not None, "global_pool": {"mean": "avg"}.get(config.pool, config.pool)}
    sizes |= {"pos_embed": "none" if model.position_table is None else "learn"}
    return f"{'deit_tiny_distilled' if config.distillation else 'vit_tiny'}_patch16_224", sizes
