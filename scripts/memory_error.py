"""How far the counted activations of a training step are from those that a step on a CPU really keeps.

    python scripts/memory_error.py

Prints the table of docs/clusters.md: bytes of one example, in float32 and under autocast to bfloat16. A minute on 2
cores.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vitlab.config import DescribeConfig, compose
from vitlab.formatting import with_prefix
from vitlab.models import build, described_shape, kernels
from vitlab.models.counting import count, memory

MODELS = (
    *("vit_s16", "vit_nano", "resnet18", "resnet_nano", "bit_50x1", "mixer_s16", "fnet_nano"),
    *("timm:convnext_atto", "timm:efficientnet_b0", "gpt_nano", "t5_nano", "lstm_nano"),
)
SHAPES = {"image": ["image_size=96"], "text": ["length=64", "vocabulary=8192"]}
BATCHES = (2, 3)  # what a third example adds is its own: weights in bfloat16 are kept once


def main() -> None:
    kernels.FEW_KEYS = 0  # else a CPU computes short attention in bfloat16 as products, as no GPU does
    print("| model | input | counted | kept in float32 | error | kept in bfloat16 | error |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in MODELS:
        print(f"| {' | '.join(compare(name))} |", flush=True)


def compare(name: str) -> Sequence[str]:
    modality = compose(DescribeConfig, [f"model={name}"]).model.modality
    config = compose(DescribeConfig, [f"model={name}", *SHAPES[modality]])
    shape = described_shape(config)
    example = count.inputs(shape)
    meta = count.meta(config.model, **shape)
    full, halved = (
        memory.count_activations(meta, lambda model, batch: model(*batch), example, half=half).per_example
        for half in (False, True)
    )
    model = build(config.model, **shape).train()
    cells = [name, " x ".join(str(size) for size in example[0].shape[1:]), with_prefix(full, "B")]
    for half, counted in ((False, full), (True, halved)):
        few, many = (count_kept(model, count.inputs(shape, size, "cpu"), half) for size in BATCHES)
        kept = (many - few) / (BATCHES[1] - BATCHES[0])
        cells += [with_prefix(kept, "B"), f"{counted / kept - 1:+.0%}"]
    return cells


def count_kept(model: nn.Module, batch: Sequence[Tensor], half: bool) -> int:
    """Bytes of the storages that a forward pass saves, each once, without parameters and buffers."""
    own = {memory.storage(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[memory.storage(tensor)] = tensor  # alive, so that no other gets its address
        return tensor

    saving = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with saving, torch.autocast("cpu", torch.bfloat16, enabled=half):
        model(*batch)
    return memory.count_bytes(tensor for key, tensor in kept.items() if key not in own)


if __name__ == "__main__":
    main()
