"""Uploads runs that were logged offline, each once, with W&B's own uploader.

W&B puts a `.synced` file beside a file that it uploaded completely. Only this marker counts: the uploader's exit code
is 0 even when it cannot reach the server.
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
from vitlab.studies.results import Results, RunResults
from vitlab.studies.store import list_trials

NOT_OURS = ("WANDB_MODE", "WANDB_SILENT", "WANDB_SERVICE")  # set for training; an upload is online and prints
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


def list_uploads(results: Results) -> list[Upload]:
    """Every finished run in the order of results.csv, each behind its trials. Raises UserError for unreadable files."""
    uploads = []
    for name, run in results.run_files.items():
        trials = [RunResults(files) for files in list_trials(run.files)]
        uploads += [find_upload(f"{name}, trial {trial.files.folder.name}", trial) for trial in trials if trial.wandb]
        uploads.append(find_upload(name, run))
    return uploads


def find_upload(name: str, run: RunResults) -> Upload:
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
    return Upload(name, "synced" if marker_path(file).exists() else "waiting", file)


def marker_path(file: Path) -> Path:
    return file.with_name(f"{file.name}.synced")


def upload(waiting: list[Upload]) -> Iterator[Upload]:
    """Upload one after the other and yield each with its new state; stop at the first that fails.

    Raises UserError when nobody is logged in to W&B.
    """
    with tempfile.TemporaryDirectory() as scratch:  # the uploader keeps logs where it runs
        if waiting and run_wandb(scratch, "-c", LOGGED_IN).returncode:
            raise UserError("not logged in to W&B; run `wandb login`, or set WANDB_API_KEY")
        for run in waiting:
            done = run_wandb(scratch, "-m", "wandb", "sync", str(run.file.resolve()))
            output = done.stdout + done.stderr
            if not marker_path(run.file).exists():
                yield replace(run, state="failed", says=find_reason(output))
                return
            address = re.search(r"https?://\S+/runs/\S+", output)
            yield replace(run, state="uploaded", says=address[0] if address else "")


def run_wandb(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with W&B in another process, without the settings that are meant for training."""
    environment = {key: value for key, value in os.environ.items() if key not in NOT_OURS}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**PATIENCE, **environment, "WANDB_DIR": folder},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )


def find_reason(output: str) -> str:
    """The last error in the uploader's output; W&B prints none for an API key that the server does not know."""
    lines = [line.removeprefix("wandb: ").strip() for line in output.splitlines()]
    errors = [line.removeprefix("ERROR").strip() for line in lines if line.startswith("ERROR")]
    named = [line for line in errors if line and line != "<no message>"]
    return printable(named[-1]) if named else "W&B gives no reason; `wandb login --verify` checks the key"
