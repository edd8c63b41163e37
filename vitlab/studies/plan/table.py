"""The plan of a study as a person reads it, on stdout."""

from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from vitlab.console import Console
from vitlab.formatting import duration, plural
from vitlab.studies.grid import Spec
from vitlab.studies.plan.machine import FORM, pack
from vitlab.studies.plan.study import Plan
from vitlab.studies.plan.timing import Times
from vitlab.tasks import writes_texts

REPORT = 3.0  # seconds that writing a report takes


def show_plan(plan: Plan, times: Mapping[str, Times], startup: float) -> None:
    """Print every run and its cost on this machine; `startup` are the seconds before the first run begins.

    Without `times` the runs train elsewhere: how long is left out.
    """
    table = Table(box=None, pad_edge=False)
    for name in ("run", "steps", "examples", "parameters", "train FLOPs", *(["time"] if times else [])):
        table.add_column(name, justify="left" if name == "run" else "right", no_wrap=True)
    flops, spent = 0, [estimate_run(plan, spec, times[spec.config["variant"]]) for spec in plan.specs if times]
    for place, spec in enumerate(plan.specs):
        model, steps = plan.by_variant[spec.config["variant"]], plan.steps(spec)
        examples = steps * plan.trainings(model) * model.config.recipe.batch_size
        flops += examples * model.flops_per_example
        cells = (f"{steps:,}", f"{examples:,}", f"{model.params:,}", f"{examples * model.flops_per_example:.2e}")
        table.add_row(escape(spec.name), *cells, *([duration(sum(spent[place].values()))] if times else []))
    console = Console()
    console.print(escape(plan.headline(len(plan.specs))), soft_wrap=True, highlight=False)
    console.print(table)
    total = f"total {flops:.2e} FLOPs; how long that takes on a machine says --on: {FORM}"
    if times:
        total = summarize(plan, spent, startup, flops)
    console.print(escape(total), soft_wrap=True, highlight=False)


def summarize(plan: Plan, spent: Sequence[dict[str, float]], startup: float, flops: float) -> str:
    """The sums of a plan that was timed; `spent` are the seconds of each run."""
    seconds = [sum(parts.values()) for parts in spent]
    wall = startup + pack([(run_seconds, 1) for run_seconds in seconds], plan.jobs) + REPORT
    shares = [f"{name} {sum(parts[name] for parts in spent) / sum(seconds):.0%}" for name in spent[0]]
    return (
        f"total {flops:.2e} FLOPs, about {duration(wall)} with {plural(plan.jobs, 'worker')} "
        f"({duration(startup + REPORT)} before and after the runs; of their time {', '.join(shares)}), "
        "measured on the first steps of each model"
    )


def estimate_run(plan: Plan, spec: Spec, times: Times) -> dict[str, float]:
    """The seconds of a run by what they are spent on, with those of its settings of `tune`.

    Several devices are taken to share the steps and evaluations.
    """
    model, task = plan.by_variant[spec.config["variant"]], plan.task
    trainings = plan.trainings(model) / (model.config.trainer.devices * model.config.trainer.nodes)
    return {
        "training": trainings * plan.steps(spec) * times.step,
        "evaluation": trainings * plan.evaluations(spec) * len(task.validation) * times.validation
        + (len(task.test) + writes_texts(task) * len(task.validation)) * times.test,
        "start": times.start,
    }
