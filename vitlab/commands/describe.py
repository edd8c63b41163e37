"""`vitlab describe` and `list`: a model's layers, parameters, tokens, FLOPs and memory; the choices of each group."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from rich.markup import escape

from vitlab.commands.arguments import CommandParser, status_line
from vitlab.config import DescribeConfig, UserError, collecting, compose, groups, load, names, raise_all
from vitlab.config.groups import config_dir, list_choice_keys, list_keys, list_kind_keys
from vitlab.config.schema import StudyConfig, TrainConfig
from vitlab.console import Console, tabulate
from vitlab.formatting import with_prefix
from vitlab.training.files import mark_output, refuse_output

# ---- describe


DESCRIBE = """Count a model: parameters by part and by layer, tokens, FLOPs, memory.
  vitlab describe model=vit_b16
  vitlab describe model=timm:resnet50 image_size=[192,256] --json
  vitlab describe model=lstm_nano data=pydoc data.length=512 --time        # and a step on this machine
  vitlab describe model=vit_nano model.positions=sincos2d --positions      # pictures of its position embeddings"""
SHAPES = {"image": ("image_size", "num_classes", "channels"), "text": ("length", "vocabulary")}  # of a model's input
FACTS = {
    "image_size": "{0[0]} x {0[1]} pixels",
    "channels": "{} channels",
    "num_classes": "{} classes",
    "vocabulary": "vocabulary {:,}",
    "layers": "{} layers",
    "tokens": "{} tokens",
    "target_length": "{} tokens of a target",
}
FLOAT = 4  # bytes in fp32, which all memory figures assume
MOST_STACKS = 2  # shown weight by weight; of a model with more, each has one line


def describe(words: Sequence[str]) -> int:
    parser = CommandParser("describe", DESCRIBE)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_json()
    parser.add_argument("--time", action="store_true", help="measure a training step, and writing, on this machine")
    parser.add_argument("--positions", action="store_true", help="draw the position embeddings before any training")
    parser.add_out("where to draw them (default: positions)")
    args = parser.parse_intermixed_args(words)
    problems = []
    if args.out and not args.positions:
        problems = [f"--out {args.out}: is for pictures of position embeddings; give --positions too"]
    with collecting(problems):
        config = compose(DescribeConfig, args.overrides, also=partial(check_shape, args.overrides))
    raise_all(problems)
    drawn = draw_positions(config, args.out or Path("positions")) if args.positions else []
    counts = count(config, timed=args.time, quiet=args.json)
    if args.json:
        print(json.dumps(counts, indent=1))
    else:
        show(counts)
    for path in drawn:
        print(path, file=sys.stderr if args.json else sys.stdout)
    return 0


def find_shape(config: DescribeConfig) -> dict[str, Any]:
    """Find the arguments that the model is built with: the data's shape where there are data."""
    from vitlab.data.opening import open_data
    from vitlab.models import described_shape

    shape = described_shape(config)
    if config.data is not None:
        data = open_data(config.data)
        shape |= data.shape
        if "target_length" in shape:
            shape["target_length"] = data.target_length
        if "num_classes" in shape:
            shape["num_classes"] = len(data.classes)
    return shape


def check_shape(overrides: Sequence[str], config: dict[str, Any], _: bool) -> None:
    """Raise UserError for overrides of the input shape that would have no effect."""
    data, model, problems = config["data"], config["model"], []
    for word in overrides:
        key = word.partition("=")[0].strip()
        if key in sum(SHAPES.values(), ()) and isinstance(data, dict):
            problems.append(f"{word}: data={data['name']} sets it too; give {key} or data, not both")
        elif key in sum(SHAPES.values(), ()) and isinstance(model, dict) and key not in SHAPES[model["modality"]]:
            choices = ", ".join(SHAPES[model["modality"]])
            problems.append(f"{word}: model={model['name']} does not have this; choices: {choices}")
    raise_all(problems)


def draw_positions(config: DescribeConfig, folder: Path) -> list[Path]:
    """Draw a model's position embeddings: the table, position by dimension, their distances and their similarities.

    Returns the paths. Raises UserError for a model that adds none.
    """
    refuse_output(folder, "describe", config.model.name)
    from vitlab import models
    from vitlab.analysis.pictures import position_distances, position_similarities
    from vitlab.models.base import as_model
    from vitlab.reports.figures import images, save_figure

    model = models.build(config.model, **find_shape(config))
    table = as_model(model).position_table if config.model.modality == "image" else model.text.embed.positions
    if table is None:
        raise UserError(f"--positions: model={config.model.name} adds no position embeddings to its tokens")
    table = table.detach().flatten(0, -2)
    found = {"table": table, "distance": position_distances(table), "similarity": position_similarities(table)}
    figures = [images.plot_positions(what, values.tolist(), config.model.name) for what, values in found.items()]
    mark_output(folder, "describe", config.model.name)
    return [path for figure in figures for path in save_figure(figure, folder)]


def count(config: DescribeConfig, *, timed: bool, quiet: bool) -> dict[str, Any]:
    """Count layers, tokens, parameters by part, operations and memory; measure a step if `timed`. Raises UserError."""
    with status_line("loading torch and timm", quiet=quiet):
        from vitlab import tasks
        from vitlab.data.opening import open_data
        from vitlab.models import counting, family
        from vitlab.models.base import as_model

    shape = find_shape(config)
    model = counting.meta(config.model, **shape)
    recipe, loss = load("recipe", config.model.recipe), None
    if config.data is not None and "target_length" in shape:  # batches are trimmed to their longest pair
        options = {"recipe": recipe, "data": open_data(config.data), "data_config": config.data}
        task = tasks.build(load("task", config.data.task), **options)
        loss = lambda model: task.loss(model, task.example())  # noqa: E731
    by_part, training = counting.flops(model, shape, loss)
    moments = 2 if recipe.optimizer == "adamw" else int(recipe.momentum > 0)
    layers, params = counting.stacks(model), counting.parameters(model)
    if timed:
        with status_line("timing steps", quiet=quiet):
            measured = counting.measure(config.model, shape)
    return {
        "model": config.model.name,
        "family": family(config.model, model),
        "example": "image" if "image_size" in shape else "pair" if "target_length" in shape else "sequence",
        **{key: list(value) if isinstance(value, tuple) else value for key, value in shape.items()},
        "layers": vars(config.model).get("depth"),
        "tokens": as_model(model).sequence_length,
        "params": params,
        "params_by_part": counting.parts(model),
        "forward_flops": sum(by_part.values()),
        "train_flops": training,
        "forward_flops_by_part": by_part,
        "stacks": [{**asdict(stack), "params_per_layer": stack.params_per_layer} for stack in layers],
        "params_outside_stacks": counting.outside(model, layers),
        "weight_bytes": FLOAT * params,
        "optimizer": recipe.optimizer,
        "train_state_bytes": FLOAT * params * (2 + moments),
        **(measured if timed else {}),
    }


def show(counts: dict[str, Any]) -> None:
    console = Console()
    facts = ", ".join(text.format(counts[key]) for key, text in FACTS.items() if counts.get(key))
    console.print(f"[bold]{escape(counts['model'])}[/bold]  {escape(facts)}", soft_wrap=True, highlight=False)
    rows, flops, total = [], counts["forward_flops_by_part"], counts["forward_flops"] or 1
    for part in dict.fromkeys([*counts["params_by_part"], *flops]):
        number, operations = counts["params_by_part"].get(part, 0), flops.get(part, 0)
        shares = f"{number / counts['params']:.1%}", f"{operations / total:.1%}"
        # operations of no part happen in the model itself, outside its modules
        rows.append([part or "other", f"{number:,}", shares[0], f"{operations / 1e9:.4g}", shares[1]])
    rows.append(["all", f"{counts['params']:,}", "", f"{counts['forward_flops'] / 1e9:.4g}", ""])
    console.print(tabulate(["part", "parameters", "share", "forward GFLOPs", "share"], rows, numbers=4))
    console.say(
        f"FLOPs for one {counts['example']}: {counts['forward_flops'] / 1e9:.4g} G forward, "
        f"{counts['train_flops'] / 1e9:.4g} G for a training step (2 per multiply-add)",
    )
    console.say(
        f"Memory in fp32: {with_prefix(counts['weight_bytes'], 'B')} of weights, "
        f"{with_prefix(counts['train_state_bytes'], 'B')} with gradients and the state of {counts['optimizer']}",
    )
    if "train_seconds" in counts:
        text = f"{with_prefix(counts['activation_bytes'], 'B')} of activations and "
        text += f"{1000 * counts['train_seconds']:.3g} ms of a training step for each {counts['example']}"
        if counts["tokens"]:
            text += f", {1e6 * counts['train_seconds'] / counts['tokens']:.3g} us a token"
        if counts["write_seconds"] is not None:
            text += f"; {1000 * counts['write_seconds']:.3g} ms to write a token of one text"
        console.say(f"Measured in fp32 on {counts['device']}: {text}")
    if counts["stacks"]:
        show_stacks(console, counts)


def show_stacks(console: Console, counts: dict[str, Any]) -> None:
    """Print each weight of one layer with its shape, a layer's parameters, and how they add up to the model's."""
    console.print()
    for stack in counts["stacks"]:
        if len(counts["stacks"]) <= MOST_STACKS:
            rows = []
            for weight in stack["weights"]:
                shapes = " + ".join(" x ".join(map(str, shape)) for shape in weight["shapes"])
                rows.append([weight["name"], shapes, f"{weight['params']:,}"])
            rows.append(["layer", "", f"{stack['params_per_layer']:,}"])
            console.print(
                tabulate([f"{stack['name']}: each of {stack['layers']}", "shape", "parameters"], rows, numbers=1)
            )
        kind = "decoder" if stack["cross"] else "encoder"
        wide = f" at {stack['width']} wide" if stack["width"] else ""
        params = f"{stack['params_per_layer'] / 1e6:.3g}M"  # as papers give it
        console.say(f"{stack['name']}: {params} per {kind} layer{wide}")
    terms = [f"{stack['layers']} x {stack['params_per_layer']:,}" for stack in counts["stacks"]]
    terms += [f"{part} {number:,}" for part, number in counts["params_outside_stacks"].items()]
    console.say(f"{counts['params']:,} = {' + '.join(terms)}")


# ---- list


PLURALS = {"data": "data", "analysis": "analyses", "study": "studies"}
GROUPS = {PLURALS.get(group, f"{group}s"): group for group in groups.GROUPS}
SCHEMAS = {"runs": TrainConfig, "study": StudyConfig}


def list_names(words: Sequence[str]) -> int:
    parser = CommandParser("list", "List the choices of a group, or its keys with their types, ranges and defaults.")
    keys = [f"{what}.keys" for what in (*SCHEMAS, *(what for what in GROUPS if what != "studies"))]
    sets = [f"{name}.keys" for name in names("data")]
    about = f"one of {', '.join([*GROUPS, *keys])}; or a data set's, as imagefolder.keys: its own values"
    parser.add_argument("what", choices=[*GROUPS, *keys, *sets], metavar="what", help=about)
    parser.add_json()
    args = parser.parse_args(words)
    group, sizes = GROUPS.get(args.what), []
    if group:
        sizes = ["layers", "width", "mlp", "heads"] if group == "model" else []
        found = [read_choice(group, name) for name in names(group)]
        found += [{"name": "timm:NAME", "about": "Any model of timm, by its name there."}] if sizes else []
    else:
        what = args.what.removesuffix(".keys")
        kinds = list_kind_keys(GROUPS[what]) if what in GROUPS else [list_choice_keys("data", what)]
        kinds = [("", list_keys(SCHEMAS[what]))] if what in SCHEMAS else kinds
        found = [{"kind": kind, **asdict(key)} for kind, keys in kinds for key in keys]
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    header = [{"name": "", **{key: key for key in sizes}, "about": ""}] if sizes else []
    for kind, some in groupby([*header, *found], key=lambda one: one.get("kind")):
        if kind:
            print(f"\nkind {kind}")
        rows = list(some)
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            cells, about = "".join(f"{row.get(key) or '':>8}" for key in sizes), row["about"]
            about += f" Of: {', '.join(row['of'])}." if "of" in row else ""
            if not group:
                about = f"{row['type']}; {row['default'] or 'empty'}{'  # ' if about else ''}{about}"
            print(f"{row['name']:{width}}{cells}  {about}".rstrip())
    return 0


def read_choice(group: str, name: str) -> dict[str, Any]:
    """Read a shipped choice's first line, a sentence about it; of a model also its sizes, if it has them."""
    text = (config_dir() / group / f"{name}.yaml").read_text()
    file, sizes = yaml.safe_load(text), {}
    if group == "model":
        width = file.get("width")
        mlp = file.get("mlp_width") or (4 * width if width and "heads" in file else None)
        heads = None if "mixer" in file else file.get("heads")
        sizes = {"layers": file.get("depth"), "width": width, "mlp": mlp, "heads": heads}
    about = text.partition("\n")[0].removeprefix("#").strip()
    return {"name": name, **sizes, "about": about, **({"of": file["of"]} if "of" in file else {})}
