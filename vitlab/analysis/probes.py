"""Probes: how well classes can be read off frozen features. Each is a function of `RUNS` and a YAML of configs/probe/.

`run(train, test, config, progress=None) -> dict`, which a user's own module has, gives accuracies on the test features
by the name of their column in results.csv. None stands for one that these training features are too few for.
`NAME@DATA` reads the classes of other data off the features, at the image size and channels of the model's:
`fewshot_5@digits`.

Shapes: N images, or N training and M test images, D width of the features, C classes.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.config import UserError, compose, load, parse_override, resolved
from vitlab.config.schema import RecipeConfig, TrainConfig
from vitlab.config.schema.fields import Choice
from vitlab.data.augment.rand_augment import BILINEAR, v2
from vitlab.data.base import Show, Split
from vitlab.data.loader import eval_loader
from vitlab.data.opening import open_data
from vitlab.data.split import subset
from vitlab.models.base import before_head, evaluating
from vitlab.registry import implementation
from vitlab.tasks import build
from vitlab.tasks.base import Task


@dataclass(frozen=True)
class Features:
    """The features x float32 (N, D) of images, and their labels int64 (N,), both on the CPU."""

    x: Tensor
    labels: Tensor


def extract(
    model: nn.Module,
    split: Split,
    prepare: Callable[[Any], tuple[Tensor, Tensor]],
    *,
    indices: np.ndarray | None = None,
    batch_size: int = 256,
    workers: int = 0,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Features:
    """Extract the features of a split's images, of all or at `indices`, in order.

    `prepare` turns a loader's batch into the model's inputs and labels. The model runs in eval mode on its device;
    progress(done, total) is called after each batch. Raises UserError as `extract_features` does, for targets that
    are not one class of each image, and for features that are not finite.
    """
    features, device = before_head(model), next(model.parameters()).device
    total = len(split) if indices is None else len(indices)
    x, labels, done = torch.empty(0, 0), torch.empty(total, dtype=torch.int64), 0
    with evaluating(model):
        for batch in eval_loader(split, indices=indices, batch_size=batch_size, workers=workers):
            images, batch_labels = prepare([part.to(device) for part in batch])
            if batch_labels.ndim != 1 or batch_labels.is_floating_point():
                raise UserError("a probe needs one class of each image, and these have other targets")
            with torch.inference_mode():
                rows = features(images).float().cpu()
            if not done:
                x = torch.empty(total, rows.shape[1])
            x[done : done + len(rows)], labels[done : done + len(rows)] = rows, batch_labels.cpu()
            done += len(rows)
            progress(done, total)
    if not x.isfinite().all():
        raise UserError("the model's features of these images are not finite; check data.mean and data.std")
    return Features(x, labels)


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Compute the share of labels (M,) that were predicted."""
    return (predicted == labels).double().mean().item()


def measure(
    model: nn.Module,
    task: Task,
    chosen: Sequence[str],
    indices: np.ndarray,
    workers: int = 0,
    progress: Show = lambda *_: None,
    around: Callable[[str], AbstractContextManager] = nullcontext,
) -> dict[str, float | None]:
    """Measure the chosen probes' numbers, tested on all held-out images.

    They train on the training images at `indices`; a probe of other data trains on all its training images. Each is
    done within `around(NAME)`. Raises UserError for other data whose images the model does not take.
    """
    numbers: dict[str, float | None] = {}

    def read(other: str) -> tuple[Features, Features]:
        seen, rows = (open_task(other, task), None) if other else (task, indices)
        of_train, of_test = (partial(progress, f"features of {part} images") for part in ("training", "held-out"))
        train = extract(model, seen.train, seen.prepare, indices=rows, workers=workers, progress=of_train)
        return train, extract(model, seen.test, seen.prepare, workers=workers, progress=of_test)

    for other in dict.fromkeys(name.partition("@")[2] for name in chosen):
        features = None
        for whole, (name, _, data) in ((name, name.partition("@")) for name in chosen):
            if data == other:
                with around(whole):
                    features, config = features or read(other), load("probe", name)
                    found = find_run(config)(*features, config, progress)
                    numbers |= {f"{key}@{other}" if other else key: value for key, value in found.items()}
    return numbers


def find_run(config: Choice) -> Callable[..., dict[str, float | None]]:
    """Find the function of a probe. Raises UserError for a module that does not exist or has no `run`."""
    return RUNS.get(config.kind) or implementation("vitlab.analysis.probes", config.kind, "run").run


def open_task(name: str, like: Task) -> Task:
    """Build the classification task of other data, at the image size of the task `like`."""
    config = load("data", {"name": name, "image_size": list(like.shape["image_size"])})
    data = open_data(config)
    if data.shape["channels"] != like.shape["channels"]:
        wanted = like.shape["channels"]
        raise UserError(f"probes=[...@{name}]: has {data.shape['channels']} channels, but the model takes {wanted}")
    return build(load("task", "classification"), recipe=RecipeConfig(), data=data, data_config=config)


def rotate(v2: Any, images: Tensor, degrees: float) -> Tensor:
    """Rotate each picture on the median of its edges."""
    edges = torch.cat([images[..., 0, :], images[..., -1, :], images[..., 0], images[..., -1]], dim=-1)
    ground = edges.float().median(dim=-1).values[..., None, None]
    return (v2.rotate(images - ground, degrees, BILINEAR) + ground).round().clamp(0, 255).to(torch.uint8)


SHIFTS: dict[str, Callable[[Any, Tensor, float], Tensor]] = {  # of pictures uint8 (B, C, Y, X), with torchvision's v2
    "rotate": rotate,
    "brightness": lambda v2, images, by: v2.adjust_brightness(images, by),  # a factor
    "contrast": lambda v2, images, by: v2.adjust_contrast(images, by),
    "blur": lambda v2, images, by: v2.gaussian_blur(images, 2 * math.ceil(2 * by) + 1, by),  # sigma in pixels
}


@dataclass(frozen=True, eq=False)
class Shifted:
    """A reader of pictures that changes them, an entry of SHIFTS after another."""

    read: Callable[[np.ndarray], np.ndarray]
    shifts: tuple[tuple[str, float], ...]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        images = torch.from_numpy(self.read(indices))
        for name, by in self.shifts:
            images = SHIFTS[name](v2(), images, by)
        return images.numpy()


def open_shifted(config: TrainConfig, like: Task, entry: str, tokenizer: str | None = None) -> Task:
    """Open the test data of an entry of `eval_on` as the run reads its own: `digits`, `glyphs@rotate=30@noise=0.3`.

    A change is one of SHIFTS, else a key of the data. Raises UserError for data with other classes or channels.
    """
    (name, *changes), own, shifts = entry.split("@"), resolved(config), []
    base = {key: own[key] for key in ("model", "recipe")} | {"task": {**own["task"], "metric": None}}
    base["data"] = own["data"] if config.data.name == name else name
    pairs: list[Any] = [(f"data.{key}", own["data"][key]) for key in ("mean", "std", "length") if key in own["data"]]
    pairs += [("data.image_size", list(size))] if (size := like.shape.get("image_size")) else []
    pairs += [("data.tokenizer", tokenizer)] if tokenizer else []
    try:
        for change in changes:
            key, value = parse_override(change)
            if key not in SHIFTS or config.data.modality == "text":
                pairs.append((f"data.{key}", value))
            elif isinstance(value, int | float) and (value > 0 or key == "rotate"):
                shifts.append((key, float(value)))
            else:
                raise UserError(f"{change}: expected a number{' above 0' * (key != 'rotate')}")
        data_config = compose(TrainConfig, pairs, base).data
        data = open_data(data_config)
        task = build(config.task, recipe=config.recipe, data=data, data_config=data_config)
    except UserError as error:
        raise UserError(f"eval_on={entry}: {line}" for line in error.problems) from None
    if (task.of, *task.classes) != (like.of, *like.classes):
        what = "classes" if task.of == like.of else f"targets ({task.of}, not {like.of})"
        raise UserError(
            f"eval_on={entry}: has other {what} than data={config.data.name}; give data with the same {what[:7]}"
        )
    if task.shape.get("channels") != like.shape.get("channels"):
        raise UserError(
            f"eval_on={entry}: has {task.shape['channels']} channels, the model takes {like.shape['channels']}"
        )
    task.scale = like.scale  # numbers stay standardised by the run's own training targets
    task.test = replace(task.test, read=Shifted(task.test.read, tuple(shifts))) if shifts else task.test
    return task


BIAS = 100.0  # so large that the bias is hardly regularised
LEAST_STD = 1e-5


def run_fewshot(
    train: Features, test: Features, config: Choice, progress: Show = lambda *_: None
) -> dict[str, float | None]:
    """Return `fewshot_<shots>`: few-shot linear accuracy, the mean over `config.seeds` draws of the training images.

    In closed form, as in Dosovitskiy et al., 2021, figure 4, defined by big_vision: of each class as many images as
    there are shots, whitened with their own mean and deviation, a large constant added for the bias; ridge regression
    on targets of +-1; the class of the largest output.
    None where a class of the training set has fewer images than that.
    """
    classes, counts = train.labels.unique(return_counts=True)
    numbers: dict[str, float | None] = dict.fromkeys(f"fewshot_{shots}" for shots in config.shots)
    possible = [shots for shots in config.shots if shots <= counts.min()]
    x_MD = test.x.double()
    for done, shots in enumerate(possible):
        accuracies = []
        for seed in range(config.seeds):
            generator = np.random.default_rng(seed)  # more shots of a seed contain the fewer
            members = ((train.labels == label).nonzero()[:, 0].numpy() for label in classes)
            rows = torch.from_numpy(np.concatenate([generator.permutation(some)[:shots] for some in members]))
            signs_NC = (train.labels[rows][:, None] == classes).double() * 2 - 1  # 1 for an image's class
            weights_DC, bias_C = ridge(train.x[rows].double(), signs_NC, config.l2)
            predicted = classes[(x_MD @ weights_DC + bias_C).argmax(dim=1)]
            accuracies.append(accuracy(predicted, test.labels))
        numbers[f"fewshot_{shots}"] = sum(accuracies) / len(accuracies)
        progress("few-shot", done + 1, len(possible))
    return numbers


def ridge(x_ND: Tensor, y_NC: Tensor, l2: float) -> tuple[Tensor, Tensor]:
    """Fit a ridge regression on whitened features; return its weights (D, C) and bias (C,) for unwhitened ones.

    w = (z^T z + l2)^-1 z^T y, or with fewer images than features z^T (z z^T + l2)^-1 y, which is the same.
    """
    mean, std = x_ND.mean(dim=0), x_ND.std(dim=0, correction=0) + LEAST_STD
    z = torch.cat([(x_ND - mean) / std, x_ND.new_full((len(x_ND), 1), BIAS)], dim=1)
    images, width = z.shape
    damping = l2 * torch.eye(min(images, width), dtype=z.dtype)
    if images < width:
        w = z.T @ torch.linalg.solve(z @ z.T + damping, y_NC)
    else:
        w = torch.linalg.solve(z.T @ z + damping, z.T @ y_NC)
    weights = w[:-1] / std[:, None]
    return weights, BIAS * w[-1] - mean @ weights


SIMILARITIES = 2**25  # in memory at a time, as far as whole test images allow


def run_knn(train: Features, test: Features, config: Choice, progress: Show = lambda *_: None) -> dict[str, float]:
    """Return `knn`: test accuracy of the `config.k` nearest training images' votes, each exp(similarity / temperature).

    By cosine similarity (Wu et al., 2018; Caron et al., 2021, DINO).
    """
    classes, places = train.labels.unique(return_inverse=True)
    x_DN = F.normalize(train.x, dim=1).T
    predicted: list[Tensor] = []
    for x_BD in test.x.split(max(1, SIMILARITIES // len(train.x))):
        similarity, nearest = (F.normalize(x_BD, dim=1) @ x_DN).topk(min(config.k, len(train.x)), dim=1)
        votes = torch.zeros(len(x_BD), len(classes))
        # a softmax: the same votes for each image but for their sum, and no overflow
        votes.scatter_add_(1, places[nearest], (similarity / config.temperature).softmax(dim=1))
        predicted.append(classes[votes.argmax(dim=1)])
        progress("nearest neighbours", sum(map(len, predicted)), len(test.x))
    return {"knn": accuracy(torch.cat(predicted), test.labels)}


HELD_OUT = 0.2  # of the training images, to choose the regularisation on


def run_linear(
    train: Features, test: Features, config: Choice, progress: Show = lambda *_: None
) -> dict[str, float | None]:
    """Return `linear_probe`: test accuracy of logistic regression on standardized features, by L-BFGS.

    It is fitted to all training images with the best of `config.strengths`, the inverse of the regularisation
    (scikit-learn's C): that with the highest accuracy, of equal ones the lowest loss, on the part of the training
    images that was held out. None with fewer than two classes. It draws no random number.
    """
    x, labels = train.x.numpy(), train.labels.numpy()
    classes = np.unique(labels)
    if len(classes) < 2:
        return {"linear_probe": None}
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fit(x: np.ndarray, labels: np.ndarray, strength: float) -> Any:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=config.steps))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # `steps` is a limit that the YAML states
            return model.fit(x, labels)

    chosen = config.strengths[len(config.strengths) // 2]
    fitted = np.zeros(len(labels), dtype=bool)
    fitted[subset(labels, max(len(classes), round((1 - HELD_OUT) * len(labels))), seed=0)] = True
    if not fitted.all():
        scores = []
        for done, strength in enumerate(config.strengths):
            model = fit(x[fitted], labels[fitted], strength)
            loss = log_loss(labels[~fitted], model.predict_proba(x[~fitted]), labels=classes)
            scores.append((model.score(x[~fitted], labels[~fitted]), -loss))
            progress("linear probe", done + 1, len(config.strengths) + 1)
        chosen = config.strengths[scores.index(max(scores))]
    measured = fit(x, labels, chosen).score(test.x.numpy(), test.labels.numpy())
    progress("linear probe", len(config.strengths) + 1, len(config.strengths) + 1)
    return {"linear_probe": float(measured)}


RUNS = {"fewshot": run_fewshot, "knn": run_knn, "linear": run_linear}
