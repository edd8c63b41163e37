"""`vitlab work`: a worker of a study, on any machine that sees its folder. Imports torch when it works."""

from collections.abc import Callable, Sequence
from pathlib import Path

from vitlab.commands.arguments import CommandParser, positive_integer, status_line
from vitlab.signals import Stopping
from vitlab.studies.store import StudyFiles

DESCRIPTION = """Train free runs of a study until none is left.

'vitlab scale' starts such workers by itself. Start more of them by hand on any machine that sees the folder, or as jobs
of any scheduler. Ctrl-C or SIGTERM writes a checkpoint; any worker continues the run."""


def main(words: Sequence[str]) -> int:
    parser = CommandParser("work", DESCRIPTION)
    parser.add_argument("study", metavar="STUDY_DIR", type=Path)
    parser.add_argument(
        "--cores", type=positive_integer, metavar="N", help="of each run (default: all of this machine)"
    )
    args = parser.parse_args(words)
    StudyFiles(args.study).config()
    with Stopping() as stopping:
        with status_line("loading torch, lightning and timm"):
            from vitlab.studies import worker  # noqa: F401
        work(args.study, args.cores, stopping.asked)
    if stopping.requested:
        raise KeyboardInterrupt
    return 0


def work(folder: str | Path, cores: int | None, stop: Callable[[], bool]) -> None:
    """What workers of all executors do. Raises UserError for a folder that is no study."""
    from vitlab.reports.wandb import RunReporter
    from vitlab.studies.worker import work

    work(folder, cores=cores, observe=RunReporter, stop=stop)
