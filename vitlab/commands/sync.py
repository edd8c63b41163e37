"""`vitlab sync`: upload what a study logged offline to W&B. Imports no torch."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vitlab.commands.arguments import CommandParser
from vitlab.formatting import plural
from vitlab.reports.tracking.uploads import Upload, list_uploads, upload

if TYPE_CHECKING:
    from vitlab.studies.results import Results

STATES = {  # of a run, in words
    "uploaded": "uploaded",
    "synced": "uploaded before",
    "online": "logged online",
    "untracked": "not logged to W&B",
    "gone": "its offline files are gone",
    "failed": "failed",
    "waiting": "not uploaded yet",
}


def main(words: Sequence[str]) -> int:
    parser = CommandParser("sync", "Upload the W&B runs that a study's finished runs logged offline, each once.")
    parser.add_argument("study", metavar="STUDY_DIR")
    parser.add_json()
    args = parser.parse_args(words)
    from vitlab.studies.results import load_results

    return sync(load_results(args.study), as_json=args.json)


def sync(results: "Results", *, as_json: bool) -> int:
    """Upload the offline runs of a study's folder; 0, or 1 when an upload failed. Raises UserError.

    Each run is one line on stdout; with `as_json` all are one document there, and the lines go to stderr.
    """
    stream = sys.stderr if as_json else sys.stdout
    runs = {pending.run: pending for pending in list_uploads(results)}
    waiting = [pending for pending in runs.values() if pending.state == "waiting"]
    for pending in runs.values():
        if pending.state != "waiting":
            print(line(pending), file=stream, flush=True)
    for pending in upload(waiting):
        runs[pending.run] = pending
        print(line(pending), file=stream, flush=True)
    count = {state: sum(pending.state == state for pending in runs.values()) for state in STATES}
    print(f"{plural(count['uploaded'], 'run')} uploaded", file=stream)
    left = count["failed"] + count["waiting"]
    if left:
        names = ", ".join(pending.run for pending in runs.values() if pending.state in ("failed", "waiting"))
        print(f"vitlab: {plural(left, 'run')} left to upload: {names}; run the command again", file=sys.stderr)
    if as_json:
        print(
            json.dumps(
                [{"run": pending.run, "state": pending.state, "says": pending.says} for pending in runs.values()],
                indent=1,
            )
        )
    return 1 if left else 0


def line(one: Upload) -> str:
    """`vit_nano-n500-s0  uploaded  https://...`"""
    return "  ".join(filter(None, (one.run, STATES[one.state], one.says)))
