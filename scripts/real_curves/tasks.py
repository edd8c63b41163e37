"""What a task of the benchmark is: data, the measure of its error, learners, a ladder of training-set sizes; and tasks.

Learners are as in scikit-learn; with `log_loss` they have `predict_proba`, or `log_probabilities(inputs, targets)`.
Those of scikit-learn have fixed settings, the same for all tasks of a kind; each is made by its seed. vitlab's small
ViT and ResNet train in a plain loop for the same number of steps at every size.
"""

import ast
import re
import sys
import sysconfig
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import datasets, ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from torch import nn

from vitlab import build_model, config, data
from vitlab.data.text import corpora

SPREAD = 0.01  # share of each predicted probability that goes to all classes alike, so that no loss is infinite
GLYPH_CLASSES = 36
AREAS = (2, 3)  # rows and columns that a photograph is cut into
PATCH = 5  # pixels a side
BATCH = 64
KINDS = (ast.ClassDef, ast.FunctionDef, ast.arg, ast.Attribute, ast.Name)  # what a name is first seen as
LETTERS = 4  # from either end of a name
LONG_LINE = 20  # characters from which a line tells something


@dataclass(frozen=True)
class Data:
    """Inputs and targets of the pool that training subsets are drawn from, and of the fixed test set.

    blocks: the number of the passage that each item of the pool is in. Subsets then are made of whole passages (and a
        part of the last one), as texts are; without it of single items.
    chance: the share of the test items that guessing gets right.
    """

    inputs: Any
    targets: np.ndarray
    test_inputs: Any
    test_targets: np.ndarray
    blocks: np.ndarray | None = None
    chance: float | None = None

    def draw_order(self, seed: int) -> np.ndarray:
        """The order of the pool whose first items are the training subsets of a seed."""
        generator = np.random.default_rng(seed)
        if self.blocks is None:
            return generator.permutation(len(self.targets))
        ranks = generator.permutation(self.blocks.max() + 1)
        return np.argsort(ranks[self.blocks], kind="stable")


@dataclass(frozen=True)
class Task:
    """Learners are made by their seed. `heavy` ones have the first three seeds and sizes up to a limit of their own."""

    name: str
    measure: str  # error, log_loss or rmse
    sizes: tuple[int, ...]
    load: Callable[[], Data]
    learners: dict[str, Callable[[int], Any]]
    heavy: dict[str, int] | None = None


def ladder(smallest: int, count: int, factor: int = 2) -> tuple[int, ...]:
    """Sizes a factor apart. Classification begins at about ten items of a class, or, of symbols, of a symbol."""
    return tuple(smallest * factor**step for step in range(count))


def measure_error(measure: str, learner: Any, inputs: Any, targets: np.ndarray) -> float:
    """The share of wrong predictions, the mean negative log probability (in nats), or the root mean square error."""
    if measure == "log_loss" and hasattr(learner, "predict_proba"):
        shares = np.zeros((len(targets), classes := targets.max() + 1))
        shares[:, learner.classes_] = learner.predict_proba(inputs)  # a class outside the subset has what is spread
        return float(-np.log((1 - SPREAD) * shares[np.arange(len(targets)), targets] + SPREAD / classes).mean())
    if measure == "log_loss":
        return float(-learner.log_probabilities(inputs, targets).mean())
    predicted = learner.predict(inputs)
    if measure == "error":
        return float((predicted != targets).mean())
    return float(np.sqrt(((predicted - targets) ** 2).mean()))


def split_pool(inputs: Any, targets: np.ndarray, test_items: int, classes: bool) -> Data:
    """Data with a random test set. With `classes` the chance is that of naming the most frequent one."""
    order = np.random.default_rng(0).permutation(len(targets))
    test, pool = order[:test_items], order[test_items:]
    chance = float(np.unique(targets[test], return_counts=True)[1].max() / test_items) if classes else None
    return Data(inputs[pool], targets[pool], inputs[test], targets[test], chance=chance)


CLASSIFIERS = {  # of dense inputs
    "logistic": lambda seed: make_pipeline(StandardScaler(), linear_model.LogisticRegression(C=0.1, max_iter=200)),
    "lda": lambda seed: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1),
    "bayes": lambda seed: naive_bayes.GaussianNB(var_smoothing=1e-2),
    "neighbors": lambda seed: neighbors.KNeighborsClassifier(3),
    "svm": lambda seed: make_pipeline(StandardScaler(), svm.SVC(C=5)),
    "tree": lambda seed: tree.DecisionTreeClassifier(min_samples_leaf=2, random_state=seed),
    "forest": lambda seed: ensemble.RandomForestClassifier(30, random_state=seed),
    "trees": lambda seed: ensemble.ExtraTreesClassifier(30, min_samples_leaf=2, random_state=seed),
    "boosting": lambda seed: ensemble.HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=15, random_state=seed),
    "mlp": lambda seed: make_pipeline(
        StandardScaler(), neural_network.MLPClassifier(64, max_iter=30, batch_size=64, random_state=seed)
    ),
}

REGRESSORS = {
    "ridge": lambda seed: make_pipeline(StandardScaler(), linear_model.Ridge(1.0)),
    "neighbors": lambda seed: make_pipeline(StandardScaler(), neighbors.KNeighborsRegressor(5, weights="distance")),
    "kernel": lambda seed: make_pipeline(StandardScaler(), KernelRidge(alpha=0.1, kernel="rbf", gamma=0.1)),
    "svm": lambda seed: make_pipeline(StandardScaler(), svm.SVR(C=1, epsilon=0.02)),
    "tree": lambda seed: tree.DecisionTreeRegressor(min_samples_leaf=3, random_state=seed),
    "forest": lambda seed: ensemble.RandomForestRegressor(30, min_samples_leaf=2, random_state=seed),
    "trees": lambda seed: ensemble.ExtraTreesRegressor(30, min_samples_leaf=2, random_state=seed),
    "boosting": lambda seed: ensemble.HistGradientBoostingRegressor(random_state=seed),
    "mlp": lambda seed: make_pipeline(
        StandardScaler(),
        neural_network.MLPRegressor(hidden_layer_sizes=64, max_iter=50, batch_size=64, random_state=seed),
    ),
}

TEXT_CLASSIFIERS = {  # of counts of hashed words or letters
    "bayes": lambda seed: naive_bayes.MultinomialNB(alpha=0.1),
    "bernoulli": lambda seed: naive_bayes.BernoulliNB(alpha=0.1),
    "complement": lambda seed: naive_bayes.ComplementNB(alpha=0.1),
    "logistic": lambda seed: make_pipeline(Normalizer(), linear_model.LogisticRegression(C=10, max_iter=50)),
    "svm": lambda seed: make_pipeline(Normalizer(), svm.LinearSVC(C=1, random_state=seed)),
    "perceptron": lambda seed: make_pipeline(
        Normalizer(), linear_model.SGDClassifier(loss="log_loss", alpha=1e-5, max_iter=20, tol=None, random_state=seed)
    ),
    "neighbors": lambda seed: make_pipeline(Normalizer(), neighbors.KNeighborsClassifier(5, weights="distance")),
}


def choose(learners: dict, names: str) -> dict:
    return {name: learners[name] for name in names.split()}


# ---- pictures: characters, digits, parts of photographs, a landscape


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
    from matplotlib.cbook import get_sample_data

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


# ---- texts and words: which package, module, category or kind they are of


@cache
def read_library() -> dict[str, str]:
    """The source of each module at the top level of Python's library, by its name, in the order of the names."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return {path.stem: path.read_text(errors="replace") for path in sorted(folder.glob("*.py"))}


def hash_texts(texts: Sequence[str], bits: int, **options):
    """Counts of hashed words or letters, (N, 2**bits), sparse."""
    return HashingVectorizer(n_features=2**bits, alternate_sign=False, norm=None, **options).transform(texts)


def load_packages() -> Data:
    """The package that a docstring is of: vitlab's data set."""
    corpus = corpora.read(config.load("data", "docstrings"))
    parts = []
    for split in (corpus.train, corpus.test):
        parts += [hash_texts(split.parts[0], 14), np.asarray(split.labels)]
    return Data(*parts, chance=float(np.bincount(parts[3]).max() / len(parts[3])))


def load_lines() -> Data:
    """The module that a line of code is of, out of the 12 longest ones; each line once, from letters."""
    longest = sorted(read_library().items(), key=lambda item: len(item[1]))[-12:]
    module_of: dict[str, int] = {}
    for number, (_, source) in enumerate(longest):
        for line in map(str.strip, source.splitlines()):
            if len(line) >= LONG_LINE:
                module_of.setdefault(line, number)
    inputs = hash_texts(list(module_of), 15, analyzer="char_wb", ngram_range=(3, 4), lowercase=False)
    return split_pool(inputs, np.array(list(module_of.values())), 4_000, classes=True)


def load_categories() -> Data:
    """The general category of a character of Unicode, out of the 12 most frequent ones, from the words of its name.

    Numbered names and Korean syllables are left out: they are most of all, and alike.
    """
    names = {character: unicodedata.name(character, "") for character in map(chr, range(sys.maxunicode))}
    categories = {
        name: unicodedata.category(character)
        for character, name in names.items()
        if name and not re.search(r"-[0-9A-F]+$|^HANGUL SYLLABLE", name)
    }
    frequent = [category for category, _ in Counter(categories.values()).most_common(12)]
    texts = [name for name, category in categories.items() if category in frequent]
    labels = np.array([frequent.index(categories[name]) for name in texts])
    return split_pool(hash_texts(texts, 13), labels, 4_000, classes=True)


def load_kinds() -> Data:
    """What a name in the library's code is first used as, from its first and last letters and how it is written."""
    kind_of: dict[str, int] = {}
    for source in read_library().values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in old sources
            tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, KINDS):
                name = next(value for value in map(vars(node).get, ("name", "arg", "attr", "id")) if value)
                kind_of.setdefault(name, KINDS.index(type(node)))
    inputs = np.array([describe_name(name) for name in kind_of], dtype=np.float32)
    return split_pool(inputs, np.array(list(kind_of.values())), 4_000, classes=False)


def describe_name(name: str) -> list[float]:
    ends = name[:LETTERS].ljust(LETTERS), name[-LETTERS:].rjust(LETTERS)
    written = [str.isupper, str.isdigit, "_".__eq__, "aeiou".__contains__]
    return [*map(ord, "".join(ends)), len(name), name.isupper(), *(sum(map(test, name)) for test in written)]


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
    Task(
        *("packages", "error", ladder(100, 6), load_packages),
        choose(TEXT_CLASSIFIERS, "bayes bernoulli complement svm perceptron neighbors"),
    ),
    Task(
        *("lines", "error", ladder(128, 7), load_lines),
        choose(TEXT_CLASSIFIERS, "bayes bernoulli complement svm perceptron neighbors"),
    ),
    Task(
        *("categories", "error", ladder(128, 7), load_categories),
        choose(TEXT_CLASSIFIERS, "bayes complement logistic svm perceptron neighbors"),
    ),
    Task(
        *("kinds", "log_loss", ladder(64, 7), load_kinds),
        choose(CLASSIFIERS, "logistic lda neighbors forest trees boosting mlp"),
    ),
)
