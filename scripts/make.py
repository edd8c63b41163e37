"""Make what programs make of the README, of docs and of the package.

    uv run python scripts/make.py readme runs/arrow runs/fashion runs/cifar    # of finished studies
    uv run python scripts/make.py analyses                    # trains, unless runs/analyses* have it already
    uv run python scripts/make.py pages                       # of the analyses' report, through Chromium
    uv run python scripts/make.py tutorial                    # of runs/digits and runs/patches, docs/tutorial.md
    uv run python scripts/make.py pretrained VIT MINILM LITE0 STAMPS CIFAR10   # docs/pretrained.md: where they are from
    uv run python scripts/make.py budgets runs/fashion-*
    uv run python scripts/make.py models                      # 20 seconds; nothing is trained or allocated
    uv run --with matplotlib python scripts/make.py characters

readme: docs/crossover.png, docs/fashion.png and docs/cifar.png (accuracy against the training-set size),
docs/attention_distance.png (attention distance), of the studies that are there; prints their tables in Markdown.
analyses and pages: docs/analyses/*.png of small models, by the commands of docs/analyses.md. pretrained: those of large
ones, and docs/pretrained/*.png. budgets: docs/budgets.png, the error against the size on one set, with fixed steps and
with fixed epochs. models: prints the table of docs/models.md. characters: vitlab/data/images/characters.npz, the
characters of the drawn datasets in the twelve text fonts of DejaVu that matplotlib ships (license:
vitlab/data/images/DEJAVU_LICENSE.txt), 256 pixels high and cropped; the array of one is FONT/CHARACTER, such as
DejaVuSans-Bold/A, uint8.

Studies of budgets differ in their budget alone; with sizes and steps in doublings they hold the runs of both lines:

    SGD="recipe: resnet_nano, recipe.optimizer: sgd, recipe.lr: 0.5, recipe.momentum: 0.9, recipe.weight_decay: 5.0e-4,
        recipe.schedule: cosine, recipe.batch_size: 128"        # the recipes that it was measured with
    VIT="model: vit_nano, recipe: muon, recipe.lr: 1.6e-2"
    MODELS="models={vit_nano: {$VIT}, resnet_nano: {model: resnet_nano, $SGD}}"
    for t in 100 200 400 800; do vitlab scale name=fashion-$t data=fashion_mnist data.root=DATA_ROOT budget.steps=$t \
        sizes=[400,800,1600,3200,6400] "seeds=[0,1]" analyses=[] "$MODELS"; done
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vitlab.config import DescribeConfig, compose, extent, names

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WIDTH, HEIGHT = 1100, 1670  # pixels: headline, figures 1 and 2
MARGIN = 24  # pixels below the end of a page
STUDY = Path("runs/analyses")
VIT, RESNET = STUDY / "vit_nano-n16000-s0", STUDY / "resnet_nano-n16000-s0"
ATTENTION, GPT, GRU = (Path(f"runs/analyses-{name}") for name in ("attention", "gpt", "gru"))
COMMANDS = (
    f"scale quick data=glyphs models=[vit_nano,resnet_nano] sizes=[16000] seeds=[0] budget.steps=1000 --out {STUDY}",
    f"scale attention --out {ATTENTION}",
    f"train task=causal_lm data=pydoc data.vocabulary=1024 data.length=64 budget.steps=300 --out {GPT}",
    f"train model=gru_seq2seq_nano data=numbers train_size=4000 budget.steps=300 --out {GRU}",
    f"analyze {VIT}",
    f"analyze {RESNET}",
    f"report {STUDY}",  # with what is known of the heads now
    f"analyze {GPT} token_reach",
    f"analyze {GRU} alignment",
)
TRAINED = Path("analysis/trained")
OF_BOTH = ("robustness-shuffle", "robustness-occlusion")
SOURCES = {  # picture of the page -> file below a run
    "alignment": GRU / TRAINED / "alignment-4.png",
    "attention_distance": ATTENTION / "figures/attention_distance-vit_nano.png",
    "token_reach": GPT / TRAINED / "token_reach-curve.png",
    **{
        f"{name}-{run.name.partition('_')[0]}": run / TRAINED / f"{name}.png"
        for name in OF_BOTH
        for run in (VIT, RESNET)
    },
}
PAGES = {  # picture of a page of the report -> the page
    "report": STUDY / "report.html",
    "attention_maps": STUDY / "attention" / f"{VIT.name}.html",
    "compare": STUDY / "compare.html",
}
PRETRAINED = {  # picture of docs -> file below runs/pretrained
    **{f"analyses/{name}": f"vit/{name}" for name in ("attention_entropy", "head_types", "rollout")},
    **{f"analyses/{name}-saliency": f"vit/{name}" for name in ("receptive_field", "rgb_filters")},
    **{f"analyses/{name}-lite0": f"lite0/{name}" for name in ("explanation", "receptive_field", "rgb_filters")},
    **{f"analyses/{name}-saliency": f"vit-cifar10/{name}" for name in ("cka", "embedding")},
    **{f"analyses/{name}-lite0": f"lite0-cifar10/{name}" for name in ("cka", "embedding")},
    "analyses/cka-between": "between/cka",
    "analyses/head_patterns": "minilm/head_patterns-labels",
    **{f"pretrained/{name}": f"vit/{name}" for name in ("attention_distance", "attention_maps", "position_similarity")},
}
TALL = 8000  # pixels: more than a page has
RASTER = 256  # pixels of a character
SENTENCE = "The bank of the river was steep, so the man went to the bank for his money."
SMALL, SIDE = 24, 224  # pixels, of the models for one CPU core and of others
SIDES = {"dinov2_s14": 518, "dinov2_b14": 518}  # that they were trained at


def screenshot(page: Path, picture: Path, height: int = HEIGHT, colours: int = 256, parts: str = "body *") -> None:
    """Picture the parts of a page once its plots are drawn, or their top, in few colours: the file stays small."""
    sys.path.insert(0, str(ROOT))
    from tests.unit.reports.chromium import CHROMIUM, Browser, launch_chromium

    if CHROMIUM is None:
        sys.exit("Chromium is needed: install it, for example by apt install chromium")
    with launch_chromium() as chromium:
        browser = Browser(chromium)
        browser.open(page, width=WIDTH, height=height)
        if parts != "body *":  # parts of a fold, too
            browser.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        browser.run("""new Promise((done) => {
            const shown = () => [...document.querySelectorAll('.plot')].filter((plot) => plot.offsetParent);
            const drawn = () => shown().every((plot) => plot.querySelector('svg'));
            const look = () => drawn() ? done() : setTimeout(look, 50);
            look();
        })""")
        browser.page.add_style_tag(content="* { content-visibility: visible !important }")  # what is below, too
        tops, ends = browser.run(f"""['top', 'bottom'].map((side) => [...document.querySelectorAll('{parts}')]
            .map((element) => element.getBoundingClientRect()[side]))""")
        browser.page.screenshot(path=picture, full_page=True)
    image = Image.open(picture).convert("RGB")
    top = max(0, round(min(tops)) - MARGIN)
    image = image.crop((0, top, image.width, min(image.height, top + height, round(max(ends)) + MARGIN)))
    image.quantize(colours, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)  # it keeps small patches of colour


def make_readme(arrow: str = "runs/arrow", fashion: str = "runs/fashion", cifar: str = "runs/cifar") -> None:
    from vitlab.reports.words import headline, make_size_table
    from vitlab.studies.results import load_results

    for study, pictures in (
        (arrow, {"crossover": "error_against_size"}),
        (fashion, {"fashion": "accuracy_against_size"}),
        (cifar, {"cifar": "accuracy_against_size"}),
    ):
        if not Path(study).exists():
            continue
        results = load_results(study)
        table = make_size_table(results)
        for line in (table.header, ["---:"] * len(table.header), *table.body):
            print(f"| {' | '.join(line)} |")
        print(f"\n{table.note}\n\n{' '.join(headline(results))}\n")
        for name, figure in pictures.items():
            quantize(Path(study) / "figures" / f"{figure}.png", DOCS / f"{name}.png")
    if Path(cifar).exists():
        draw_heads(Path(cifar), sorted(load_results(cifar).cells["train_size"].unique()))


def quantize(picture: Path, path: Path) -> None:
    Image.open(picture).convert("RGB").quantize(64).save(path, optimize=True)


def draw_heads(study: Path, sizes: list[int]) -> None:
    """Draw the heads of the ViT from scratch on the fewest and the most pictures, beside those of the trained ViT-S."""
    import altair as alt
    import pandas as pd

    from vitlab.reports.figures import Figure, axis, save_figure

    runs = {f"ViT from scratch, {size:,} pictures": f"ViT-n{size}-s0" for size in (sizes[0], sizes[-1])}
    runs["saliency ViT-S/14"] = f"vit_s_frozen-n{sizes[-1]}-s0"
    rows = []
    for panel, run in runs.items():
        found = json.loads((study / run / "analysis" / "attention_distance.json").read_text())
        uniform, near = found["references"].values()
        for row in found["rows"]:
            if row["step"] == found["rows"][-1]["step"]:
                rows.append(
                    {"panel": panel, "layer": row["layer"], "share": row["value"] / uniform, "near": near / uniform}
                )
    base, dashed = alt.Chart(pd.DataFrame(rows)), {"strokeDash": [5, 3]}
    share = axis(alt.Y, "share", "attention distance, % of uniform", (0, 1.2), percent=True)
    points = base.mark_point(filled=True, size=45).encode(alt.X("layer:O", title="layer").axis(labelAngle=0), share)
    lines = base.mark_rule(**dashed).encode(y="mean(near)"), base.mark_rule(**dashed).encode(y=alt.datum(1))
    panels = alt.layer(points, *lines).properties(width=230, height=220)
    chart = panels.facet(alt.Column("panel:N", title=None, sort=[*runs])).resolve_scale(x="independent")
    svg, png = save_figure(Figure("attention_distance", "How far each head looks, on CIFAR-10", chart), DOCS)
    svg.unlink()
    quantize(png, png)


def make_analyses() -> None:
    for command in COMMANDS:
        print(f"vitlab {command}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "vitlab.cli", *command.split()], check=True)
    pictures = DOCS / "analyses"
    pictures.mkdir(exist_ok=True)
    for name, source in SOURCES.items():
        shutil.copyfile(source, pictures / f"{name}.png")


def make_pages() -> None:
    for name, page in PAGES.items():
        screenshot(page, DOCS / "analyses" / f"{name}.png", height=TALL, colours=128)


def make_tutorial() -> None:
    pictures = DOCS / "tutorial"
    pictures.mkdir(exist_ok=True)
    study = Path("runs/digits")
    screenshot(study / "report.html", pictures / "report.png", height=1110)
    screenshot(study / "report.html", pictures / "tables.png", parts="#laws")
    screenshot(study / "attention/vit_nano-n1294-s0.html", pictures / "attention.png", height=910)
    screenshot(Path("runs/patches/compare.html"), pictures / "compare.png", height=1180)


def make_pretrained(vit: str, minilm: str, lite0: str, stamps: str, cifar10: str) -> None:
    """Make the pictures of pre-trained models by the commands of the docs; `vit` and `lite0` are timm:NAME=FILE."""
    runs = Path("runs/pretrained")
    large, small = (
        ["data=imagefolder", f"data.root={root}", f"data.image_size={side}"]
        for root, side in ((stamps, 224), (cifar10, 112))
    )
    for out, words in {
        "vit": [vit, *large, "attention_maps.drawings=[attention_overlay]"],
        "minilm": [minilm, "data=pydoc", "task=masked_lm", "--text", SENTENCE],
        "lite0": [lite0, *large, "explanation", "receptive_field", "rgb_filters"],
        "vit-cifar10": [vit, *small, "cka", "embedding"],
        "lite0-cifar10": [lite0, *small, "cka", "embedding"],
        "between": [vit, *small, "cka", f"cka.other={lite0}"],
    }.items():
        subprocess.run([sys.executable, "-m", "vitlab.cli", "analyze", *words, "--out", str(runs / out)], check=True)
    for name, source in PRETRAINED.items():
        picture = Image.open(runs / f"{source}.png").convert("RGB")
        picture.thumbnail((1280, 900))
        picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(DOCS / f"{name}.png", optimize=True)
    screenshot(runs / "minilm/attention.html", DOCS / "pretrained/heads.png", colours=64, parts="#overview")


def make_budgets(*studies: str) -> None:
    import altair as alt
    import pandas as pd

    from vitlab.reports import THEMES
    from vitlab.studies.results import load_results

    runs = pd.concat([load_results(study).runs for study in studies]).rename(columns={"train_size": "size"})
    cells = runs.assign(error=1 - runs["accuracy"]).groupby(["model", "size", "steps"], as_index=False)["error"].mean()
    fixed = cells[np.isclose(cells["steps"] * 128 / cells["size"], 16)]
    points = pd.concat([cells.assign(what=cells["steps"].astype(str) + " steps"), fixed.assign(what="16 epochs")])
    lines = [*(f"{number} steps" for number in sorted({*cells["steps"]})), "16 epochs"]
    shades = ("#a9c7e6", "#6ea3d6", "#3c7fc0", THEMES["light"]["vit"], THEMES["light"]["resnet"])[-len(lines) :]
    dashes = [[1, 0]] * (len(lines) - 1) + [[6, 3]]
    axis = alt.Axis(values=sorted({*points["size"]}), grid=False)
    scale = alt.Scale(type="log", nice=False, padding=10)
    figure = (
        alt.Chart(points)
        .mark_line(point=True, strokeWidth=2)
        .encode(
            x=alt.X("size:Q", scale=scale, title="training examples", axis=axis),
            y=alt.Y("error:Q", scale=scale, title="test error", axis=alt.Axis(format="%", tickCount=6)),
            color=alt.Color("what:N", title=None, scale=alt.Scale(domain=lines, range=shades)),
            strokeDash=alt.StrokeDash("what:N", title=None, scale=alt.Scale(domain=lines, range=dashes)),
        )
        .properties(width=320, height=300)
        .facet(column=alt.Column("model:N", title=None))
    )
    figure.save(DOCS / "budgets.png", ppi=96)


def print_models() -> None:
    """Every named classifier of images with its parameters, tokens and operations, by the meta device."""
    from vitlab.models import counting
    from vitlab.models.base import as_model

    print("| model | parameters | tokens | GFLOPs forward |")
    print("|---|---:|---:|---:|")
    for name in names("model"):
        side = SMALL if name.endswith(("nano", "mini")) else SIDES.get(name, SIDE)
        config = compose(DescribeConfig, [f"model={name}", f"image_size={side}"])
        if config.model.modality != "image" or "caption" in name:
            continue
        model = counting.meta(config.model, num_classes=1000, image_size=extent(side), channels=3)
        forward = sum(counting.flops(model, {"image_size": extent(side), "channels": 3})[0].values())
        counts = f"{counting.parameters(model):,} | {as_model(model).sequence_length or ''} | {forward / 1e9:.4g}"
        print(f"| {name} | {counts} |")


def make_characters() -> None:
    import matplotlib
    from matplotlib.ft2font import FT2Font

    from vitlab.data.images import drawn

    characters, arrays = sorted({*drawn.CHARACTERS, drawn.ARROW}), {}
    for path in sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("DejaVu*.ttf")):
        if {ord(character) for character in characters} <= FT2Font(str(path)).get_charmap().keys():
            font = ImageFont.truetype(path, RASTER)
            arrays |= {f"{path.stem}/{character}": draw_character(font, character) for character in characters}
    np.savez_compressed(drawn.MASTERS, **arrays)
    print(f"{len(arrays)} characters, {drawn.MASTERS.stat().st_size / 1e6:.2f} MB: {drawn.MASTERS}")


def draw_character(font: ImageFont.FreeTypeFont, character: str) -> np.ndarray:
    """uint8 (Y, X), without empty rows and columns around it."""
    left, top, right, bottom = font.getbbox(character)
    image = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(image).text((-left, -top), character, fill=255, font=font)
    return np.asarray(image.crop(image.getbbox()))


MADE = {
    "readme": make_readme,
    "analyses": make_analyses,
    "pages": make_pages,
    "tutorial": make_tutorial,
    "pretrained": make_pretrained,
    "budgets": make_budgets,
    "models": print_models,
    "characters": make_characters,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=MADE)
    parser.add_argument("studies", nargs="*", help="folders")
    args = parser.parse_args()
    MADE[args.which](*args.studies)
