"""What a task of the benchmark is: data, the measure of its error, learners, and a ladder of training-set sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Learner(Protocol):
    """As in scikit-learn; with `log_loss` a learner has `log_probabilities(inputs, targets)` in place of `predict`."""

    def fit(self, inputs: Any, targets: np.ndarray) -> Any: ...


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
    learners: dict[str, Callable[[int], Learner]]
    heavy: dict[str, int] | None = None


def ladder(smallest: int, count: int, factor: int = 2) -> tuple[int, ...]:
    """Sizes a factor apart. Classification begins at about ten items of a class, or, of symbols, of a symbol."""
    return tuple(smallest * factor**step for step in range(count))


def measure_error(measure: str, learner: Any, inputs: Any, targets: np.ndarray) -> float:
    """The share of wrong predictions, the mean negative log probability (in nats), or the root mean square error."""
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
