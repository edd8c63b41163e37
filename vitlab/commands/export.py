"""`vitlab export`: a finished run's model for other programs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vitlab.commands.arguments import CommandParser, non_empty_path, status_line
from vitlab.config import UserError
from vitlab.training.files import RunFiles, refuse_unwritable

if TYPE_CHECKING:
    from vitlab.training.load import LoadedRun

DESCRIPTION = """Write a finished run's model for other programs.
  vitlab export runs/quick/vit_nano-n32000-s0 vit.safetensors    # weights in timm's names, or --names own
  vitlab export runs/quick/vit_nano-n32000-s0 vit.onnx           # the whole model, for any batch size"""


def main(words: Sequence[str]) -> int:
    parser = CommandParser("export", DESCRIPTION)
    parser.add_argument("run", metavar="RUN", help="the run's folder")
    parser.add_argument(
        "file", type=non_empty_path, metavar="FILE", help=".safetensors (weights) or .onnx (the whole model)"
    )
    parser.add_argument("--names", choices=["timm", "own"], default="timm", help="of the weights (default: timm)")
    args = parser.parse_args(words)
    path = args.file
    RunFiles(args.run).finished_result()
    of_text = RunFiles(args.run).tokenizer_path.exists()
    if path.suffix not in (".safetensors", ".onnx") and not (of_text and not path.suffix and not path.is_file()):
        folder = ", or a folder for Hugging Face's transformers" if of_text else ""
        raise UserError(f"{path}: give a file that ends in .safetensors or .onnx{folder}")
    if path.suffix and path.is_dir():
        raise UserError(f"{path}: is a folder; give a file that ends in .safetensors or .onnx")
    if not path.suffix and path.is_dir() and any(path.iterdir()):
        raise UserError(f"{path}: is a folder with files in it; give another one")
    refuse_unwritable(path.parent, "FILE")
    return export(args.run, path, names=args.names)


def export(run: str, path: Path, *, names: str) -> int:
    """Write the model of a run, print where; the exit code. Raises UserError."""
    with status_line("loading torch, lightning and timm"):
        from vitlab.training.load import load_run

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


def write_text_model(loaded: "LoadedRun", run: str, path: Path) -> None:
    """A file of weights in this project's names, or a folder for Hugging Face's transformers with the tokenizer."""
    from vitlab.data.text.tokenization import Tokenizer
    from vitlab.models.weights.export import save_safetensors
    from vitlab.models.weights.huggingface import save_huggingface

    if path.suffix == ".onnx":
        raise UserError(f"{path}: a model of text is written as .safetensors, or as a folder for Hugging Face's")
    if path.suffix == ".safetensors":
        sizes = {key: str(value) for key, value in loaded.shape.items()}
        save_safetensors(loaded.model, path, "own", {"model": loaded.config.model.name, **sizes})
        return
    save_huggingface(loaded.model, path)
    Tokenizer.load(RunFiles(run).tokenizer_path).save(path / "tokenizer.json")


def about(loaded: "LoadedRun") -> dict[str, str]:
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


def write(loaded: "LoadedRun", path: Path, names: str, about: dict[str, str]) -> None:
    from vitlab.models.weights.export import save_onnx, save_safetensors

    if path.suffix == ".onnx":
        size = tuple(loaded.shape["image_size"])
        save_onnx(loaded.model, path, image_size=size, channels=loaded.shape["channels"], about=about)
    else:
        save_safetensors(loaded.model, path, names, about)
