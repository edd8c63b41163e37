"""Does a pre-trained run help on a second data set? The table of docs/models.md.

    python scripts/finetune_table.py [FOLDER]

Trains vit_nano on 32,000 glyphs (36 classes, 1,000 steps), then on scikit-learn's real handwritten digits (10 classes):
from scratch and from those weights, the same recipe, steps and images, three seeds. Every step is a vitlab command,
printed as it runs; a second call goes on where the first stopped. About 8 minutes on 2 cores.
"""

import statistics
import subprocess
import sys
from pathlib import Path

from vitlab.studies.store import StudyFiles

SIZES, SEEDS, STEPS = ["50", "100", "300", "all"], [0, 1, 2], 200


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
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/finetune")
    vitlab("train", "model=vit_nano", "data=glyphs", "--out", str(folder / "glyphs"))
    study = ["data=digits", "data.image_size=24", "models=[vit_nano]", f"sizes=[{','.join(SIZES)}]"]
    study += [f"seeds={SEEDS}".replace(" ", ""), f"budget.steps={STEPS}"]
    vitlab("scale", *study, "--out", str(folder / "scratch"))
    vitlab("scale", *study, f"set=[init={folder / 'glyphs'}]", "--out", str(folder / "finetuned"))
    print("| training digits | from scratch | from the glyphs run |")
    print("|---:|---:|---:|")
    finetuned = accuracies(folder / "finetuned")
    for size, scratch in accuracies(folder / "scratch").items():
        cells = (f"{statistics.mean(a):.1%} ± {statistics.stdev(a):.1%}" for a in (scratch, finetuned[size]))
        print(f"| {size} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
