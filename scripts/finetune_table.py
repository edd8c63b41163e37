"""Do first weights from another run help? The tables of docs/models.md and docs/text.md.

    python scripts/finetune_table.py digits|docstrings|glyphs [FOLDER]

- digits: vit_nano on 32,000 drawn glyphs (36 classes, 1,000 steps), then on scikit-learn's real handwritten digits.
- docstrings: bert_nano as a masked language model of docstrings (the training ones alone, without their labels), then
  as a classifier of which package of Python's library a docstring is of.
- glyphs: bert_nano as a masked language model of Python's documentation, then its encoder alone in a ViT on glyphs.

Each from scratch and from those weights, the same recipe, steps and examples, three seeds. Every step is a vitlab
command, printed as it runs; a second call goes on where the first stopped. 8 to 30 minutes on 2 cores.
"""

import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from vitlab.studies.store import StudyFiles


@dataclass(frozen=True)
class Experiment:
    what: str  # the training examples
    source: tuple[str, ...]  # trains the run that weights come from
    study: tuple[str, ...]
    start: str  # key of the weights in the study
    tokens: bool = False  # whether the study takes the run's tokenizer


MASKED = ("task=masked_lm", "data.length=64", "data.vocabulary=1024")
EXPERIMENTS = {
    "digits": Experiment(
        "training digits",
        ("model=vit_nano", "data=glyphs"),
        (
            *("data=digits", "data.image_size=24", "models=[vit_nano]"),
            *("sizes=[50,100,300,all]", "seeds=[0,1,2]", "budget.steps=200"),
        ),
        "init",
    ),
    "docstrings": Experiment(
        "training docstrings",
        ("data=docstrings", *MASKED, "task.sequences=documents", "task.share=0.6", "budget.steps=2000"),
        ("docstrings",),
        "init",
        tokens=True,
    ),
    "glyphs": Experiment(
        "training glyphs",
        ("data=pydoc", *MASKED, "task.sequences=stream", "task.share=0.3", "budget.steps=300"),
        ("image_from_text",),
        "init.encoder",
    ),
}


def vitlab(*words: str) -> None:
    print("$ vitlab", *words, file=sys.stderr)
    subprocess.run([sys.executable, "-m", "vitlab.cli", *words], check=True, stdout=subprocess.DEVNULL)


def accuracies(folder: Path) -> dict[str, list[float]]:
    """Held-out accuracies by training-set size, one for each seed."""
    found: dict[str, list[float]] = {}
    for row in sorted(StudyFiles(folder).rows(), key=lambda row: int(row["train_size"])):
        found.setdefault(f"{int(row['train_size']):,}", []).append(float(row["accuracy"]))
    return found


def main() -> None:
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in EXPERIMENTS:
        raise SystemExit(f"give one of {', '.join(EXPERIMENTS)}, and a folder if not runs/finetune-NAME")
    name = sys.argv[1]
    one, folder = EXPERIMENTS[name], Path(sys.argv[2] if len(sys.argv) > 2 else f"runs/finetune-{name}")
    source = folder / "source"
    vitlab("train", *one.source, "--out", str(source))
    tokens = [f"data.tokenizer={source / 'tokenizer.json'}"] if one.tokens else []
    vitlab("scale", *one.study, *tokens, "set=[]", "--out", str(folder / "scratch"))
    vitlab("scale", *one.study, *tokens, f"set=[{one.start}={source}]", "--out", str(folder / "finetuned"))
    print(f"| {one.what} | from scratch | from the run |")
    print("|---:|---:|---:|")
    finetuned = accuracies(folder / "finetuned")
    for size, scratch in accuracies(folder / "scratch").items():
        cells = (f"{statistics.mean(a):.1%} ± {statistics.stdev(a):.1%}" for a in (scratch, finetuned[size]))
        print(f"| {size} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
