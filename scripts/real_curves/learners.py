"""scikit-learn's learners with fixed settings, the same for all tasks of a kind; each is made by its seed."""

import numpy as np
from sklearn import ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

SPREAD = 0.01  # share of each predicted probability that goes to all classes alike, so that no loss is infinite

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


class Probabilities:
    """A classifier whose predicted probabilities are asked for, of `classes` numbered from 0."""

    def __init__(self, classifier, classes: int):
        self.classifier, self.classes = classifier, classes

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> None:
        self.classifier.fit(inputs, targets)

    def log_probabilities(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(N): of each item's target; that of a class that is not in the training subset is only what is spread."""
        shares = np.zeros((len(targets), self.classes))
        shares[:, self.classifier.classes_] = self.classifier.predict_proba(inputs)
        return np.log((1 - SPREAD) * shares[np.arange(len(targets)), targets] + SPREAD / self.classes)


def predict_shares(learners: dict, classes: int) -> dict:
    """The same learners, for log loss."""
    return {name: lambda seed, make=make: Probabilities(make(seed), classes) for name, make in learners.items()}
