"""`vitlab report`: the report of a study, written again from its files."""

import sys

from vitlab.config import UserError
from vitlab.config.errors import first_line
from vitlab.reports.pages import study as study_page
from vitlab.reports.results import tables
from vitlab.studies.store import StudyFiles


def report(folder: str, *, wandb: bool = False) -> int:
    """Write report.html, its pages, figures/ and tables/ of a study's folder; the exit code. Raises UserError.

    With `wandb` its workspace and report, too: as JSON, and in W&B for who is logged in.
    """
    study = StudyFiles(folder)
    try:
        written = study_page.write_report(folder)
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror}; mend that, then give the command again"
        ) from None
    print(written, *tables.written(study.folder), sep="\n")
    return dashboards(study) if wandb else 0


def dashboards(study: StudyFiles) -> int:
    """The study's W&B workspace and report; 1 when W&B did not take them."""
    try:
        from vitlab.reports.tracking.dashboards import Dashboards
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "wandb_workspaces":
            raise
        raise UserError("--wandb needs the package wandb-workspaces: pip install wandb-workspaces") from None
    from vitlab.reports.tracking.wandb_mode import default_mode

    boards, addresses, refused = Dashboards(study), [], None
    online = default_mode() == "online"
    try:
        addresses = boards.save() if online else []
    except Exception as error:  # of W&B's client, of its transport, of its server
        refused = first_line(error)
    print(*boards.write(), *addresses, sep="\n")
    if refused:
        print(f"vitlab: W&B did not take the dashboards: {refused}; give the command again", file=sys.stderr)
    elif not online:
        print("Log in (`wandb login`) and give the command again to save them in W&B.", file=sys.stderr)
    return 1 if refused else 0
