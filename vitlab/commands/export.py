"""`vitlab export`: a finished run's model for other programs."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vitlab.commands.arguments import CommandParser, non_empty_path, status_line
from vitlab.config import UserError
from vitlab.files import write_json
from vitlab.training.files import RunFiles, refuse_unwritable

if TYPE_CHECKING:
    from vitlab.training.checkpoints import LoadedRun

SLACK = 1e-2  # of the largest logit: how far those of an ONNX file may be from the run's
DESCRIPTION = """Write a finished run's model for other programs.
  vitlab export runs/quick/vit_nano-n32000-s0 vit.safetensors    # weights in timm's names, or --names own
  vitlab export runs/quick/vit_nano-n32000-s0 vit.onnx           # the whole model, for any batch size
  vitlab export runs/gpt gpt-folder                              # a folder for Hugging Face's transformers"""


def main(words: Sequence[str]) -> int:
    parser = CommandParser("export", DESCRIPTION)
    parser.add_argument("run", metavar="RUN", help="the run's folder")
    parser.add_argument(
        "file", type=non_empty_path, metavar="FILE", help=".safetensors (weights), .onnx (the whole model), or a folder"
    )
    parser.add_argument("--names", choices=["timm", "own"], default="timm", help="of the weights (default: timm)")
    args = parser.parse_args(words)
    path = args.file
    RunFiles(args.run).finished_result()
    if path.suffix not in (".safetensors", ".onnx") and (path.suffix or path.is_file()):
        raise UserError(f"{path}: give a file that ends in .safetensors or .onnx, or a folder for transformers")
    if path.suffix and path.is_dir():
        raise UserError(f"{path}: is a folder; give a file that ends in .safetensors or .onnx")
    if not path.suffix and path.is_dir() and any(path.iterdir()):
        raise UserError(f"{path}: is a folder with files in it; give another one")
    refuse_unwritable(path.parent, "FILE")
    return export(args.run, path, names=args.names)


def export(run: str, path: Path, *, names: str) -> int:
    """Write the model of a run, print where; the exit code. Raises UserError."""
    with status_line("loading torch, lightning and timm"):
        from vitlab.models.base import as_model
        from vitlab.models.export import compare_onnx, save_onnx, save_safetensors
        from vitlab.training.checkpoints import load_run

    loaded = load_run(run)
    about, is_text = describe_use(loaded), loaded.config.data.modality == "text"
    if path.suffix == ".onnx" and loaded.config.task.kind == "classification":
        from vitlab.training.predict import Predictor

        predictor = Predictor(run)  # softmax(logits / temperature) is what `vitlab predict` prints
        about |= {} if predictor.not_calibrated else {"temperature": str(predictor.temperature)}
    if path.suffix == ".onnx" and (is_text or as_model(loaded.model).decoding):
        raise UserError(
            f"{path}: a model that reads or writes text is exported as a .safetensors file or, as far as transformers "
            "has it, as a folder"
        )
    try:
        if not path.suffix:
            write_folder(loaded, run, path)
        elif path.suffix == ".safetensors":
            save_safetensors(loaded.model, path, "own" if is_text else names, about)
        else:
            size, channels = tuple(loaded.shape["image_size"]), loaded.shape["channels"]
            save_onnx(loaded.model, path, image_size=size, channels=channels, about=about)
            check_onnx(path, compare_onnx(loaded.model, path, size, channels))
    except OSError as error:
        raise UserError(f"FILE {path}: cannot be written ({error.strerror})") from None
    print(path)
    return 0


def check_onnx(path: Path, difference: float | None) -> None:
    """Say how far the file's logits are from the run's. Deletes the file and raises UserError where they are others."""
    if difference is None:
        print(f"{path}: not compared with the run, which needs onnxruntime: pip install onnxruntime", file=sys.stderr)
    elif difference > SLACK:
        path.unlink()
        raise UserError(
            f"{path}: its logits differ from the run's by {difference:.1%} of the largest; give .safetensors"
        )
    else:
        print(f"{path}: its logits are the run's to within {difference:.1e} of the largest", file=sys.stderr)


def write_folder(loaded: "LoadedRun", run: str, folder: Path) -> None:
    """A folder for Hugging Face's transformers, with the tokenizer or the preprocessing of images."""
    from vitlab.data.text.tokenization import from_file
    from vitlab.models.huggingface import save_huggingface

    if loaded.config.data.modality == "image":
        labels = {str(index): name for index, name in enumerate(loaded.classes)}
        save_huggingface(loaded.model, folder, id2label=labels)
        data, (height, width) = loaded.config.data, loaded.shape["image_size"]
        normalization = {"image_mean": list(data.mean), "image_std": list(data.std)}
        size = {"height": height, "width": width}
        processor = {"image_processor_type": "ViTImageProcessor", "size": size, **normalization}
        write_json(folder / "preprocessor_config.json", processor)
        return
    tokenizer = from_file(RunFiles(run).tokenizer_path)
    ids = {"bos_token_id": tokenizer.start, "eos_token_id": tokenizer.document_end, "pad_token_id": tokenizer.pad}
    ids |= {} if tokenizer.mask is None else {"mask_token_id": tokenizer.mask}
    if loaded.shape["head"] == "seq2seq":
        ids |= {"decoder_start_token_id": tokenizer.decoder_start, "eos_token_id": tokenizer.end}
        tokenizer = tokenizer.closing()
    left_out = save_huggingface(loaded.model, folder, **ids)
    tokenizer.save(folder / "tokenizer.json")
    names = {f"{role}_token": tokenizer.inner.id_to_token(ids[f"{role}_token_id"]) for role in ("bos", "eos", "pad")}
    # without a class AutoTokenizer would take the architecture's own
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    if left_out:
        print(f"not in the folder: {', '.join(left_out)}", file=sys.stderr)


def describe_use(loaded: "LoadedRun") -> dict[str, str]:
    """What a user of the model must know; a model of images takes (pixels / 255 - mean) / std."""
    name, data = {"model": loaded.config.model.name}, loaded.config.data
    if loaded.scale is not None:  # a number is output * std + mean
        name |= {"target_mean": str(loaded.scale[0]), "target_std": str(loaded.scale[1])}
    if data.modality == "text":
        return name | {key: str(value) for key, value in loaded.shape.items()}
    return {
        **name,
        "classes": json.dumps(list(loaded.classes)),
        "image_size": json.dumps(list(loaded.shape["image_size"])),
        "channels": str(loaded.shape["channels"]),
        "mean": json.dumps(list(data.mean)),
        "std": json.dumps(list(data.std)),
        "resize": "bilinear with antialiasing, of the largest central box of that aspect ratio",
    }
