"""What a task of the benchmark is: data, the measure of its error, learners, and a ladder of training-set sizes.

Learners are as in scikit-learn; with `log_loss` they have `predict_proba`, or `log_probabilities(inputs, targets)`.
Those of scikit-learn have fixed settings, the same for all tasks of a kind; each is made by its seed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

SPREAD = 0.01  # share of each predicted probability that goes to all classes alike, so that no loss is infinite


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
