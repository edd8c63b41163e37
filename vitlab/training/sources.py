"""Where weights come from: timm and its hub cache, runs, files, Hugging Face folders. Nothing is unpickled."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from timm.models import clean_state_dict, load_state_dict
from torch import Tensor, nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from vitlab.config import TrainConfig, UserError, compose, first_line, resolved
from vitlab.config.huggingface import is_folder
from vitlab.data.text.tokenization import from_file
from vitlab.models.captioner import Captioner
from vitlab.models.counting import count
from vitlab.models.encoder import TransformerEncoder
from vitlab.models.timm_adapter import create_pretrained
from vitlab.models.weights.huggingface import interpret, read_huggingface, rename_from_huggingface
from vitlab.models.weights.load import LoadReport, Weights, describe_weights, fit
from vitlab.models.weights.options import options_of
from vitlab.training import checkpoint
from vitlab.training.files import RunFiles, source_problems


def load_weights(
    model: nn.Module,
    source: str | Path | Mapping[str, Tensor],
    *,
    head: str = "auto",
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> LoadReport:
    """Load weights into a model, in place; the report says what was resized, new, missing or unused.

    source: `timm:NAME`, a run's folder, a Hugging Face folder with a ViT, BERT, GPT-2, GPT-NeoX or T5, a file
    (.safetensors; .pt, .pth, .bin or .ckpt, read without unpickling), or a state dict in this project's or timm's
    names. `head` and `classes` (the names of the model's classes) decide what happens to the classifier, see
    `vitlab.models.weights.load.fit`. `mean` and `std` normalise the model's images: the report says where timm's
    weights were trained with others. Raises UserError, with the model unchanged, for weights of another model.
    """
    if not isinstance(source, (str, Path, Mapping)) or source == "":
        raise UserError(f"source: {type(source).__name__}: give timm:NAME, a run's folder, a file, or a state dict")
    weights = Weights(source, "state dict") if isinstance(source, Mapping) else read_weights(str(source))
    report = fit(model, weights, head, classes)
    comparable = None not in (mean, std, weights.mean, weights.std)
    if comparable and not (same_colours(mean, weights.mean) and same_colours(std, weights.std)):
        report.advice = (
            f"these weights were trained with data.mean={format_list(weights.mean)} "
            f"data.std={format_list(weights.std)}, here they are {format_list(mean)} and {format_list(std)}"
        )
    return report


def load_encoder(model: nn.Module, source: str | Path) -> LoadReport:
    """Load the transformer encoder of a source into a model's, in place; both may be of images or text.

    A captioner takes all of a ViT but its head. The rest of the model stays as it is. The epsilon of its norms may be
    another one, as those of models of images and of text are; the report says so. Raises UserError, with the model
    unchanged, where either has no encoder or their sizes differ.
    """
    weights = read_weights(str(source))
    state = {}
    if isinstance(model, Captioner):
        name, encoder = "image", model.image
        of_vit = {key.removeprefix("image."): value for key, value in weights.state.items()}
        state = {key: value for key, value in of_vit.items() if not key.startswith(("decoder.", "bridge.", "output."))}
    if "patch_embed.proj.weight" not in state:
        name, encoder, state = find_encoder(model, weights.state, source)
    options = dict(weights.options)
    epsilons = options.pop("norm_eps", None), options_of(encoder)["norm_eps"]
    advice = weights.advice
    if epsilons[0] not in (None, epsilons[1]):
        advice = f"its norms have model.norm_eps={epsilons[0]}, here it is {epsilons[1]}"
    place = "model.encoder" if name == "image" else "model"  # a captioner's own options are those of its decoder
    named = replace(weights, state=state, options=options, advice=advice, label="init.encoder", place=place)
    report = fit(encoder, named, head="keep")
    report.loaded = [f"{name}.{key}" for key in report.loaded]
    return report


def find_encoder(
    model: nn.Module, state: Mapping[str, Tensor], source: str | Path
) -> tuple[str, nn.Module, dict[str, Tensor]]:
    """The first encoder of a model by its name, and that of a source in its names. Raises UserError without one."""
    name, encoder = next(((n, m) for n, m in model.named_modules() if isinstance(m, TransformerEncoder)), ("", None))
    if encoder is None:
        raise UserError(f"init.encoder={source}: {type(model).__name__} has no transformer encoder")
    firsts = (key for key in state if "blocks.0.norm1." in key and not key.startswith("decoder."))
    prefix = next((key.partition("blocks.0.")[0] for key in firsts), None)
    if prefix is None:
        raise UserError(f"init.encoder={source}: does not contain a transformer encoder")
    parts = tuple(f"{prefix}{part}." for part in ("blocks", "norm"))
    return (
        name,
        encoder,
        {
            key.removeprefix(prefix).replace(".attn.", ".mixer."): value
            for key, value in state.items()
            if key.startswith(parts)
        },
    )


def initialise(model: nn.Module, config: TrainConfig, classes: Sequence[str]) -> LoadReport:
    """Load the initial weights that a run's configuration names. Raises UserError."""
    if config.init.weights is None:
        return load_encoder(model, config.init.encoder)
    mean, std = (resolved(config.data).get(key) for key in ("mean", "std"))
    return load_weights(model, config.init.weights, head=config.init.head, classes=classes, mean=mean, std=std)


def refuse_tokenizer(source: str, tokenizer: Any) -> None:
    """Raise UserError where a source run had another tokenizer than a data set (None: of images).

    Tokenizers of the same size would fit each other's weights, with another meaning for every token.
    """
    if has_other_tokenizer(RunFiles(source), tokenizer):
        raise UserError(f"init={source}: was trained with another tokenizer; give data.tokenizer={source}")


def refuse_other_tokenizer(files: RunFiles, tokenizer: Any, data: str) -> None:
    """Raise UserError if the folder's run was trained with another tokenizer: its texts or its options changed."""
    if has_other_tokenizer(files, tokenizer):
        raise UserError(
            f"--out {files.folder}: its run was trained with another tokenizer: the texts of data={data} or "
            "data.tokenizer have changed since; give another --out, or delete that folder"
        )


def has_other_tokenizer(files: RunFiles, tokenizer: Any) -> bool:
    path = files.tokenizer_path
    return tokenizer is not None and path.is_file() and not from_file(path).same_as(tokenizer)


def same_colours(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two means, or deviations, are the same; one value stands for all channels."""
    comparable = 1 in (len(one), len(other)) or len(one) == len(other)
    return comparable and torch.allclose(torch.tensor(one), torch.tensor(other), rtol=0, atol=1e-3)


def format_list(values: Sequence[float]) -> str:
    """As the command line takes it."""
    return f"[{','.join(format(value, 'g') for value in values)}]"


def fingerprint(source: str) -> str | None:
    """SHA-256 of a source's file of weights; None for timm's and for a file that is gone."""
    paths = [RunFiles(source).weights_path, Path(source) / "model.safetensors", Path(source)]
    path = next((path for path in paths if path.is_file()), paths[-1])
    if source.startswith("timm:") or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_weights(source: str) -> Weights:
    """The weights at `timm:NAME`, in a folder or in a file. Raises UserError."""
    if source.startswith("timm:"):
        return read_timm(source)
    problems = list(source_problems(source))
    if problems:
        raise UserError(problems)
    if not Path(source).is_dir():
        return read_file(Path(source))
    return read_run(source) if RunFiles(source).checkpoint_path.is_file() else read_huggingface(source)[1]


def read_timm(source: str) -> Weights:
    model = create_pretrained(source.removeprefix("timm:"), f"init={source}", "a file of weights or a run's folder")
    cfg = model.pretrained_cfg
    return describe_weights(model, model.state_dict(), source, mean=cfg.get("mean"), std=cfg.get("std"))


def read_run(source: str) -> Weights:
    config = compose(TrainConfig, base={**RunFiles(source).config(), "analyses": []})
    state = checkpoint.read_checkpoint(RunFiles(source).weights_path)
    model = count.meta(config.model, **checkpoint.restore_shape(state))
    return describe_weights(model, clean(state["state_dict"]), source, classes=tuple(state["classes"]))


def read_file(path: Path) -> Weights:
    try:
        content = load_state_dict(str(path), weights_only=True)  # timm's: the averaged weights where there are any
    except (SafetensorError, OSError) as error:
        raise UserError(f"init={path}: cannot read the file ({first_line(error)})") from error
    except Exception as error:  # torch raises many kinds, and advises to trust the file
        raise UserError(
            f"init={path}: not a file of weights that can be read without unpickling; save it as .safetensors"
        ) from error
    state = clean(content)
    if not state:
        raise UserError(f"init={path}: contains no weights")
    renamed = rename_from_huggingface(state)
    if renamed is state:
        return Weights(state, str(path))
    if is_folder(path.parent):
        return interpret(path.parent, state, str(path))[1]
    advice = "without the config.json beside it nobody knows its number of heads and its epsilon: compare them yourself"
    return Weights(renamed, str(path), advice=advice)


def clean(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a state dict, without the prefixes of Lightning, torch.compile and parallel training."""
    tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    consume_prefix_in_state_dict_if_present(tensors, "model.")
    return clean_state_dict(tensors)


def refuse_other_source(source: str | None, files: RunFiles) -> None:
    """Raise UserError if the weights that a folder's run began with have changed since."""
    begun, now = files.init(), source and fingerprint(source)
    if begun is not None and now is not None and begun.get("sha256", now) != now:
        raise UserError(
            f"init={source}: has changed since {files.folder} began with it; give another --out, or delete that folder"
        )
