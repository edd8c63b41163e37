"""How well the laws of a curve's first sizes predict the others: misses, and what lies in the 90% intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from curves import CUTS, LAWS, Curve

from vitlab.config import UserError

TIMES = (2, 4, 8)  # the largest size kept


@dataclass(frozen=True)
class Prediction:
    """Of one size beyond a cut, by one law."""

    task: str
    model: str
    law: str
    kept: int
    times: float  # the largest size kept
    miss: float  # log predicted less log mean measured error
    mean_inside: bool  # the measured mean in the law's interval
    runs_inside: float  # share of the single runs in the interval of one run


@dataclass(frozen=True)
class Skipped:
    """A fit that was refused."""

    task: str
    law: str
    reason: str


def list_cuts(curve: Curve) -> list[int]:
    """Those that leave a size to predict."""
    return [kept for kept in CUTS if kept < len(curve.sizes) and curve.sizes[kept] <= TIMES[-1] * curve.sizes[kept - 1]]


def predict_rest(curve: Curve, fits: dict) -> Iterator[Prediction | Skipped]:
    """What every law says of the sizes beyond every cut, up to eight times its largest size.

    fits: fits by cut, those of `auto`, are added for the comparison of two curves.
    """
    for kept in list_cuts(curve):
        times = curve.sizes[kept:] / curve.sizes[kept - 1]
        times = times[times <= TIMES[-1]]
        ahead = slice(kept, kept + len(times))
        measured, runs = curve.means[ahead], curve.errors[ahead]
        for law in LAWS:
            try:
                fit = curve.fit(kept, law)
            except UserError as error:
                yield Skipped(curve.task, law, str(error))
                continue
            if law == "auto":
                fits[kept] = fit
            misses = np.log(fit.predict(curve.sizes[ahead])) - np.log(measured)
            low, high = fit.interval(curve.sizes[ahead])
            means_inside = (low <= measured) & (measured <= high)
            low, high = fit.prediction_interval(curve.sizes[ahead])
            runs_inside = ((low[:, None] <= runs) & (runs <= high[:, None])).mean(1)
            for values in zip(times, misses, means_inside, runs_inside, strict=True):
                yield Prediction(curve.task, curve.model, law, kept, *values)


def summarize(predictions: Sequence[Prediction]) -> list[str]:
    """RMSE of the log error; the shares of means and of single runs inside their intervals at 2, 4 and 8 times."""
    rmse = np.sqrt(np.mean([one.miss**2 for one in predictions]))
    at = [[one for one in predictions if abs(one.times - times) < 0.01 * times] for times in TIMES]
    means = " / ".join(share([one.mean_inside for one in part]) for part in at)
    runs = " / ".join(share([one.runs_inside for one in part]) for part in at)
    return [f"{rmse:.3f}".lstrip("0"), f"{means}%", f"{runs}%"]


def share(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.0f}" if values else "-"
