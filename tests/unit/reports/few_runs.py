"""A study of three runs of a few steps, trained by the real code, and what its pages show in a browser."""

import numpy as np

from tests.runs import train_run
from vitlab.config import TrainConfig, compose
from vitlab.files import write_json
from vitlab.reports.figures.images import SHADES
from vitlab.reports.pages.study import write_report
from vitlab.reports.wandb import RunReporter
from vitlab.studies.results import load_results
from vitlab.studies.store import StudyFiles

EVIL_RUN = "<img src=x onerror=alert(1)>"
EVIL_MODEL = "<script>alert(1)</script>"
FOUR, RESNET = "vit_nano-n60-s0", "resnet_nano-n60-s0"
ALL = "attention_distance,attention_entropy,head_types,attention_maps,receptive_field"
RUNS = {
    FOUR: ["model=vit_nano", "model.depth=5", "model.patch_size=[4,8]", f"analyses=[{ALL}]"],
    EVIL_RUN: ["model=vit_nano", "model.depth=2", "model.pool=token", "model.patch_size=[8,4]"],
    RESNET: ["model=resnet_nano", f"analyses=[{ALL}]"],
}


def train_few(folder):
    """Two ViTs of other depths and grids, and a ResNet, of 16 x 16 pixels; with their report."""
    study = StudyFiles(folder)
    grid = {"models": ["vit_nano", "resnet_nano"], "sizes": [60], "seeds": [0]}
    study.write_config({"name": "few", **grid, "budget": {"steps": 4}})
    shared = ["data=digits", "train_size=60", "budget.steps=4", "trainer.evaluations=2", "trainer.log_every=1"]
    for run, words in RUNS.items():
        config = compose(TrainConfig, [*shared, "study=few", "wandb.mode=off", *words])
        train_run(config, study.folder / run, observer=RunReporter())
    evil = study.run(EVIL_RUN)
    write_json(evil.result_path, evil.result() | {"model": EVIL_MODEL})
    write_json(study.runs_path, [(model, 60, 0) for model in ("vit_nano", EVIL_MODEL, "resnet_nano")])
    write_report(load_results(study.folder))


def draws_shares(browser, selector, values, largest):
    """Whether a canvas shows values in 0..largest, to within two of 255 levels."""
    drawn = browser.read_pixels(selector)[..., :3].astype(int)
    low, high = (shade(np.clip(values + by * largest / 255, 0, largest) / largest) for by in (-2, 2))
    return bool((np.minimum(low, high) - 2 <= drawn).all() and (drawn <= np.maximum(low, high) + 2).all())


def shade(shares):
    return SHADES[(255 * np.asarray(shares)).round().astype(int)].round().astype(int)


def layer_text(browser):
    return browser.run("document.getElementById('layer').getAttribute('aria-valuetext')")
