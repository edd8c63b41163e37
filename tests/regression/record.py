"""What is recorded, and how: `uv run python -m tests.regression.record [PART ...]` writes recorded/PART.json.

Record a part again only for a change that is meant to change it; the difference of the file then says what it did.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torch.utils.data import DataLoader

from tests.integration.commands import vitlab
from tests.runs import train_run
from vitlab.config import TrainConfig, compose, resolved
from vitlab.config.identity import identity
from vitlab.data.opening import open_data
from vitlab.reports.wandb import RunReporter
from vitlab.studies.grid import compose_study, name_run
from vitlab.studies.store import StudyFiles, collect
from vitlab.training import train as training
from vitlab.training.run import Run, plan_run, start_run

RECORDED = Path(__file__).parent / "recorded"
STEPS = 20
SMALL_TEXT = ["data.vocabulary=512", "data.length=32"]
PAIRS = {  # a model with a task, and what makes them small
    "vit-classification": ["model=vit_nano", "data=digits"],
    "vit_augmented-classification": ["model=vit_nano", "data=digits", "data.augment.shift=1", "model.dropout=0.1"],
    "mixer-classification": ["model=mixer_nano", "data=digits"],
    "fnet-classification": ["model=fnet_nano", "data=digits"],
    "resnet-classification": ["model=resnet_nano", "data=digits"],
    "gpt-causal_lm": ["model=gpt_nano", "task=causal_lm", "data=pydoc", *SMALL_TEXT],
    "lstm-causal_lm": ["model=lstm_nano", "task=causal_lm", "data=pydoc", *SMALL_TEXT],
    "bert-masked_lm": ["model=bert_nano", "task=masked_lm", "data=pydoc", *SMALL_TEXT],
    "bert-span_lm": ["model=bert_nano", "task=span_lm", "data=pydoc", *SMALL_TEXT],
    "t5-span_corruption": ["model=t5_nano", "task=span_corruption", "data=pydoc", *SMALL_TEXT],
    "transformer-translation": ["model=transformer_nano", "task=translation", "data=numbers"],
    "vit_caption-captioning": ["model=vit_caption_nano", "task=captioning", "data=captioned_glyphs"],
}
FIXED = [
    *("analyses=[]", "wandb.mode=off", "recipe.batch_size=16", "train_size=64", f"budget.steps={STEPS}"),
    *("trainer.precision=32-true", "trainer.threads=1", "trainer.log_every=1", "trainer.evaluations=1"),
]


def record_losses() -> dict[str, list[float]]:
    """The training loss of each of 20 steps."""
    return {pair: train(words) for pair, words in PAIRS.items()}


def train(words: list[str]) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        config = compose(TrainConfig, [*FIXED, *words])
        run = start_run(plan_run(config, open_data(config.data)), folder)
        run.write_start()
        with patch.object(training, "build_loaders", partial(load_little, training.build_loaders)):
            training.train(run)
        return [round(row["train/loss"], 6) for row in run.files.metrics() if "train/loss" in row]


def load_little(load: Callable[[Run], tuple[Any, Any]], run: Run) -> tuple[Any, Any]:
    """The loaders of a run, with one batch of validation: the losses of training do not depend on the others."""
    batches, validation = load(run)
    return batches, DataLoader([next(iter(validation))], batch_size=None)


TASKS = {  # of models that are not for classification
    "causal_lm": ["gpt_nano", "lstm_nano"],
    "masked_lm": ["bert_nano"],
    "span_corruption": ["t5_nano"],
    "translation": ["transformer_nano", "gru_seq2seq_nano", "lstm_seq2seq_nano"],
    "classification": ["vit_nano", "vit_mini", "mixer_nano", "fnet_nano", "resnet_nano", "resnet_mini", "resnet18"],
}
RECIPES = ("adamw", "muon", "noam", "resnet", "gpt", "bert")
OTHERS = (
    *("seed=2", "trainer.precision=bf16-mixed"),
    "seed=1",
    "subset_seed=3",
    "train_size=100",
    "budget.epochs=3",
    "recipe.keep=best",
    "recipe.batch_size=64",
)


def record_identities() -> dict[str, str]:
    """Record identities of some recipes, of every task and nano model, and of some with other keys."""
    runs = [[f"recipe={name}"] for name in RECIPES]
    runs += [[f"task={name}"] for name in ("span_lm", "summarization", "captioning")]
    runs += [[f"task={task}", f"model={model}"] for task, models in TASKS.items() for model in models]
    runs += [[key] for key in OTHERS]
    return {" ".join(words): identity(resolved(compose(TrainConfig, words)), "contents") for words in runs}


def make_study(folder: Path) -> None:
    """A study of pictures, of one run of one step, as its worker and its start leave it."""
    shared, files = ["data=digits", "budget.steps=1", "analyses=[]", "wandb.mode=off"], StudyFiles(folder)
    study = compose_study("quick", [*shared, "models=[vit_nano]", "sizes=[16]", "seeds=[0]"])
    files.add_start(resolved(study), [("vit_nano", 16, 0)])
    run = compose(TrainConfig, [*shared, "train_size=16", f"study={study.name}"])
    train_run(run, folder / name_run("vit_nano", 16, 0), observer=RunReporter())
    collect(files)


def record_columns(study: Path) -> list[str]:
    """The header of its results.csv."""
    return Path(study, "results.csv").read_text().splitlines()[0].split(",")


def record_documents(study: Path) -> dict[str, Any]:
    """The --json documents: the names that `list` has, `describe` whole, of the others keys and types."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "errors.csv")
        rows = [f"{model},{size},{scale * size**-0.4:.5f}" for model, scale in (("a", 3), ("b", 2)) for size in SIZES]
        table.write_text("\n".join(["model,train_size,error", *rows]))
        return {
            "list": {group: list_names(group) for group in GROUPS},
            "describe": json.loads(vitlab("describe", "model=vit_s16", "--json").stdout),
            "fit": outline(json.loads(vitlab("fit", table, "--json").stdout)),
            "status": outline(json.loads(vitlab("status", study, "--json").stdout)),
        }


SIZES = (100, 200, 400, 800, 1600, 3200)
GROUPS = ("models", "data", "tasks", "recipes", "analyses", "probes", "studies", "mixers")


def list_names(group: str) -> list[str]:
    return [choice["name"] for choice in json.loads(vitlab("list", group, "--json").stdout)]


def outline(value: Any) -> Any:
    """The keys of a document and the types of its leaves."""
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, list):
        return [outline(value[0])] if value else []
    return type(value).__name__


PARTS: dict[str, Callable[..., Any]] = {
    "losses": record_losses,
    "identities": record_identities,
    "columns": record_columns,
    "documents": record_documents,
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        RECORDED.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as home:
            of_study = part in ("columns", "documents")
            if of_study:
                make_study(Path(home, "study"))
            found = PARTS[part](*([Path(home, "study")] if of_study else []))
        (RECORDED / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")
