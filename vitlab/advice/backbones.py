"""Compute frozen features of picture files: run each picture through each network once, and keep the features.

Features are kept under the hash of the file's content, so a renamed or moved picture keeps its own.

Shapes: N pictures, D width.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import timm
import torch
from torch import Tensor, nn

from vitlab.config import UserError, first_line
from vitlab.data.base import Show, Split
from vitlab.data.cache import keep_features
from vitlab.data.images import decode
from vitlab.models.base import before_head
from vitlab.models.timm_adapter import create_pretrained, name_source, pretrained_cfg
from vitlab.training.finished import load_run, place_run
from vitlab.training.load import fingerprint

DEFAULT = (  # features for few labels: self-supervised, supervised, convolutions
    "timm:vit_small_patch14_dinov2.lvd142m",
    "timm:vit_small_patch16_224.augreg_in21k_ft_in1k",
    "timm:convnext_tiny.in12k_ft_in1k",
)
SMALLEST, LARGEST = 96, 224  # pixels a side that `vitlab advise` gives a network of timm unless told otherwise
STEP = 32
FLOOR_SIDE = 32  # pixels a side for classifiers without a network


@dataclass(frozen=True)
class Backbone:
    """A frozen network. `embed` turns pictures uint8 (B, channels, side, side) into features float32 (B, D).

    key: name of its features' file; differs with the network, its weights and the size.
    """

    name: str
    key: str
    size: tuple[int, int]
    channels: int
    embed: Callable[[np.ndarray], np.ndarray]
    megabytes: float = 0.0


PIXELS = Backbone("pixels", f"pixels-{FLOOR_SIDE}", (FLOOR_SIDE, FLOOR_SIDE), 3, lambda pictures: pictures)


def open_backbone(source: str, side: int) -> Backbone:
    """Open a frozen network: `timm:NAME`, `timm:NAME=FILE` (FILE holds weights in timm's names) or a finished run.

    A network of timm sees each picture at about `side` pixels a side, in whole patches. Raises UserError.
    """
    if not source.startswith("timm:"):
        if timm.is_model(source.partition("=")[0]):
            raise UserError(f"--backbones {source}: is a model of timm; give timm:{source}")
        run = load_run(source)
        data, name = run.config.data, Path(source).resolve().name
        if data.modality != "image":
            raise UserError(
                f"--backbones {source}: is a run on text; give timm:NAME, timm:NAME=FILE or a run on pictures"
            )
        model, key = place_run(run)[0], f"{name}-{fingerprint(source)[:12]}"
        return freeze(name, key, model, before_head(model), run.shape["image_size"], data.mean, data.std)
    name, _, file = source.removeprefix("timm:").partition("=")
    cfg, setting = pretrained_cfg(name), f"--backbones {source}"
    is_fixed = cfg is not None and cfg.fixed_input_size
    patch = re.search(r"patch(\d+)", name) if is_fixed else None
    step = int(patch[1]) if patch else STEP
    side = step * max(1, round(side / step))
    options = {"num_classes": 0} | ({"img_size": side} if is_fixed else {})
    if file:
        if not Path(file).is_file():
            raise UserError(f"{setting}: no such file '{file}'; give the weights of {name}")
        try:
            model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": file}, **options)
        except Exception as error:  # timm's models and readers raise many kinds
            raise UserError(f"{setting}: does not fit {name} ({first_line(error)}); give its own weights") from None
    else:
        model = create_pretrained(name, setting, "timm:NAME=FILE with a file of its weights, or a run", **options)
    data = timm.data.resolve_model_data_config(model)
    key = re.sub(r"[^\w.-]", "_", f"{name}-{side}" + (f"-{fingerprint(file)[:12]}" if file else ""))
    named = name_source(source).removeprefix("timm:")
    return freeze(named, key, model, model, (side, side), data["mean"], data["std"])


def freeze(
    name: str,
    key: str,
    model: nn.Module,
    features: Callable[[Tensor], Tensor],
    size: tuple[int, int],
    mean: Sequence[float],
    std: Sequence[float],
) -> Backbone:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)
    shift, scale = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in (mean, std))

    def embed(pictures: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            images = torch.from_numpy(pictures).to(device).float().div(255).sub(shift).div(scale)
            rows = features(images.contiguous(memory_format=torch.channels_last)).float().cpu()
        if not rows.isfinite().all():
            raise UserError(f"--backbones {name}: its features of these pictures are not finite")
        return rows.numpy()

    return Backbone(name, key, size, len(mean), embed, sum(value.nbytes for value in model.state_dict().values()) / 1e6)


def compute_features(
    folder: Path,
    backbone: Backbone,
    root: Path,
    paths: Sequence[str],
    digests: Sequence[str],
    bits: int,
    progress: Show,
) -> np.ndarray:
    """Return features (N, D) of the files: read those kept in `folder`, compute the rest and keep them there.

    `bits` is `data.bits`. Raises UserError for features that are not finite.
    """

    def read(rows: np.ndarray) -> np.ndarray:
        return np.stack([decode.read(root / paths[row], backbone.size, backbone.channels, bits) for row in rows])

    path, show = folder / f"{backbone.key}.safetensors", partial(progress, f"features of {backbone.name}")
    return keep_features(path, Split(np.zeros(len(paths)), read), backbone.embed, show, digests)


def count_colors(pixels: np.ndarray, levels: int = 4) -> np.ndarray:
    """Compute color histograms float32 (N, levels^3) of pictures uint8 (N, 3, H, W): square roots of pixel shares."""
    bins = pixels.astype(np.int64) * levels // 256
    places = (bins[:, 0] * levels + bins[:, 1]) * levels + bins[:, 2]
    return np.sqrt([np.bincount(one.ravel(), minlength=levels**3) / one.size for one in places]).astype(np.float32)


def scale_pixels(pixels: np.ndarray, grey: bool | None = None) -> np.ndarray:
    """Scale pictures uint8 (N, 3, H, W) to float32 (N, D) in 0..1; one channel if all are equal, or by `grey`."""
    grey = (pixels[:, :1] == pixels).all() if grey is None else grey
    return (pixels[:, :1] if grey else pixels).reshape(len(pixels), -1).astype(np.float32) / 255
