"""`vitlab fit`: scaling laws of the errors in a CSV file, what they predict, and where they cross."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from vitlab.commands.arguments import CommandParser, non_empty_path, number_between
from vitlab.config import UserError
from vitlab.console import Console
from vitlab.formatting import plural
from vitlab.studies.laws.table import FEWEST, Points, read_points
from vitlab.training.files import refuse_unwritable

if TYPE_CHECKING:
    from vitlab.studies.laws.groups import GroupFit

DESCRIPTION = """Fit scaling laws to the errors in a CSV file, one per group, and find where they cross.

  vitlab fit runs/quick/results.csv
  vitlab fit runs/text_quick/results.csv --y loss --out fits
  vitlab fit benchmark.csv --x "Seen Examples" --y Loss --group Task,Model --up-to 1e8 --json
Equal sizes are runs of several seeds, told apart by the column `seed` where there is one. Crossovers are sought within
groups that share all columns of --group but the last. `--up-to X` fits sizes up to X and predicts the rest."""
MOST_PAIRS = 15  # of more, those without a crossover are counted
LAWS = ("auto", "m1", "m2", "m3", "m4")


def main(words: Sequence[str]) -> int:
    parser = CommandParser("fit", DESCRIPTION)
    parser.add_argument("csv", type=non_empty_path, metavar="CSV")
    parser.add_argument("--x", default="train_size", metavar="COLUMN", help="sizes (default: train_size)")
    parser.add_argument("--y", default="error", metavar="COLUMN", help="errors, or a loss (default: error)")
    parser.add_argument("--group", default="model", metavar="COLUMN,...", help="one curve per value (default: model)")
    parser.add_argument("--law", choices=LAWS, default="auto", help="default: auto, the mean of m2, m3 and m4")
    parser.add_argument(
        "--up-to", type=number_between(0, 1e300), metavar="X", help="fit sizes up to X, predict the rest"
    )
    parser.add_json()
    parser.add_out("fits.json and the figure, as SVG and PNG, go here")
    args = parser.parse_args(words)
    group = [name.strip() for name in args.group.split(",")]
    points = read_points(args.csv, args.x, args.y, group)
    if args.up_to is not None:
        check_limit(points, args.up_to)
    if args.out is not None:
        refuse_unwritable(args.out)
    return fit(points, args.law, args.up_to, (args.x, args.y), as_json=args.json, out=args.out)


def check_limit(groups: dict[Any, Points], limit: float) -> None:
    counts = {name: len({size for size in points.sizes if size <= limit}) for name, points in groups.items()}
    problems = [
        f"--up-to {limit:g}: {', '.join(name)} has {count} sizes up to it; a law needs {FEWEST} or more"
        for name, count in counts.items()
        if count < FEWEST
    ]
    if problems:
        raise UserError(problems)


def fit(
    points: dict[Any, Points], law: str, limit: float | None, axes: tuple[str, str], *, as_json: bool, out: Path | None
) -> int:
    """Print the fits and the crossovers, as text or as JSON, and write them to a folder; the exit code."""
    from rich.progress import track

    from vitlab.studies.laws.groups import find_crossovers, find_multipliers, fit_groups

    console = Console(stderr=True)

    def follow(items: Any, what: str) -> Any:
        return track(items, what, console=console, transient=True, update_period=0.5)

    fits = fit_groups(points, law, limit, lambda groups: follow(groups, "fitting"))
    crossovers = find_crossovers(fits, lambda pairs: follow(pairs, "looking for crossovers"))
    multipliers = find_multipliers(fits, crossovers)
    document = {
        "groups": {join(name): describe_group(group_fit) for name, group_fit in fits.items()},
        "crossovers": [
            {
                "a": join(first),
                "b": join(second),
                "size": crossing.size,
                "low": crossing.low,
                "high": crossing.high,
                "inside": crossing.inside,
                "p_none": crossing.p_none,
                "claim": crossing.claim,
                "reason": crossing.reason,
            }
            for (first, second), crossing in crossovers.items()
        ],
        "multipliers": [
            {"a": join(first), "b": join(second), **asdict(found)} for (first, second), found in multipliers.items()
        ],
    }
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        show(fits, crossovers, multipliers, axes)
    if out is not None:
        from vitlab.files import write_json
        from vitlab.reports.figures import save_figure
        from vitlab.reports.figures.metric import plot_fitted_curves

        write_json(out / "fits.json", document)
        pictures = save_figure(plot_fitted_curves(fits, *axes), out)
        print(out / "fits.json", *pictures, sep="\n", file=sys.stderr)
    return 0


def join(name: Sequence[str]) -> str:
    """A group's values as one name."""
    return ", ".join(name)


def describe_group(one: "GroupFit") -> dict[str, Any]:
    fit, sizes = one.fit, one.asked if one.fit.laws else []
    (low, high), values = fit.prediction_interval(sizes), fit.predict(sizes)
    return {
        "law": fit.law,
        "params": fit.params,
        "at_bound": fit.at_bound,
        "points": len(fit.runs.log_errors),
        "rmse_holdout": one.rmse_holdout,
        "predict": {
            f"{size:.15g}": [float(v), float(lowest), float(highest)]
            for size, v, lowest, highest in zip(sizes, values, low, high, strict=True)
        },
    }


def show(
    fits: dict[Any, "GroupFit"], crossovers: dict[Any, Any], multipliers: dict[Any, Any], axes: tuple[str, str]
) -> None:
    """The laws as a table, then a sentence per crossover, and per known multiplier."""
    from vitlab.studies.laws.crossover import describe_crossover, describe_multiplier
    from vitlab.studies.laws.groups import make_law_table

    console = Console(width=None if sys.stdout.isatty() else 120)
    header, *rows = make_law_table({join(name): group_fit for name, group_fit in fits.items()}, axes[1])
    table = Table(*map(escape, header), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
    for (first, second), crossing in crossovers.items():
        sentence = describe_crossover(crossing, join(first), join(second))
        if crossing.size is not None or len(crossovers) <= MOST_PAIRS:
            console.print(escape(f"{sentence}."), soft_wrap=True, highlight=False)
    if len(crossovers) > MOST_PAIRS and (rest := sum(crossing.size is None for crossing in crossovers.values())):
        console.print(f"The other {plural(rest, 'pair')} are not seen to change places.", soft_wrap=True)
    for (first, second), found in multipliers.items() if len(multipliers) <= MOST_PAIRS else ():
        if found.ratio is not None:
            sentence = describe_multiplier(found, join(first), join(second), axes[1])
            console.print(escape(f"{sentence}."), soft_wrap=True, highlight=False)
    ways = sorted({group_fit.fit.measured_by for group_fit in fits.values()})
    console.print(
        f"Intervals: {'; '.join(ways)}. Hold-out: RMSE of the log error at the largest sizes.", soft_wrap=True
    )
