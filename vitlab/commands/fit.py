"""`vitlab fit`: scaling laws of the errors in a CSV file, what they predict, and where they cross."""

import csv
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from vitlab.commands.arguments import CommandParser, non_empty_path, number_between
from vitlab.config import UserError, choices_text
from vitlab.console import Console
from vitlab.formatting import plural
from vitlab.training.files import refuse_unwritable

if TYPE_CHECKING:
    from vitlab.studies.fit import GroupFit, Points

DESCRIPTION = """Fit scaling laws to the errors in a CSV file, one per group, and find where they cross.

  vitlab fit runs/quick/results.csv
  vitlab fit runs/text_quick/results.csv --y loss --out fits
  vitlab fit benchmark.csv --x "Seen Examples" --y Loss --group Task,Model --up-to 1e8 --json
Equal sizes are runs of several seeds, told apart by the column `seed` where there is one. Crossovers are sought within
groups that share all columns of --group but the last. `--up-to X` fits sizes up to X and predicts the rest."""
CROSSING = ("size", "low", "high", "inside", "p_none", "claim", "reason")  # of each crossover in the document
MOST_PAIRS = 15  # of more, those without a crossover are counted
LAWS = ("auto", "m1", "m2", "m3", "m4")
FEWEST = 3  # sizes of a fit
Name = tuple[str, ...]  # the values of the columns of a group
THOUSANDS = re.compile(r"\s*[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*")


def main(words: Sequence[str]) -> int:
    parser = CommandParser("fit", DESCRIPTION)
    add = parser.add_argument
    add("csv", type=non_empty_path, metavar="CSV")
    add("--x", default="train_size", metavar="COLUMN", help="sizes (default: train_size)")
    add("--y", default="error", metavar="COLUMN", help="errors, or a loss (default: error)")
    add("--group", default="model", metavar="COLUMN,...", help="one curve per value (default: model)")
    add("--law", choices=LAWS, default="auto", help="default: auto, the mean of m2, m3 and m4")
    add("--up-to", type=number_between(0, 1e300), metavar="X", help="fit sizes up to X, predict the rest")
    parser.add_json()
    parser.add_out("fits.json and the figure, as SVG and PNG, go here")
    args = parser.parse_args(words)
    group = [name.strip() for name in args.group.split(",")]
    points = read_points(args.csv, args.x, args.y, group)
    if args.up_to is not None:
        counts = [len({size for size in some.sizes if size <= args.up_to}) for some in points.values()]
        if min(counts) < FEWEST:
            raise UserError(
                f"--up-to {args.up_to:g}: {name} has {count} sizes up to it; a law needs {FEWEST} or more"
                for name, count in zip(join(*points), counts, strict=True)
                if count < FEWEST
            )
    if args.out is not None:
        refuse_unwritable(args.out)
    return fit(points, args.law, args.up_to, (args.x, args.y), as_json=args.json, out=args.out)


def fit(
    points: "dict[Name, Points]",
    law: str,
    limit: float | None,
    axes: tuple[str, str],
    *,
    as_json: bool,
    out: Path | None,
) -> int:
    """Print the fits and the crossovers, as text or as JSON, and write them to a folder; the exit code."""
    from rich.progress import track

    from vitlab.studies.crossover import crossover, data_multiplier
    from vitlab.studies.fit import fit_group

    shown = {"console": Console(stderr=True), "transient": True, "update_period": 0.5}
    fits = {name: fit_group(points[name], law, limit) for name in track(list(points), "fitting", **shown)}
    pairs = [(a, b) for a, b in combinations(fits, 2) if a[:-1] == b[:-1]]
    of_pairs = track(pairs, "looking for crossovers", **shown)
    found = {pair: crossover(*(fits[name].fit for name in pair)) for pair in of_pairs}
    multipliers = {join(*pair): data_multiplier(*(fits[name].fit for name in pair)) for pair in found}
    crossovers = {join(*pair): crossing for pair, crossing in found.items()}
    named = dict(zip(join(*fits), fits.values(), strict=True))
    document = {
        "groups": {name: describe_group(group_fit) for name, group_fit in named.items()},
        "crossovers": [
            {"a": first, "b": second, **{key: vars(crossing)[key] for key in CROSSING}}
            for (first, second), crossing in crossovers.items()
        ],
        "multipliers": [{"a": first, "b": second, **asdict(one)} for (first, second), one in multipliers.items()],
    }
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        show(named, crossovers, multipliers, axes)
    if out is not None:
        from vitlab.files import write_json
        from vitlab.reports.figures import save_figure
        from vitlab.reports.figures.metric import plot_fitted_curves

        write_json(out / "fits.json", document)
        pictures = save_figure(plot_fitted_curves(fits, *axes), out)
        print(out / "fits.json", *pictures, sep="\n", file=sys.stderr)
    return 0


def join(*names: "Name") -> tuple[str, ...]:
    """The values of each group as one name."""
    return tuple(map(", ".join, names))


def describe_group(one: "GroupFit") -> dict[str, Any]:
    fit, sizes = one.fit, one.asked if one.fit.laws else []
    values = zip(fit.predict(sizes), *fit.prediction_interval(sizes), strict=True)
    return {
        "law": fit.law,
        "params": fit.params,
        "at_bound": fit.at_bound,
        "points": len(fit.runs.log_errors),
        "rmse_holdout": one.rmse_holdout,
        "predict": {f"{size:.15g}": [*map(float, three)] for size, three in zip(sizes, values, strict=True)},
    }


def show(
    fits: dict[str, "GroupFit"], crossovers: dict[Any, Any], multipliers: dict[Any, Any], axes: tuple[str, str]
) -> None:
    """The laws as a table, then a sentence per crossover, and per known multiplier."""
    from vitlab.studies.crossover import describe_crossover, describe_multiplier
    from vitlab.studies.fit import make_law_table

    console = Console(width=None if sys.stdout.isatty() else 120)
    header, *rows = make_law_table(fits, axes[1])
    table = Table(*map(escape, header), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
    many = len(crossovers) > MOST_PAIRS
    for pair, crossing in crossovers.items():
        if crossing.size is not None or not many:
            console.say(f"{describe_crossover(crossing, *pair)}.")
    if many and (rest := sum(crossing.size is None for crossing in crossovers.values())):
        console.print(f"The other {plural(rest, 'pair')} are not seen to change places.", soft_wrap=True)
    for pair, found in multipliers.items():
        if found.ratio is not None and not many:
            console.say(f"{describe_multiplier(found, *pair, axes[1])}.")
    ways = "; ".join(sorted({group_fit.fit.measured_by for group_fit in fits.values()}))
    console.print(f"Intervals: {ways}. Hold-out: RMSE of the log error at the largest sizes.", soft_wrap=True)


# ---- the errors in a file


Problems = dict[str, list[tuple[int, str]]]  # of a table: kind -> (line, what is wrong there)


def describe_problems(path: Path, problems: Problems) -> list[str]:
    """One message for each kind, with the text of its first line."""
    return [
        f"{path}, {plural(len(found), 'line')} ({', '.join(str(line) for line, _ in found[:5])}"
        f"{' ...' if found[5:] else ''}): {found[0][1]}"
        for found in problems.values()
    ]


def read_points(path: Path, x: str, y: str, group: Sequence[str]) -> "dict[Name, Points]":
    """The points of each group, in the order of the file; rows without a y are left out. Raises UserError."""
    columns, rows = read_rows(path)
    missing = [
        f"--{option} {name}: {path} has no such column; {choices_text(name, columns)}"
        for option, names in (("x", [x]), ("y", [y]), ("group", group))
        for name in names
        if name not in columns
    ]
    used = dict.fromkeys([x, y, *group, "seed", "test_items", "chance"])
    missing += [
        f"{path}: has {columns.count(name)} columns '{name}'; keep one" for name in used if columns.count(name) > 1
    ]
    if missing:
        raise UserError(missing)
    from vitlab.studies.fit import Points

    problems: Problems = defaultdict(list)
    groups: dict[Name, Points] = {}
    earlier: Counter[tuple[Name, float]] = Counter()  # runs of a group and a size above the line
    for line, row in rows:
        if not row[y].strip():
            continue
        size, error = as_number(row[x]), as_number(row[y])
        for key, value in ((x, size), (y, error)):
            if value is None or value < 0:  # one message for a whole column
                problems[f"{key} is not a number"].append((line, f"{key}={row[key]!r} is not a positive number"))
        if size is None or error is None or min(size, error) < 0:
            continue
        if error == 0 and (items := as_number(row.get("test_items", ""))) is not None and items >= 1:
            error = 0.5 / items  # none of so many test items is wrong: fewer than one in twice as many
        for key, value, advice in (
            (y, error, "leave the row out, or test on more examples"),
            (x, size, "leave the row out"),
        ):
            if value == 0:
                problems[f"{key} is 0"].append((line, f"{key}=0: has no logarithm; {advice}"))
        name = tuple(row[key] for key in group)
        points = groups.setdefault(name, Points())
        seed = row.get("seed", "").strip()  # without a column the number of earlier runs of this size
        points.add(size, error, int(seed) if seed.isascii() and seed.isdigit() else earlier[name, size])
        earlier[name, size] += 1
        if y == "error" and (guessed := as_number(row.get("chance", ""))) is not None:
            if not 0 <= guessed <= 1:
                text = f"chance={row['chance']}: give the share that guessing gets right, from 0 to 1"
                problems[text].append((line, text))
            points.chance = 1 - guessed
    if not groups and not problems:
        others = [key for key in rows[0][1] if any(as_number(row[key]) is not None for _, row in rows)]
        near = f"; {choices_text('', others)}" if others else ""
        raise UserError(f"--y {y}: {path} has no value in this column{near}")
    texts = describe_problems(path, problems) or [
        f"{path}, {', '.join(name)}: {plural(sizes, 'different size')}; a law needs {FEWEST} or more"
        for name, points in groups.items()
        if (sizes := len(set(points.sizes))) < FEWEST
    ]
    if texts:
        raise UserError(texts)
    return groups


def read_rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The names of the columns, and (line, cells by column) of each row that is not empty. Raises UserError.

    A row with fewer cells, or with more that are not empty, is refused: its cells may be under the wrong names.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            columns = [name.strip() for name in next(reader, [])]
            rows = [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not a CSV file ({error})"
        raise UserError(f"{path}: {reason}; give a CSV file with the names of its columns in the first line") from None
    if not rows:
        raise UserError(f"{path}: has no rows{' below the names of its columns' if columns else ''}")
    if len(columns) == 1 and (mark := next((mark for mark in (";", "\t") if mark in columns[0]), None)):
        raise UserError(
            f"{path}: its columns are separated by {mark!r}; separate them by commas, and write 0.5 for 0,5"
        )
    text = f"not one cell for each of the {len(columns)} columns; correct the row, or delete it"
    wrong = [line for line, cells in rows if len(cells) < len(columns) or any(cells[len(columns) :])]
    if wrong:
        raise UserError(describe_problems(path, {"cells": [(line, text) for line in wrong]}))
    return columns, [(line, dict(zip(columns, cells, strict=False))) for line, cells in rows]


def as_number(text: str) -> float | None:
    """The finite number that a cell holds, or None."""
    try:
        value = float(text.replace(",", "") if THOUSANDS.fullmatch(text) else text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
