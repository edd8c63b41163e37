"""What executors are given and what they tell. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vitlab.config import first_line
from vitlab.studies.claims import ClaimLost, Held
from vitlab.studies.grid import Spec
from vitlab.training.devices.launch import DeviceLost

# job(spec, report, stop) -> result; `report` takes progress, `stop` says whether to end early
Job = Callable[[Spec, Callable[[Any], None], Callable[[], bool]], Any]


@dataclass(frozen=True)
class Event:
    """What happened to a run: started, progress (value: what it reported), done (its result), failed (its error).

    Also killed (why): its process or node is gone; retried (why): it is started again after that; held (where):
    another start of the study trains it.
    """

    kind: str
    run: str
    value: Any = None


def do(job: Job, spec: Spec, report: Callable[[Any], None], stop: Callable[[], bool]) -> Event:
    """Do a job; gives the event of its end, `killed` where it may be tried again."""
    try:
        return Event("done", spec.name, job(spec, report, stop))
    except (Held, ClaimLost) as error:
        return Event("held", spec.name, str(error))
    except Exception as error:
        killed = isinstance(error, DeviceLost) and error.killed
        return Event("killed", spec.name, str(error)) if killed else Event("failed", spec.name, summarize_error(error))


def summarize_error(error: BaseException) -> str:
    """The first line of an error, with its type where the text alone does not explain it."""
    text, kind = first_line(error), type(error).__name__
    return text if kind in ("UserError", "Diverged", text) else f"{kind}: {text}"
