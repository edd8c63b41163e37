"""Make the README's picture and table from a finished study.

    uv run vitlab scale && uv run python scripts/readme_figures.py runs/quick

Writes docs/report.png (the top of report.html, through headless Chromium) and prints the table in Markdown.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

from vitlab.reports.conclusion import sentence, size_table
from vitlab.studies.store import StudyFiles

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDTH, HEIGHT = 1100, 1670  # pixels: headline, figures 1 and 2
MARGIN = 24  # pixels below the end of a page


def screenshot(page: Path, picture: Path, height: int = HEIGHT, colours: int = 256) -> None:
    """The top of a page, without what is empty below its end; few colours, so that the file stays small."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("needs chromium")
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000"]
        options += [f"--user-data-dir={profile}", f"--window-size={WIDTH},{height}", f"--screenshot={picture}"]
        subprocess.run([browser, *options, page.resolve().as_uri()], check=True, capture_output=True)
    image = Image.open(picture).convert("RGB")
    empty = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    used = ImageChops.difference(image, empty).getbbox() or (0, 0, *image.size)
    image = image.crop((0, 0, image.width, min(image.height, used[3] + MARGIN)))
    image.quantize(colours).save(picture, optimize=True)


def main() -> None:
    files = StudyFiles(sys.argv[1] if len(sys.argv) > 1 else "runs/quick")
    rows = files.rows()
    header, body = size_table(rows)
    for line in (header, ["---:"] * len(header), *body):
        print(f"| {' | '.join(line)} |")
    print(f"\n{sentence(rows)}")
    screenshot(files.report_path, DOCS / "report.png")


if __name__ == "__main__":
    main()
