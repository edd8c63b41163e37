"""How long the runs of a study are expected to take, so that short ones share what is slow to start."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from vitlab.studies.grid import Spec
from vitlab.studies.plan.study import Plan
from vitlab.studies.plan.table import estimate_run
from vitlab.studies.plan.timing import time_variants


def expect_times(
    plan: Plan,
    todo: Sequence[Spec],
    rows: Iterable[Mapping[str, Any]],
    progress: Callable[[str, int, int], None],
) -> list[Spec]:
    """The runs with their `seconds`: at the pace of the study's finished runs (rows of results.csv), else timed.

    A model that trains on a GPU of a cluster cannot be timed here: its runs are left as they are.
    """
    paces: dict[str, list[float]] = {}
    for row in rows:
        if row["steps"] and row["wall_s"]:
            paces.setdefault(row["model"], []).append(row["wall_s"] / row["steps"])
    known = {variant: median(found) * plan.trials for variant, found in paces.items()}
    unknown = [spec for spec in todo if spec.config["variant"] not in known]
    times = {}
    if unknown and not plan.config.executor.gpus:
        times = time_variants(replace(plan, specs=unknown), progress)

    def expect(spec: Spec) -> float | None:
        variant = spec.config["variant"]
        if variant in known:
            return known[variant] * plan.steps(spec)
        return sum(estimate_run(plan, spec, times[variant]).values()) if variant in times else None

    return [replace(spec, seconds=expect(spec)) for spec in todo]
