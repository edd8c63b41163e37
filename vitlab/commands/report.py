"""`vitlab report`: write a study's report again from its files."""

import fnmatch
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vitlab.commands.arguments import CommandParser, status_line
from vitlab.config import UserError, choices_text, collecting, raise_all
from vitlab.training.files import refuse_unwritable

if TYPE_CHECKING:
    from vitlab.studies.results import Results

DESCRIPTION = """Write a study's report.html, compare.html, attention/, figures/ and tables/ again from its files.

Of several studies, or of runs of `vitlab train` and folders of them, it writes one page that compares their runs, into
the first folder."""


def report(words: Sequence[str]) -> int:
    parser = CommandParser("report", DESCRIPTION)
    parser.add_argument("studies", nargs="+", metavar="FOLDER")
    about = "the runs that the comparison begins with; * stands for any letters"
    parser.add_argument("--runs", metavar="A,B,...", help=about)
    about = "a W&B workspace and report too; saved to W&B if you are logged in"
    parser.add_argument("--wandb", action="store_true", help=about)
    parser.add_json()
    args = parser.parse_args(words)
    from vitlab.studies.results import load_runs

    names = [Path(folder).resolve().name for folder in args.studies]  # the whole path where two are the same
    named = [name if names.count(name) == 1 else path for name, path in zip(names, args.studies, strict=True)]
    studies: dict[str, Results] = {}
    problems: list[str] = []
    for name, folder in zip(named, args.studies, strict=True):
        with collecting(problems):
            studies |= load_runs(name, folder)
    raise_all(problems)
    if len(args.studies) == len(studies) == 1 and (only := next(iter(studies.values()))).files:
        return rewrite(only, wandb=args.wandb, runs=args.runs, as_json=args.json)
    for option in ("json", "wandb"):
        if vars(args)[option]:
            raise UserError(f"--{option}: is for one study; give the folder of one")
    with status_line("loading altair"):
        from vitlab.formatting import file_stem
        from vitlab.reports.pages.compare import merge_studies, write_compare_page

    path = Path(args.studies[0]) / f"{file_stem('-'.join(['compare', *named[1:]]))}.html"
    compared = find_runs(args.runs, list(merge_studies(studies).run_files))
    print(write_compare_page(studies, path, compared) or "There are no two finished runs to compare.")
    return 0


def find_runs(words: str | None, names: Sequence[str]) -> list[str]:
    """Find the runs that `--runs` names, also by patterns. Raises UserError for a word that names none."""
    found, problems = {}, []
    for word in filter(None, (words or "").split(",")):
        some = [word] if word in names else fnmatch.filter(names, word)
        problems += [] if some else [f"--runs {word}: no finished run has this name; {choices_text(word, names)}"]
        found |= dict.fromkeys(some)
    raise_all(problems)
    return list(found)


def rewrite(results: "Results", *, wandb: bool, runs: str | None, as_json: bool) -> int:
    """Write report.html, its pages, figures/ and tables/ of a study's folder; return the exit code. Raises UserError.

    With `wandb` also write the workspace and report: as JSON, and in W&B if the user is logged in. With `as_json` print
    the study's findings on stdout: sentences, cells, gaps, laws and crossovers.
    """
    compared = find_runs(runs, list(results.run_files))
    with status_line("loading altair"):
        from vitlab.reports.pages.study import write_report
        from vitlab.reports.words import TABLES, headline

    folder = results.files.folder
    refuse_unwritable(folder, "FOLDER")
    results.files.write_rows(results.all_rows)
    page = write_report(results, compared=compared)
    names = [*(TABLES if results.rows else ()), *(["compare.html"] if compared else [])]
    stream = sys.stderr if as_json else sys.stdout
    print(page, *(folder / name for name in names), sep="\n", file=stream)
    if as_json:
        tables = {name: getattr(results, name).to_json(orient="records") for name in ("cells", "gaps", "laws")}
        found = {name: json.loads(text) for name, text in tables.items()}  # NaN is null
        header, *pairs = results.fits.list_crossovers()
        found["crossovers"] = [dict(zip(header, pair, strict=True)) for pair in pairs]
        print(json.dumps({"metric": results.metric.key, "found": headline(results), **found}))
    if not wandb:
        return 0
    if find_spec("wandb_workspaces") is None:
        raise UserError("--wandb needs the package wandb-workspaces: pip install wandb-workspaces")
    from vitlab.reports.dashboards import write_dashboards
    from vitlab.reports.wandb import default_mode

    online = default_mode() == "online"
    places, failure = write_dashboards(results, online=online)
    print(*places, sep="\n", file=stream)
    if failure:
        print(f"vitlab: W&B did not save the dashboards: {failure}; run the command again", file=sys.stderr)
    elif not online:
        print("Log in (`wandb login`) and run the command again to save them in W&B.", file=sys.stderr)
    return 1 if failure else 0
