"""Features and probes: against brute force, and on data whose answer is known."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from vitlab.analysis import probes
from vitlab.analysis.probes import Features, extract, run_fewshot, run_knn, run_linear
from vitlab.config import load
from vitlab.data.base import Split
from vitlab.models import build_model
from vitlab.models.base import before_head, evaluating

CLASSES = (2, 3, 7)  # labels need not begin at 0
WIDTH = 11


def clusters(counts, spread, seed, classes=CLASSES):
    """Normal clouds around one fixed centre per class, in an order that does not sort them."""
    centres = np.random.default_rng(99).normal(size=(max(classes) + 1, WIDTH)) * 3 + 5
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(classes, counts))
    x = centres[labels] + spread * generator.normal(size=(len(labels), WIDTH))
    return Features(torch.tensor(x, dtype=torch.float32), torch.tensor(labels))


def pixels(count, seed, classes=3, size=(12, 8)):
    """A split whose classes differ in brightness."""
    labels = np.arange(count) % classes
    noise = np.random.default_rng(seed).integers(0, 40, (count, 2, *size), dtype=np.uint8)
    return Split(labels, lambda rows: noise[rows] + (labels[rows] * 80).astype(np.uint8)[:, None, None, None])


def prepare(batch):
    return batch[0] / 255 - 0.5, batch[1]


# ---- features


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vit_nano", {"patch_size": 4}),
        ("vit_nano", {"patch_size": 4, "pool": "token"}),
        ("resnet_nano", {}),
        ("timm:vit_tiny_patch16_224", {"options": {"depth": 1, "patch_size": 4}}),
        ("timm:resnet18", {}),
        ("timm:convnext_atto", {}),
    ],
)
def test_features_are_what_the_head_reads(name, changes):
    size = (32, 32) if name.startswith("timm:") else (12, 8)
    model = build_model(name, num_classes=5, image_size=size, channels=2, **changes).eval()
    images = torch.randn(3, 2, *size)
    features = before_head(model)(images)
    assert features.ndim == 2
    head = model.head if hasattr(model, "features") else model.get_classifier()
    nn.init.normal_(head.weight)
    torch.testing.assert_close(head(features), model(images))


def test_a_split_streams_through_the_model_in_order():
    model = build_model("resnet_nano", num_classes=3, image_size=(12, 8), channels=2)
    model.stem.eval()
    nn.init.normal_(model.stem[1].running_mean)  # in training mode the batch's own mean would be taken
    split, rows = pixels(23, seed=0), np.array([19, 2, 3, 7, 11, 13, 5])
    found = extract(model, split, prepare, indices=rows, batch_size=3)
    assert (model.training, model.stem.training) == (True, False), "the model is left as it was"
    assert found.labels.tolist() == (rows % 3).tolist()
    assert not found.x.is_inference()
    with evaluating(model):
        expected = model.features(prepare((torch.from_numpy(split.read(rows)), None))[0])
    torch.testing.assert_close(found.x, expected.detach())
    everything = extract(model, split, prepare, batch_size=5)
    torch.testing.assert_close(everything.x[rows], found.x, rtol=1e-4, atol=1e-5)


# ---- few-shot


def by_least_squares(train, test, shots, seeds, l2):
    """big_vision's definition, solved as the least-squares problem [z; sqrt(l2) I] w = [y; 0]."""
    x, labels = train.x.double().numpy(), train.labels.numpy()
    classes, accuracies = np.unique(labels), []
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        rows = np.concatenate([generator.permutation(np.where(labels == c)[0])[:shots] for c in classes])
        mean, std = x[rows].mean(axis=0), x[rows].std(axis=0) + 1e-5
        z = np.hstack([(x[rows] - mean) / std, np.full((len(rows), 1), 100.0)])
        y = np.where(labels[rows, None] == classes, 1.0, -1.0)
        ridge = np.sqrt(l2) * np.eye(WIDTH + 1)
        w = np.linalg.lstsq(np.vstack([z, ridge]), np.vstack([y, 0 * ridge[:, : len(classes)]]), rcond=None)[0]
        z_test = np.hstack([(test.x.double().numpy() - mean) / std, np.full((len(test.x), 1), 100.0)])
        accuracies.append((classes[(z_test @ w).argmax(axis=1)] == test.labels.numpy()).mean())
    return np.mean(accuracies)


def test_fewshot_is_the_ridge_regression_of_its_definition():
    """Fewer images than features (1 and 2 shots of 3 classes, 11 wide), and more (10)."""
    train, test = clusters((31, 17, 13), spread=6.0, seed=1), clusters((211, 97, 101), spread=6.0, seed=2)
    config = load("probe", {"name": "fewshot", "shots": [1, 2, 10]})
    found = run_fewshot(train, test, config)
    assert list(found) == ["fewshot_1", "fewshot_2", "fewshot_10"]
    for shots in (1, 2, 10):
        expected = by_least_squares(train, test, shots, seeds=3, l2=1024.0)
        assert 0.3 < expected < 0.95
        assert found[f"fewshot_{shots}"] == pytest.approx(expected, abs=1e-9)


# ---- k nearest neighbours


@pytest.mark.parametrize("at_once", [None, 61 * 2])
def test_knn_is_the_vote_of_the_nearest_one_by_one(at_once, monkeypatch):
    """As DINO defines it, also when two test images are looked at at a time."""
    train, test = clusters((31, 17, 13), spread=5.0, seed=1), clusters((23, 19, 29), spread=5.0, seed=2)
    if at_once:
        monkeypatch.setattr(probes, "SIMILARITIES", at_once)
    votes = []
    for x in test.x.double():
        similarities = [torch.cosine_similarity(x, other, dim=0).item() for other in train.x.double()]
        nearest = sorted(range(len(similarities)), key=lambda i: -similarities[i])[:20]
        weights = dict.fromkeys(CLASSES, 0.0)
        for i in nearest:
            weights[train.labels[i].item()] += np.exp(similarities[i] / 0.07)
        votes.append(max(weights, key=weights.get))
    expected = np.mean(np.array(votes) == test.labels.numpy())
    assert 0.4 < expected < 0.95
    assert run_knn(train, test, load("probe", "knn")) == {"knn": pytest.approx(expected)}


# ---- linear probe


def test_the_linear_probe_is_logistic_regression_at_the_best_strength():
    train, test = clusters((61, 47, 53), spread=6.0, seed=1), clusters((211, 97, 101), spread=6.0, seed=2)
    found = run_linear(train, test, load("probe", "linear"))
    assert found == run_linear(train, test, load("probe", "linear")), "it draws no random number"
    mean, std = train.x.numpy().mean(axis=0), train.x.numpy().std(axis=0)
    scores = {}
    for strength in load("probe", "linear").strengths:
        model = LogisticRegression(C=strength, max_iter=1000).fit((train.x.numpy() - mean) / std, train.labels.numpy())
        scores[strength] = model.score((test.x.numpy() - mean) / std, test.labels.numpy())
    assert found["linear_probe"] in [pytest.approx(score) for score in scores.values()]
    assert found["linear_probe"] > max(scores.values()) - 0.05
    for strength, score in scores.items():
        only = load("probe", {"name": "linear", "strengths": [strength]})
        assert run_linear(train, test, only)["linear_probe"] == pytest.approx(score)


def test_of_strengths_that_are_right_as_often_the_linear_probe_takes_that_of_the_least_loss():
    train, test = clusters((31, 17, 13), spread=0.5, seed=1), clusters((211, 97, 101), spread=6.0, seed=2)
    weak, strong, both = (
        run_linear(train, test, load("probe", {"name": "linear", "strengths": strengths}))
        for strengths in ([0.01], [10.0], [0.01, 10.0])
    )
    assert both == strong != weak
