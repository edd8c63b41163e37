"""Leases: who works in a run's folder, from files alone, on any file system and from any host. Imports no torch.

File locks are unreliable on network file systems, so a run is claimed by a file that is created whole or not at all:
`.lease/<generation>.json`, of which the highest generation counts. Its holder rewrites it every `BEAT` seconds. Who
sees no beat for `EXPIRY` seconds of its own clock (clocks of hosts differ) may claim the next generation; a holder
that finds one above its own has lost the run and stops.
"""

import contextlib
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vitlab.config import UserError
from vitlab.files import create_json, read_json, write_json

BEAT = 10.0  # seconds between two beats
EXPIRY = 50.0  # seconds without a beat after which a lease counts no more: a run is taken over within a minute
FOLDER = ".lease"  # below the run's
WHERE = "VITLAB_WHERE"  # the environment variable in which an executor names the job of a cluster

Standing = Literal["free", "held", "expired"]


class Held(UserError):
    """Somebody else works in the folder."""


class LeaseLost(Exception):
    """Somebody else has taken the run over: this process was not heard of for too long."""


@dataclass(frozen=True)
class Claim:
    """What the file of a lease says. `where` names the job of a cluster, `progress` is what the run last reported."""

    generation: int
    token: str
    host: str
    pid: int
    started: str  # when the process began, as its system counts: numbers are used again
    machine: str  # of the processes that `pid` counts: the boot and the namespace; "" where it cannot be told
    beat: int = 0
    released: bool = False
    where: str = ""
    progress: dict[str, Any] = field(default_factory=dict)

    @property
    def holder(self) -> str:
        return self.where or f"{self.host}, process {self.pid}"

    @property
    def pulse(self) -> str:
        """What changes with each beat."""
        return f"{self.token} {self.beat}"

    @property
    def is_here(self) -> bool:
        """Whether it is of a process that this one can see."""
        return self.machine != "" and self.machine == identify_machine()

    @property
    def is_gone(self) -> bool:
        """Whether its process is known to have ended."""
        return self.is_here and find_start(self.pid) != self.started


def identify_machine() -> str:
    """What processes with different numbers share; "" where the system does not say."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def find_start(pid: int) -> str | None:
    """When a process began, in ticks of the system; "" where it does not say, None once the process has ended."""
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


def read_clock() -> float:
    """Seconds, with those during which this machine was suspended where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def read_claim(folder: Path) -> Claim | None:
    """The claim that counts in a run's folder, None where there is none.

    One that cannot be read has no token: it is held until it has been silent for `EXPIRY` seconds, like any other.
    """
    while True:
        try:
            generations = [int(name[:-5]) for name in os.listdir(folder / FOLDER) if name[:-5].isdecimal()]
        except FileNotFoundError:
            return None
        if not generations:
            return None
        last = max(generations)
        try:
            claim = read_json(path_of(folder, last), lambda found: Claim(**found))
            if claim is not None:  # else it was removed meanwhile
                return claim
        except UserError:  # damaged, or in the middle of being made where there are no links
            return Claim(last, "", "", 0, "", "", where="somebody whose lease cannot be read")


def find_last_beat(folder: Path) -> float | None:
    """When the file of a lease was last written, by the clock of its file system; None where there is none."""
    with contextlib.suppress(FileNotFoundError):
        return max((entry.stat().st_mtime for entry in os.scandir(folder / FOLDER)), default=None)
    return None


def path_of(folder: Path, generation: int) -> Path:
    return folder / FOLDER / f"{generation}.json"


class Watch:
    """A reader's memory of the beats that it saw, by its own clock."""

    def __init__(self) -> None:
        self.seen: dict[Path, tuple[str, float, float]] = {}  # folder -> pulse, seconds since it changed, last look

    def look(self, folder: Path) -> tuple[Standing, Claim | None]:
        """Whether a run's folder is free, held, or its lease has expired; and the claim that says so."""
        claim = read_claim(folder)
        if claim is None or claim.released:
            self.seen.pop(folder, None)
            return "free", claim
        if claim.is_gone:
            return "expired", claim
        now = time.monotonic()
        pulse, silence, last = self.seen.get(folder, ("", 0.0, now))
        # a reader that was suspended has not listened: no more than a beat counts between two looks
        silence = silence + min(now - last, BEAT) if pulse == claim.pulse else 0.0
        self.seen[folder] = (claim.pulse, silence, now)
        return ("expired" if silence > EXPIRY else "held"), claim


class Lease:
    """A run that this process holds. `progress` is written with the next beat."""

    def __init__(self, folder: Path, claim: Claim):
        self.folder, self.claim = folder, claim
        self.progress: dict[str, Any] = {}
        self.confirmed = read_clock()
        self.lost, self.ended = False, threading.Event()
        self.thread = threading.Thread(target=self.keep, daemon=True, name="lease")
        self.thread.start()

    def keep(self) -> None:
        while not self.ended.wait(BEAT):
            with contextlib.suppress(OSError, UserError):  # a full disk: whoever takes over is noticed later
                if self.is_lost():
                    return
                self.write()

    def write(self, released: bool = False) -> None:
        self.claim = replace(self.claim, beat=self.claim.beat + 1, released=released, progress=dict(self.progress))
        write_json(path_of(self.folder, self.claim.generation), asdict(self.claim))
        self.confirmed = read_clock()

    def is_lost(self) -> bool:
        """Whether another process has claimed the run: it holds it, or has finished it and taken the claims away."""
        if not self.lost:
            claim = read_claim(self.folder)
            mine = claim is not None and claim.generation == self.claim.generation
            self.lost = not mine or claim.token not in (self.claim.token, "")
        return self.lost

    def check(self) -> None:
        """Raise LeaseLost if the run may be somebody else's; cheap while the beats are regular."""
        # else this process was suspended, or could not write
        if self.lost or read_clock() - self.confirmed > EXPIRY / 2:
            self.confirm()

    def confirm(self) -> None:
        """Raise LeaseLost if the run is somebody else's: before something replaces what they wrote."""
        if self.is_lost():
            raise LeaseLost(f"{self.folder}: another vitlab has taken it over, for this one was not heard of")
        self.confirmed = read_clock()

    def release(self, for_good: bool) -> None:
        """Give the run back; `for_good` takes the claims away, as of a run that is finished."""
        self.ended.set()
        self.thread.join()
        if self.is_lost():
            return
        if not for_good:
            self.write(released=True)
            return
        for generation in range(self.claim.generation + 1):
            path_of(self.folder, generation).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: somebody claims it
            (self.folder / FOLDER).rmdir()


@contextlib.contextmanager
def hold(folder: str | Path, *, expired: str | None = None, keep: bool = True) -> Iterator[Lease]:
    """The folder for this process alone.

    `expired` is the pulse of a lease that the caller has seen expire (`Watch`). `keep=False` leaves nothing behind,
    else a released lease stays until the run is finished. Raises Held while somebody else works there.
    """
    folder = Path(folder)
    new_folder = not folder.exists()
    while True:
        standing, claim = Watch().look(folder)
        if standing == "held" and claim.pulse != expired:
            raise held_by(folder, claim)
        new = Claim(
            (claim.generation if claim else 0) + 1,
            uuid.uuid4().hex,
            socket.gethostname(),
            os.getpid(),
            find_start(os.getpid()),
            identify_machine(),
            where=os.environ.get(WHERE, ""),
        )
        with contextlib.suppress(FileNotFoundError):  # the holder before has just removed the folder
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            if create_json(path_of(folder, new.generation), asdict(new)):
                break
    lease = Lease(folder, new)
    try:
        yield lease
    finally:
        begun = any(name != FOLDER for name in os.listdir(folder)) if folder.is_dir() else False
        lease.release(for_good=not (keep and begun) or (folder / "result.json").is_file())
        if new_folder and not begun:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def hold_in_turn(folder: Path) -> Iterator[Lease]:
    """The same, for something short: waits for whoever holds it, and leaves nothing behind."""
    watch, began, told = Watch(), time.monotonic(), False
    with contextlib.ExitStack() as stack:
        while True:
            standing, claim = watch.look(folder)
            with contextlib.suppress(Held):
                expired = claim.pulse if standing == "expired" else None
                lease = stack.enter_context(hold(folder, expired=expired, keep=False))
                break
            if not told and claim and time.monotonic() - began > 3:
                told = True
                print(f"{folder}: waiting for {claim.holder}, which is writing there", file=sys.stderr)
            time.sleep(0.1)
        yield lease


def watch_until_expired(folder: Path) -> str | None:
    """The pulse of a lease that another machine left behind; None for a folder that is free.

    Takes `EXPIRY` seconds where nobody works there any more. Raises Held at the first beat of somebody who does.
    """
    watch = Watch()
    standing, first = watch.look(folder)
    if standing == "held":
        if first.is_here:  # its process is there
            raise held_by(folder, first)
        print(f"{folder}: waiting up to a minute whether {first.holder} still works there", file=sys.stderr)
    while standing == "held":
        time.sleep(1.0)
        standing, claim = watch.look(folder)
        if standing == "held" and claim.pulse != first.pulse:
            raise held_by(folder, claim)
    return first.pulse if standing == "expired" else None


def held_by(folder: Path, claim: Claim) -> Held:
    return Held(
        f"--out {folder}: another vitlab is running there ({claim.holder}); wait for it, or give another folder"
    )
