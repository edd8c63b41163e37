r"""How often a measured accuracy at twice the labels lies in the 90% interval that was predicted from fewer.

A study with many seeds is cut into repetitions of some seeds each. Of each repetition the laws are fitted to all sizes
but the largest, which is twice the one before it, as `vitlab advise` does; its runs are then looked up.

python scripts/draw_pictures.py shape photos --count 3400 --clean
vitlab scale name=glyphs data=glyphs sizes=[250,500,1000,2000,4000] budget.steps=80 ALL
vitlab scale name=shapes data=imagefolder data.root=photos data.image_size=24 sizes=[80,160,320,640,1280] \
    budget.steps=120 ALL
vitlab scale name=digits data=digits sizes=[80,160,320,640,1280] budget.steps=60 ALL
    with ALL: models=[resnet_nano] "seeds=[0,1,...,29]" analyses=[]
python scripts/coverage_at_twice.py STUDY_DIR ... [--seeds 3]
"""

import argparse
import statistics
from pathlib import Path

from vitlab.studies.results import Results, load_results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="of a repetition")
    args = parser.parse_args()
    print("| study | model | repetitions | mean inside | runs inside | half width | mean is off by |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for study in args.studies:
        results = load_results(study)
        for model in dict.fromkeys(row["model"] for row in results.rows):
            print_model(study.name, model, [row for row in results.rows if row["model"] == model], args.seeds)


def print_model(study: str, model: str, rows: list[dict], seeds_each: int) -> None:
    *smaller, largest = sorted({row["train_size"] for row in rows})
    seeds = sorted({row["seed"] for row in rows})
    inside, runs_inside, runs, widths, misses, without = 0, 0, 0, [], [], 0
    for start in range(0, len(seeds) - seeds_each + 1, seeds_each):
        chosen = seeds[start : start + seeds_each]
        known = [row for row in rows if row["seed"] in chosen and row["train_size"] in smaller]
        measured = [row["accuracy"] for row in rows if row["seed"] in chosen and row["train_size"] == largest]
        fit = Results(known, outcomes={}).fits.fits.get(model)
        if fit is None or not fit.holds:
            without += 1
            continue
        high, low = (1 - fit.prediction_interval([largest])[:, 0]).tolist()
        inside += low <= statistics.fmean(measured) <= high
        runs_inside, runs = runs_inside + sum(low <= value <= high for value in measured), runs + len(measured)
        widths.append((high - low) / 2)
        misses.append(abs(statistics.fmean(measured) - (1 - float(fit.predict([largest])[0]))))
    count = len(widths)
    none = f" ({without} without a law)" if without else ""
    if count:
        width, miss = (f"{100 * statistics.median(values):.1f}" for values in (widths, misses))
        print(f"| {study} | {model} | {count}{none} | {inside} | {runs_inside} of {runs} | {width} | {miss} |")


if __name__ == "__main__":
    main()
