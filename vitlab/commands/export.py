"""`vitlab export`: a finished run's model for other programs."""

import json
from pathlib import Path

from vitlab.config import UserError
from vitlab.data.text.tokenization import Tokenizer
from vitlab.models.weights.export import save_onnx, save_safetensors
from vitlab.models.weights.huggingface import save_huggingface
from vitlab.training.files import RunFiles
from vitlab.training.load import LoadedRun, load_run


def export(run: str, path: Path, *, names: str) -> int:
    """Write the model of a run, print where; the exit code. Raises UserError."""
    loaded = load_run(run)
    try:
        if loaded.config.data.modality == "text":
            write_text_model(loaded, run, path)
        else:
            write(loaded, path, names, about(loaded))
    except OSError as error:
        raise UserError(f"FILE {path}: cannot be written ({error.strerror})") from None
    print(path)
    return 0


def write_text_model(loaded: LoadedRun, run: str, path: Path) -> None:
    """A file of weights in this project's names, or a folder for Hugging Face's transformers with the tokenizer."""
    if path.suffix == ".onnx":
        raise UserError(f"{path}: a model of text is written as .safetensors, or as a folder for Hugging Face's")
    if path.suffix == ".safetensors":
        sizes = {key: str(value) for key, value in loaded.shape.items()}
        save_safetensors(loaded.model, path, "own", {"model": loaded.config.model.name, **sizes})
        return
    save_huggingface(loaded.model, path)
    Tokenizer.load(RunFiles(run).tokenizer_path).save(path / "tokenizer.json")


def about(loaded: LoadedRun) -> dict[str, str]:
    """What one must know to use a model of images: it takes pixels / 255, less the mean, by the deviation."""
    data = loaded.config.data
    return {
        "model": loaded.config.model.name,
        "classes": json.dumps(list(loaded.classes)),
        "image_size": json.dumps(list(loaded.shape["image_size"])),
        "channels": str(loaded.shape["channels"]),
        "mean": json.dumps(list(data.mean)),
        "std": json.dumps(list(data.std)),
    }


def write(loaded: LoadedRun, path: Path, names: str, about: dict[str, str]) -> None:
    if path.suffix == ".onnx":
        size = tuple(loaded.shape["image_size"])
        save_onnx(loaded.model, path, image_size=size, channels=loaded.shape["channels"], about=about)
    else:
        save_safetensors(loaded.model, path, names, about)
