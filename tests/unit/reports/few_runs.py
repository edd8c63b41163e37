"""A study of three runs of a few steps, through the real code, and what the browser shows of its pages."""

import json
import re

import numpy as np

from vitlab.config import TrainConfig, compose
from vitlab.reports.figures.backends.image_grid import SHADES
from vitlab.reports.observer import RunReporter
from vitlab.reports.pages.study import write_report
from vitlab.reports.results.study_results import load_results
from vitlab.studies.experiment import train_run
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
    """Two ViTs of other depths and grids, and a ResNet, of 16 x 16 pixels; with their report. Gives the StudyFiles."""
    study = StudyFiles(folder)
    study.write_config({"name": "few", "models": ["vit_nano", "resnet_nano"], "sizes": [60], "seeds": [0]})
    shared = ["data=digits", "train_size=60", "budget.steps=4", "trainer.evaluations=2", "trainer.log_every=1"]
    for run, words in RUNS.items():
        config = compose(TrainConfig, [*shared, "study=few", "wandb.mode=off", *words])
        train_run(config, study.folder / run, observer=RunReporter())
    rows = sorted(study.finished_rows(), key=lambda row: list(RUNS).index(row["run"]))
    rows[1]["model"] = EVIL_MODEL
    study.write_rows(rows)
    write_report(load_results(study.folder))
    return study


def press(browser, key, code):
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


def left(browser):
    press(browser, "ArrowLeft", 37)


def quiet(browser, path):
    """No console message, no exception, and no request but for the file itself."""
    assert browser.errors == []
    assert [address for address in browser.requests if not address.startswith("data:")] == [path.resolve().as_uri()]


def shades_of(browser, selector):
    """The colours of a canvas, red, green and blue, row by row."""
    found = browser.run(f"""(() => {{ const c = document.querySelector({json.dumps(selector)});
        const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', {{willReadFrequently: true}});
        copy.drawImage(c, 0, 0);
        return [c.height, c.width, ...copy.getImageData(0, 0, c.width, c.height).data] }})()""")
    return np.array(found[2:]).reshape(*found[:2], 4)[..., :3]


def expected_shades(values, most):
    return (255 * SHADES(np.clip(values / most, 0, 1))[..., :3]).round().astype(int)


def near(found, values, most):
    """Shades that are the values' to within a level of the 255."""
    low, high = (expected_shades(np.clip(values + by * most / 255, 0, most), most) for by in (-2, 2))
    return (np.minimum(low, high) - 2 <= found).all() and (found <= np.maximum(low, high) + 2).all()


def slider(browser):
    return browser.run("document.getElementById('layer').getAttribute('aria-valuetext')")


def embedded(path):
    text = path.read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
