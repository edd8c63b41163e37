"""Each script runs, at a size of seconds."""

import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scripts import make, public_curves, verdicts
from vitlab.data.cache import write_kept

ROOT = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def tiny(monkeypatch):
    """Imports a module of a folder of scripts, with some of its constants changed."""

    def load(folder, name, **constants):
        monkeypatch.syspath_prepend(ROOT / folder)
        module = import_module(f"scripts.{folder}.{name}")
        for key, value in constants.items():
            monkeypatch.setattr(module, key, value)
        return module

    return load


def test_batches_are_read_by_both_sides(tiny, tmp_path):
    small = {"SMALL": 64, "SMALL_BATCH": 32, "DIFFERENT": 8, "COPIES": 1, "CLASSES": 2, "SIDE": 32, "BATCH": 4}
    data = tiny("bench", "data", count_cores=lambda: 0, **small)
    data.make_folder(tmp_path / "pictures")
    with ThreadPoolExecutor(1) as elsewhere:
        folder = data.measure_folder(1, elsewhere, tmp_path / "pictures", tmp_path / "cache")
        rows = [data.measure_small(1, elsewhere), *folder]
    assert len(rows) == 5
    assert all(row.ours > 0 < row.peer for row in rows)


def test_steps_are_timed_in_turn(tiny):
    step = tiny("bench", "step", CLASSES=10, ProcessPoolExecutor=lambda *_: ThreadPoolExecutor(1))
    step.MODELS[:] = [("tiny", ["model=vit_nano"], step.small_timm_vit, 32, 2, 1, 0.0)]
    assert [row.name for row in step.measure(quick=True)] == ["tiny, default", "tiny, equal"]


def test_texts_are_the_same_on_both_sides(tiny):
    pytest.importorskip("transformers")
    small = {"VOCABULARY": 2000, "WIDTH": 64, "DEPTH": 1, "LENGTH": 48, "NEW": 24}
    assert len(list(tiny("bench", "text", **small).measure(quick=True))) >= 4


@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_the_script_that_a_study_is_compared_with_trains(tiny, capsys, model):
    tiny("bench", "study").train_plainly(model, 100, 2)
    assert "test 0." in capsys.readouterr().out


def test_public_curves_are_judged(monkeypatch, tmp_path):
    """Two learners that cross at 100 items, on a data set with 25 splits; a third has a gap in its sizes."""
    monkeypatch.setattr(public_curves, "LEARNERS", 2)
    monkeypatch.setattr(public_curves, "CUTS", (1,))
    noise, rows = np.random.default_rng(0), []
    for learner, level, slope in (("steep", 4.0, -0.6), ("flat", 1.0, -0.3), ("short", 1.0, -0.3)):
        for size, outer, inner in product(2 ** np.arange(4, 12), range(5), range(5)):
            if learner != "short" or size != 64:
                score = 1 - level * size**slope * np.exp(0.03 * noise.standard_normal())
                rows.append((3, learner, size, 500, outer, inner, score))
    columns = ["openmlid", "learner", "size_train", "size_test", "outer_seed", "inner_seed", "score_test"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "database-accuracy.csv")
    with tarfile.open(tmp_path / "lcdb.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "database-accuracy.csv", "lcdb-0.1.0/lcdb/database-accuracy.csv")
    (curves,) = public_curves.read_curves(tmp_path / "lcdb.tar.gz")
    laws, pairs = public_curves.judge(curves)
    assert (len(laws), all(row["drawn"] for row in laws)) == (12, True)
    assert {row["claim"] for row in pairs} == {"sure, inside"}
    assert all(row["agree"] and row["interval"] for row in pairs)


def test_intervals_of_advice_are_judged_on_other_pictures(monkeypatch, tmp_path):
    labels, noise, digests = np.arange(90) % 2, np.random.default_rng(0), [f"{row:016x}" for row in range(90)]
    network = (3 * labels[:, None] + noise.normal(size=(90, 3))).astype(np.float32)
    (tmp_path / "features").mkdir()
    for name, rows in (("pixels-32", noise.integers(255, size=(90, 3, 4, 4), dtype=np.uint8)), ("network", network)):
        write_kept(tmp_path / "features" / f"{name}.safetensors", dict(zip(digests, rows, strict=True)))
    table = pd.DataFrame({"label": labels, "group": range(90), "digest": digests})
    table.to_csv(tmp_path / "pictures.csv", index=False)
    monkeypatch.setattr(verdicts, "STUDY", tmp_path)
    monkeypatch.setattr(verdicts, "FEWEST_TESTED", 30)
    is_network, now, inside, _, later, *_ = verdicts.advised(45, noise)
    assert (is_network, inside) == (True, True)
    assert 0 < now < 0.5
    assert np.isnan(later), "too few are left for twice the labels"


def test_models_are_counted(monkeypatch, capsys):
    monkeypatch.setattr(make, "names", lambda group: ["vit_nano", "gpt_nano", "resnet_nano", "mixer_nano", "vit_b16"])
    make.print_models()
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 4, "not of text"
    assert {head, *rows} <= {*(make.DOCS / "models.md").read_text().splitlines()}


@pytest.mark.slow
def test_a_study_survives_kills(tmp_path):
    words = ["--times=1", "--steps=20", "--folder", tmp_path, "sizes=[100]", "models=[vit_nano]"]
    done = subprocess.run([sys.executable, ROOT / "kill_runs.py", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same results, each run trained once" in done.stdout


def test_the_project_is_within_its_weight():
    done = subprocess.run([sys.executable, ROOT / "weight.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
