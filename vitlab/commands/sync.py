"""`vitlab sync`: `wandb sync` on what a study logged offline. Imports no torch."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vitlab.commands.arguments import CommandParser
from vitlab.formatting import plural

if TYPE_CHECKING:
    from vitlab.studies.results import Results

BATCH = 20  # runs of one `wandb sync`, which uploads five at a time
NOT_OURS = ("WANDB_MODE", "WANDB_SERVICE")  # of training; an upload is online
PATIENCE = {"WANDB__GRAPHQL_RETRY_MAX": "3", "WANDB__FILE_STREAM_RETRY_MAX": "5", "WANDB__FILE_TRANSFER_RETRY_MAX": "5"}


def main(words: Sequence[str]) -> int:
    parser = CommandParser("sync", "Upload the W&B runs that a study's finished runs logged offline, each once.")
    parser.add_argument("study", metavar="STUDY_DIR")
    parser.add_json()
    args = parser.parse_args(words)
    from vitlab.studies.results import load_results

    return sync(load_results(args.study), as_json=args.json)


def sync(results: "Results", *, as_json: bool) -> int:
    """Upload the offline runs of a study's folder, up to the first that fail; 0, 1 for those, 2 without a login.

    Each run is one line on stdout, or all are one document there with `as_json`; what W&B says goes to stderr.
    """
    from vitlab.reports.wandb import WAITING, is_uploaded, list_uploads

    uploads, code = list_uploads(results), 0
    waiting = [file.resolve() for _, state, file in uploads if state == WAITING]
    environment = PATIENCE | {key: value for key, value in os.environ.items() if key not in NOT_OURS}
    with tempfile.TemporaryDirectory() as scratch:  # for W&B's logs
        for start in range(0, len(waiting), BATCH):
            batch = waiting[start : start + BATCH]
            command = [sys.executable, "-m", "wandb", "sync", *map(str, batch)]
            done = subprocess.run(command, env=environment | {"WANDB_DIR": scratch}, stdin=subprocess.DEVNULL)
            if not all(map(is_uploaded, batch)):
                code = 2 if done.returncode else 1
                break
    states = {name: "uploaded" if state == WAITING and is_uploaded(file) else state for name, state, file in uploads}
    if as_json:
        print(json.dumps([{"run": name, "state": state} for name, state in states.items()], indent=1))
    else:
        print(*(f"{name}  {state}" for name, state in states.items()), sep="\n")
        print(f"{plural([*states.values()].count('uploaded'), 'run')} uploaded")
    if left := [name for name, state in states.items() if state == WAITING]:
        print(
            f"vitlab: {plural(len(left), 'run')} left to upload: {', '.join(left)}; run the command again",
            file=sys.stderr,
        )
    return code
