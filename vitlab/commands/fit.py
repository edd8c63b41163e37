"""`vitlab fit`: scaling laws of the errors in a table, what they predict, and where they cross."""

import json
import math
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab.commands.arguments import CommandParser, non_empty_path, number_between
from vitlab.config import UserError, choices_text, raise_all
from vitlab.console import Console, tabulate
from vitlab.formatting import amount, cut_lines, plural
from vitlab.training.files import mark_output, refuse_output

if TYPE_CHECKING:
    import pandas as pd

    from vitlab.statistics.fit import Fit

DESCRIPTION = """Fit scaling laws to the errors in a CSV file or JSON lines, one per group, and find where they cross.

  vitlab fit runs/quick/results.csv
  vitlab fit runs/text_quick/results.csv --y loss --out fits
  vitlab fit benchmark.csv --x "Seen Examples" --y Loss --group Task,Model --up-to 1e8 --json
results.csv of a study gives the laws and crossovers of its report, which leave out undertrained cells.
Equal sizes are runs of several seeds, told apart by the column `seed` where there is one. Crossovers are sought within
groups that share all columns of --group but the last. `--up-to X` fits sizes up to X and predicts the rest.
A column that rises with the data is refused: a law is of what falls.

  vitlab fit runs.csv --x N,D --y loss
Two columns of --x: L(N, D) = E + A/N^alpha + B/D^beta by Hoffmann et al. (2022), with intervals."""
CROSSING = ("size", "low", "high", "inside", "p_none", "claim", "reason")  # of each crossover in the document
MOST_PAIRS = 15  # of more, those without a crossover are counted
MOST_COMPARED = 500  # pairs
LAWS = ("auto", "m1", "m2", "m3", "m4")
FEWEST = 3  # sizes of a fit


def fit(words: Sequence[str]) -> int:
    parser = CommandParser("fit", DESCRIPTION)
    add = parser.add_argument
    add("csv", type=non_empty_path, metavar="CSV")
    add("--x", default="train_size", metavar="COLUMN", help="sizes, or parameters and data N,D (default: train_size)")
    add("--y", default="error", metavar="COLUMN", help="errors, or a loss (default: error)")
    add("--group", default="model", metavar="COLUMN,...", help="one curve per value (default: model, if any)")
    add("--law", choices=LAWS, default="auto", help="default: auto, the mean of m2, m3 and m4")
    add("--up-to", type=number_between(0, 1e300), metavar="X", help="fit sizes up to X, predict the rest")
    parser.add_json()
    parser.add_out("fits.json and the figure, as SVG and PNG, go here")
    args = parser.parse_args(words)
    limit = math.inf if args.up_to is None else args.up_to
    if os.path.isdir(args.csv):
        raise UserError(f"{args.csv}: is a folder; give a CSV file, of a study {args.csv / 'results.csv'}")
    group = split_names(args.group)
    if "," in args.x:
        return fit_surfaces(args, group)
    of_study = None
    default = (args.x, args.group, args.law, args.up_to) == ("train_size", "model", "auto", None)
    if default and args.csv.name == "results.csv" and (args.csv.parent / "study.yaml").is_file():
        from vitlab.studies.results import load_results

        found = load_results(args.csv.parent).fits
        of_study = found if found.by_model and found.error_name == args.y else None
    points = {} if of_study else read_points(args.csv, args.x, args.y, group, limit)
    if args.out is not None:
        refuse_output(args.out, "fit", args.csv)
    from vitlab.data.opening import progress_bar
    from vitlab.statistics.crossover import crossover, data_multiplier
    from vitlab.statistics.fit import fit_points

    fits, compared = {(name,): fit for name, fit in of_study.by_model.items()} if of_study else {}, []
    with progress_bar(Console(stderr=True)) as progress:
        for name, some in points.items():
            progress("fitting", len(fits), len(points))
            fits[name] = fit_points(**some, law=args.law, up_to=limit)
        trends = [fit.runs.trend for fit in fits.values()]
        if (rising := trends.count(1)) > trends.count(-1):
            top = "1" if max((some["errors"].max() for some in points.values()), default=1) <= 1 else "100"
            problem = f"rises with the data in {rising} of {plural(len(fits), 'curve')}, and a law is of what falls"
            raise UserError(f"--y {args.y}: {problem}; where higher is better, give a column of {top} - {args.y}")
        pairs = [(a, b) for a, b in combinations(fits, 2) if a[:-1] == b[:-1]]
        if len(pairs) > MOST_COMPARED:  # those of the curves that lose the fewest of their pairs
            lost = Counter(max(pair, key=lambda name: fits[name].runs.log_means[-1]) for pair in pairs)
            best = f"the {MOST_COMPARED} of the curves with the lowest errors at their largest sizes"
            print(f"of {len(pairs):,} pairs {best} are compared; for others give fewer curves", file=sys.stderr)
            pairs = sorted(pairs, key=lambda pair: max(map(lost.__getitem__, pair)))[:MOST_COMPARED]
        for a, b in pairs:
            progress("looking for crossovers", len(compared), len(pairs))
            names = ", ".join(a), ", ".join(b)
            crossing = of_study.crossovers[names] if of_study else crossover(fits[a], fits[b])
            compared.append((names, crossing, data_multiplier(fits[a], fits[b])))
    document = {
        "groups": {", ".join(name): describe_fit(fit) for name, fit in fits.items()},
        "crossovers": [
            {"a": a, "b": b, **{key: vars(crossing)[key] for key in CROSSING}} for (a, b), crossing, _ in compared
        ],
        "multipliers": [{"a": a, "b": b, **asdict(found)} for (a, b), _, found in compared],
    }
    if not args.json:
        show({", ".join(name): fit for name, fit in fits.items()}, compared, args.x, args.y)
    return put_out(args, document, lambda metric: metric.plot_fitted_curves(fits, args.x, args.y))


def put_out(args: Namespace, document: dict[str, Any], plot: Callable[[Any], Any] | None = None) -> int:
    """Print the document with --json; write it, and a figure of `figures.metric`, to --out."""
    if args.json:
        print(json.dumps(document, indent=1))
    if args.out is not None:
        from vitlab.files import write_json
        from vitlab.reports.figures import metric, save_figure

        mark_output(args.out, "fit", args.csv)
        path = args.out / "fits.json"
        write_json(path, document)
        print(path, *(save_figure(plot(metric), args.out) if plot else ()), sep="\n", file=sys.stderr)
    return 0


def describe_fit(fit: "Fit") -> dict[str, Any]:
    sizes = fit.asked if fit.laws else []
    values = zip(fit.predict(sizes), *fit.prediction_interval(sizes), strict=True)
    return {
        "law": fit.law,
        "params": fit.params,
        "at_bound": fit.at_bound,
        "points": len(fit.runs.log_errors),
        "rmse_holdout": fit.miss,
        "predict": {f"{size:.15g}": [*map(float, three)] for size, three in zip(sizes, values, strict=True)},
    }


def show(fits: dict[str, "Fit"], compared: Sequence[Any], x: str, y: str) -> None:
    """Print the laws as a table, then a sentence per crossover, and per known multiplier."""
    from vitlab.statistics.crossover import describe_crossover, describe_multiplier
    from vitlab.studies.laws import make_law_table

    console = Console(width=None if sys.stdout.isatty() else 120)
    header, *rows = make_law_table(fits, y)
    console.print(tabulate(header, rows))
    many = len(compared) > MOST_PAIRS
    unit = "training examples" if x == "train_size" else x.replace("_", " ")
    for pair, crossing, _ in compared:
        if crossing.size is not None or not many:
            console.say(f"{describe_crossover(crossing, *pair, unit)}.")
    if many and (rest := sum(crossing.size is None for _, crossing, _ in compared)):
        console.print(f"The other {plural(rest, 'pair')} are not seen to change places.", soft_wrap=True)
    for pair, _, found in compared:
        if found.ratio is not None and not many:
            console.say(f"{describe_multiplier(found, *pair, y)}.")
    ways = "; ".join(sorted({fit.measured_by for fit in fits.values()}))
    console.print(f"Intervals: {ways}. Hold-out: the factor of misses at the largest sizes.", soft_wrap=True)


# ---- L(N, D)


def fit_surfaces(args: Namespace, group: list[str]) -> int:
    """Fit, show and save L(N, D) of each group."""
    from vitlab.statistics.surfaces import fit_surface
    from vitlab.studies.readers import RISING, as_number, describe_metric

    x, y, option = split_names(args.x), args.y, f"--x {args.x}"
    if args.law != "auto":
        raise UserError(f"--law {args.law}: is a law of errors; leave it out with {option}")
    if args.up_to is not None or len({*x, y}) != 3 or len(x) != 2:
        raise UserError(f"{option}: fits L(N, D); give two columns other than --y, without --up-to")
    table = read_runs(args.csv, x, y, group)
    if (what := describe_metric(y)[1]) is not None and what < len(RISING):
        raise UserError(f"--y {y}: rises where a model is better; give a column of errors, such as 1 - {y}")
    numbers = table[[*x, y]].map(as_number)
    rows = (numbers > 0).all(axis=1)  # without runs that diverged
    if not rows.any():
        raise UserError(f"{option}: {args.csv} has no line with positive numbers as {', '.join(numbers)}")
    if args.out is not None:
        refuse_output(args.out, "fit", args.csv)
    laws, problems = {}, []
    for name, found in numbers[rows].groupby([table[key][rows] for key in group], sort=False):
        try:
            laws[", ".join(name)] = fit_surface(*found.to_numpy().T)
        except UserError as error:
            problems.append(f"{option}: {args.csv}, {', '.join(name)}: {error}")
    if not laws:
        raise UserError(cut_lines(problems, 20))
    lost = int((~rows).sum())
    lines = [f"{args.csv}: {plural(lost, 'line')} without positive {', '.join(numbers)}"] * bool(lost)
    for line in [*lines, *cut_lines(problems, 20)]:
        print(f"vitlab: left out: {line}", file=sys.stderr)
    for name, law in {} if args.json else laws.items():
        Console(width=None if sys.stdout.isatty() else 120).say(f"{name}: {law.describe()}.")
    return put_out(args, {"x": x, "y": y, "groups": {name: asdict(law) for name, law in laws.items()}})


# ---- the errors in a file


def read_points(
    path: Path, x: str, y: str, group: Sequence[str], limit: float
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Read `sizes`, `errors`, `seeds` and `chance` of each group, in the order of the file. Raises UserError.

    Rows without a y are left out. A row with fewer cells, or with more that are not empty, is refused: its cells may be
    under the wrong names. A group with fewer than FEWEST sizes up to the limit is left out, and named on stderr.
    """
    import pandas as pd  # 0.5 s: the help does without

    from vitlab.data.text.texts import name_lines
    from vitlab.studies.readers import as_number

    rows = read_runs(path, [x], y, group)
    size, error = (rows[key].map(as_number) for key in (x, y))
    items, guessed = (rows.get(key, pd.Series("", rows.index)).map(as_number) for key in ("test_items", "chance"))
    guessed = guessed if y == "error" else guessed * math.nan
    error = error.mask((error == 0) & (items >= 1), 0.5 / items)  # fewer than one in twice as many items is wrong
    faults = [("chance", (guessed < 0) | (guessed > 1), "{}: give the share that guessing gets right, from 0 to 1")]
    for key, values, more in ((y, error, ", or test on more examples"), (x, size, "")):
        faults.append((key, ~(values >= 0), "{!r} is not a positive number"))
        faults.append((key, values == 0, f"0: has no logarithm; leave the row out{more}"))
    problems = [
        f"{path}, {name_lines(rows.index[wrong])}: {key}={text.format(rows.loc[wrong, key].iloc[0])}"
        for key, wrong, text in faults
        if wrong.any()
    ]
    points = {}
    for name, of_group in rows.groupby([rows[key] for key in group], sort=False):
        lines, chance = of_group.index, (1 - guessed[of_group.index]).dropna().tolist()
        columns = {"sizes": size[lines], "errors": error[lines], "seeds": rows["seed"][lines]}
        points[name] = {**columns, "chance": chance[-1] if chance else None}
    within = f" within --up-to {amount(limit)}" if limit < math.inf else ""
    raise_all(cut_lines(problems, 20))
    few = {
        name: f"{path}, {', '.join(name)}: {plural(sizes, 'different size')}{within}; a law needs {FEWEST} or more"
        for name, of_group in points.items()
        if (sizes := len({size for size in of_group["sizes"] if size <= limit})) < FEWEST
    }
    if len(few) == len(points):
        raise UserError(cut_lines([*few.values()], 20))
    for line in cut_lines([*few.values()], 20):
        print(f"vitlab: left out: {line}", file=sys.stderr)
    return {name: of_group for name, of_group in points.items() if name not in few}


def read_runs(path: Path, x: Sequence[str], y: str, group: Sequence[str]) -> "pd.DataFrame":
    """Read the cells of finished runs that have a y as texts, and their seeds, as `vitlab report` does: last rows, and
    copies once. The index is the numbers of the file's lines. Raises UserError.
    """
    import pandas as pd

    from vitlab.studies.others import choose_keys, count_runs, describe_runs, list_varied, set_roles
    from vitlab.studies.readers import STEPS, is_unfinished, read_table, tail

    runs = [run for run in read_table(path, [*x, *group]) if not is_unfinished(run)]
    for run in runs:
        run.settings |= run.values
    columns, used = {key for run in runs for key in run.settings}, {*x, y, *group, "seed", "test_items", "chance"}
    cells = {tuple(run.settings.get(key) for key in (*x, "seed")) for run in runs}
    # one curve needs no group, unless sizes come twice and a column that is not known may tell them apart
    one = "model" not in columns and (columns <= used or len(cells) == len(runs))
    columns |= {"model"} if one else {*()}
    raise_all(
        f"--{option} {key}: {path} has no value in this column; {choices_text(key, columns)}"
        for option, keys in (("x", x), ("y", [y]), ("group", group))
        for key in keys
        if key not in columns
    )
    runs, seeds = [run for run in runs if y in run.settings], choose_keys("seed", None, runs, [])
    for run in runs:
        run.settings |= {"model": "all"} if one else {}
        run.values |= {} if isinstance(run.settings[y], str) else {y: run.settings[y]}
    set_roles(runs, {"model": [*group, *x], "size": [], "seed": seeds}, {"model": "joined", "seed": None})
    runs, again, notes = count_runs(runs, bool(seeds))
    ends = [key for key in list_varied(runs, {*x, *group}) if tail(key) in STEPS]
    if again or ends:
        same = f"of one {', '.join(group)}, {', '.join(x)} and seed differ in {', '.join(ends) or y}, or in nothing"
        raise UserError(f"{path}: {describe_runs(again or runs, same)}; name what tells them apart by --group")
    for note in notes:
        print(f"vitlab: {path}: {note}", file=sys.stderr)
    cells = [{key: str(cell) for key, cell in run.settings.items()} | {"seed": run.row["seed"]} for run in runs]
    return pd.DataFrame(cells, [run.line for run in runs]).fillna("")


def split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
