"""Make the README's pictures and tables from two finished studies.

    uv run vitlab scale && uv run vitlab scale fashion
    uv run python scripts/readme_figures.py runs/arrow runs/fashion

Writes docs/report.png (the top of the first one's report.html, through headless Chromium), docs/crossover.png and
docs/fashion.png (their accuracy against the training-set size), docs/fashion-heads.png (attention distance), and prints
their tables in Markdown.
"""

import sys
from pathlib import Path

from PIL import Image

from vitlab.reports.words import headline, make_size_table
from vitlab.studies.results import load_results

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.unit.reports.chromium import CHROMIUM, Browser, launch_chromium  # noqa: E402

DOCS = ROOT / "docs"
WIDTH, HEIGHT = 1100, 1670  # pixels: headline, figures 1 and 2
MARGIN = 24  # pixels below the end of a page


def screenshot(page: Path, picture: Path, height: int = HEIGHT, colours: int = 256) -> None:
    """The top of a page once its plots are drawn, no taller than it is; few colours, so that the file stays small."""
    if CHROMIUM is None:
        sys.exit("Chromium is needed: install it, for example by apt install chromium")
    with launch_chromium() as chromium:
        browser = Browser(chromium)
        browser.open(page, width=WIDTH, height=height)
        browser.run("""new Promise((done) => {
            const shown = () => [...document.querySelectorAll('.plot')].filter((plot) => plot.offsetParent);
            const drawn = () => shown().every((plot) => plot.querySelector('svg'));
            const look = () => drawn() ? done() : setTimeout(look, 50);
            look();
        })""")
        end = browser.run("""Math.max(...[...document.querySelectorAll('body *')]
            .map((element) => element.getBoundingClientRect().bottom))""")
        browser.page.screenshot(path=picture, full_page=True)
    image = Image.open(picture).convert("RGB")
    image.crop((0, 0, image.width, min(image.height, height, round(end) + MARGIN))).quantize(colours).save(
        picture, optimize=True
    )


def main() -> None:
    arrow, fashion = sys.argv[1:] or ("runs/arrow", "runs/fashion")
    for study in (arrow, fashion):
        results = load_results(study)
        table = make_size_table(results)
        for line in (table.header, ["---:"] * len(table.header), *table.body):
            print(f"| {' | '.join(line)} |")
        print(f"\n{table.note}\n\n{' '.join(headline(results))}\n")
    screenshot(load_results(arrow).files.report_path, DOCS / "report.png")
    for study, figure, name in (
        (arrow, "accuracy_against_size", "crossover"),
        (fashion, "accuracy_against_size", "fashion"),
        (fashion, "attention_distance-vit_mini", "fashion-heads"),
    ):
        picture = Image.open(Path(study) / "figures" / f"{figure}.png").convert("RGB")
        picture.quantize(64).save(DOCS / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
