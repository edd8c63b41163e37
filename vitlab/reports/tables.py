"""A study's results as a table for a paper or a README: sizes down, models across, mean and spread over seeds."""

from pathlib import Path
from typing import Any

from vitlab.files import write_text
from vitlab.reports.conclusion import size_table
from vitlab.reports.metric import main_metric
from vitlab.reports.numbers import DASH, plural

Rows = list[dict[str, Any]]
LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    DASH: "--",
}
NAMES = ("tables/results.md", "tables/results.tex")
MARKDOWN = "\\`*_[]<>|~&$"  # what means something inside a line


def write_tables(folder: Path, rows: Rows) -> None:
    """Write tables/results.md and tables/results.tex below a study's folder; nothing without a run."""
    if rows:
        for name, text in zip(NAMES, (markdown, latex), strict=True):
            write_text(folder / name, text(rows))


def written(folder: Path) -> list[Path]:
    """The tables that are there."""
    return [folder / name for name in NAMES if (folder / name).is_file()]


def markdown(rows: Rows) -> str:
    """A table of GitHub's Markdown, with a line that says what its numbers are."""
    header, body = size_table(rows)
    first, *rest = (list(map(escape_markdown, line)) for line in (header, *body))
    table = "\n".join(f"| {' | '.join(line)} |" for line in (first, ["---:"] * len(header), *rest))
    return f"{table}\n\n{escape_markdown(caption(rows))}\n"


def latex(rows: Rows) -> str:
    """A table environment for LaTeX with the package booktabs."""
    header, body = size_table(rows)
    lines = [" & ".join(map(escape_latex, line)) + r" \\" for line in (header, *body)]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(caption(rows))}}}",
            rf"\begin{{tabular}}{{{'r' * len(header)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def caption(rows: Rows) -> str:
    """What the numbers are, of how many seeds."""
    seeds = len({row["seed"] for row in rows})
    spread = f", mean ± standard deviation over {plural(seeds, 'seed')}" if seeds > 1 else ", one seed"
    name = main_metric(rows).name
    return f"Held-out {name} on {', '.join(sorted({str(row['data']) for row in rows}))}{spread}."


def escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    return "".join(f"\\{character}" if character in MARKDOWN else character for character in " ".join(text.split()))
