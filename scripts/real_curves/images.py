"""Tasks of pictures: characters, handwritten digits, patches and pixels of photographs, heights of a landscape.

vitlab's small ViT and ResNet train in a plain loop for the same number of steps at every size.
"""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.cbook import get_sample_data
from sklearn import datasets
from task import CLASSIFIERS, REGRESSORS, Data, Task, choose, ladder, split_pool
from torch import nn

from vitlab import build_model, config, data

GLYPH_CLASSES = 36
AREAS = (2, 3)  # rows and columns that a photograph is cut into
PATCH = 5  # pixels a side
BATCH = 64


def load_glyphs() -> Data:
    """The 36 characters at 12 x 12 pixels, as vitlab draws them; guessing is right once in 36."""
    changes = {"name": "glyphs", "image_size": 12, "train_images": 24_000, "test_images": 3_000}
    glyphs = data.load(config.load("data", changes))
    parts = []
    for split in (glyphs.train, glyphs.test):
        pictures = split.read(np.arange(len(split))).reshape(len(split), -1)
        parts += [pictures.astype(np.float32) / 255, split.labels]
    return Data(*parts, chance=1 / GLYPH_CLASSES)


def load_digits() -> Data:
    pixels, labels = datasets.load_digits(return_X_y=True)
    return split_pool((pixels / 16).astype(np.float32), labels, 400, classes=True)


@cache
def load_photographs() -> list[np.ndarray]:
    """scikit-learn's two photographs, (427, 640, 3) in 0..1."""
    return [picture / 255 for picture in datasets.load_sample_images().images]


def load_patches() -> Data:
    """Patches of 5 x 5 pixels of the photographs, in color: which of their twelve areas is a patch from?"""
    generator, patches, labels = np.random.default_rng(0), [], []
    for number, picture in enumerate(load_photographs()):
        windows = np.lib.stride_tricks.sliding_window_view(picture, (PATCH, PATCH), axis=(0, 1))
        rows, columns = (generator.integers(side, size=12_000) for side in windows.shape[:2])
        area = rows * AREAS[0] // windows.shape[0] * AREAS[1] + columns * AREAS[1] // windows.shape[1]
        patches.append(windows[rows, columns].reshape(len(rows), -1))
        labels.append(area + number * AREAS[0] * AREAS[1])
    return split_pool(np.concatenate(patches), np.concatenate(labels), 3_000, classes=True)


def load_pixels() -> Data:
    """A grey pixel from the twelve that come before it, line by line, in the 3 x 5 pixels above and around it."""
    generator, windows = np.random.default_rng(0), []
    for picture in load_photographs():
        every = np.lib.stride_tricks.sliding_window_view(picture.mean(2), (3, 5))
        rows, columns = (generator.integers(side, size=12_000) for side in every.shape[:2])
        windows.append(every[rows, columns].reshape(len(rows), -1))
    pixels = np.concatenate(windows)
    return split_pool(pixels[:, :12], pixels[:, 12], 5_000, classes=False)


def load_colors() -> Data:
    """How much redder than grey a pixel of the flower is, from where it is and the grey 3 x 3 pixels around it."""
    picture = load_photographs()[1]
    grey = picture.mean(2)
    windows = np.lib.stride_tricks.sliding_window_view(grey, (3, 3))
    generator = np.random.default_rng(0)
    rows, columns = (generator.integers(side, size=24_000) for side in windows.shape[:2])
    around = windows[rows, columns].reshape(len(rows), -1)
    inputs = np.column_stack([around, rows / len(grey), columns / len(grey)])
    center = (rows + 1, columns + 1)
    return split_pool(inputs, picture[*center, 0] - grey[center], 5_000, classes=False)


def load_heights() -> Data:
    """The height of a place in Tennessee, in standard deviations, from its coordinates: matplotlib's sample."""
    heights = get_sample_data("jacksboro_fault_dem.npz")["elevation"].astype(float)
    places = np.random.default_rng(0).permutation(heights.size)[:40_000]
    coordinates = np.column_stack(np.unravel_index(places, heights.shape)).astype(float)
    targets = (heights.ravel()[places] - heights.mean()) / heights.std()
    return split_pool(coordinates, targets, 5_000, classes=False)


class Network:
    """A classifier of pictures in 0..1, (N, side * side)."""

    def __init__(self, name: str, side: int, classes: int, seed: int):
        self.name, self.side, self.classes, self.seed = name, side, classes, seed

    def fit(self, pictures: np.ndarray, labels: np.ndarray) -> None:
        torch.manual_seed(self.seed)
        shape = {"num_classes": self.classes, "image_size": self.side, "channels": 1}
        if self.name == "vit_nano":
            self.model, steps = build_model(self.name, **shape, depth=1).train(), 400
            options = {"lr": 8e-3, "betas": (0.9, 0.95), "weight_decay": 0.05}
            optimizer = torch.optim.AdamW(self.model.parameters(), **options)
        else:
            self.model, steps = build_model(self.name, **shape).train(), 150
            options = {"lr": 0.2, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
            optimizer = torch.optim.SGD(self.model.parameters(), **options)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, optimizer.param_groups[0]["lr"], total_steps=steps, pct_start=0.1, cycle_momentum=False
        )
        inputs, targets = self.prepare(pictures), torch.from_numpy(labels)
        for _ in range(steps):
            batch = torch.randint(len(inputs), (BATCH,))
            F.cross_entropy(self.model(inputs[batch]), targets[batch]).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()

    def prepare(self, pictures: np.ndarray) -> torch.Tensor:
        return (torch.from_numpy(pictures).view(-1, 1, self.side, self.side) - 0.3) / 0.3

    @torch.no_grad()
    def predict(self, pictures: np.ndarray) -> np.ndarray:
        self.model.eval()
        return torch.cat([self.model(part).argmax(1) for part in self.prepare(pictures).split(500)]).numpy()


TASKS = (
    Task(
        *("glyphs", "error", ladder(256, 7), load_glyphs),
        choose(CLASSIFIERS, "logistic lda bayes neighbors svm forest mlp"),
        heavy={"svm": 8192, "forest": 16_384, "mlp": 16_384},
    ),
    Task(
        *("digits", "error", ladder(80, 5), load_digits),
        choose(CLASSIFIERS, "logistic lda bayes neighbors svm tree forest mlp")
        | {name: lambda seed, name=name: Network(name, 8, 10, seed) for name in ("vit_nano", "resnet_nano")},
        heavy={"vit_nano": 1280, "resnet_nano": 1280},
    ),
    Task(
        *("patches", "error", ladder(128, 7), load_patches),
        choose(CLASSIFIERS, "logistic lda bayes neighbors svm forest trees mlp"),
        heavy={"svm": 8192},
    ),
    Task(
        *("pixels", "rmse", ladder(128, 7), load_pixels),
        choose(REGRESSORS, "ridge neighbors svm tree forest boosting mlp"),
    ),
    Task(
        *("colors", "rmse", ladder(128, 7), load_colors),
        choose(REGRESSORS, "ridge neighbors svm tree forest trees boosting"),
    ),
    Task(
        *("heights", "rmse", ladder(128, 8), load_heights),
        choose(REGRESSORS, "neighbors kernel svm tree forest trees boosting"),
        heavy={"kernel": 4096, "svm": 8192},
    ),
)
