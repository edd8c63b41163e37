r"""Does the rule "data or budget" (vitlab/studies/limits.py) say what training says?

A cell is a model with a number of examples and a budget. Training it with twice the budget and with twice the data
tells what limits it: whichever lowers the test error more, beyond the 95% interval of the difference in log error.
Studies of one set that differ in their budget alone, sizes and steps in doublings, hold the runs of many cells:

    SGD="recipe: resnet_nano, recipe.optimizer: sgd, recipe.lr: 0.5, recipe.momentum: 0.9, recipe.weight_decay: 5.0e-4,
        recipe.schedule: cosine, recipe.batch_size: 128"        # the recipes that it was measured with
    VIT="model: vit_nano, recipe: muon, recipe.lr: 1.6e-2"
    MODELS="models={vit_nano: {$VIT}, resnet_nano: {model: resnet_nano, $SGD}}"
    for t in 100 200 400 800; do vitlab scale name=fashion-$t data=fashion_mnist data.root=DATA_ROOT budget.steps=$t \
        sizes=[400,800,1600,3200,6400] "seeds=[0,1]" analyses=[] "$MODELS"; done        # so for glyphs
    for t in 60 120 240 480; do vitlab scale name=digits-$t data=digits budget.steps=$t \
        sizes=[80,160,320,640,1280] "seeds=[0,1]" analyses=[] "$MODELS"; done
    for t in 100 200 400; do vitlab scale name=pointer-$t data=pointer budget.steps=$t \
        sizes=[1000,2000,4000,8000,16000] "seeds=[0,1]" analyses=[] \
        "${MODELS/model: vit_nano,/model: vit_nano, model.patch_size: 8,}"; done
    python scripts/data_or_budget.py runs/fashion-* runs/glyphs-* runs/digits-* runs/pointer-* [--cells] [--figure PNG]

Prints a table by set: cells, what training says, right, wrong and undecided; right with one bound that is chosen on the
other sets; and how far `predict_gain` is off. With `--cells` a line for each cell. `--figure` draws the error against
the size for the first set, with fixed steps and with fixed epochs (docs/studies.md).
"""

import argparse
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from vitlab.reports import THEMES
from vitlab.studies.results import load_results
from vitlab.studies.stats import quantile
from vitlab.studies.store import fitted_share, limit_of, predict_gain

Rows = list[dict[str, Any]]
Key = tuple[str, str, int, int]  # data, model, size, steps


@dataclass(frozen=True)
class Cell:
    data: str
    model: str
    size: int
    steps: int
    error: float
    by_budget: float  # fall of the log error with twice the steps
    by_data: float
    half_width: float  # of the 95% interval of their difference
    rows: Rows

    @property
    def truth(self) -> str:
        if abs(self.by_budget - self.by_data) > self.half_width:
            return "budget" if self.by_budget > self.by_data else "data"
        return "undecided"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--cells", action="store_true")
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    rows: dict[Key, Rows] = defaultdict(list)
    for study in args.studies:
        for row in load_results(study).rows:
            rows[row["data"], row["model"], row["train_size"], row["steps"]].append(row)
    cells = list(make_cells(rows))
    if args.cells:
        for cell in cells:
            print(
                f"{cell.data:14} {cell.model:12} {cell.size:6} {cell.steps:5}  error {cell.error:.3f}  "
                f"twice the budget {cell.by_budget:+.2f}  the data {cell.by_data:+.2f} ± {cell.half_width:.2f}  "
                f"{cell.truth:9} rule {limit_of(cell.rows)} ({fitted_share(cell.rows):.2f})"
            )
    print_table(cells)
    if args.figure:
        draw(rows, cells[0].data).save(args.figure, ppi=96)


def make_cells(rows: Mapping[Key, Rows]):
    """Each cell whose runs with twice the budget and with twice the data are there, with the pooled spread of seeds."""
    spreads: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (data, model, *_), runs in rows.items():
        if len(runs) > 1:
            spreads[data, model].append(statistics.variance(map(log_error, runs)))
    for (data, model, size, steps), runs in sorted(rows.items()):
        longer, larger = rows.get((data, model, size, 2 * steps)), rows.get((data, model, 2 * size, steps))
        if longer and larger:
            here, with_budget, with_data = (statistics.fmean(map(log_error, some)) for some in (runs, longer, larger))
            pooled = spreads[data, model]
            spread = math.sqrt(statistics.fmean(pooled) * (1 / len(longer) + 1 / len(larger)))
            half_width = quantile(len(pooled)) * spread
            yield Cell(data, model, size, steps, math.exp(here), here - with_budget, here - with_data, half_width, runs)


def log_error(row: Mapping[str, Any]) -> float:
    return math.log(max(1 - row["accuracy"], 0.5 / row["test_items"]))


def print_table(cells: Sequence[Cell]) -> None:
    print("| data | cells | budget, data by training | right | wrong | undecided by the rule | one bound, held out |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    known = [cell for cell in cells if cell.truth in ("budget", "data")]
    held_out: Counter[str] = Counter()
    for data in [*dict.fromkeys(cell.data for cell in cells), "all"]:
        here = [cell for cell in known if data in (cell.data, "all")]
        truths = Counter(cell.truth for cell in here)
        ruled = Counter(
            "undecided" if (said := limit_of(cell.rows)) == "undecided" else said == cell.truth for cell in here
        )
        if data != "all":
            others = [cell for cell in known if cell.data != data]
            held_out[data] = sum(is_right(cell, choose_bound(others)) for cell in here) if others else 0
            held_out["all"] += held_out[data]
        print(
            f"| {data} | {sum(data in (cell.data, 'all') for cell in cells)} | {truths['budget']}, {truths['data']} | "
            f"{ruled[True]} | {ruled[False]} | {ruled['undecided']} | {held_out[data]} of {len(here)} |"
        )
    gains = [
        (predict_gain(cell.rows), 100 * cell.error * -math.expm1(-cell.by_budget))
        for cell in cells
        if limit_of(cell.rows) == "budget"
    ]
    predicted, measured = np.array(gains).T
    print(
        f"\nTwice the budget, {len(gains)} cells: predicted {np.median(predicted):.1f} points, measured "
        f"{np.median(measured):.1f} (medians); off by {np.median(abs(predicted - measured)):.1f}"
    )


def is_right(cell: Cell, bound: float) -> bool:
    return (fitted_share(cell.rows) > bound) == (cell.truth == "budget")


def choose_bound(cells: Sequence[Cell]) -> float:
    """The middle of the single bounds that are right in most of these cells."""
    right = {bound: sum(is_right(cell, bound) for cell in cells) for bound in np.arange(0.01, 1, 0.01)}
    return float(np.median([bound for bound, count in right.items() if count == max(right.values())]))


def draw(rows: Mapping[Key, Rows], chosen: str) -> alt.FacetChart:
    """The error against the size on one set, with fixed steps and with 16 epochs, for each model."""
    points = []
    for (data, model, size, steps), runs in rows.items():
        if data == chosen:
            error = statistics.fmean(1 - row["accuracy"] for row in runs)
            points.append({"model": model, "size": size, "error": error, "what": f"{steps} steps"})
            epochs = steps * 128 / size
            if math.isclose(epochs, 16):
                points.append({"model": model, "size": size, "error": error, "what": "16 epochs"})
    steps = sorted(
        {point["what"] for point in points if "steps" in point["what"]}, key=lambda name: int(name.split()[0])
    )
    blues, colors = ("#a9c7e6", "#6ea3d6", "#3c7fc0"), THEMES["light"]
    looks = {name: (shade, [1, 0]) for name, shade in zip(steps, (*blues, colors["vit"])[-len(steps) :], strict=True)}
    looks |= {"16 epochs": (colors["resnet"], [6, 3])}
    shades, dashes = zip(*looks.values(), strict=True)
    axis = {"values": sorted({point["size"] for point in points}), "grid": False}
    scale = alt.Scale(type="log", nice=False, padding=10)
    domain = [*looks]
    return (
        alt.Chart(alt.Data(values=points))
        .mark_line(point=True, strokeWidth=2)
        .encode(
            x=alt.X("size:Q", scale=scale, title="training examples", axis=alt.Axis(**axis)),
            y=alt.Y("error:Q", scale=scale, title="test error", axis=alt.Axis(format="%", tickCount=6)),
            color=alt.Color("what:N", title=None, scale=alt.Scale(domain=domain, range=list(shades))),
            strokeDash=alt.StrokeDash("what:N", title=None, scale=alt.Scale(domain=domain, range=list(dashes))),
        )
        .properties(width=320, height=300)
        .facet(column=alt.Column("model:N", title=None))
    )


if __name__ == "__main__":
    main()
