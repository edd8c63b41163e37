"""Where weights come from: timm and its hub cache, runs of this project, files. Nothing is unpickled."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import timm
import torch
from omegaconf import DictConfig
from safetensors import SafetensorError
from timm.models import clean_state_dict, load_state_dict
from torch import Tensor, nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from vitlab.config import TrainConfig, UserError, compose, first_line
from vitlab.data.text.tokenization import from_file
from vitlab.models import count
from vitlab.models.encoder import TransformerEncoder
from vitlab.models.timm_adapter import pretrained_cfg
from vitlab.models.weights.huggingface import read_huggingface
from vitlab.models.weights.load import LoadReport, Weights, fit
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
    """Load weights into a model, in place; the report says what was resized, begun anew, missing or not used.

    source: `timm:NAME`, a run's folder, a folder of Hugging Face's with a BERT or GPT-2, a file (.safetensors; .pt,
    .pth, .bin or .ckpt read without unpickling), or a state dict, in this project's or timm's names. `head` is what
    becomes of the classifier, `classes` are the names of the model's (`models.weights.load.fit`), `mean` and `std`
    what its images are normalised by: where timm's weights were trained with others, the report says so. Raises
    UserError, the model unchanged.
    """
    if not isinstance(source, (str, Path, Mapping)) or source == "":
        raise UserError(f"source: {type(source).__name__}: give timm:NAME, a run's folder, a file, or a state dict")
    weights = Weights(source, "state dict") if isinstance(source, Mapping) else read_weights(str(source))
    report = fit(model, weights, head, classes)
    known = None not in (mean, std, weights.mean, weights.std)
    if known and not (same_colours(mean, weights.mean) and same_colours(std, weights.std)):
        report.advice = (
            f"these weights were trained with data.mean={listed(weights.mean)} data.std={listed(weights.std)}, here "
            f"they are {listed(mean)} and {listed(std)}"
        )
    return report


def load_encoder(model: nn.Module, source: str | Path) -> LoadReport:
    """Load the weights of a source's transformer encoder into a model's, in place: of images, text or timm's.

    Whatever is before and after the encoder stays as it is. Raises UserError where either has none, or another size;
    the model is unchanged then.
    """
    name, encoder = next(((n, m) for n, m in model.named_modules() if isinstance(m, TransformerEncoder)), ("", None))
    if encoder is None:
        raise UserError(f"init.encoder={source}: {type(model).__name__} has no transformer encoder to load it into")
    state = read_weights(str(source)).state
    prefix = next((key.partition("blocks.0.")[0] for key in state if "blocks.0.norm1." in key), None)
    if prefix is None:
        raise UserError(f"init.encoder={source}: holds no transformer encoder")
    parts = tuple(f"{prefix}{part}." for part in ("blocks", "norm"))
    found = {
        key.removeprefix(prefix).replace(".attn.", ".mixer."): v for key, v in state.items() if key.startswith(parts)
    }
    try:
        report = fit(encoder, Weights(found, str(source)), head="keep")
    except UserError as error:
        raise UserError(line.replace("init=", "init.encoder=", 1) for line in error.problems) from error
    for what in ("loaded", "missing"):
        setattr(report, what, [f"{name}.{key}" for key in getattr(report, what)])
    return report


def initialise(model: nn.Module, config: DictConfig, classes: Sequence[str]) -> LoadReport:
    """Load the first weights that a run's configuration names. Raises UserError."""
    if config.init.weights is None:
        return load_encoder(model, config.init.encoder)
    return load_weights(
        model,
        config.init.weights,
        head=config.init.head,
        classes=classes,
        mean=listed_of(config.data, "mean"),
        std=listed_of(config.data, "std"),
    )


def refuse_tokenizer(source: str, tokenizer: Any) -> None:
    """Raise UserError where a run that is a source had another tokenizer than a data set (None: of images).

    Two of one size would fit each other's weights, and every token would mean another one.
    """
    path = RunFiles(source).tokenizer_path
    if tokenizer is None or not path.is_file():
        return
    if not from_file(path).same_as(tokenizer):
        raise UserError(f"init={source}: was trained with another tokenizer; give data.tokenizer={source}")


def listed_of(data: DictConfig, key: str) -> list[float] | None:
    """A mean or a deviation of images; None for other data."""
    return list(data[key]) if key in data else None


def same_colours(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two means, or deviations, are the same; one value stands for all channels."""
    comparable = 1 in (len(one), len(other)) or len(one) == len(other)
    return comparable and torch.allclose(torch.tensor(one), torch.tensor(other), rtol=0, atol=1e-3)


def listed(values: Sequence[float]) -> str:
    """As the command line takes it."""
    return f"[{','.join(format(value, 'g') for value in values)}]"


def fingerprint(source: str) -> str | None:
    """SHA-256 of the file that a source is, of a folder its weights'; None for timm's, and for one that is gone."""
    paths = [RunFiles(source).checkpoint_path, Path(source) / "model.safetensors", Path(source)]
    path = next((path for path in paths if path.is_file()), paths[-1])
    if source.startswith("timm:") or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_weights(source: str) -> Weights:
    """The weights at `timm:NAME`, in a run's folder or in a file. Raises UserError."""
    if source.startswith("timm:"):
        return of_timm(source)
    problems = list(source_problems(source))
    if problems:
        raise UserError(problems)
    if not Path(source).is_dir():
        return of_file(Path(source))
    return of_run(source) if RunFiles(source).checkpoint_path.is_file() else read_huggingface(source)[1]


def of_timm(source: str) -> Weights:
    name = source.removeprefix("timm:")
    pretrained_cfg(name)  # a name that timm has not is answered with the nearest
    try:
        model = timm.create_model(name, pretrained=True)
    except Exception as error:  # the hub's client raises many kinds
        raise UserError(
            f"init={source}: cannot get its weights ({first_line(error)}); without a network they must be in the hub's "
            "cache ($HF_HOME), or give a file of weights"
        ) from error
    grid_size = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    cfg = model.pretrained_cfg
    return Weights(model.state_dict(), source, grid_size and tuple(grid_size), mean=cfg.get("mean"), std=cfg.get("std"))


def of_run(source: str) -> Weights:
    config = compose(TrainConfig, base=RunFiles(source).config())
    state = checkpoint.read(RunFiles(source).checkpoint_path)
    model = count.meta(config.model, **checkpoint.shape_of(state))
    grid_size = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    return Weights(tensors(state["state_dict"]), source, grid_size, tuple(state["classes"]))


def of_file(path: Path) -> Weights:
    try:
        found = load_state_dict(str(path), weights_only=True)  # timm's: the averaged weights where there are such
    except (SafetensorError, OSError) as error:
        raise UserError(f"init={path}: cannot read the file ({first_line(error)})") from error
    except Exception as error:  # torch raises many kinds for a damaged or a refused file, and advises to trust it
        raise UserError(
            f"init={path}: not a file of weights that can be read without unpickling; save it as .safetensors"
        ) from error
    state = tensors(found)
    if not state:
        raise UserError(f"init={path}: holds no weights")
    return Weights(state, str(path))


def tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The parameters of a state dict, without the prefixes of Lightning, torch.compile and parallel training."""
    kept = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    consume_prefix_in_state_dict_if_present(kept, "model.")
    return clean_state_dict(kept)
