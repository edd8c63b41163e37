"""The pictures that a finished run gets wrong, and what a prediction costs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from vitlab import tasks
from vitlab.config import TrainConfig, compose
from vitlab.tasks.common.evaluate import collect_logits
from vitlab.training.files import RunFiles
from vitlab.training.load import load_subject
from vitlab.training.predict import fit_temperature, soften

TIMED = 5  # repetitions


@dataclass(frozen=True)
class Mistake:
    """A test picture, uint8 (C, Y, X), with its file where it has one, and how sure the model is of the wrong class."""

    picture: np.ndarray
    name: str
    label: str
    predicted: str
    confidence: float


@dataclass(frozen=True)
class Examined:
    """`sure`: how many mistakes have the median confidence of right answers, or more; a wrong label gives such."""

    mistakes: Sequence[Mistake]
    sure: int
    wrong: int
    tested: int
    milliseconds: float | None  # of one picture, in a batch of one
    megabytes: float


def examine_runs(folders: Sequence[Path], progress: Callable[[str, int, int], None] = lambda *_: None) -> Examined:
    """The mistakes of runs of one model, the surest first; each picture once. Confidences are calibrated."""
    found: dict[str, Mistake] = {}
    sure, tested, all_wrong, milliseconds, megabytes = 0, 0, 0, None, 0.0
    for done, folder in enumerate(folders):
        progress("looking at mistakes", done, len(folders))
        config = compose(TrainConfig, base={**RunFiles(folder).config(), "analyses": []})
        subject = load_subject(str(folder), config, set())
        task = tasks.build(config.task, recipe=config.recipe, data=subject.data, data_config=config.data)
        megabytes = sum(value.nbytes for value in subject.model.state_dict().values()) / 1e6
        if milliseconds is None:
            milliseconds = time_prediction(subject.model, subject.data.image_size, subject.data.channels)
        if not task.classes or config.task.kind != "classification":
            continue
        logits = {
            part: collect_logits(subject.model, task, split, subject.autocast).numpy()
            for part, split in (("validation", task.validation), ("test", task.test))
        }
        temperature = fit_temperature(logits["validation"], task.validation.labels)
        shares = soften(logits["test"], temperature)
        predicted, labels = shares.argmax(axis=1), task.test.labels
        wrong = np.flatnonzero(predicted != labels)
        confidences = shares[wrong, predicted[wrong]]
        right = shares.max(axis=1)[predicted == labels]
        tested, all_wrong = tested + len(labels), all_wrong + len(wrong)
        sure += int((confidences >= np.median(right)).sum()) if len(right) else 0
        pictures = task.test.read(wrong)
        for picture, place, confidence in zip(pictures, wrong, confidences, strict=True):
            name = str(task.test.names[place]) if task.test.names is not None else ""
            key = name or picture.tobytes().hex()
            mistake = Mistake(
                picture, name, task.classes[labels[place]], task.classes[predicted[place]], float(confidence)
            )
            if key not in found or found[key].confidence < mistake.confidence:
                found[key] = mistake
    mistakes = sorted(found.values(), key=lambda one: -one.confidence)
    return Examined(mistakes, sure, all_wrong, tested, milliseconds, megabytes)


def time_prediction(model: torch.nn.Module, image_size: tuple[int, int], channels: int) -> float:
    """Milliseconds of a picture in a batch of one on the model's device, the median of several."""
    device = next(model.parameters()).device
    image, spent = torch.zeros(1, channels, *image_size, device=device), []
    with torch.inference_mode():
        for _ in range(TIMED + 1):
            begun = time.perf_counter()
            model(image).cpu()
            spent.append(1000 * (time.perf_counter() - begun))
    return float(np.median(spent[1:]))
