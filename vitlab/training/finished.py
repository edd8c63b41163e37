"""A finished run: its checkpoint, its model, and what these predict for new pictures and texts.

Nothing is unpickled. Imports neither lightning nor timm: importing them takes as long as all the rest of `vitlab
predict`.

Shapes: N items, L tokens, C classes or channels, Y x X pixels, D width.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from vitlab import models
from vitlab.config import TrainConfig, UserError, compose, first_line, raise_all
from vitlab.data.augment import normalize
from vitlab.data.base import Examples, Show, Split, Texts
from vitlab.data.images import decode
from vitlab.data.images.imagefolder import explain
from vitlab.data.opening import hash_data, open_data
from vitlab.data.sequences import frame_texts
from vitlab.data.text.corpus import encode_examples
from vitlab.data.text.tokenization import Tokenizer, from_file
from vitlab.files import check_regular, read_json, write_json
from vitlab.models.base import before_head
from vitlab.models.layers import merge_low_rank
from vitlab.tasks.base import BATCH
from vitlab.tasks.text_classification import find_spans, read_planes, read_spans, trim_padding
from vitlab.training.files import RETRAINED, RunFiles
from vitlab.training.settings import evaluation_context

if TYPE_CHECKING:
    import pandas as pd

KEYS = ("state_dict", "global_step", "shape", "classes", "scale")


def restore_shape(state: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by which `vitlab.models.build` builds the checkpoint's model."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in state["shape"].items()}


def read_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint without unpickling. Raises UserError for a file that is not a checkpoint."""
    check_regular(path, str(path))
    try:
        state = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        missing = [key for key in KEYS if key not in state]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        return state
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint") from None
    except Exception as error:  # torch raises many kinds for a damaged file
        reason = first_line(error).partition(". ")[0]
        raise UserError(f"{path}: not a readable checkpoint ({reason}); delete it to train again") from error


@dataclass(frozen=True)
class LoadedRun:
    """Hold a run's configuration, its trained model in eval mode on the CPU, its result, its metrics.jsonl rows.

    `shape` holds the arguments of `vitlab.models.build` for this model, `classes` the names of its classes. `scale` is
    (mean, std) of the training targets: the model predicts the number output * std + mean. `tokenizer`: of texts.
    Items are texts, or pictures: paths, Pillow's images or uint8 arrays (Y, X) or (Y, X, C); one text, path or image
    is one item. The methods raise UserError for items that cannot be read, and for runs of models that write texts.
    """

    folder: Path
    config: TrainConfig
    model: nn.Module
    shape: dict[str, Any]
    classes: tuple[str, ...]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    scale: tuple[float, float] | None = None
    tokenizer: Tokenizer | None = None

    @cached_property
    def predictor(self) -> "Predictor":
        return Predictor(self)

    def prepare(self, items: Sequence[Any]) -> tuple[Any, ...]:
        """Make the model's inputs: normalised pictures (N, C, Y, X), or tokens, mask and segments (N, L)."""
        items = list_items(items)
        errors, read = self.predictor.read(items)
        raise_all(errors.values())
        return self.predictor.inputs(torch.as_tensor(read(np.arange(len(items)))).to(self.predictor.device))

    def predict(self, items: Sequence[Any]) -> "pd.DataFrame":
        """Predict as `vitlab predict` does: a row an item with its prediction, probability and those of all classes.

        A run of numbers gives a prediction alone, one of masked tokens a row for each [MASK].
        """
        import pandas as pd  # half a second that the command `vitlab predict` need not wait for

        found = self.predictor.predict(list_items(items))
        raise_all(one.error for one in found if one.error)
        if self.predictor.is_number:
            return pd.DataFrame({"prediction": [one.number for one in found]})
        table = pd.DataFrame({"prediction": [one.ranked[0][0] for one in found]})
        table["probability"] = [one.ranked[0][1] for one in found]
        if self.predictor.fills:
            return table
        return table.join(pd.DataFrame([one.probabilities for one in found], columns=[*self.classes]))

    def embed(self, items: Sequence[Any]) -> np.ndarray:
        """Compute vectors float32 (N, D), what the head reads; of tokens their mean."""
        vectors, errors = self.predictor.embed(list_items(items))
        raise_all(errors.values())
        return vectors


def list_items(items: Any) -> Sequence[Any]:
    return [items] if isinstance(items, str | Path | Image.Image) else items


def load_run(path: str | Path) -> LoadedRun:
    """Load a finished run's folder. Raises UserError where there is none; nothing is unpickled."""
    files = RunFiles(path)
    config = compose(TrainConfig, base={**files.config(), "analyses": []})  # their files may be gone
    result = files.finished_result()
    kinds = {"steps": int, "precision": str, "settings": dict}
    if wrong := [key for key, kind in kinds.items() if not isinstance(result.get(key), kind)]:
        raise UserError(f"{files.result_path}: {', '.join(wrong)}: missing or of another type; {RETRAINED}")
    state = read_checkpoint(files.weights_path)
    shape = restore_shape(state)
    model = models.build(config.model, **shape)
    try:
        model.load_state_dict(merge_low_rank({k.removeprefix("model."): v for k, v in state["state_dict"].items()}))
    except RuntimeError as error:
        raise UserError(
            f"{files.weights_path}: does not fit this run's model ({str(error).splitlines()[0]})"
        ) from error
    tokenizer = from_file(files.tokenizer_path) if files.tokenizer_path.is_file() else None
    known = shape, tuple(state["classes"]), result, files.metrics(), state["scale"], tokenizer
    return LoadedRun(files.folder, config, model.eval(), *known)


def place_run(loaded: LoadedRun) -> tuple[nn.Module, AbstractContextManager]:
    """Move a run's model to a GPU if there is one; return the model and autocast in the precision of its training."""
    device, autocast = evaluation_context(loaded.result["precision"], evaluation_accelerator(loaded.config))
    model = loaded.model.to(device)
    if loaded.result["settings"].get("memory_format") == "channels_last":
        model.to(memory_format=torch.channels_last)
    return model, autocast


def evaluation_accelerator(config: TrainConfig) -> str:
    """Choose the accelerator to evaluate a run on: a machine without a GPU can evaluate a run trained on a GPU."""
    return "cpu" if config.trainer.accelerator == "cpu" else "auto"


OPEN = ("masked_lm", "span_lm", "span_extraction")  # tasks that find tokens or answers, not classes
KINDS = ("classification", "multilabel", "regression", "text_classification", *OPEN)
MASK, FILLED = "[MASK]", 5  # mark of an open token in a text; number of tokens, or answers, that `predict` names
SEPARATOR = "[SEP]"  # between a question and its text
FILE = "calibration.json"
CHUNK = 1024  # items decoded and predicted at a time


@dataclass(frozen=True)
class Prediction:
    """Hold one input's prediction: a probability for each class (multilabel: independent), a number, or an error."""

    input: str
    probabilities: dict[str, float] | None = None
    number: float | None = None
    error: str = ""

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """The classes with their probabilities, the most likely first."""
        return sorted((self.probabilities or {}).items(), key=lambda pair: -pair[1])


class Predictor:
    """Predicts new inputs with a finished run. Raises UserError for a task with neither classes nor a number.

    `temperature` divides the logits; if it could not be fitted, it is 1 and `not_calibrated` says why.
    """

    def __init__(self, run: LoadedRun):
        self.files, self.run, folder = RunFiles(run.folder), run, run.folder
        self.classes = self.run.classes
        kind = self.run.config.task.kind
        if kind not in KINDS:
            raise UserError(f"{folder}: is a run of task={kind}; predict is for {', '.join(KINDS)}")
        self.model, self.autocast = place_run(self.run)
        self.device = next(self.model.parameters()).device
        self.reads_text = self.run.config.data.modality == "text"
        self.several = kind == "multilabel"
        self.fills = kind in OPEN
        self.is_number = not self.fills and (kind == "regression" or not self.run.classes)
        if self.reads_text:
            self.tokenizer = run.tokenizer or from_file(self.files.tokenizer_path)
            columns, shape = vars(self.run.config.data).get("text"), self.run.shape
            both_orders = vars(self.run.config.task).get("both_orders", False)
            count = len(columns) if isinstance(columns, list) else 1 + both_orders
            if count > 1:
                raise UserError(f"{folder}: reads {count} texts at once; predict is for single ones")
            tags = shape["head"] == "tags" and not self.fills
            if tags or (self.run.classes and shape["num_classes"] != len(self.run.classes)):
                raise UserError(f"{folder}: gives no class of a whole text, so predict is not for it")

    @torch.inference_mode()
    def compute(
        self, answer: Callable[[Tensor], Tensor], read: Callable[[np.ndarray], np.ndarray], count: int
    ) -> np.ndarray:
        """Compute rows (N, ...) of `count` items; `read` reads the items like the data or `frame`."""
        rows, size = [], self.run.config.recipe.batch_size if self.reads_text else BATCH
        for first in range(0, count, size):
            items = torch.as_tensor(read(np.arange(first, min(first + size, count)))).to(self.device)
            with self.autocast:
                rows.append(answer(items).float().cpu())
        return torch.cat(rows).numpy()

    def inputs(self, items: Tensor) -> tuple[Tensor | None, ...]:
        if self.reads_text:
            return trim_padding(self.model, *read_planes(items, self.tokenizer.pad))
        data = self.run.config.data
        return (normalize(items, list(data.mean), list(data.std)),)

    def answer(self, items: Tensor) -> Tensor:
        return self.model(*self.inputs(items))

    def features(self, items: Tensor) -> Tensor:
        """Compute what the head reads (B, D); of a model with a state for each token the mean over the tokens."""
        inputs = self.inputs(items)
        found = before_head(self.model)(*inputs)
        if found.dim() < 3 or inputs[1] is None:
            return found if found.dim() < 3 else found.mean(dim=1)
        return (found * inputs[1][..., None]).sum(1) / inputs[1].sum(1, True)

    @torch.inference_mode()
    def embed(self, inputs: Sequence[str], progress: Show = lambda *_: None) -> tuple[np.ndarray, dict[int, str]]:
        """Compute vectors (N, D) of picture files or texts, NaN for unreadable; return them and errors by place."""
        if self.fills and (marked := next((text for text in inputs if MASK in text or SEPARATOR in text), None)):
            raise UserError(f"--embed: '{marked}': reads whole texts; leave out {MASK} and {SEPARATOR}")
        rows, failed = [], {}
        for start in range(0, len(inputs), CHUNK):
            chunk = inputs[start : start + CHUNK]
            errors, read = self.read(chunk)
            vectors = iter(
                self.compute(self.features, read, len(chunk) - len(errors)) if len(errors) < len(chunk) else ()
            )
            rows += [None if place in errors else next(vectors) for place in range(len(chunk))]
            failed |= {start + place: error for place, error in errors.items()}
            progress("embedding", len(rows), len(inputs))
        width = next((len(row) for row in rows if row is not None), 0)
        return np.array([np.full(width, np.nan) if row is None else row for row in rows], dtype=np.float32), failed

    def frame(self, texts: Texts) -> Split:
        return frame_texts(texts, self.tokenizer, self.run.config.data.length)

    @property
    def temperature(self) -> float:
        return self.calibration[0]

    @property
    def not_calibrated(self) -> str:
        return self.calibration[1]

    @cached_property
    def calibration(self) -> tuple[float, str]:
        """The temperature and, where it could not be fitted, why: of RUN/calibration.json, or fitted and written there.

        It is fitted on the validation data; independent classes, numbers and open tokens have none.
        """
        if self.is_number or self.several or self.fills:
            return 1.0, ""
        path = self.files.folder / FILE
        found = read_json(path, lambda document: float(document["temperature"]))
        if found is None:
            try:  # the run's data may be gone, or have changed
                data = open_data(self.run.config.data)
                self.files.refuse_other_data(data.name, hash_data(self.run.config.data, data))
            except UserError as error:
                return 1.0, error.problems[0]
            split = self.frame(data.validation) if self.reads_text else data.validation
            logits, labels = self.compute(self.answer, split.read, len(split)), split.labels
            found = fit_temperature(logits, labels)
            before, after = (measure(soften(logits, by), labels) for by in (1.0, found))
            write_json(path, {"temperature": found, "validation_items": len(labels), "before": before, "after": after})
        return found, ""

    def predict(self, inputs: Sequence[str], progress: Show = lambda *_: None) -> list[Prediction]:
        """Predict for picture files, or for texts, in their order; an unreadable input gets an error."""
        if self.fills:
            find = self.find_answers if self.run.config.task.kind == "span_extraction" else self.fill
            return [one for text in inputs for one in find(text)]
        found: list[Prediction] = []
        for start in range(0, len(inputs), CHUNK):
            chunk = inputs[start : start + CHUNK]
            errors, read = self.read(chunk)
            count = len(chunk) - len(errors)
            logits = iter(self.compute(self.answer, read, count) if count else ())
            for place, text in enumerate(chunk):
                failed = place in errors
                found.append(Prediction(text, error=errors[place]) if failed else self.describe(text, next(logits)))
            progress("predicting", len(found), len(inputs))
        return found

    @torch.inference_mode()
    def fill(self, text: str) -> list[Prediction]:
        """Find the most likely tokens at each [MASK] of a text, with probabilities; or explain why there are none."""
        roles, longest = self.tokenizer, self.run.shape["length"]
        first, *others = map(roles.ids, text.split(MASK))
        ids, places = [roles.start, *first], []
        for piece in others:
            places.append(len(ids))
            ids += [roles.mask, *piece]
        if not places or len(ids) >= longest:
            why = f"has {len(ids) + 1} tokens, and the run reads {longest}" if places else f"has no {MASK} to fill"
            return [Prediction(text, error=f"{why}; write one for each token that is left open")]
        with self.autocast:
            hidden = self.model(torch.tensor([[*ids, roles.end]], device=self.device))
            best = self.model.masked_logits(hidden[0, places]).float().softmax(dim=-1).topk(FILLED)
        return [
            Prediction(text, dict(zip(roles.token_texts(tokens), shares, strict=True)))
            for tokens, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    @torch.inference_mode()
    def find_answers(self, text: str) -> list[Prediction]:
        """Find the most likely answers in `QUESTION [SEP] TEXT`, with probabilities; or explain why there are none."""
        question, _, passage = (part.strip() for part in text.partition(SEPARATOR))
        if not (question and passage):
            return [Prediction(text, error=f"has no question and text; write QUESTION {SEPARATOR} TEXT")]
        encoded = encode_examples(Examples(([question], [passage]), spans=[(0, 0)]), self.tokenizer, iter)
        if not len(encoded):
            return [Prediction(text, error="it has no tokens")]
        planes = torch.as_tensor(self.frame(encoded).read(np.arange(1))).to(self.device)
        with self.autocast:
            logits, marks = self.answer(planes), planes[:, 2]
        marks[:, 0] = 0  # the answer's place if there is no answer
        spans, logs = find_spans(logits, marks[:, : logits.shape[1]], FILLED)
        shares: dict[str, float] = {}
        for span, share in zip(spans[0], logs[0].exp().tolist(), strict=True):
            answer = read_spans(self.tokenizer, [passage], marks, span[None])[0] or "(no answer)"
            if share:  # a text may stand in several places, and a short one has few spans
                shares[answer] = shares.get(answer, 0.0) + share
        return [Prediction(text, shares)]

    def read(self, items: Sequence[Any]) -> tuple[dict[int, str], Callable[[np.ndarray], np.ndarray]]:
        """Read texts or pictures; return the errors by place, and a reader of the readable ones."""
        if self.reads_text:
            return self.read_texts(items)
        config, shape = self.run.config.data, self.run.shape
        form = tuple(shape["image_size"]), shape["channels"], vars(config).get("bits", decode.BITS)
        images, errors = read_pictures(items, *form)
        return errors, images.__getitem__

    def read_texts(self, texts: Sequence[str]) -> tuple[dict[int, str], Callable[[np.ndarray], np.ndarray]]:
        """Encode texts; return the errors by place, and a reader of the encoded texts."""
        rows = [place for place, ids in enumerate(self.tokenizer.encode(texts)) if ids]
        errors = dict.fromkeys({*range(len(texts))} - {*rows}, "it has no tokens")
        encoded = encode_examples(Examples(([texts[place] for place in rows],)), self.tokenizer, iter)
        return errors, self.frame(encoded).read

    def describe(self, text: str, logits: np.ndarray) -> Prediction:
        if self.is_number:
            mean, std = self.run.scale
            return Prediction(text, number=float(logits[0] * std + mean))
        shares = 1 / (1 + np.exp(-logits.astype(float))) if self.several else soften(logits[None], self.temperature)[0]
        return Prediction(text, dict(zip(self.run.classes, map(float, shares), strict=True)))


def read_pictures(pictures: Sequence[Any], *form: Any) -> tuple[np.ndarray, dict[int, str]]:
    """Read pictures as uint8 (N, channels, *size); return the readable pictures, and the errors of the rest by place.

    They are files, Pillow's images or uint8 arrays (Y, X) or (Y, X, C). `form`: size, channels and `data.bits` of the
    run's training pictures.
    """
    images, errors = [], {}
    for place, picture in enumerate(pictures):
        try:
            if isinstance(picture, str | Path):
                images.append(decode.read(picture, *form))
            else:  # a copy, since it is turned upright in place
                image = picture.copy() if isinstance(picture, Image.Image) else Image.fromarray(np.asarray(picture))
                images.append(decode.convert(image, *form))
        except Exception as error:  # Pillow's readers raise a dozen types for broken files
            errors[place] = explain(picture if isinstance(picture, str | Path) else f"picture {place}", error)
    return np.array(images), errors


def measure(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> dict[str, float]:
    """Measure probabilities: loss in nats, and expected calibration error over `bins` bins (Guo et al., 2017)."""
    rows, predicted = np.arange(len(labels)), probabilities.argmax(axis=1)
    confidences, right = probabilities[rows, predicted], predicted == labels
    homes = np.minimum((confidences * bins).astype(int), bins - 1)
    gaps = [abs(float((right - confidences)[homes == home].sum())) for home in range(bins)]
    loss = -np.log(np.maximum(probabilities[rows, labels], 1e-30)).mean()
    return {"loss": round(float(loss), 6), "calibration_error": round(sum(gaps) / len(labels), 6)}


HOTTEST = 100.0  # try temperatures from 1 / HOTTEST to HOTTEST


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Find the T at which softmax(logits / T), with logits (N, C), gives the labels (N,) the highest likelihood.

    Return 1 if all answers are right: every lower temperature would fit better.
    """
    if (logits.argmax(axis=1) == labels).all():
        return 1.0
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return float(-np.log(np.maximum(soften(logits, np.exp(log_temperature))[rows, labels], 1e-30)).mean())

    rows, reach = np.arange(len(labels)), np.log(HOTTEST)
    return float(np.exp(minimize_scalar(loss, bounds=(-reach, reach), method="bounded").x))


def soften(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Compute the probabilities softmax(logits / temperature), (N, C)."""
    scaled = logits.astype(np.float64) / temperature
    raised = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)
