"""Training curves: means and bands over seeds, thin enough for a page of a hundred runs."""

import json

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.files import write_text
from vitlab.reports.figures import learning_curves
from vitlab.reports.figures.learning_curves import plot_training_curves, thin
from vitlab.reports.results.study_results import load_results

MODELS = {"vit_nano": "vit", "resnet_nano": "resnet"}


def write_metrics(study, name, rows):
    write_text(study.run(name).metrics_path, "".join(json.dumps(row) + "\n" for row in rows))


def losses(values, key="train/loss"):
    return [{"step": 10 * i, key: value} for i, value in enumerate(values, start=1)]


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path / "three", models=MODELS, sizes=(53,), seeds=(0, 1, 2), failed=0)


def test_line_is_the_mean_over_seeds_and_band_its_range(study):
    for seed, values in enumerate(([4.0, 2.0], [5.0, 1.0], [9.0, 0.6])):
        write_metrics(study, f"vit_nano-n53-s{seed}", losses(values))
    line = plot_training_curves(load_results(study.folder)).series[0]
    assert (line.label, line.x, line.y) == ("vit_nano, training", [10, 20], [6.0, 1.2])
    assert (line.low, line.high) == ([4.0, 0.6], [9.0, 2.0])
    assert line.note == "vit_nano, mean of 3 seeds\ntraining loss"
    assert not line.link  # it stands for no single run


def test_seeds_that_logged_other_steps_are_averaged_over_those_that_have_the_step(study):
    write_metrics(study, "vit_nano-n53-s0", losses([4.0, 2.0, 1.0]))
    write_metrics(study, "vit_nano-n53-s1", losses([6.0]))
    write_metrics(study, "vit_nano-n53-s2", losses([1.0], key="validation/loss"))
    training, validation = plot_training_curves(load_results(study.folder)).series[:2]
    assert (training.y, training.low, training.high) == ([5.0, 2.0, 1.0], [4.0, 2.0, 1.0], [6.0, 2.0, 1.0])
    assert training.note.startswith("vit_nano, mean of 2 seeds")
    assert (validation.y, validation.has_band) == ([1.0], False)


def test_long_curves_are_thinned_to_means():
    points = [(step, float(step)) for step in range(1, 1001)]
    thinned = thin([points])
    assert len(thinned) == 200
    assert (thinned[0].step, thinned[0].mean) == (5, 3.0)
    assert (thinned[-1].step, thinned[-1].mean) == (1000, 998.0)
    assert thin([[(1, None), *points[1:]]])[0].mean is None


def test_all_curves_together_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(learning_curves, "ALL_POINTS", 120)
    study = make_study(tmp_path / "one", models=MODELS, sizes=(53,), seeds=(0,), failed=0)  # four curves
    lines = plot_training_curves(load_results(study.folder)).series
    assert [len(line.x) for line in lines] == [20, 8, 20, 8]  # 40 rows are logged of the training, 8 of held-out data
    assert lines[0].x[-1] == 1000
