"""Training curves: means and bands over seeds, thin enough for a page of a hundred runs."""

import json
import math

import pytest

from tests.unit.reports.figures.charts import read_column, read_points
from tests.unit.reports.written_study import change_results, make_study
from vitlab.files import write_json, write_text
from vitlab.reports.figures import curves
from vitlab.studies.results import Results, RunResults, load_results
from vitlab.training.files import RunFiles, write_analysis

MODELS = {"vit_nano": "vit", "resnet_nano": "resnet"}


def write_metrics(study, name, rows):
    write_text(study.run(name).metrics_path, "".join(json.dumps(row) + "\n" for row in rows))


def losses(values, key="train/loss"):
    return [{"step": 10 * i, key: value} for i, value in enumerate(values, start=1)]


def draw(study):
    figure, *_ = curves.draw_training(load_results(study.folder))
    return figure


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path / "three", models=MODELS, sizes=(53,), seeds=(0, 1, 2), failed=0)


def test_line_is_the_mean_over_seeds_and_band_its_range(study):
    for seed, values in enumerate(([4.0, 2.0], [5.0, 1.0], [6.0, 0.6])):
        write_metrics(study, f"vit_nano-n53-s{seed}", losses(values))
    figure = draw(study)
    line, band = (read_points(figure, layer, model="vit_nano", loss="training") for layer in ("lines", "bands"))
    assert [(point["step"], point["value"]) for point in line] == [(10, 5.0), (20, 1.2)]
    assert [(point["low"], point["high"]) for point in band] == [(4.0, 6.0), (0.6, 2.0)]
    assert not any(point["link"] for point in line), "it stands for no single run"


def test_seeds_that_logged_other_steps_are_averaged_over_those_that_have_the_step(study):
    write_metrics(study, "vit_nano-n53-s0", losses([4.0, 2.0, 1.0]))
    write_metrics(study, "vit_nano-n53-s1", losses([6.0]))
    write_metrics(study, "vit_nano-n53-s2", losses([1.0], key="validation/loss"))
    figure = draw(study)
    assert read_column(figure, "value", "lines", model="vit_nano", loss="training") == [5.0, 2.0, 1.0]
    assert read_column(figure, "value", "lines", model="vit_nano", loss="validation") == [1.0]
    assert read_column(figure, "low", "bands", model="vit_nano", loss="validation") == [None], "of one seed"


def test_a_loss_that_is_no_number_is_a_gap(study):
    for seed, value in enumerate((None, math.nan, math.inf)):
        write_metrics(study, f"vit_nano-n53-s{seed}", losses([4.0, value, 1.0]))
    figure = draw(study)
    assert read_column(figure, "value", "lines", model="vit_nano", loss="training") == [4.0, None, 1.0]
    json.dumps(figure.spec, allow_nan=False)


# ---- by depth, by length


def test_reach_of_both_models_stands_beside_the_distance_of_attention(study):
    for model, layers in {"vit_nano": 4, "resnet_nano": 3}.items():
        rows = [
            {"step": step, "layer": 1 + n, "value": 1.0, "reach": n + step} for step in (0, 9) for n in range(layers)
        ]
        folder = study.run(f"{model}-n53-s1").analysis_folder
        write_analysis(folder, {"name": "receptive_field", "unit": "pixels", "rows": rows})
    (figure,) = curves.draw_reach(load_results(study.folder))
    assert read_column(figure, "pixels", "lines", model="resnet_nano", kind="reach") == [9, 10, 11]
    assert read_column(figure, "depth", "lines", model="vit_nano", kind="reach") == [0.25, 0.5, 0.75, 1.0]
    assert len(read_column(figure, "pixels", "lines", kind="distance of attention")) == 16, (
        "a point per head of the ViT"
    )
    for seed, far in enumerate((0.2, 0.4, 0.6)):
        rows = [{"step": 9, "distance": at, "value": of, "reach": 4.0} for at, of in ((0, 1 - far), (8, far))]
        analysis = {"name": "token_reach", "unit": "share", "rows": rows}
        write_analysis(study.run(f"vit_nano-n53-s{seed}").analysis_folder, analysis)
    (figure,) = curves.draw_token_reach(load_results(study.folder))
    assert read_column(figure, "share", "lines", model="vit_nano") == pytest.approx([1, 0.4])


def test_exact_matches_are_counted_by_the_words_of_the_source(tmp_path):
    rows, files = [], {}
    for seed, right in enumerate((20, 30)):
        run = RunFiles(tmp_path / str(seed))
        texts = [{"source": "one two", "reference": "12", "generated": "12" if n < right else "1"} for n in range(40)]
        texts += [{"source": "three", "reference": "3", "generated": "3"}] * 20 + [{**texts[0], "source": "4 5 6"}] * 19
        write_json(run.generated_path, texts)
        rows.append(
            {"run": str(seed), "model": "rnn", "family": "rnn", "train_size": 9, "seed": seed, "exact_match": 0.8}
        )
        files[str(seed)] = RunResults(run)
    (figure,) = curves.draw_lengths(Results(rows, run_files=files))
    shares = [(point["words"], point["share"]) for point in read_points(figure, "lines")]
    assert shares == [(1, 1.0), (2, 0.625)], "too few have three words"
    assert figure.alt == "rnn: 100% to 62%."


def test_of_classes_those_with_the_lowest_recall_come_first(study):
    change_results(study, lambda row: {"by_class": {"ant": [9, 10], "bee": [2, 10], "cat": [5, 10]}})
    (figure,) = curves.draw_classes(load_results(study.folder))
    assert figure.alt == "Lowest with most data: bee 20%, cat 50%, ant 90%."
