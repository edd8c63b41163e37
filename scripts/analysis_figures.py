"""Make the pictures of docs/analyses.md, those of a report's pages among them, from a study that is trained for them.

    uv run python scripts/analysis_figures.py            # trains, unless runs/analyses* have it already
    uv run python scripts/analysis_figures.py --no-pages

The commands are those of docs/analyses.md. Writes docs/analyses/*.png, the pages through headless Chromium.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from readme_figures import DOCS, screenshot

from vitlab.config import names

PICTURES = DOCS / "analyses"
STUDY = Path("runs/analyses")
VIT, RESNET = STUDY / "vit_nano-n16000-s0", STUDY / "resnet_nano-n16000-s0"
BETWEEN = STUDY / "cka"
ATTENTION, TOKEN, GPT, GRU = (Path(f"runs/analyses-{name}") for name in ("attention", "token", "gpt", "gru"))
COMMANDS = (
    f"scale quick data=glyphs models=[vit_nano,resnet_nano] sizes=[16000] seeds=[0] budget.steps=1000 --out {STUDY}",
    f"scale attention --out {ATTENTION}",
    f"train model=vit_nano model.pool=token data=glyphs train_size=16000 budget.steps=1000 --out {TOKEN}",
    f"train task=causal_lm data=pydoc data.vocabulary=1024 data.length=64 budget.steps=300 --out {GPT}",
    f"train model=gru_seq2seq_nano data=numbers train_size=4000 budget.steps=300 --out {GRU}",
    f"analyze {VIT}",
    f"analyze {RESNET}",
    f"analyze {VIT} cka cka.other={RESNET} --out {BETWEEN}",
    f"report {STUDY}",  # with what is known of the heads now
    f"analyze {TOKEN} attention_maps attention_maps.drawings=[attention_overlay]",
    f"analyze {GPT} head_patterns",
    f"analyze {GRU} alignment",
)
TRAINED = Path("analysis/trained")
SOURCES = {  # picture of the page -> file below a run
    "alignment": GRU / TRAINED / "alignment-4.png",
    "attention_distance": ATTENTION / "figures/attention_distance-vit_nano.png",
    "attention_entropy": VIT / TRAINED / "attention_entropy.png",
    "cka-between": BETWEEN / "cka.png",
    "attention_maps-token": TOKEN / TRAINED / "attention_maps.png",
    "head_patterns": GPT / TRAINED / "head_patterns-labels.png",
    "head_types": VIT / TRAINED / "head_types.png",
    "position_similarity": VIT / TRAINED / "position_similarity.png",
    "rollout": VIT / TRAINED / "rollout.png",
    **{
        f"{name}-{run.name.partition('_')[0]}": run / TRAINED / f"{name}.png"
        for name in (
            "cka",
            "embedding",
            "explanation",
            "receptive_field",
            "rgb_filters",
            "robustness-shuffle",
            "robustness-occlusion",
        )
        for run in (VIT, RESNET)
    },
}
PAGES = {  # picture of a page of the report -> the page
    "report": STUDY / "report.html",
    "attention_maps": STUDY / "attention" / f"{VIT.name}.html",
    "compare": STUDY / "compare.html",
}
TALL = 8000  # pixels: more than a page has
LARGEST, ALL = 300_000, 2_000_000  # bytes of a picture, and of all of them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-pages", action="store_true", help="leave out the pictures of the report's pages")
    arguments = parser.parse_args()
    for command in COMMANDS:
        print(f"vitlab {command}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "vitlab.cli", *command.split()], check=True)
    missing = set(names("analysis")) - {name.partition("-")[0] for name in (*SOURCES, *PAGES)}
    if missing:
        sys.exit(f"no picture of {', '.join(sorted(missing))}")
    PICTURES.mkdir(exist_ok=True)
    for name, source in SOURCES.items():
        shutil.copyfile(source, PICTURES / f"{name}.png")
    if not arguments.no_pages:
        for name, page in PAGES.items():
            screenshot(page, PICTURES / f"{name}.png", height=TALL, colours=128)
    sizes = {path.name: path.stat().st_size for path in PICTURES.glob("*.png")}
    if large := [name for name, size in sizes.items() if size > LARGEST]:
        sys.exit(f"over {LARGEST:,} bytes: {', '.join(large)}")
    if sum(sizes.values()) > ALL:
        sys.exit(f"all pictures together: over {ALL:,} bytes")


if __name__ == "__main__":
    main()
