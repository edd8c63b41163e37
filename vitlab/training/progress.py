"""How far a run is. Imports no torch."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """How far a run is: `step` of `steps`, estimated seconds left, the last loss and validation metrics."""

    step: int
    steps: int
    seconds_left: float | None = None
    loss: float | None = None
    validation: dict[str, float] = field(default_factory=dict)
    note: str = ""  # what is trained, where that is a trial
