"""`vitlab export`: a finished run's model for other programs."""

import json
from pathlib import Path

from vitlab.config import UserError
from vitlab.models.export import save_onnx, save_safetensors
from vitlab.training.load import LoadedRun, load_run


def export(run: str, path: Path, *, names: str) -> int:
    """Write the model of a run, print where; the exit code. Raises UserError."""
    loaded = load_run(run)
    data = loaded.config.data
    about = {  # what one must know to use it: pixels / 255, less the mean, by the deviation
        "model": loaded.config.model.name,
        "classes": json.dumps(list(loaded.classes)),
        "image_size": json.dumps(list(loaded.shape["image_size"])),
        "channels": str(loaded.shape["channels"]),
        "mean": json.dumps(list(data.mean)),
        "std": json.dumps(list(data.std)),
    }
    try:
        write(loaded, path, names, about)
    except OSError as error:
        raise UserError(f"FILE {path}: cannot be written ({error.strerror})") from None
    print(path)
    return 0


def write(loaded: LoadedRun, path: Path, names: str, about: dict[str, str]) -> None:
    if path.suffix == ".onnx":
        size = tuple(loaded.shape["image_size"])
        save_onnx(loaded.model, path, image_size=size, channels=loaded.shape["channels"], about=about)
    else:
        save_safetensors(loaded.model, path, names, about)
