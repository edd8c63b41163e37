"""What a run that is trained says of itself."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from vitlab.config import identity, resolved
from vitlab.formatting import round_numbers
from vitlab.models.counting import count
from vitlab.training import budgets, environment
from vitlab.training.run import Run
from vitlab.training.utilisation import compute_mfu

SIZED_BY = {"image": "example"}  # how results name the unit of a training set's size


def make_result(run: Run, metrics: dict[str, Any]) -> dict[str, Any]:
    """The row of results.csv, with the run's identity, settings and environment."""
    config = run.config
    examples = run.trained_steps * config.recipe.batch_size
    accuracy, speed = metrics.get("accuracy"), metrics.get("images_per_s")
    about = environment.describe_environment(run.settings.accelerator)
    devices = run.settings.devices * run.settings.nodes
    mfu = compute_mfu(speed and speed * run.flops_per_example, devices, about["device"], run.settings.precision)
    result = {
        "study": config.study,
        "run": run.files.folder.resolve().name,
        "model": config.variant,
        "family": run.family,
        "data": config.data.name,
        "train_size": run.train_size,
        "train_items": len(run.indices),
        "unit": SIZED_BY.get(run.task.train.unit, run.task.train.unit),
        "seed": config.seed,
        "budget": budgets.format_budget(config.budget),
        "steps": run.trained_steps,
        "examples_seen": examples,
        "params": count.parameters(run.model),
        "train_flops": run.flops_per_example * examples,
        "error": None if accuracy is None else 1 - accuracy,
        **metrics,
        **({"mfu": mfu} if mfu else {}),
        "precision": run.settings.precision,
        "status": "finished",
        "id": identity(resolved(config), run.contents),
        "settings": asdict(run.settings),
        "environment": about,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return round_numbers(result)
