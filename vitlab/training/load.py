"""Load trained weights from timm, runs, files and Hugging Face folders, and models with such weights.

Nothing is unpickled.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from timm.models import load_state_dict
from torch import Tensor, nn

from vitlab import models, tasks
from vitlab.config import TrainConfig, UserError, change, compose, first_line
from vitlab.config.schema.models import is_folder
from vitlab.data.opening import open_data
from vitlab.data.text.tokenization import from_file
from vitlab.files import check_regular, read_json
from vitlab.formatting import cut_names
from vitlab.models import counting
from vitlab.models.encoder import TransformerEncoder
from vitlab.models.encoder_decoder import Captioner
from vitlab.models.huggingface import read_huggingface, rename_from_huggingface
from vitlab.models.layers import merge_low_rank
from vitlab.models.timm_adapter import create_pretrained, name_source, pretrained_cfg, read_cfg
from vitlab.models.weights import LoadReport, Weights, check_options, describe_weights, load_into, options_of, unwrap
from vitlab.tasks.base import Task
from vitlab.tasks.metrics import IMAGES
from vitlab.training.files import RunFiles, source_problems
from vitlab.training.finished import (
    LoadedRun,
    evaluation_accelerator,
    load_run,
    place_run,
    read_checkpoint,
    restore_shape,
)
from vitlab.training.settings import evaluation_context


def load_weights(
    model: nn.Module,
    source: str | Path | Mapping[str, Tensor],
    *,
    head: str = "auto",
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> LoadReport:
    """Load weights into a model, in place; report the resized, new, missing and unused weights.

    source: `timm:NAME`, a run's folder, a Hugging Face folder with a ViT, BERT, GPT-2 or T5, a file
    (.safetensors; .pt, .pth, .bin or .ckpt, read without unpickling), or a state dict in this project's or timm's
    names. `head` and `classes` (the names of the model's classes) decide about the classifier, see
    `vitlab.models.weights.load_into`. `mean` and `std` normalise the model's images: the report says if timm trained
    its weights with others. Raises UserError, and leaves the model unchanged, for weights of another model.
    """
    if not isinstance(source, (str, Path, Mapping)) or source == "":
        raise UserError(f"source: {type(source).__name__}: give timm:NAME, a run's folder, a file, or a state dict")
    weights = Weights(source, "state dict") if isinstance(source, Mapping) else read_weights(str(source))
    report = load_into(model, weights, head, classes)
    if None not in (mean, std, weights.mean, weights.std):
        pairs = ((mean, weights.mean), (std, weights.std))  # one value stands for all channels
        fit_together = all(1 in (len(one), len(other)) or len(one) == len(other) for one, other in pairs)
        if not (fit_together and all(np.allclose(*pair, rtol=0, atol=1e-3) for pair in pairs)):
            lists = (weights.mean, weights.std, mean, std)
            shown = [f"[{','.join(format(value, 'g') for value in values)}]" for values in lists]
            text = "these weights were trained with data.mean={} data.std={}, here they are {} and {}"
            report.advice += ("; " if report.advice else "") + text.format(*shown)
    return report


def load_encoder(model: nn.Module, source: str | Path) -> LoadReport:
    """Load a source's transformer encoder into a model's encoder, in place; each may read images or text.

    A captioner takes all of a ViT but its head. The rest of the model stays unchanged. The norms may have another
    epsilon, as between image and text models; the report says so. Raises UserError, and leaves the model unchanged, if
    either has no encoder or their sizes differ.
    """
    weights = read_weights(str(source))
    state = {}
    if isinstance(model, Captioner):
        name, encoder = "image", model.image
        of_vit = {key.removeprefix("image."): value for key, value in weights.state.items()}
        state = {key: value for key, value in of_vit.items() if not key.startswith(("decoder.", "bridge.", "output."))}
    if "patch_embed.proj.weight" not in state:
        name, encoder, state = find_encoder(model, weights.state, source)
    options, advice = options_of(model), weights.advice
    epsilons = weights.options.get("norm_eps"), options["norm_eps"]
    if epsilons[0] not in (None, epsilons[1]):
        advice = f"its norms have model.norm_eps={epsilons[0]}, here it is {epsilons[1]}"
    place = "model.encoder" if name == "image" else "model"  # a captioner's own options are those of its decoder
    named = replace(weights, state=state, advice=advice, label="init.encoder", place=place)
    check_options({key: options[key] for key in ("heads", "mixer", "mlp") if key in options}, named, with_head=False)
    report = load_into(encoder, replace(named, options={}), head="keep")
    report.loaded = [f"{name}.{key}" for key in report.loaded]
    return report


def find_encoder(
    model: nn.Module, state: Mapping[str, Tensor], source: str | Path
) -> tuple[str, nn.Module, dict[str, Tensor]]:
    """Return a model's first encoder: its name, the module, the source's weights for it. Raises UserError if none."""
    name, encoder = next(((n, m) for n, m in model.named_modules() if isinstance(m, TransformerEncoder)), ("", None))
    if encoder is None:
        raise UserError(f"init.encoder={source}: {type(model).__name__} has no transformer encoder")
    firsts = (key for key in state if "blocks.0.norm1." in key and not key.startswith("decoder."))
    prefix = next((key.partition("blocks.0.")[0] for key in firsts), None)
    if prefix is None:
        raise UserError(f"init.encoder={source}: does not contain a transformer encoder")
    parts = tuple(f"{prefix}{part}." for part in ("blocks", "norm"))
    inside = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(parts)}
    return name, encoder, {key.replace(".attn.", ".mixer."): value for key, value in inside.items()}


def initialise(model: nn.Module, config: TrainConfig, classes: Sequence[str]) -> LoadReport:
    """Load the initial weights named in a run's configuration. Raises UserError."""
    if config.init.weights is None:
        return load_encoder(model, config.init.encoder)
    mean, std = (vars(config.data).get(key) for key in ("mean", "std"))
    return load_weights(model, config.init.weights, head=config.init.head, classes=classes, mean=mean, std=std)


def refuse_tokenizer(files: RunFiles, tokenizer: Any, problem: str) -> None:
    """Raise UserError with `problem` if a run has another tokenizer than `tokenizer`, a data set's (None: of images).

    Weights would load from a run with another tokenizer of the same size, but every token would mean something else.
    """
    path = files.tokenizer_path
    if tokenizer is not None and path.is_file() and from_file(path).inner.to_str() != tokenizer.inner.to_str():
        raise UserError(problem)


def fingerprint(source: str) -> str | None:
    """Compute the SHA-256 of a source's weights file; None for timm's weights and for a missing file."""
    paths = [RunFiles(source).weights_path, Path(source) / "model.safetensors", Path(source)]
    path = next((path for path in paths if path.is_file()), paths[-1])
    if source.startswith("timm:") or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_weights(source: str) -> Weights:
    """Read the weights at `timm:NAME`, in a folder or in a file. Raises UserError."""
    if source.startswith("timm:"):
        model = create_pretrained(source.removeprefix("timm:"), f"init={source}", "a file of weights or a run's folder")
        cfg = model.pretrained_cfg
        return describe_weights(model, model.state_dict(), source, mean=cfg.get("mean"), std=cfg.get("std"))
    problems = list(source_problems(source))
    if problems:
        raise UserError(problems)
    path = Path(source)
    if path.is_dir() and not RunFiles(source).checkpoint_path.is_file():
        if "architecture" not in read_json(path / "config.json"):
            return read_huggingface(source)[1]
        if not (path / "model.safetensors").is_file():  # of timm
            raise UserError(f"init={path}: no such file; write the weights as one file, or give init=FILE")
        cfg, classes = read_cfg(path)
        known = {"mean": cfg.mean, "std": cfg.std, "classes": classes}
        return replace(read_weights(str(path / "model.safetensors")), **known)
    if path.is_dir():
        config = compose(TrainConfig, base={**RunFiles(source).config(), "analyses": []})  # their files may be gone
        state = read_checkpoint(RunFiles(source).weights_path)
        model, own = counting.meta(config.model, **restore_shape(state)), merge_low_rank(unwrap(state["state_dict"])[0])
        return describe_weights(model, own, source, classes=tuple(state["classes"]), config=config.model)
    check_regular(path, f"init={path}")
    try:
        content = load_state_dict(str(path), weights_only=True)  # timm's: the averaged weights where there are any
    except (SafetensorError, OSError) as error:
        raise UserError(f"init={path}: cannot read the file ({first_line(error)})") from error
    except Exception as error:  # torch raises many kinds, and advises to trust the file
        raise UserError(
            f"init={path}: damaged, or needs unpickling; copy it again, or save it as .safetensors"
        ) from error
    state, left_out = unwrap(content, str(path))
    state = {name.replace("register_tokens", "reg_token"): value for name, value in state.items()}  # DINOv2's own
    if not state:
        raise UserError(
            f"init={path}: contains no weights but {cut_names([*map(str, content)], 6) or 'nothing'}; save the weights "
            "among them as a file: torch.save(torch.load(FILE)[KEY], 'weights.pth')"
        )
    renamed = rename_from_huggingface(state, f"init={path}")
    if renamed is state:
        return Weights(state, str(path), advice=left_out)
    if is_folder(path.parent):
        return read_huggingface(path.parent, state, str(path))[1]
    advice = "without the config.json beside it nobody knows its number of heads and its epsilon: compare them yourself"
    return Weights(renamed, str(path), advice=advice)


def refuse_other_source(source: str | None, files: RunFiles) -> None:
    """Raise UserError if the initial weights of a folder's run have changed since it began."""
    before = source and (files.init() or {}).get("sha256")
    if before and fingerprint(source) not in (None, before):
        raise UserError(
            f"init={source}: has changed since {files.folder} began with it; give another --out, or delete that folder"
        )


@dataclass(frozen=True)
class Subject:
    """Hold a model to evaluate or analyze, in eval mode on a GPU if there is one, with its data and their task."""

    name: str
    model: nn.Module
    autocast: AbstractContextManager  # the precision of its training
    data: Any  # as `vitlab.data.load` gives it
    task: Task
    step: int
    folder: Path  # of its analyses
    mismatch: str  # why the model's outputs are not the data's classes; "" if they are


def load_subject(source: str, config: TrainConfig, changed: Set[str]) -> Subject:
    """Load a run's folder, `timm:NAME[=FILE]` or a Hugging Face folder, and the data; `changed` are the user's keys.

    Keeps a run's precision and memory format. Loads another model in float32, at its own image size, a timm model with
    its own normalisation, unless the user gave others; a model of images with its own head, or none for other answers.
    Raises UserError, also if the model does not take the data's shape.
    """
    files, is_timm, described = RunFiles(source), source.startswith("timm:"), {}
    is_run, cfg, named = not is_timm and files.config_path.is_file(), None, None
    if is_run:
        loaded, size = load_run(source), None
    elif is_timm or config.model.kind == "timm":
        cfg, named = (pretrained_cfg(config.model.timm_name), None) if is_timm else read_cfg(source)
        size = cfg and cfg.input_size[1:]
        described = {} if is_timm else {"num_classes": cfg.num_classes}
    else:
        found, weights = read_huggingface(source)
        described, named = models.described_shape(found), weights.classes
        size = described.get("image_size")
    if size and "data.image_size" not in changed:
        config = change(config, {"data.image_size": list(size)})
    data = open_data(config.data)
    if cfg is not None and data.channels == 3 and not changed & {"data.mean", "data.std"}:
        config = change(config, {"data.mean": list(cfg.mean), "data.std": list(cfg.std)})
    if is_run:
        refuse_misfit(loaded, data)
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    if is_run:
        if loaded.scale is not None:  # the model's numbers are standardised by its own training data, not by these
            task.scale = loaded.scale
        name, folder = files.folder.resolve().name, files.analysis_folder / "trained"  # those of its training lie above
        return Subject(
            name, *place_run(loaded), data, task, loaded.result["steps"], folder, compare_classes(loaded, data)
        )
    if is_timm:
        counting.flops(counting.meta(config.model, **task.shape), task.shape)  # raises UserError for an unfit image
    name = name_source(source) if is_timm else Path(source).resolve().name
    if is_timm:
        trained = cfg is not None and config.model.pretrained
        fits = trained and cfg.num_classes == len(data.classes)
        own = {"num_classes": cfg.num_classes if task.of == IMAGES else 0} if trained and not fits else {}
        try:  # its own head: a new one would be random, and analyses of its answers would be about that
            model = models.build(config.model, **{**task.shape, **own})
        except UserError:
            if not own:
                raise
            model = models.build(config.model, **{**task.shape, "num_classes": 0})  # the file has another head or none
    else:
        for number in ({}, {"num_classes": described.get("num_classes")}, {"num_classes": 0}):
            model = models.build(config.model, **{**task.shape, **number})
            report = initialise(model, config, task.classes)
            if not report.new or "num_classes" not in described:
                break
        print(report, file=sys.stderr)
        fits = not task.classes or (tuple(named or ()) == tuple(task.classes) and not report.new)
    device, autocast = evaluation_context("32-true", evaluation_accelerator(config))
    folder = Path("runs") / name.replace(":", "-").replace("/", "-") / "analysis"
    mismatch = "" if fits else f"{name} was not trained on the classes of {data.name}"
    return Subject(name, model.eval().to(device), autocast, data, task, 0, folder, mismatch)


def refuse_misfit(run: LoadedRun, data: Any) -> None:
    """Raise UserError unless a run's model takes these data: images of its size, or texts no longer than its own."""
    unfit = {key: value for key, value in data.shape.items() if value != run.shape.get(key, value)}
    if unfit.get("length", 0) < run.shape.get("length", 0):
        unfit.pop("length", None)
    if unfit:
        raise UserError(misfit(data, key, value, run.shape[key]) for key, value in unfit.items())


def compare_classes(run: LoadedRun, data: Any) -> str:
    """Describe in a line how the data's classes differ from the run's; "" if they agree or the run has none."""
    if not run.classes:
        return ""
    if len(data.classes) != len(run.classes):
        return misfit(data, "num_classes", len(data.classes), len(run.classes))
    for ours, other in zip(run.classes, data.classes, strict=True):
        if ours != other:
            return f"data={data.name}: has other classes than the run's data, '{other}' instead of '{ours}'"
    return ""


def misfit(data: Any, key: str, value: object, wanted: object) -> str:
    value, wanted = (list(v) if isinstance(v, tuple) else v for v in (value, wanted))
    return f"data={data.name}: has {key}={value}, but the run's model was trained with {wanted}"
