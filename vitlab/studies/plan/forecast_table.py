"""The forecast of a study on a described machine as a person reads it, on stdout."""

import math

from rich.markup import escape
from rich.table import Table

from vitlab.console import Console
from vitlab.data.opening import count_bytes, is_expected
from vitlab.formatting import DASH, count, duration, plural, significant, whole, with_prefix
from vitlab.studies.plan.forecast import USABLE, Forecast

WIDTH = 200  # characters of a line that goes to no terminal


def show_forecast(found: Forecast) -> None:
    """Print how each model stands on the machine, what its runs cost, and when all are done."""
    plan, machine = found.plan, found.machine
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    where = (
        f"{plural(machine.devices, 'GPU')} of {machine.memory / 1e9:g} GB and {with_prefix(machine.flops, 'FLOP/s')}"
    )
    for part in (plan.headline(len(plan.specs), where), make_model_table(found), make_run_table(found)):
        console.print(escape(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str), highlight=False)
        console.print()
    for line in summarize(found):
        console.print(escape(line), soft_wrap=True, highlight=False)


def make_model_table(found: Forecast) -> Table:
    """A column for each model: what it needs on a device, what fits, and how its runs stand."""
    item, room = found.plan.task.item, USABLE * found.machine.memory
    labels = (
        *("parameters", "weights, gradients, states", f"activations of one {item}", "  blocks computed again"),
        *(f"most {item}s on a GPU at a time", "  blocks computed again", "  divided by fsdp"),
        *("each run", "memory of a GPU", "share of the peak", f"{item}s a second on each GPU"),
    )
    columns = []
    for name, model in found.plan.by_variant.items():
        needs, fit = found.needs[name], found.fits[name]
        activations, devices = needs.activations, max(2, fit.devices if fit else found.machine.devices)
        columns.append(
            (
                count(model.params),
                with_prefix(needs.weights + needs.gradients + needs.states, "B"),
                with_prefix(activations.per_example, "B"),
                with_prefix(activations.checkpointed, "B"),
                whole(needs.largest("one device", False, 1, room)),
                whole(needs.largest("one device", True, 1, room)),
                whole(needs.largest("fsdp", False, devices, room)) if needs.sharded else DASH,
                fit.describe() if fit else "does not fit",
                with_prefix(fit.bytes, "B") if fit else DASH,
                f"{found.utilisation(name):.0%}",
                significant(found.rate(name)) if fit else DASH,
            )
        )
    table = make_table("", *found.plan.by_variant)
    for row in zip(labels, *columns, strict=True):
        table.add_row(*map(escape, row))
    return table


def make_run_table(found: Forecast) -> Table:
    """A row for each model and size: its runs differ in their seeds alone, and cost the same."""
    plan, cells = found.plan, {}
    for spec in plan.specs:
        cells.setdefault((spec.config["variant"], spec.config["train_size"]), []).append(spec)
    table = make_table("model", plan.task.train.unit + "s", "runs", "steps", "examples", "FLOPs", "GPU-hours", "time")
    for (variant, size), (spec, *others) in cells.items():
        model, fit, steps, seconds = (
            plan.by_variant[variant],
            found.fits[variant],
            plan.steps(spec),
            found.seconds(spec),
        )
        examples = steps * model.config.recipe.batch_size * plan.trainings(model)
        cost = (DASH, DASH) if seconds is None else (significant(seconds * fit.devices / 3600), duration(seconds))
        numbers = (
            f"{size:,}",
            f"{1 + len(others)}",
            f"{steps:,}",
            f"{examples:,}",
            f"{examples * model.flops_per_example:.2e}",
        )
        table.add_row(escape(variant), *numbers, *cost)
    return table


def make_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(escape(name), justify="right" if place else "left", no_wrap=True)
    return table


def summarize(found: Forecast) -> list[str]:
    """The sums, and what they rest on."""
    machine, plan = found.machine, found.plan
    gpus = plural(machine.devices, "GPU")
    missing = [name for name, fit in found.fits.items() if fit is None]
    lines = [f"{name}: does not fit on {gpus} of {machine.memory / 1e9:g} GB; it is not counted" for name in missing]
    if found.runs:
        seconds, _, variant = found.runs[0]
        lines.append(
            f"total {significant(found.device_seconds / 3600)} GPU-hours, about {duration(found.wall)} on {gpus} with "
            f"the longest runs first: {found.busy:.0%} of the GPUs' time; the longest run, of {variant}, takes "
            f"{duration(seconds)}"
        )
    data = count_bytes(plan.data, plan.config.data)
    stored = f" and {with_prefix(data, 'B')} of data" if data else ""
    lines.append(f"disk: {with_prefix(found.checkpoint_bytes, 'B')} of checkpoints{stored}")
    shares = " and ".join(sorted({f"{found.utilisation(name):.0%}" for name in plan.by_variant}))
    read = "reading keeps pace" if machine.read == math.inf else f"{machine.read:g} {plan.task.item}s a second are read"
    lines.append(
        f"counted, not measured: {shares} of the peak {'is given' if machine.utilisation else 'is assumed'}, "
        f"{1 - USABLE:.0%} of the memory is left free, and {read}; analyses and start-up are not included"
    )
    if is_expected(plan.data):
        lines.append(f"data={plan.data.name} is not here: its numbers are those of data.expected")
    return lines
