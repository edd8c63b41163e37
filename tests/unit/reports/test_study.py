"""A study folder as `vitlab scale` leaves it, with plausible numbers, for the tests of the reports."""

import json
import math
import shutil
from collections import Counter

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from vitlab.cli import main
from vitlab.commands.scale import conclude
from vitlab.files import write_json, write_text
from vitlab.reports.figures.samples import write_contact_sheet
from vitlab.reports.pages import study as study_page
from vitlab.reports.results.study_results import load_results
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

SIZES = (500, 2000, 8000, 32000)
SEEDS = (0, 1)
MODELS = {"vit_nano": "vit", "resnet_nano": "resnet"}
ACCURACY = {"vit_nano": (0.424, 0.641, 0.797, 0.879), "resnet_nano": (0.806, 0.893, 0.931, 0.957)}
PARAMS = {"vit_nano": 214_180, "resnet_nano": 46_036}
STEPS, BATCH = 1000, 128
ENVIRONMENT = {
    "vitlab": "0.1.0",
    "python": "3.11.9",
    "torch": "2.15.0",
    "lightning": "2.6.6",
    "timm": "1.0.31",
    "platform": "Linux-6.1-x86_64",
    "device": "cpu",
    "cpu": "AMD EPYC 9R14",
    "cores": 2,
    "commit": "0cba5fa91d2e",
}
SETTINGS = {"accelerator": "cpu", "precision": "32-true", "memory_format": "contiguous", "threads": 1}
RECIPE = {"name": "adamw", "optimizer": "adamw", "lr": 0.004, "schedule": "cosine", "warmup": 0.1, "batch_size": BATCH}


def make_study(folder, *, name="quick", models=MODELS, sizes=SIZES, seeds=SEEDS, failed=1):
    """Write a study of models (name -> family) whose last `failed` runs failed; gives its StudyFiles."""
    study = StudyFiles(folder)
    study.write_config(
        {
            "name": name,
            "models": list(models),
            "data": {"name": "glyphs", "image_size": 24},
            "sizes": list(sizes),
            "seeds": list(seeds),
            "budget": {"steps": STEPS, "epochs": None, "examples": None, "flops": None},
            "set": [],
            "per_model": {},
            "task": {"name": "classification"},
        }
    )
    grid = [(model, place, seed) for seed in seeds for place in range(len(sizes)) for model in models]
    for seed in seeds:
        write_json(study.subsets / f"glyphs-seed{seed}.json", {"data": "glyphs", "seed": seed, "sizes": list(sizes)})
    kept = grid[: len(grid) - failed]
    rows = [write_run(study, name, model, models[model], sizes[place], place, seed) for model, place, seed in kept]
    rows.sort(key=lambda row: (list(models).index(row["model"]), row["train_size"], row["seed"]))
    if rows:
        study.write_rows(rows)
    error = "Diverged: the loss is not a number at step 412; try a lower recipe.lr"
    lost = [f"{model}-n{sizes[place]}-s{seed}" for model, place, seed in grid[len(kept) :]]
    write_json(study.folder / "failed.json", [{"run": run, "error": error} for run in lost])
    write_contact_sheet({size: letters(12, seed=size) for size in sizes}, study.figures / "samples.png")
    return study


def letters(count, seed):
    """Light letters on a dark, noisy ground: uint8 (count, 1, 24, 24)."""
    generator = np.random.default_rng(seed)
    images = np.empty((count, 1, 24, 24), np.uint8)
    for image in images:
        canvas = Image.new("L", (24, 24), 20)
        letter = chr(ord("A") + int(generator.integers(26)))
        ImageDraw.Draw(canvas).text((5, -1), letter, fill=210, font=ImageFont.load_default(20))
        noisy = np.asarray(canvas.rotate(float(generator.uniform(-20, 20)), fillcolor=20)) + generator.normal(
            0, 18, (24, 24)
        )
        image[0] = np.clip(noisy, 0, 255)
    return images


def write_run(study, study_name, model, family, size, place, seed):
    """One run's folder; gives its row of results.csv."""
    generator = np.random.default_rng([place, seed, len(model)])
    curve = ACCURACY.get(model, ACCURACY["vit_nano"])
    accuracy = float(curve[place % len(curve)] + generator.normal(0, 0.008))
    name = f"{model}-n{size}-s{seed}"
    run = study.run(name)
    run.write_config({"model": {"name": model, "kind": family}, "recipe": RECIPE, "train_size": size, "seed": seed})
    floor, heldout = 0.02 + 0.25 * place / 4, 3.2 * (1 - accuracy)
    lines = []
    for step in range(25, STEPS + 1, 25):
        decay = math.exp(-step / 180)
        loss = (3.5 - floor) * decay + floor + float(generator.normal(0, 0.02))
        extra = {"train/lr": 0.004, "train/grad_norm": 0.9, "train/param_norm": 21.0, "train/images_per_s": 4100.0}
        lines.append({"step": step, "examples_seen": step * BATCH, "wall_s": step * 0.031, "train/loss": loss, **extra})
        if step % 125 == 0:
            rise = 0.4 * (step / STEPS) / (1 + place)  # a small set is learned by heart
            value = (3.5 - heldout) * decay + heldout + rise
            lines.append({"step": step, "heldout/loss": value, "heldout/accuracy": accuracy * (1 - decay)})
    write_text(run.metrics_path, "".join(json.dumps(line) + "\n" for line in lines))
    if family == "vit":
        write_attention(run, generator, place)
    row = {
        "study": study_name,
        "run": name,
        "model": model,
        "family": family,
        "data": "glyphs",
        "train_size": size,
        "seed": seed,
        "budget": f"steps={STEPS}",
        "steps": STEPS,
        "examples_seen": STEPS * BATCH,
        "params": PARAMS.get(model, 100_000),
        "train_flops": 2.1e12 if family == "vit" else 3.4e12,
        "accuracy": accuracy,
        "error": 1 - accuracy,
        "loss": lines[-1]["heldout/loss"],
        "train_loss": floor,
        "images_per_s": 4100.0,
        "wall_s": 31.2,
        "precision": "32-true",
        "status": "finished",
    }
    result = {**row, "environment": ENVIRONMENT, "settings": SETTINGS, "finished_at": "2025-11-21T09:30:00+00:00"}
    write_json(run.result_path, {**result, "wandb": {"mode": "offline", "path": "wandb/offline-run-1/files"}})
    return row


def write_attention(run, generator, place):
    """Four layers of four heads: all near the mean of the image before training, local and global ones after."""
    rows = []
    for layer in range(1, 5):
        for head in range(1, 5):
            reach = 3.5 + 1.2 * layer + (head - 2.5) * (1.2 + 0.5 * place)
            values = {0: 10.9 + generator.normal(0, 0.15), STEPS: min(12.5, max(1.5, reach + generator.normal(0, 0.5)))}
            rows += [{"step": step, "layer": layer, "head": head, "value": float(v)} for step, v in values.items()]
    run.write_analysis("attention_distance", "pixels", rows)


def test_study_reads_back_as_it_was_written(tmp_path):
    results = load_results(make_study(tmp_path / "quick").folder)
    rows = results.rows
    assert len(rows) == 15
    assert [row["run"] for row in rows[:3]] == ["vit_nano-n500-s0", "vit_nano-n500-s1", "vit_nano-n2000-s0"]
    assert len(results.runs[rows[0]["run"]].metrics) == 48
    assert results.failures[0]["run"] == "resnet_nano-n32000-s1"
    assert results.unfinished == []


def test_the_results_are_parsed_once_for_the_report_and_its_dashboards(tmp_path, monkeypatch, capsys):
    study = make_study(tmp_path / "quick", sizes=(53, 59), seeds=(0,), failed=0)
    reads = Counter()

    def counted(read):
        return lambda files: reads.update([(read.__name__, files.folder.name)]) or read(files)

    monkeypatch.setattr(StudyFiles, "rows", counted(StudyFiles.rows))
    monkeypatch.setattr(RunFiles, "metrics", counted(RunFiles.metrics))
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main(["report", str(study.folder), "--wandb"]) == 0
    runs = [path.parent.name for path in study.folder.glob("*/result.json")]
    assert reads == {("rows", "quick"): 1, **{("metrics", run): 1 for run in runs}}


@pytest.mark.parametrize("lost", ["all rows", "one row"])
def test_results_csv_is_rebuilt_from_the_folders_of_the_runs(tmp_path, lost, capsys):
    study = make_study(tmp_path / "quick", sizes=(53, 59), seeds=(0,), failed=0)
    assert main(["report", str(study.folder)]) == 0
    rows, page = study.rows(), study.report_path.read_text()
    if lost == "all rows":
        study.results_path.unlink()
    else:
        study.write_rows([rows[0], *rows[2:]])
    assert main(["sync", str(study.folder)]) == 0
    assert capsys.readouterr().out.count("its offline files are gone") == 4
    assert study.rows() == rows
    study.results_path.unlink()
    assert main(["report", str(study.folder)]) == 0
    assert study.report_path.read_text() == page


def test_only_the_cells_that_were_asked_for_are_missing(tmp_path):
    """Two starts, of other models and other sizes, are not the product of both."""
    study = make_study(tmp_path / "quick", models={"vit_nano": "vit"}, sizes=(53, 59), seeds=(0,), failed=0)
    study.add_start({**study.config(), "models": ["resnet_nano"]}, [("resnet_nano", 61, 0)])
    results = load_results(study.folder)
    assert results.unfinished == ["resnet_nano-n61-s0"]
    assert study_page.caveats(results)[-1] == "1 run has not finished."
    assert study_page.tiles(results)[0]["value"] == "2 of 3"


def test_sync_is_offered_only_while_there_are_offline_files_to_upload(tmp_path, capsys):
    study = make_study(tmp_path / "quick", models={"vit_nano": "vit"}, sizes=(53,), seeds=(0,), failed=0)
    offline = study.run("vit_nano-n53-s0").folder / "wandb" / "offline-run-1"
    (offline / "files").mkdir(parents=True)
    for there in (True, False):
        if there:
            (offline / "run-1.wandb").touch()
        else:
            shutil.rmtree(offline.parent)
        results = load_results(study.folder)
        conclude(results, {}, study_page.write_report(results))
        assert ("vitlab sync" in capsys.readouterr().out) is there
        assert ("vitlab sync" in study.report_path.read_text()) is there
