"""Each kind of target of each task as a run of two steps: what works alone is tried with everything else, on a CPU
(tests/integration/test_matrix.py) and on a GPU that only seems to be there (tests/integration/test_gpu_rules.py).
"""

import functools
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.texts import ragged
from vitlab.config import TrainConfig, UserError, compose, load, names
from vitlab.data import opening
from vitlab.data.base import Split, take_items
from vitlab.studies import experiment

COUNTS = {"train": 64, "validation": 20, "test": 20}
SMALL = ["budget.steps=2", "recipe.batch_size=8", "recipe.warmup=0", "recipe.ema=null", "wandb.mode=off"]
SMALL += ["train_size=all", "trainer.evaluations=1", "trainer.workers=0"]
SHALLOW = "model.depth=2"
DRAWN = [f"data.{key}=300" for key in ("train_images", "test_images")]
TABLE = ["data=tsv", "data.path=table.tsv", "data.length=24", "data.vocabulary=300"]
TEXTS = ["data=textfile", f"data.path={ROOT / 'docs'}", "data.length=32", "data.vocabulary=300"]  # pydoc takes seconds
PAIRS = [*TABLE, "data.text=[long,short]", "data.target_length=8"]
CLASSIFIED = ["task=text_classification", *TABLE]
ROWS = {  # kinds of targets
    "classification": ["task=classification", *DRAWN],
    "multilabel": ["task=multilabel"],
    "regression": ["task=regression"],
    "captioning": ["task=captioning", *DRAWN],
    "text_classification": [*CLASSIFIED, "data.text=long", "data.label=short"],
    "choices": [*CLASSIFIED, "data.text=[long,short,other]", "data.label=right"],
    "numbers": [*CLASSIFIED, "data.text=long", "data.label=score", "data.target=number"],
    "tags": [*CLASSIFIED, "data.text=long", "data.label=tags", "data.target=tags"],
    "span_extraction": ["task=span_extraction", "data.count=300"],
    "causal_lm": ["task=causal_lm", *TEXTS],
    "masked_lm": ["task=masked_lm", *TEXTS],
    "masked_lm without pairs": ["task=masked_lm", "task.sequences=stream", *TEXTS],
    "span_lm": ["task=span_lm", *TEXTS],
    "span_corruption": ["task=span_corruption", *TEXTS],
    "translation": ["task=translation", "data.count=300", "data.exact=false"],  # for BLEU; captions are exact
    "translation by a GPT": ["task=translation", "model=gpt_nano", *PAIRS],
    "summarization": ["task=summarization", *PAIRS],
}
PROBES = [
    *(name for name in names("probe") if name != "finetune"),
    "knn@digits",
    "finetune@digits",
    "finetune@docstrings",
]


def configure(row, *words):
    """A short run of a row, of two blocks of the model that its task has by default, or of another model."""
    depth = [] if any(word.startswith("model=") for word in words) else [SHALLOW]
    return compose(TrainConfig, [*ROWS[row], *SMALL, *depth, *words])


@functools.cache
def own_data(row):
    """The entry of `eval_on` that is the run's own test data."""
    return configure(row).data.name


@functools.cache
def ask(row):
    """All analyses, probes and the test on the own data, by key; the line of each that is refused before reading."""
    asked = {"analyses": names("analysis"), "probes": PROBES, "eval_on": [own_data(row)]}
    try:
        configure(row, *(f"{key}=[{','.join(of)}]" for key, of in asked.items()))
    except UserError as error:
        return asked, {tuple(line.partition(":")[0].split("=")): line for line in error.problems}
    return asked, {}


def list_accepted(row):
    """The words of all that a row does not refuse before it reads data, and that its model can do."""
    asked, refused = ask(row)
    if row not in ("classification", "text_classification"):  # to fine-tune takes as long as a run
        asked = asked | {"probes": [name for name in asked["probes"] if not name.startswith("finetune")]}
    if row == "captioning":  # its model has no features, which is seen when it is built
        asked = asked | {"probes": []}
    return [f"{key}=[{','.join(name for name in of if (key, name) not in refused)}]" for key, of in asked.items()]


class Coloured:
    """Pictures in three channels, which some analyses ask for."""

    decoded = True

    def __init__(self, read):
        self.read = read

    def __call__(self, rows):
        images = self.read(rows)
        return images if images.shape[1] == 3 else images.repeat(3, axis=1)


def few(split, count):
    rows = np.arange(0, len(split), max(1, len(split) // count))[:count]
    if isinstance(split, Split):
        return replace(taken := take_items(split, rows), read=Coloured(taken.read))
    most = 64 if count == COUNTS["train"] else 200  # tokens of a text: several sequences to evaluate
    parts, tags = tuple(ragged([part[row][:most] for row in rows]) for part in split.parts), split.tags
    tags = None if tags is None else ragged([tags[row][:most] for row in rows])
    targets = None if split.targets is None else split.targets[rows]
    return replace(split, parts=parts, labels=split.labels[rows], targets=targets, tags=tags)


@contextmanager
def small_world(folder):
    """Gives the folder of the rows' table; data have few items, analyses few examples, probes few steps."""
    opened, loaded, lines = opening.load, experiment.load, ["long\tshort\tother\tright\tscore\ttags"]
    for n in range(300):
        text = f"the {n % 7} cats see {n % 11} dogs\t{('none', 'one', 'many')[n % 3]}\t{('no', 'some')[n % 2]}"
        lines.append(f"{text}\t{n % 2}\t{n % 13 + 1e3}\tA B C D B {'C' if n % 11 else 'D'}")
    (folder / "table.tsv").write_text("\n".join(lines))

    def open_few(config, *args, **options):
        if config.kind == "docstrings":  # takes seconds to read
            kept = {"length": config.length, "tokenizer": config.tokenizer}
            config = load("data", {"name": "tsv", "path": "table.tsv", "text": "long", "label": "short", **kept})
        data = opened(config, *args, **options)
        channels = {"channels": 3} if hasattr(data, "channels") else {}
        return replace(data, **channels, **{part: few(split, COUNTS[part]) for part, split in data.splits.items()})

    def shorten(group, name):
        config = loaded(group, name)
        if group == "analysis":
            return replace(config, examples=min(config.examples, 8))
        return replace(config, labels=[30], steps=2) if group == "probe" and config.kind == "finetune" else config

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "load", open_few)
        patch.setattr(opening, "OPENED", {})
        patch.setattr(experiment, "load", shorten)
        yield folder
