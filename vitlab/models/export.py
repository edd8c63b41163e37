"""Weights and whole models for other programs: timm's names, safetensors, ONNX."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from vitlab.config import UserError, choices_text
from vitlab.files import replacing
from vitlab.models.base import Model
from vitlab.models.weights import find_lacking, name_in_timm

FORMATS = ("own", "timm")


def export_weights(model: nn.Module, format: str = "timm") -> dict[str, Tensor]:
    """Return the model's state dict in timm's names, or with format="own" in this project's.

    With timm's names it loads into timm's VisionTransformer, VisionTransformerDistilled, MlpMixer or ResNet of the same
    sizes, with the same logits; fixed positions are in it as `pos_embed`. Raises UserError for a model that timm does
    not have.
    """
    if format not in FORMATS:
        raise UserError(f"format={format}: unknown format; {choices_text(format, FORMATS)}")
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    if format == "own" or not isinstance(model, Model):  # timm's own models have its names
        return state
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


def save_onnx(
    model: nn.Module,
    path: str | Path,
    *,
    image_size: tuple[int, int],
    channels: int,
    about: Mapping[str, str] | None = None,
) -> None:
    """Write the model as ONNX: normalised `images` float32 (batch, C, Y, X) -> `logits`, for any batch size.

    `about` goes into the file's metadata. Raises UserError without the packages for ONNX.
    """
    try:
        import onnxscript  # noqa: F401  (torch's exporter asks for it only deep inside)
    except ImportError:
        raise UserError("exporting ONNX needs the packages onnx and onnxscript: pip install 'vitlab[onnx]'") from None
    images = torch.zeros(2, channels, *image_size)
    program: Any = torch.onnx.export(
        model.eval().cpu(),
        (images,),
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        verbose=False,
    )
    proto = program.model_proto
    for key, value in (about or {}).items():
        proto.metadata_props.add(key=key, value=value)
    with replacing(Path(path)) as file:
        file.write(proto.SerializeToString())


def compare_onnx(model: nn.Module, path: str | Path, image_size: tuple[int, int], channels: int) -> float | None:
    """Compare an ONNX file with its model: their logits' largest difference over the largest logit.

    The inputs are three random images, so also another batch size than in the export. None without onnxruntime.
    """
    try:
        import onnxruntime
    except ImportError:
        return None
    images = torch.randn(3, channels, *image_size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted = model.eval().cpu()(images).float().numpy()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"images": images.numpy()})
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-6))
