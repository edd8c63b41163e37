"""The table of docs/models.md: every named model with its parameters, tokens and operations.

    python scripts/model_table.py

Nothing is trained or allocated: models are counted on the meta device. 20 seconds.
"""

from vitlab.config import DescribeConfig, compose, extent, names
from vitlab.models import counting, family
from vitlab.models.base import as_model

OWN_SIZE = {"dinov2_s14": 518, "dinov2_b14": 518}  # pixels; the others were trained at 224
SMALL = 24  # pixels, of the models for one CPU core


def main() -> None:
    print("| model | family | image | parameters | tokens | GFLOPs forward |")
    print("|---|---|---:|---:|---:|---:|")
    for name in names("model"):
        size = SMALL if name.endswith("nano") else OWN_SIZE.get(name, 224)
        config = compose(DescribeConfig, [f"model={name}", f"image_size={size}"])
        model = counting.meta(config.model, num_classes=1000, image_size=extent(size), channels=3)
        forward, _ = counting.flops(model, {"image_size": extent(size), "channels": 3})
        cells = (
            name,
            family(config.model, model),
            size,
            f"{counting.parameters(model):,}",
            as_model(model).sequence_length or "",
        )
        print(f"| {' | '.join(map(str, cells))} | {forward / 1e9:.4g} |")


if __name__ == "__main__":
    main()
