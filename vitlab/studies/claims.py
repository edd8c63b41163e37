"""Let one process at a time work in a run's folder, by files alone, on any file system and host. Imports no torch.

File locks are unreliable on network file systems. So a process that works in a folder creates `claim.<n>` there with
O_EXCL, where only one process can succeed, and touches the file every 10 s. The highest n counts. A claim is dead when
its process has ended, or, for another host, when this process has seen no touch for 60 s by its own clock. The next
process then creates `claim.<n+1>`: n - 1 processes have died there. Giving a claim back removes the files. An owner
checks that the claim is still its own before it writes metrics, a checkpoint or the result.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from vitlab.config import UserError

HEARTBEAT = 10.0  # seconds between two touches of a claim
DEAD_AFTER = 60.0  # seconds without a touch
# for claims of other hosts: last touch, when this process first saw it, whether it saw an earlier touch
SEEN: dict[Path, tuple[float, float, bool]] = {}


class Held(UserError):
    """Another process works in the folder."""


class ClaimLost(Exception):
    """Another process has taken the run over."""


@dataclass(frozen=True)
class Owner:
    """The process that made a claim, as the file says."""

    host: str
    pid: int
    started: str  # when the process began, in clock ticks of its host: process numbers are used again

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}"


def find_own() -> Owner:
    """Describe this process as an owner."""
    return Owner(socket.gethostname(), os.getpid(), find_start(os.getpid()) or "")


def find_start(pid: int) -> str | None:
    """Return a process's start in clock ticks; "" where the system does not tell it, None once it has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # another user's, where those are hidden
        return ""
    return None if state == "Z" else numbers[18]  # a zombie has ended, its parent has not yet noticed


@dataclass(frozen=True)
class Claim:
    """A claim as read from its file; `owner` is None if the file holds something else."""

    folder: Path
    number: int
    owner: Owner | None
    touched: float  # the last time, by the clock of the file system

    @property
    def age(self) -> float:
        """The seconds since the last touch, roughly: clocks of hosts differ."""
        return max(0.0, time.time() - self.touched)

    @property
    def holder(self) -> str:
        return str(self.owner or "a process whose claim cannot be read")

    @property
    def is_here(self) -> bool:
        """True if the claim's process runs, or ran, on this host."""
        return self.owner is not None and self.owner.host == socket.gethostname()

    @property
    def is_dead(self) -> bool:
        """True if the claim's process is gone; for another host's, two looks a minute or more apart tell."""
        if self.is_here:
            return find_start(self.owner.pid) != self.owner.started
        return self.look()[0] > DEAD_AFTER

    @property
    def is_silent(self) -> bool:
        """True for another host's claim that has shown this process no sign of life in the last heartbeats."""
        seconds, followed = self.look()
        return not self.is_here and (not followed or seconds > 2.5 * HEARTBEAT)

    def look(self) -> tuple[float, bool]:
        """Return the seconds since this process first saw another host's last touch, and whether it saw one before."""
        path, now = path_of(self.folder, self.number), time.monotonic()
        touched, since, followed = SEEN.get(path, (self.touched, now, False))
        SEEN[path] = (self.touched, since, followed) if touched == self.touched else (self.touched, now, True)
        return now - SEEN[path][1], SEEN[path][2]


def read_claim(folder: Path) -> Claim | None:
    """Read the claim that counts in a folder, dead or alive; None without a claim."""
    while number := max(list_numbers(folder), default=0):
        with contextlib.suppress(FileNotFoundError):  # its owner gave it back since the listing
            with path_of(folder, number).open() as file:  # opening it makes a network file system ask the server
                touched, text = os.fstat(file.fileno()).st_mtime, file.read()
            try:
                owner = Owner(**json.loads(text))
            except (ValueError, TypeError):  # its process was killed while writing, or is writing now
                owner = None
            return Claim(folder, number, owner, touched)
    return None


def list_numbers(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [int(name[6:]) for name in names if name.startswith("claim.") and name[6:].isdecimal()]


def path_of(folder: Path, number: int) -> Path:
    return folder / f"claim.{number}"


class Hold:
    """A folder claimed by this process, or by the process that started it as a rank of its run.

    Without a number this process checks nothing: rank 0 does.
    """

    def __init__(self, folder: str | Path, number: int = 0):
        self.folder, self.number = Path(folder), number
        claim = read_claim(self.folder)
        self.owner = claim and claim.owner

    @property
    def is_mine(self) -> bool:
        claim = read_claim(self.folder)
        return claim is not None and (claim.number, claim.owner) == (self.number, self.owner)

    def check(self) -> None:
        """Raise ClaimLost if another process has taken the folder over, or has finished the run since."""
        if self.number and not self.is_mine:
            raise ClaimLost(f"{self.folder}: another vitlab has taken it over, after no heartbeat of this one")


@contextlib.contextmanager
def hold(folder: str | Path, *, wait: bool = False) -> Iterator[Hold]:
    """Hold a folder for this process alone; make the folder if needed, and remove it if nothing was written there.

    Raises Held if another process holds the folder: at once for a process of this host, for another host's at its first
    sign of life. With `wait`, wait for that process instead.
    """
    folder = Path(folder)
    is_new = not folder.exists()
    owner, said, first = find_own(), False, None
    began = time.monotonic()
    while True:
        claim = read_claim(folder)
        if claim is None or claim.is_dead:
            number = claim.number + 1 if claim else 1
            if create_claim(folder, number, owner):
                break
            continue
        first = first or claim
        alive = claim.is_here or (claim.owner, claim.touched) != (first.owner, first.touched)
        if alive and not wait:
            raise Held(
                f"--out {folder}: another vitlab is running there ({claim.holder}); wait for it, or give another folder"
            )
        if not said and time.monotonic() - began > (3.0 if wait else 0.5):
            said = True
            print(f"{folder}: waiting for {claim.holder}", file=sys.stderr)
        time.sleep(0.1)
    ended, held = threading.Event(), Hold(folder, number)
    thread = threading.Thread(target=touch, args=(path_of(folder, number), ended), daemon=True)
    thread.start()
    try:
        yield held
    finally:
        ended.set()
        thread.join()
        if held.is_mine:
            for number in sorted(list_numbers(folder)):
                path_of(folder, number).unlink(missing_ok=True)
        if is_new:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def touch(claim: Path, ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT):
        with contextlib.suppress(OSError):  # another process took over and removed the claim: `check` says so
            os.utime(claim)


def create_claim(folder: Path, number: int, owner: Owner) -> bool:
    """Claim the folder under a number; return whether this process got it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, number)
    try:
        with path.open("x") as file:
            file.write(json.dumps(asdict(owner)))
    except (FileExistsError, FileNotFoundError):  # another process was quicker, or has just removed the folder
        return False
    except OSError:  # such as a full disk
        path.unlink(missing_ok=True)
        raise
    if max(list_numbers(folder), default=0) != number:  # another process claimed and gave back in between
        path.unlink(missing_ok=True)
        return False
    return True
