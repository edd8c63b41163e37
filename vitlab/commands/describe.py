"""`vitlab describe`: what a model is made of and what it costs."""

import json
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vitlab.commands.opening import open_data
from vitlab.config import extent
from vitlab.models import count, family


def describe(config: DictConfig, *, as_json: bool) -> int:
    """Print layers, tokens, parameters by part and operations; the exit code. Raises UserError."""
    image_size, num_classes, channels = extent(config.image_size), config.num_classes, config.channels
    if config.data is not None:
        data = open_data(config.data)
        image_size, num_classes, channels = data.image_size, len(data.classes), data.channels
    model = count.meta(config.model, num_classes=num_classes, image_size=image_size, channels=channels)
    forward, training = count.flops(model, image_size=image_size, channels=channels)
    found: dict[str, Any] = {
        "model": config.model.name,
        "family": family(config.model, model),
        "image_size": list(image_size),
        "channels": channels,
        "num_classes": num_classes,
        "layers": config.model.get("depth"),
        "tokens": count.tokens(model),
        "params": count.parameters(model),
        "params_by_part": count.parts(model),
        "forward_flops": forward,
        "train_flops": training,
    }
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        show(found)
    return 0


def show(found: dict[str, Any]) -> None:
    console = Console()
    height, width = found["image_size"]
    facts = [f"{height} x {width} pixels", f"{found['channels']} channels", f"{found['num_classes']} classes"]
    facts += [f"{found['layers']} layers"] if found["layers"] else []
    facts += [f"{found['tokens']} tokens"] if found["tokens"] else []
    console.print(f"[bold]{escape(found['model'])}[/bold]  {escape(', '.join(facts))}", soft_wrap=True, highlight=False)
    table = Table(box=None, pad_edge=False)
    for name, justify in (("part", "left"), ("parameters", "right"), ("share", "right")):
        table.add_column(name, justify=justify)
    for part, number in found["params_by_part"].items():
        table.add_row(escape(part), f"{number:,}", f"{number / found['params']:.1%}")
    table.add_row("all", f"{found['params']:,}", "", style="bold")
    console.print(table)
    console.print(
        f"FLOPs for one image: {found['forward_flops'] / 1e9:.4g} G forward, {found['train_flops'] / 1e9:.4g} G for a "
        "training step (2 per multiply-add)",
        soft_wrap=True,
        highlight=False,
    )
