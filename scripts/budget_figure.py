r"""Make docs/budgets.png: the error against the size on one set, with fixed steps and with fixed epochs.

Studies that differ in their budget alone, sizes and steps in doublings, hold the runs of both:

    SGD="recipe: resnet_nano, recipe.optimizer: sgd, recipe.lr: 0.5, recipe.momentum: 0.9, recipe.weight_decay: 5.0e-4,
        recipe.schedule: cosine, recipe.batch_size: 128"        # the recipes that it was measured with
    VIT="model: vit_nano, recipe: muon, recipe.lr: 1.6e-2"
    MODELS="models={vit_nano: {$VIT}, resnet_nano: {model: resnet_nano, $SGD}}"
    for t in 100 200 400 800; do vitlab scale name=fashion-$t data=fashion_mnist data.root=DATA_ROOT budget.steps=$t \
        sizes=[400,800,1600,3200,6400] "seeds=[0,1]" analyses=[] "$MODELS"; done
    python scripts/budget_figure.py runs/fashion-* docs/budgets.png
"""

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from vitlab.reports import THEMES
from vitlab.studies.results import load_results


def draw(rows: Mapping[tuple[str, int, int], Sequence[dict[str, Any]]]) -> alt.FacetChart:
    """The error against the size, with fixed steps and with 16 epochs; rows by model, size and steps."""
    points = []
    for (model, size, steps), runs in rows.items():
        error = statistics.fmean(1 - row["accuracy"] for row in runs)
        points.append({"model": model, "size": size, "error": error, "what": f"{steps} steps"})
        if math.isclose(steps * 128 / size, 16):
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
    *studies, picture = sys.argv[1:]
    by_cell = defaultdict(list)
    for study in studies:
        for row in load_results(study).rows:
            by_cell[row["model"], row["train_size"], row["steps"]].append(row)
    draw(by_cell).save(picture, ppi=96)
