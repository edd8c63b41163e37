"""Predict with a finished run: calibrated probabilities for new pictures or texts, tokens for [MASK], answers.

Shapes: N items, C classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitlab.config import UserError
from vitlab.data.augment import normalize
from vitlab.data.base import Examples, Show, Split, Texts
from vitlab.data.images import decode
from vitlab.data.images.imagefolder import explain
from vitlab.data.opening import hash_data, open_data
from vitlab.data.sequences import frame_texts
from vitlab.data.text.corpus import encode_examples
from vitlab.data.text.tokenization import from_file
from vitlab.files import read_json, write_json
from vitlab.models.base import before_head
from vitlab.tasks.base import BATCH
from vitlab.tasks.text_classification import find_spans, read_planes, read_spans, trim_padding
from vitlab.training.checkpoints import load_run, place_run
from vitlab.training.files import RunFiles
from vitlab.training.settings import LARGE

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

    def __init__(self, folder: str | Path, calibrated: bool = True):
        self.files, self.run = RunFiles(folder), load_run(folder)
        self.classes = self.run.classes
        kind = self.run.config.task.kind
        if kind not in KINDS:
            raise UserError(f"{folder}: is a run of task={kind}; predict is for {', '.join(KINDS)}")
        self.model, self.autocast = place_run(self.run)
        self.device = next(self.model.parameters()).device
        if sum(weights.numel() for weights in self.model.parameters()) < LARGE:
            torch.set_num_threads(1)  # as in training; a second thread on a busy core makes it 3 times slower
        self.reads_text = self.run.config.data.modality == "text"
        self.several = kind == "multilabel"
        self.fills = kind in OPEN
        self.is_number = not self.fills and (kind == "regression" or not self.run.classes)
        if self.reads_text:
            self.tokenizer = from_file(self.files.tokenizer_path)
            columns, shape = vars(self.run.config.data).get("text"), self.run.shape
            both_orders = vars(self.run.config.task).get("both_orders", False)
            count = len(columns) if isinstance(columns, list) else 1 + both_orders
            if count > 1:
                raise UserError(f"{folder}: reads {count} texts at once; predict is for single ones")
            tags = shape["head"] == "tags" and not self.fills
            if tags or (self.run.classes and shape["num_classes"] != len(self.run.classes)):
                raise UserError(f"{folder}: gives no class of a whole text, so predict is not for it")
        self.temperature, self.not_calibrated = 1.0, ""
        if calibrated and not (self.is_number or self.several or self.fills):
            self.calibrate()

    @torch.inference_mode()
    def compute(
        self, answer: Callable[[torch.Tensor], torch.Tensor], read: Callable[[np.ndarray], np.ndarray], count: int
    ) -> np.ndarray:
        """Compute rows (N, ...) of `count` items; `read` reads the items like the data or `frame`."""
        rows, size = [], self.run.config.recipe.batch_size if self.reads_text else BATCH
        for first in range(0, count, size):
            items = torch.as_tensor(read(np.arange(first, min(first + size, count)))).to(self.device)
            with self.autocast:
                rows.append(answer(items).float().cpu())
        return torch.cat(rows).numpy()

    def inputs(self, items: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if self.reads_text:
            return trim_padding(self.model, *read_planes(items, self.tokenizer.pad))
        data = self.run.config.data
        return (normalize(items, list(data.mean), list(data.std)),)

    def answer(self, items: torch.Tensor) -> torch.Tensor:
        return self.model(*self.inputs(items))

    def features(self, items: torch.Tensor) -> torch.Tensor:
        """Compute what the head reads (B, D); of a model with a state for each token the mean over the tokens."""
        inputs = self.inputs(items)
        found = before_head(self.model)(*inputs)
        if found.dim() < 3:
            return found
        return (
            found.mean(dim=1) if inputs[1] is None else (found * inputs[1][..., None]).sum(1) / inputs[1].sum(1, True)
        )

    @torch.inference_mode()
    def embed(self, inputs: Sequence[str], progress: Show = lambda *_: None) -> tuple[np.ndarray, dict[int, str]]:
        """Compute vectors (N, D) of picture files or texts, NaN for unreadable; return them and errors by place."""
        if self.fills and (marked := next((text for text in inputs if MASK in text or SEPARATOR in text), None)):
            raise UserError(f"--embed: '{marked}': reads whole texts; leave out {MASK} and {SEPARATOR}")
        rows, failed = [], {}
        for start in range(0, len(inputs), CHUNK):
            chunk = inputs[start : start + CHUNK]
            errors, read = self.read_texts(chunk) if self.reads_text else self.read_pictures(chunk)
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

    def calibrate(self) -> None:
        """Take the temperature from RUN/calibration.json, or fit it on the validation data and write it there."""
        path = self.files.folder / FILE
        found = read_json(path, lambda document: float(document["temperature"]))
        if found is None:
            try:  # the run's data may be gone, or have changed
                data = open_data(self.run.config.data)
                self.files.refuse_other_data(data.name, hash_data(self.run.config.data, data))
            except UserError as error:
                self.not_calibrated = error.problems[0]
                return
            split = self.frame(data.validation) if self.reads_text else data.validation
            logits, labels = self.compute(self.answer, split.read, len(split)), split.labels
            found = fit_temperature(logits, labels)
            before, after = (measure(soften(logits, by), labels) for by in (1.0, found))
            write_json(path, {"temperature": found, "validation_items": len(labels), "before": before, "after": after})
        self.temperature = found

    def predict(self, inputs: Sequence[str], progress: Show = lambda *_: None) -> list[Prediction]:
        """Predict for picture files, or for texts, in their order; an unreadable input gets an error."""
        if self.fills:
            find = self.find_answers if self.run.config.task.kind == "span_extraction" else self.fill
            return [one for text in inputs for one in find(text)]
        found: list[Prediction] = []
        for start in range(0, len(inputs), CHUNK):
            chunk = inputs[start : start + CHUNK]
            errors, read = self.read_texts(chunk) if self.reads_text else self.read_pictures(chunk)
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

    def read_pictures(self, paths: Sequence[str]) -> tuple[dict[int, str], Callable[[np.ndarray], np.ndarray]]:
        """Read pictures; return the errors by place, and a reader of the readable pictures."""
        config, shape = self.run.config.data, self.run.shape
        form = tuple(shape["image_size"]), shape["channels"], vars(config).get("bits", decode.BITS)
        images, errors = read_pictures(paths, *form)
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


def read_pictures(paths: Sequence[str], *form: Any) -> tuple[np.ndarray, dict[int, str]]:
    """Read pictures as uint8 (N, channels, *size); return the readable pictures, and the errors of the rest by place.

    `form`: size, channels and `data.bits` of the run's training pictures.
    """
    images, errors = [], {}
    for place, path in enumerate(paths):
        try:
            images.append(decode.read(path, *form))
        except Exception as error:  # Pillow's readers raise a dozen types for broken files
            errors[place] = explain(path, error)
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
