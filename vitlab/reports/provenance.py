"""Describe where results come from: fixed settings, settings that differ by model, machines, commands to repeat."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from vitlab.config.checks import TRIALS
from vitlab.config.groups import affecting, select
from vitlab.config.schema import RecipeConfig
from vitlab.config.schema.fields import WEIGHTS
from vitlab.formatting import TIMES, count, cut_names, finite, plural, whole, with_prefix
from vitlab.studies.grid import describe_value, list_varied_keys, name_models, read_axes
from vitlab.studies.results import Results, Rows, RunResults
from vitlab.tasks.metrics import main_metric

Facts = list[tuple[str, str]]
MOST_VALUES = 8  # listed values of a setting


def describe_budget(config: dict[str, Any], rows: Rows) -> str:
    """Describe the fixed unit of the budget, and its effect on small and large training sets."""
    lengths = list(dict.fromkeys(str(row["budget"]) for row in rows if row.get("budget")))
    if len(lengths) > 1:
        return f"How long a run trains depends on its variant: {', '.join(lengths)}."
    unit, value = next((unit, value) for unit, value in config["budget"].items() if value is not None)
    said = {
        "steps": f"trains for the same number of steps, {whole(value)}, so small sets are seen more often",
        "examples": f"sees the same number of examples, {whole(value)}, so small sets are seen more often",
        "epochs": f"makes {value:g} passes over its training set, so larger sets are trained for more steps",
        "flops": f"spends the same training compute, {with_prefix(value, 'FLOP')}, so a cheaper model takes more steps",
    }
    return f"Every run {said[unit]}{describe_passes(rows) if unit != 'epochs' else ''}."


def describe_tuning(config: dict[str, Any]) -> str:
    """Describe whether settings were chosen on validation data."""
    if not config.get("tune"):
        return "Recipes are fixed: nothing is tuned per model and size."
    keys = " and ".join(key for key in config["tune"] if key != TRIALS)
    return f"For each model, size and seed {keys} are chosen on validation images or texts, never on test."


def advise_tuning(results: Results) -> str:
    """Advise to tune if a recipe was tuned on only one or two data sets, none of them the study's; else ""."""
    if any(key.startswith("recipe.") for key in results.config.get("tune") or {}):
        return ""
    data, first_runs, foreign = results.config["data"]["name"], {}, {}
    for row in results.rows:
        first_runs.setdefault(row["model"], results.run_files[row["run"]])
    for run in first_runs.values():
        recipe = run.config.get("recipe") or {}
        tuned_on = recipe.get("tuned_on") or []
        if 0 < len(tuned_on) < 3 and data not in tuned_on:
            foreign[recipe["name"]] = tuned_on
    if not foreign:
        return ""
    were = "recipe {} was" if len(foreign) == 1 else "recipes {} were"
    elsewhere = " and ".join(dict.fromkeys(chain(*foreign.values())))
    return (
        f"The {were.format(' and '.join(foreign))} tuned on {elsewhere}, not on {data}: with rates chosen for {data} "
        "the result may differ. To choose them on its validation data, add tune.recipe.lr=[x0.5,x1,x2] and give "
        "another --out."
    )


def describe_passes(rows: Rows) -> str:
    """Describe the passes: `: 256 passes over 500 examples, 4 over 32,000`; `2.1 to 4` where models differ."""
    passes: dict[int, list[float]] = {}
    for row in rows:
        if (seen := finite(row.get("examples_seen"))) is not None:
            items = finite(row.get("train_items")) or row["train_size"]
            passes.setdefault(row["train_size"], []).append(seen / items)
    if not passes:
        return ""
    texts = []
    for size in dict.fromkeys((min(passes), max(passes))):
        ends = (f"{v:.3g}" if v < 100 else whole(v) for v in (min(passes[size]), max(passes[size])))
        texts.append((" to ".join(dict.fromkeys(ends)), size))
    (first, size), *larger = texts
    text = f": {first} {'pass' if first == '1' else 'passes'} over {plural(size, main_metric(rows).sized_by)}"
    return text + "".join(f", {last} over {whole(size)}" for last, size in larger)


def list_choices(config: dict[str, Any]) -> Facts:
    """List the settings for every run, the values of each axis, the settings of each variant."""
    data, models = config["data"], config.get("models")
    extent, tokenizer, seeds = data.get("image_size"), data.get("tokenizer"), config.get("seeds") or []
    sides = extent if isinstance(extent, list) else [extent] * 2
    own = ", unless a model has its own" if "data.image_size" in list_varied_keys(config) else ""
    if tokenizer and not str(tokenizer).endswith(".json"):  # trained here, not read from a file
        tokenizer = f"{tokenizer}, {whole(data.get('vocabulary'))} tokens at most"
    choices = {
        "data": data["name"],
        "image size": f"{f' {TIMES} '.join(map(str, sides))} pixels{own}" if extent else None,
        "sequences": f"{whole(data['length'])} tokens" if data.get("length") else None,
        "tokenizer": tokenizer,
        "task": config["task"]["name"],
        "training-set sizes": ", ".join(whole(s) if finite(s) else str(s) for s in config.get("sizes") or []),
        "seeds": ", ".join(map(str, seeds)) if len(seeds) < 20 else f"{len(seeds)}, {min(seeds)} to {max(seeds)}",
        "set for every run": "  ".join(config.get("set") or []),
    }
    for key, values in read_axes(config.get("grid") or {}).items():
        choices[f"axis {key}"] = "; ".join(describe_value("", value).lstrip("=") for value in values)
    for name, settings in (name_models(models) if isinstance(models, dict) else {}).items():
        choices[f"variant {name}"] = "  ".join(describe_value(key, value) for key, value in settings.items())
    return [(label, value) for label, value in choices.items() if value]


def compare_settings(results: Results) -> list[list[str]]:
    """List a line per setting that differs between models: its name, then each model's values."""
    runs: dict[str, list[RunResults]] = {}
    for row in results.rows:
        runs.setdefault(row["model"], []).append(results.run_files[row["run"]])
    recipe, lines = affecting(WEIGHTS), []  # keys that change the weights
    for read in (
        lambda run: {"parameters": count(params)} if (params := run.result.get("params")) is not None else {},
        lambda run: select(run.config.get("recipe") or {}, RecipeConfig, recipe),
        lambda run: run.result.get("settings") or {},
    ):
        values = [[flatten(read(run)) for run in of_model] for of_model in runs.values()]
        for key in dict.fromkeys(key for of_model in values for of_run in of_model for key in of_run):
            texts = [[*dict.fromkeys(of_run.get(key, "none") for of_run in of_model)] for of_model in values]
            texts = [cut_names(of_model, MOST_VALUES) for of_model in texts]
            if len({*texts}) > 1:
                texts = [f"{text}, not augmented" if (key, text) == ("freeze", "features") else text for text in texts]
                lines.append(["recipe" if key == "name" else key.replace("_", " "), *texts])
    return lines


def flatten(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Flatten a configuration to `{dotted key: text}`."""
    leaves: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            leaves |= flatten(value, f"{path}{key}.")
        elif isinstance(value, bool):
            leaves[f"{path}{key}"] = "yes" if value else "no"
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            text = f"{text:g}" if isinstance(text, float) else text
            leaves[f"{path}{key}"] = "none" if text in (None, "") else str(text)
    return leaves


def describe_machines(results: Iterable[dict[str, Any]]) -> Facts:
    """List versions, commit and hardware; where runs differ, list each value with its number of runs."""
    values: dict[str, Counter[str]] = {}
    for key, value in chain(*((result.get("environment") or {}).items() for result in results)):
        if value is not None:
            values.setdefault(key, Counter())[str(value)] += 1
    return [
        (key, "; ".join(f"{value} ({plural(n, 'run')})" if len(some) > 1 else value for value, n in some.most_common()))
        for key, some in values.items()
    ]


def list_commands(results: Results, *, waiting: bool) -> Facts:
    """List (purpose, command), to run in the folder where the study was started; `waiting`: runs can be uploaded."""
    path = results.files.path_from_start()
    folder, study = shlex.quote(path), shlex.quote(os.path.join(path, "study.yaml"))
    again = shlex.quote(os.path.normpath(os.path.join(path, os.pardir, f"{results.files.folder.resolve().name}-again")))
    commands = [
        ("repeat the study in a new folder", f"vitlab scale {study} --out {again}"),
        ("continue with missing and failed runs", f"vitlab scale {study} --out {folder}"),
        ("write this page again", f"vitlab report {folder}"),
    ]
    if results.rows:
        run = shlex.quote(results.files.path_from_start(results.rows[0]["run"]))
        commands.append(("evaluate a run", f"vitlab eval {run}"))
    if waiting:
        commands.append(("see the runs in Weights & Biases", f"vitlab sync {folder}"))
    return commands
