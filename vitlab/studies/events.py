"""What executors are given and what they tell. Imports no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vitlab.config import first_line
from vitlab.studies.claims import ClaimLost, Held
from vitlab.studies.grid import Spec

# job(spec, report, stop) -> result; `report` takes progress, `stop` says whether to end early
Job = Callable[[Spec, Callable[[Any], None], Callable[[], bool]], Any]


@dataclass(frozen=True)
class Event:
    """What happened to a run: started, progress (value: what it reported), done (its result), failed (its error).

    Also retried (why): its process or node was lost, and it will be started again; held (where): another
    start of the study trains it.
    """

    kind: str
    run: str
    value: Any = None


class Executor(Protocol):
    """Starts runs somewhere; what becomes of them is in their folders."""

    def run(self, specs: Sequence[Spec], notify: Callable[[Event], None], tick: float = 0.25) -> None:
        """Run every spec to its end; `notify` is called in this process at each event, and with kind "tick" between.

        Raises KeyboardInterrupt again when it has taken care of what runs.
        """


def do(job: Job, spec: Spec, report: Callable[[Any], None], stop: Callable[[], bool]) -> tuple[str, Any]:
    """Do a job: the kind and value of the event that its end is, "killed" where it may be tried again."""
    try:
        return "done", job(spec, report, stop)
    except (Held, ClaimLost) as error:
        return "held", str(error)
    except Exception as error:  # `killed`: the process of another of its devices was
        killed = getattr(error, "killed", False)
        return ("killed", str(error)) if killed else ("failed", summarize_error(error))


def summarize_error(error: BaseException) -> str:
    """The first line of an error, with its type where the text alone does not explain it."""
    text, kind = first_line(error), type(error).__name__
    return text if kind in ("UserError", "Diverged", text) else f"{kind}: {text}"
