"""A study's results as a table for a paper or a README: sizes down, models across, mean and spread over seeds.

PublishedFigures a model stands what is published of it on the same data set, with its source and conditions below.
"""

from pathlib import Path
from typing import Any

from vitlab.files import write_text
from vitlab.formatting import DASH, whole
from vitlab.reports.results.comparison import MARGIN, NO_OUTCOMES, Outcomes
from vitlab.reports.results.published import CAUTION, PublishedFigures, find_published
from vitlab.reports.results.size_table import SizeTable, make_size_table
from vitlab.reports.results.study_results import StudyResults
from vitlab.studies.metrics import main_metric

Rows = list[dict[str, Any]]
NO_FIGURES = PublishedFigures()
WHOLE = "whole set"  # its size where the study's files do not tell it
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


def write_tables(results: StudyResults) -> None:
    """Write tables/results.md and tables/results.tex of a study; nothing without a run. Raises UserError."""
    if results.rows:
        others = find_published(results)
        for name, text in zip(NAMES, (format_markdown, format_latex), strict=True):
            write_text(results.files.folder / name, text(results.rows, others, results.outcomes, results.margin))


def find_tables(folder: Path) -> list[Path]:
    """The tables that are there."""
    return [folder / name for name in NAMES if (folder / name).is_file()]


def format_markdown(
    rows: Rows, others: PublishedFigures = NO_FIGURES, outcomes: Outcomes = NO_OUTCOMES, margin: float = MARGIN
) -> str:
    """A table of GitHub's Markdown, with a line that says what its numbers are; then a note per published figure."""
    table = make_size_table(rows, outcomes, margin)
    header, *body = (list(map(escape_markdown, line)) for line in build_table(table, others))
    lines = "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---:"] * len(header), *body))
    return "\n\n".join([lines, *map(escape_markdown, (format_caption(rows, table), *list_notes(others)))]) + "\n"


def format_latex(
    rows: Rows, others: PublishedFigures = NO_FIGURES, outcomes: Outcomes = NO_OUTCOMES, margin: float = MARGIN
) -> str:
    """A table environment for LaTeX with the package booktabs, a note per published figure below it."""
    table = make_size_table(rows, outcomes, margin)
    header, *body = build_table(table, others)
    lines = [" & ".join(map(escape_latex, line)) + r" \\" for line in (header, *body)]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(format_caption(rows, table))}}}",
            rf"\begin{{tabular}}{{{'r' * len(header)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\smallskip\footnotesize {escape_latex(note)}" for note in list_notes(others)),
            r"\end{table}",
            "",
        ]
    )


def build_table(table: SizeTable, others: PublishedFigures) -> list[list[str]]:
    """The header, then a row per size; right of a model its published figures, in the row of the whole training set."""
    header, body = table.header, [*table.body]
    if not others.figures:
        return [header, *body]
    whole_row = WHOLE if others.size is None else whole(others.size)
    if whole_row not in [line[0] for line in body]:
        body.append([whole_row, *[DASH] * (len(header) - 1)])
    lines = [[line[0]] for line in (header, *body)]
    for column, model in enumerate(header[1:], start=1):
        places = others.of(model)
        figures = ", ".join(f"{others.figures[place - 1].value} [{place}]" for place in places)
        for line, cells in zip(lines, (header, *body), strict=True):
            line.append(cells[column])
            if places:
                line.append("published" if cells is header else figures if cells[0] == whole_row else DASH)
    return lines


def list_notes(others: PublishedFigures) -> list[str]:
    """Where each published figure is from and under which conditions; last that others are not comparable."""
    notes = [f"[{place}] {figure.source}: {figure.conditions}." for place, figure in enumerate(others.figures, start=1)]
    return [*notes, CAUTION] if notes else []


def format_caption(rows: Rows, table: SizeTable) -> str:
    """What the numbers are, of how many seeds."""
    name = main_metric(rows).name
    return f"Held-out {name} on {', '.join(sorted({str(row['data']) for row in rows}))}. {table.note}"


def escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    return "".join(f"\\{character}" if character in MARKDOWN else character for character in " ".join(text.split()))
