"""A study for someone's own pictures: which models, how many sizes, seeds and steps fit the time there is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitlab.config import UserError
from vitlab.formatting import duration
from vitlab.studies.plan.timing import Times

SCRATCH = ("color_histogram", "vit_nano", "resnet_nano")
PRETRAINED = {"vit": ("vit_ti16", "timm:vit_tiny_patch16_224"), "resnet": ("resnet18", "timm:resnet18")}
FINETUNE = {"recipe": "finetune"}  # where first weights are pretrained
LARGEST_PRETRAINED = 224  # pixels a side
FROM_SCRATCH = {0.5: 48, 0.0: 32}  # from so many hours on: pixels a side on a CPU without pretrained weights
FEWEST, FEWEST_SIZES = 50, 4  # training pictures of the smallest size; sizes that a law needs
SHARE = 0.8  # of the time that a plan may take: times are measured on few steps
AROUND = 60.0  # seconds before the first run and after the last one


@dataclass(frozen=True)
class Level:
    """How much is trained: optimizer steps of a run, seeds, nested sizes, learning rates that are tried for each."""

    steps: int
    seeds: int
    sizes: int
    rates: int = 1


# the first one that fits is taken: seeds before rates, for without an interval there is no verdict
LEVELS = (
    *(Level(2000, 5, 6, 3), Level(1000, 5, 5, 3), Level(600, 5, 5, 3), Level(600, 5, 5), Level(600, 3, 4)),
    *(Level(400, 3, 4), Level(300, 3, 4), Level(200, 3, 4), Level(120, 3, 4)),
)


def choose_image_size(suggested: int, hours: float, *, pretrained: bool, gpu: bool) -> int:
    """Pixels a side: those of the pictures, as far as the time allows."""
    most = next(pixels for least, pixels in FROM_SCRATCH.items() if hours >= least)
    return min(suggested, LARGEST_PRETRAINED if pretrained or gpu else most)


def compose_proposal(name: str, data: Mapping[str, Any], families: Sequence[str], level: Level) -> dict[str, Any]:
    """A study as its YAML file holds it; `families` are those of PRETRAINED whose weights are here."""
    models: dict[str, Any] = {}
    for family in families:
        model, source = PRETRAINED[family]
        tuned = {"model": model, "init": source, **FINETUNE}
        models |= {f"{model}_finetuned": tuned, f"{model}_frozen": {**tuned, "recipe.freeze": "body"}}
    models |= {model: {"model": model} for model in SCRATCH}
    return {
        "name": re.sub(r"[^\w.+-]", "_", name) or "pictures",
        "models": models,
        **({"data": dict(data)} if data else {}),
        "sizes": [0.5**power for power in range(level.sizes - 1, 0, -1)] + ["all"],
        "seeds": list(range(level.seeds)),
        "budget": {"steps": level.steps},
        "trainer": {"evaluations": 4},
        "analyses": [],
        **({"tune": {"recipe.lr": ["x0.3", "x1", "x3"]}} if level.rates > 1 else {}),
        **({"probes": ["knn"]} if families else {}),
    }


def estimate_seconds(level: Level, times: Mapping[str, Times], validation: int, test: int, jobs: int) -> float:
    """How long a study takes; `times` by variant, `validation` and `test` are items."""
    spent = 0.0
    for one in times.values():
        training = level.steps * one.step + 4 * validation * one.validation
        spent += one.start + level.rates * training + test * one.test
    return AROUND + spent * level.seeds * level.sizes / jobs


def choose_level(
    hours: float, times: Mapping[str, Times], validation: int, test: int, jobs: int, train: int
) -> tuple[Level, float]:
    """The most thorough level that fits, and its seconds. Raises UserError where none does."""
    for level in LEVELS:
        if train * 0.5 ** (level.sizes - 1) < FEWEST and level.sizes > FEWEST_SIZES:
            continue
        seconds = estimate_seconds(level, times, validation, test, jobs)
        if seconds <= SHARE * 3600 * hours:
            return level, seconds
    needed = seconds / SHARE / 3600
    raise UserError(
        f"--hours {hours:g}: the smallest study takes about {duration(seconds)}; give --hours {1.1 * needed:.2g}"
    )
