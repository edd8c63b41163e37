"""A study of eight runs by `vitlab scale` against one script per run, one after the other, as users of timm write it.

    uv run python scripts/bench/study.py [--quick] [--json FILE]

vit_nano and resnet_nano on 100, 300, 1,000 and all digits at 16 pixels with AdamW, batches of 128, validation twice and
the test once; scripts/bench/plain_run.py is the script. Wall time of the whole, with imports. vitlab writes its report,
too; with the defaults of this machine (precision, jobs), W&B and the analyses off.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rounds import Row, main, make_row, run

SIZES = (100, 300, 1000, 1293)
STUDY = ["models=[vit_nano,resnet_nano]", "data=digits", "sizes=[100,300,1000,all]", "seeds=[0]", "wandb.mode=off"]
STUDY += ["analyses=[]", "trainer.evaluations=2", "set=[recipe=adamw,recipe.batch_size=128]"]


def measure(quick: bool) -> Iterator[Row]:
    steps = 200 if quick else 400
    out = Path(tempfile.mkdtemp(prefix="vitlab-bench-"))

    def ours() -> float:
        shutil.rmtree(out)
        return run("-m", "vitlab.cli", "scale", "quick", *STUDY, f"budget.steps={steps}", "--out", str(out))

    def peer() -> float:
        script = str(Path(__file__).with_name("plain_run.py"))
        return sum(run(script, model, str(size), str(steps)) for model in ("vit", "resnet") for size in SIZES)

    pairs = [(ours(), peer()) for _ in range(1 if quick else 3)]
    yield make_row(f"study of 8 runs, {steps} steps each", pairs, floor=2.5)
    shutil.rmtree(out)


if __name__ == "__main__":
    main(__doc__, measure)
