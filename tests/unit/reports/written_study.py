"""A study folder as `vitlab scale` leaves it, with plausible numbers, for the tests of the reports."""

import json
import math

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vitlab.files import write_json, write_text
from vitlab.reports import encode_picture
from vitlab.studies.grid import name_run
from vitlab.studies.store import StudyFiles, collect
from vitlab.training.files import write_analysis

SIZES = (500, 2000, 8000, 32000)
SEEDS = (0, 1)
MODELS = {"vit_nano": "vit", "resnet_nano": "resnet"}
ACCURACY = {"vit_nano": (0.424, 0.641, 0.797, 0.879), "resnet_nano": (0.806, 0.893, 0.931, 0.957)}
PARAMS = {"vit_nano": 214_180, "resnet_nano": 46_036}
STEPS, BATCH = 1000, 128
ENVIRONMENT = {"vitlab": "0.1.0", "python": "3.11.9", "torch": "2.15.0", "lightning": "2.6.6", "timm": "1.0.31"}
ENVIRONMENT |= {"platform": "Linux-6.1-x86_64", "device": "cpu", "cpu": "AMD EPYC 9R14", "cores": 2}
ENVIRONMENT |= {"commit": "0cba5fa91d2e"}
SETTINGS = {"accelerator": "cpu", "precision": "32-true", "memory_format": "contiguous", "threads": 1}
RECIPE = {"name": "adamw", "optimizer": "adamw", "lr": 0.004, "schedule": "cosine", "warmup": 0.1, "batch_size": BATCH}


def make_study(folder, *, name="quick", models=MODELS, sizes=SIZES, seeds=SEEDS, failed=1):
    """Write a study of models (name -> family) whose last `failed` runs failed; gives its StudyFiles."""
    study = StudyFiles(folder)
    config = {"name": name, "models": list(models), "data": {"name": "glyphs", "image_size": 24}}
    config |= {"sizes": list(sizes), "seeds": list(seeds), "set": [], "task": {"name": "classification"}}
    study.write_config(config | {"budget": {"steps": STEPS, "epochs": None, "examples": None, "flops": None}})
    write_json(study.runs_path, [(model, size, seed) for model in models for size in sizes for seed in seeds])
    grid = [(model, place, seed) for seed in seeds for place in range(len(sizes)) for model in models]
    for seed in seeds:
        write_json(study.subsets / f"glyphs-seed{seed}.json", {"data": "glyphs", "seed": seed, "sizes": list(sizes)})
    kept = grid[: len(grid) - failed]
    rows = [write_run(study, name, model, models[model], sizes[place], place, seed) for model, place, seed in kept]
    rows.sort(key=lambda row: (list(models).index(row["model"]), row["train_size"], row["seed"]))
    if rows:
        study.write_rows(rows)
    error = "Diverged: the loss is not a number at step 412; try a lower recipe.lr"
    lost = [name_run(model, sizes[place], seed) for model, place, seed in grid[len(kept) :]]
    for run in lost:
        study.run(run).write_error(error)
    samples = [{"size": n, "pictures": [*map(encode_picture, letters(12, seed=n))], "texts": []} for n in sizes]
    write_json(study.figures / "samples.json", samples)
    return study


def change_results(study, change):
    """Write `change(row)`, a dict, into result.json of every finished run, and results.csv again."""
    for row in study.finished_rows():
        run = study.run(row["run"])
        write_json(run.result_path, run.result() | change(row))
    collect(study)


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
    of_run = {"model": {"name": model, "kind": family}, "data": {}, "task": {}, "recipe": RECIPE}
    run.write_config({**of_run, "train_size": size, "seed": seed})
    floor, validation = 0.02 + 0.25 * place / 4, 3.2 * (1 - accuracy)
    lines = []
    for step in range(25, STEPS + 1, 25):
        decay = math.exp(-step / 180)
        loss = (3.5 - floor) * decay + floor + float(generator.normal(0, 0.02))
        extra = {"train/lr": 0.004, "train/grad_norm": 0.9, "train/param_norm": 21.0, "train/images_per_s": 4100.0}
        lines.append({"step": step, "examples_seen": step * BATCH, "wall_s": step * 0.031, "train/loss": loss, **extra})
        if step % 125 == 0:
            rise = 0.4 * (step / STEPS) / (1 + place)  # a small set is learned by heart
            value = (3.5 - validation) * decay + validation + rise
            lines.append({"step": step, "validation/loss": value, "validation/accuracy": accuracy * (1 - decay)})
    write_text(run.metrics_path, "".join(json.dumps(line) + "\n" for line in lines))
    if family == "vit":
        write_attention(run, generator, place)
    row = {"study": study_name, "run": name, "model": model, "family": family, "data": "glyphs", "train_size": size}
    row |= {"seed": seed, "budget": f"steps={STEPS}", "steps": STEPS, "examples_seen": STEPS * BATCH}
    row |= {"params": PARAMS.get(model, 100_000), "train_flops": 2.1e12 if family == "vit" else 3.4e12}
    row |= {"accuracy": accuracy, "error": 1 - accuracy, "loss": lines[-1]["validation/loss"], "train_loss": floor}
    row |= {"images_per_s": 4100.0, "wall_s": 31.2, "precision": "32-true", "status": "finished"}
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
    write_analysis(run.analysis_folder, {"name": "attention_distance", "unit": "pixels", "rows": rows})
