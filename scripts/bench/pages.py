"""How large report.html is, how long `vitlab report` takes to write it, and when its first figure is there in Chromium.

python scripts/bench/pages.py [STUDY_DIR ...]      # without folders: 24 and 1,000 made-up runs
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.unit.reports.chromium import Browser, launch_chromium  # noqa: E402
from tests.unit.reports.written_study import make_study  # noqa: E402

MANY = {f"{family}_{number}": family for family in ("vit", "resnet") for number in range(5)}


def make_studies(folder: Path) -> list[Path]:
    make_study(folder / "24", seeds=(0, 1, 2), failed=0)
    make_study(folder / "1000", models=MANY, sizes=tuple(250 * 2**k for k in range(10)), seeds=range(10), failed=0)
    return [folder / "24", folder / "1000"]


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, launch_chromium() as chromium:
        print("| study | report.html | written in | first figure after |\n|---|---:|---:|---:|")
        for study in [Path(name) for name in sys.argv[1:]] or make_studies(Path(scratch)):
            start = time.monotonic()
            subprocess.run([sys.executable, "-m", "vitlab.cli", "report", study], check=True, stdout=subprocess.DEVNULL)
            written = time.monotonic() - start
            page = study / "report.html"
            browser = Browser(chromium)
            start = time.monotonic()
            browser.page.goto(page.resolve().as_uri(), wait_until="commit")
            browser.page.wait_for_selector(".plot svg")
            seen = time.monotonic() - start
            print(f"| {study.name} | {page.stat().st_size / 1e6:.2f} MB | {written:.1f} s | {seen:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
