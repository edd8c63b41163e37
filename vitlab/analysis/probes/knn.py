"""k nearest neighbours by cosine similarity, with weighted votes (Wu et al., 2018; Caron et al., 2021, DINO)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.analysis.probes import accuracy
from vitlab.analysis.probes.features import Features, Progress
from vitlab.config.schema.fields import Choice

SIMILARITIES = 2**25  # in memory at a time, as far as whole test images allow


def run(train: Features, test: Features, config: Choice, progress: Progress | None = None) -> dict[str, float]:
    """`knn`: test accuracy of the `config.k` nearest training images' votes, each exp(similarity / temperature)."""
    classes, places = train.labels.unique(return_inverse=True)
    x_DN = F.normalize(train.x, dim=1).T
    predicted: list[Tensor] = []
    for x_BD in test.x.split(max(1, SIMILARITIES // len(train.x))):
        similarity, nearest = (F.normalize(x_BD, dim=1) @ x_DN).topk(min(config.k, len(train.x)), dim=1)
        votes = torch.zeros(len(x_BD), len(classes))
        # a softmax: the same votes for each image but for their sum, and no overflow
        votes.scatter_add_(1, places[nearest], (similarity / config.temperature).softmax(dim=1))
        predicted.append(classes[votes.argmax(dim=1)])
        if progress:
            progress("nearest neighbours", sum(map(len, predicted)), len(test.x))
    return {"knn": accuracy(torch.cat(predicted), test.labels)}
