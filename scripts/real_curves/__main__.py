"""A benchmark of learning curves as they are: how well do scaling laws predict them, and where two of them cross?

    uv run --with matplotlib python scripts/real_curves make [CSV] [--tasks NAME ...]    # 15 minutes on one core
    uv run python scripts/real_curves evaluate  [CSV] [--jobs 2]            # the tables of docs/rules.md

`make` trains scikit-learn's learners, n-gram models and vitlab's smallest networks on data that need no download:
vitlab's own sets, the samples that scikit-learn and matplotlib bring, the names of Unicode's characters, and the source
code of Python's library. `evaluate` fits the first sizes of each curve and looks at the others.
"""

import argparse
import os
from pathlib import Path

CSV = Path(__file__).resolve().parents[2] / "docs" / "real-curves.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="train the learners and write their errors")
    making.add_argument("csv", type=Path, nargs="?", default=CSV)
    making.add_argument("--tasks", nargs="+", default=[])
    judging = commands.add_parser("evaluate", help="fit the first sizes and look at the others")
    judging.add_argument("csv", type=Path, nargs="?", default=CSV)
    judging.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # before NumPy is imported
    if args.command == "make":
        from make import make

        make(args.csv, args.tasks)
    else:
        from evaluate import evaluate

        evaluate(args.csv, args.jobs)


if __name__ == "__main__":
    main()
