"""What a study held fixed, what differed by model, where it ran, how to repeat it, and what papers published of it."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain, groupby
from pathlib import Path, PurePath
from typing import Any

import yaml

from vitlab.config.schema import RecipeConfig
from vitlab.config.schema.fields import WEIGHTS
from vitlab.config.schema.kinds import affecting, select
from vitlab.files import read_json
from vitlab.formatting import TIMES, count, finite, plural, significant, whole, with_prefix
from vitlab.studies.results import Results
from vitlab.studies.store import StudyFiles
from vitlab.studies.variants import describe_value, name_models, read_axes
from vitlab.tasks.metrics import main_metric

Rows = list[dict[str, Any]]
Facts = list[tuple[str, str]]
OFF = ("none", "no", "0")
UNITS = ("steps", "epochs", "examples", "flops")


def describe_budget(config: dict[str, Any], rows: Rows) -> str:
    """Which unit is fixed, and what follows from that for small and large training sets."""
    lengths = list(dict.fromkeys(str(row["budget"]) for row in rows if row.get("budget")))
    if len(lengths) > 1:
        return f"How long a run trains depends on its variant: {', '.join(lengths)}."
    unit, value = next((unit, value) for unit in UNITS if (value := config["budget"].get(unit)) is not None)
    if unit == "steps":
        text = f"Every run trains for the same number of steps, {whole(value)}, so small sets are seen more often"
    elif unit == "examples":
        text = f"Every run sees the same number of examples, {whole(value)}, so small sets are seen more often"
    elif unit == "epochs":
        text = f"Every run makes {value:g} passes over its training set, so larger sets are trained for more steps"
    else:
        compute = with_prefix(value, "FLOP")
        text = f"Every run spends the same training compute, {compute}, so a cheaper model takes more steps"
    passed = describe_passes(rows) if unit != "epochs" else ""
    return f"{text}{passed}."


def describe_tuning(config: dict[str, Any], rows: Rows) -> str:
    """Whether settings were chosen on validation data, and at what cost beside the training."""
    if not config.get("tune"):
        return "Recipes are fixed: nothing is tuned per model and size."
    keys = " and ".join(config["tune"])
    spent, trained = (sum(finite(row.get(key)) or 0 for row in rows) for key in ("tune_flops", "train_flops"))
    cost = f", at {spent / trained:.1f} times the FLOPs of the runs themselves" if trained else ""
    return f"Each run's {keys} is tuned on validation images or texts, never on test{cost}."


def advise_tuning(results: Results) -> str:
    """A sentence where recipes were tuned on other data than the study's, with the words that tune them; else empty.

    The recipe itself says on which data (`tuned_on`); one that names none, such as a published one, is not mentioned,
    and one that names three or more has shown that it carries over.
    """
    if any(key.startswith("recipe.") for key in results.config.get("tune") or {}):
        return ""
    data = results.config["data"]["name"]
    first_runs = {row["model"]: results.run_files[row["run"]] for row in reversed(results.rows)}
    recipes = [run.config.get("recipe") or {} for run in reversed(first_runs.values())]
    foreign = {
        recipe["name"]: recipe
        for recipe in recipes
        if 0 < len(recipe.get("tuned_on") or []) < 3 and data not in recipe["tuned_on"]
    }
    if not foreign:
        return ""
    were = "recipe {} was" if len(foreign) == 1 else "recipes {} were"
    elsewhere = " and ".join(dict.fromkeys(name for recipe in foreign.values() for name in recipe["tuned_on"]))
    return (
        f"The {were.format(' and '.join(foreign))} tuned on {elsewhere}, not on {data}: with rates chosen for {data} "
        "the result may differ. To choose them on its validation data, add tune.recipe.lr=[x0.5,x1,x2] and give "
        "another --out."
    )


def describe_passes(rows: Rows) -> str:
    """`: 256 passes over 500 examples, 4 over 32,000`."""
    passes: dict[int, list[float]] = {}
    for row in rows:
        if (seen := finite(row.get("examples_seen"))) is not None:
            items = finite(row.get("train_items")) or row["train_size"]
            passes.setdefault(row["train_size"], []).append(seen / items)
    if not passes:
        return ""
    texts = {size: format_range(values) for size, values in passes.items()}
    first, last = min(passes), max(passes)
    noun = "pass" if texts[first] == "1" else "passes"
    text = f": {texts[first]} {noun} over {plural(first, main_metric(rows).sized_by)}"
    return text + (f", {texts[last]} over {whole(last)}" if last != first else "")


def format_range(values: list[float]) -> str:
    """`4`, or `2.1 to 4` where models differ."""
    low, high = (significant(v) if v < 100 else whole(v) for v in (min(values), max(values)))
    low, high = (text.removesuffix(".00").removesuffix(".0") for text in (low, high))
    return low if low == high else f"{low} to {high}"


def list_choices(config: dict[str, Any]) -> Facts:
    """What the study's configuration sets for every run."""
    data = config["data"]
    choices = {
        "data": data["name"],
        "image size": format_image_size(data.get("image_size")),
        "sequences": f"{whole(data['length'])} tokens" if data.get("length") else None,
        "tokenizer": describe_tokenizer(data),
        "task": config["task"]["name"],
        "training-set sizes": ", ".join(whole(s) if finite(s) else str(s) for s in config.get("sizes") or []),
        "seeds": format_seeds(config.get("seeds") or []),
        "set for every run": "  ".join(config.get("set") or []),
    }
    return [(label, value) for label, value in {**choices, **describe_variants(config)}.items() if value]


def format_seeds(seeds: Sequence[int]) -> str:
    """`0, 1, 7`, `0 to 499, 1000`: neighbours of more than three are a range."""
    ordered = sorted(seeds)
    spans = [[*span] for _, span in groupby(enumerate(ordered), key=lambda one: one[1] - one[0])]
    texts = [[f"{span[0][1]} to {span[-1][1]}"] if len(span) > 3 else [str(seed) for _, seed in span] for span in spans]
    return ", ".join(chain(*texts))


def describe_variants(config: dict[str, Any]) -> dict[str, str]:
    """The values of each axis, and the settings of each named variant."""
    axes = {
        f"axis {key}": "; ".join(describe_value("", value).lstrip("=") for value in values)
        for key, values in read_axes(config.get("grid") or {}).items()
    }
    models = config.get("models")
    variants = {
        f"variant {name}": "  ".join(describe_value(key, value) for key, value in settings.items())
        for name, settings in (name_models(models) if isinstance(models, dict) else {}).items()
    }
    return axes | variants


def describe_tokenizer(data: dict[str, Any]) -> str | None:
    """`bpe, 4,096 tokens at most`, or the file that it was taken from."""
    kind = data.get("tokenizer")
    if not kind or str(kind).endswith(".json"):
        return kind
    return f"{kind}, {whole(data.get('vocabulary'))} tokens at most"


def format_image_size(extent: Any) -> str | None:
    """`24 x 24 pixels` of a side, or of height and width."""
    sides = extent if isinstance(extent, list) else [extent, extent]
    return f"{f' {TIMES} '.join(map(str, sides))} pixels" if extent else None


def compare_settings(results: Results) -> list[list[str]]:
    """A line per setting: its name, then each model's value. What all models leave off at its default is left out.

    Values that differ between a model's runs are listed.
    """
    rows = results.rows
    models = list(dict.fromkeys(row["model"] for row in rows))
    runs = {model: [results.run_files[row["run"]] for row in rows if row["model"] == model] for model in models}
    lines = [["parameters", *(join_distinct(count(r.get("params")) for r in rows if r["model"] == m) for m in models)]]
    recipes = {model: [flatten(select_recipe(run.config)) for run in runs[model]] for model in models}
    settings = {model: [flatten(run.result.get("settings") or {}) for run in runs[model]] for model in models}
    unset = flatten(asdict(RecipeConfig()))
    for values, defaults in ((recipes, unset), (settings, {})):
        keys = dict.fromkeys(key for of_model in values.values() for of_run in of_model for key in of_run)
        for key in keys:
            texts = [join_distinct(of_run.get(key, "none") for of_run in values[model]) for model in models]
            in_use = "." not in key and key != "kind" and texts[0] not in OFF
            if in_use or any(text != defaults.get(key) for text in texts):
                lines.append(["recipe" if key == "name" else key.replace("_", " "), *texts])
    return lines


def select_recipe(config: dict[str, Any]) -> dict[str, Any]:
    """The keys of a run's recipe that its weights depend on."""
    return select(config.get("recipe") or {}, RecipeConfig, affecting(WEIGHTS))


def flatten(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """A configuration as `{dotted key: text}`."""
    leaves: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            leaves |= flatten(value, f"{path}{key}.")
        else:
            leaves[f"{path}{key}"] = format_value(value) or "none"  # an empty list
    return leaves


def join_distinct(texts: Any) -> str:
    return ", ".join(dict.fromkeys(texts))


def format_value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe_machines(results: Iterable[dict[str, Any]]) -> Facts:
    """Versions, commit and hardware; where runs differ, each value with the number of runs that have it."""
    environments = [result.get("environment") or {} for result in results]
    facts = []
    for key in dict.fromkeys(key for environment in environments for key in environment):
        values = Counter(str(environment[key]) for environment in environments if environment.get(key) is not None)
        if len(values) == 1:
            facts.append((key, next(iter(values))))
        elif values:
            facts.append((key, "; ".join(f"{value} ({plural(n, 'run')})" for value, n in values.most_common())))
    return facts


def identify_machine(result: dict[str, Any]) -> tuple[Any, ...]:
    """What a run's speed depends on, as far as its result tells."""
    environment = result.get("environment") or {}
    return tuple(environment.get(key) for key in ("device", "cpu", "cores"))


def list_commands(results: Results, *, waiting: bool) -> Facts:
    """(what it does, command), to be given in the folder where the study was started.

    `waiting`: whether runs that were logged offline can be uploaded.
    """
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


# ---- published figures

CAUTION = (
    "Published results are for the whole training set under the named conditions. Runs under other conditions (from "
    "scratch, at another resolution, with fewer steps) are not comparable."
)


@dataclass(frozen=True)
class Published:
    """One figure of a model; `value` is as the source has it, `source` the paper and the table."""

    model: str
    value: str
    source: str
    conditions: str


@dataclass(frozen=True)
class PublishedFigures:
    """What is published for a study, and the size of the whole training set, where the study's files tell it."""

    figures: tuple[Published, ...] = ()
    size: int | None = None

    def of(self, model: str) -> list[int]:
        """The places, from 1, of a model's figures."""
        return [place for place, figure in enumerate(self.figures, start=1) if figure.model == model]


def find_published(results: Results) -> PublishedFigures:
    """What is published of the models that have a run, on the study's data set, in the study's metric."""
    data = results.config.get("data")
    name = recognise_data(data) if isinstance(data, Mapping) else None
    if name is None:
        return PublishedFigures()
    metric, models = results.metric, {row["model"] for row in results.rows}
    figures = [
        Published(figure["model"], figure["value"], figure["source"], figure["conditions"])
        for figure in read_published()["figures"]
        if figure["data"] == name and figure["metric"] == metric.key and figure["model"] in models
    ]
    return PublishedFigures(tuple(figures), read_total(results.files) if results.files else None)


@cache
def read_published() -> dict[str, Any]:
    """published.yaml."""
    return yaml.safe_load((Path(__file__).parent / "published.yaml").read_text())


def recognise_data(config: Mapping[str, Any]) -> str | None:
    """The published name of a study's data set; None for one that nothing is known of."""
    for name, places in read_published()["data"].items():
        if any(all(ends_in(config.get(key), value) for key, value in place.items()) for place in places):
            return name
    return None


def ends_in(value: Any, wanted: str) -> bool:
    """Whether a value's last parts, as of a path, are those wanted, in any case."""
    parts = PurePath(wanted.lower()).parts
    return isinstance(value, str) and PurePath(value.lower()).parts[-len(parts) :] == parts


def read_total(study: StudyFiles) -> int | None:
    """How large the whole training set is, by a manifest of its subsets. Raises UserError for one it cannot read."""
    for path in sorted(study.subsets.glob("*.json")):
        totals = [value for key, value in read_json(path).items() if key.startswith("train_")]
        if totals:
            return totals[0]
    return None
