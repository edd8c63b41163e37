"""`vitlab report`: the report of a study, written again from its files."""

from pathlib import Path

from vitlab.reports import html


def report(folder: str) -> int:
    """Write report.html and figures/ of a study's folder; the exit code. Raises UserError."""
    print(html.write_report(Path(folder)))
    return 0
