"""Runs that were logged offline, taken to W&B by its own uploader, each once.

W&B marks a file that it has uploaded whole with `.synced` beside it. This mark alone is believed: the uploader's exit
code is 0 also when it could not reach the server.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vitlab.config import UserError
from vitlab.config.errors import printable
from vitlab.reports.results.run_results import RunResults
from vitlab.reports.results.study_results import StudyResults

NOT_OURS = ("WANDB_MODE", "WANDB_SILENT", "WANDB_SERVICE")  # of training: an upload is asked for, and is read by us
PATIENCE = {"WANDB__GRAPHQL_RETRY_MAX": "3", "WANDB__FILE_STREAM_RETRY_MAX": "5", "WANDB__FILE_TRANSFER_RETRY_MAX": "5"}
LOGGED_IN = "import sys, wandb; sys.exit(0 if wandb.login(prompt=False, verify=False) else 3)"


@dataclass(frozen=True)
class Upload:
    """One finished run: `state` is waiting, uploaded, failed, or why there is nothing to do.

    `file` is the .wandb file of its last attempt, which holds the whole run. `says` is the run's address in W&B once
    it is uploaded, else the uploader's reason.
    """

    run: str
    state: str
    file: Path | None = None
    says: str = ""


def uploads(results: StudyResults) -> list[Upload]:
    """Every finished run in the order of results.csv. Raises UserError for files that cannot be read."""
    return [upload_of(name, run) for name, run in results.runs.items()]


def upload_of(name: str, run: RunResults) -> Upload:
    """Where a run's last attempt is, by its result.json."""
    where, files = run.wandb, run.files
    if where.get("mode") != "offline":
        return Upload(name, "online" if where.get("mode") == "online" else "untracked", says=str(where.get("url", "")))
    path = str(where.get("path", ""))
    if not (files.folder / path).resolve().is_relative_to(files.folder.resolve()):
        raise UserError(f"{files.result_path}: wandb.path={path} is not a folder of the run")
    file = next(iter(sorted((files.folder / path).parent.glob("*.wandb"))), None)
    if file is None:
        return Upload(name, "gone")
    return Upload(name, "synced" if marker(file).exists() else "waiting", file)


def marker(file: Path) -> Path:
    return file.with_name(f"{file.name}.synced")


def upload(waiting: list[Upload]) -> Iterator[Upload]:
    """Upload one after the other; each with its new state. Nothing comes after the first that failed.

    Raises UserError when nobody is logged in to W&B.
    """
    with tempfile.TemporaryDirectory() as scratch:  # the uploader keeps logs where it runs
        if waiting and wandb(scratch, "-c", LOGGED_IN).returncode:
            raise UserError("nobody is logged in to W&B; run `wandb login`, or set WANDB_API_KEY")
        for one in waiting:
            found = wandb(scratch, "-m", "wandb", "sync", str(one.file.resolve()))
            said = found.stdout + found.stderr
            if not marker(one.file).exists():
                yield replace(one, state="failed", says=reason(said))
                return
            address = re.search(r"https?://\S+/runs/\S+", said)
            yield replace(one, state="uploaded", says=address[0] if address else "")


def wandb(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with W&B in it, outside this process: training's settings are not for uploads."""
    kept = {key: value for key, value in os.environ.items() if key not in NOT_OURS}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**PATIENCE, **kept, "WANDB_DIR": folder},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )


def reason(said: str) -> str:
    """The last error of the uploader's output; W&B says nothing to a key that the server does not know."""
    lines = [line.removeprefix("wandb: ").strip() for line in said.splitlines()]
    errors = [line.removeprefix("ERROR").strip() for line in lines if line.startswith("ERROR")]
    named = [line for line in errors if line and line != "<no message>"]
    return printable(named[-1]) if named else "W&B gives no reason; `wandb login --verify` checks the key"
