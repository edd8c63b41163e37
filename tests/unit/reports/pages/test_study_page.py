import json
import shutil

import pytest

from tests.unit.reports.figures.charts import read_points
from tests.unit.reports.html_page import EVIL, Page
from tests.unit.reports.written_study import change_results, make_study
from vitlab.config import resolved
from vitlab.reports.figures import metric
from vitlab.reports.pages.study import write_report
from vitlab.reports.provenance import describe_passes, list_choices
from vitlab.studies.grid import compose_study
from vitlab.studies.results import load_results


@pytest.fixture(scope="module")
def study(tmp_path_factory, drawing):
    """With the files of its figures."""
    study = make_study(tmp_path_factory.mktemp("studies") / "quick")
    with drawing():
        write_report(load_results(study.folder))
    return study


@pytest.fixture(scope="module")
def page(study):
    return Page(study.report_path.read_text())


def test_the_page_says_what_the_study_found(page):
    for text in (
        "resnet_nano leads at every size from 500 to 32,000, by 6.4 points (0.3 to 12.6) there.",
        "15 of 16",
        "21 November 2025",
        "Held-out error against training-set size",
        "Mean attention distance by layer, vit_nano",
        "Every run trains for the same number of steps, 1,000, so small sets are seen more often",
        "256 passes over 500 examples, 4 over 32,000.",
        "Diverged: the loss is not a number at step 412",
        "vitlab scale quick/study.yaml --out quick-again",
        "AMD EPYC 9R14",
    ):
        assert text in page.text


def test_passes_are_over_items_also_where_sizes_are_in_tokens():
    row = {"train_size": 1000, "train_items": 10, "examples_seen": 40, "unit": "token", "loss": 0.5}
    assert describe_passes([row]) == ": 4 passes over 1,000 tokens"


def test_every_link_leads_to_a_file(study, page):
    links = [a["href"] for a in page.all("a")]
    assert {"results.csv", "tables/results.md", "tables/results.tex"} <= set(links)
    assert "vit_nano-n500-s0/metrics.jsonl" in links
    ids = {attributes.get("id") for _, attributes in page.elements}
    gone = [x for x in links if not (x[1:] in ids if x.startswith("#") else (study.folder / x).exists())]
    assert gone == []


def test_pages_and_figures_are_the_same_when_written_again(study):
    before = study.report_path.read_bytes()
    write_report(load_results(study.folder))
    assert study.report_path.read_bytes() == before
    names = {path.name for path in study.figures.iterdir()}
    against = ("accuracy_against_size", "error_against_size")  # all steps are the same: nothing against the cost
    stems = (*against, "attention_distance-vit_nano", "training_curves", "rate_and_gradient")
    assert names == {
        "samples.json",
        "laws.csv",
        "crossovers.csv",
        *(f"{stem}.{suffix}" for stem in stems for suffix in ("svg", "png")),
    }


def test_user_text_is_never_markup(tmp_path, page):
    models = {EVIL.replace("/", "|"): "vit", "r<b>": EVIL}
    study = make_study(tmp_path / "evil", name=EVIL, models=models, sizes=(500, 1000), failed=1)
    change_results(study, lambda _: {"data": EVIL})
    (failure,) = load_results(study.folder).failures
    study.run(failure["run"]).write_error(f"{EVIL}\u2028{{{{ 1 + 1 }}}}")
    write_report(load_results(study.folder))
    found = Page(study.report_path.read_text())
    assert len(found.scripts) == len(page.scripts)
    assert not [attributes for tag, attributes in found.elements if tag in ("b", "iframe")]
    assert not [key for _, attributes in found.elements for key in attributes if key.startswith("on")]
    data = next(text for text in found.scripts if text.startswith("{"))
    assert not set("<>&\u2028\u2029") & set(data)
    assert any(EVIL.replace("/", "|") in one["words"] for one in json.loads(data)["charts"][0]["datasets"].values())
    assert EVIL in found.text
    assert "{{ 1 + 1 }}" in found.text
    assert not [a["href"] for a in found.all("a") if ":" in a["href"]]


def test_no_run_has_finished(tmp_path):
    study = make_study(tmp_path / "empty", failed=16)
    assert not study.results_path.exists()
    write_report(load_results(study.folder))
    found = Page(study.report_path.read_text())
    assert "No run has finished yet." in found.text
    assert "16 runs failed." in found.text
    assert not [a for a in found.all("div") if "data-chart" in a]


def test_runs_that_have_kept_their_results_alone_and_results_that_are_no_numbers(tmp_path):
    study = make_study(tmp_path / "thin", sizes=(500, 2000), failed=0)
    for path in study.folder.glob("*-n*/*"):
        if path.name not in ("config.yaml", "result.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (study.figures / "samples.json").unlink()
    change_results(study, lambda row: {"accuracy": None, "loss": None} if row["train_size"] == 500 else {})
    found = Page(write_report(load_results(study.folder)).read_text())
    assert "4 runs ended without a finite accuracy." in found.text
    assert "resnet_nano leads with 2,000 examples, by 25.3 points (20.4 to 30.2)." in found.text
    assert "nan" not in found.text.lower().replace("nano", "")
    assert "Held-out error against training-set size" in found.text
    assert "Loss while training" not in found.text


def test_a_study_of_many_seeds_has_a_page_of_bounded_length(tmp_path):
    study = make_study(tmp_path, models={"vit_nano": "vit"}, sizes=(500,), seeds=range(102), failed=1)
    text = write_report(load_results(tmp_path), running=True).read_text()
    page = Page(text)
    links = [a["href"] for a in page.all("a")]
    assert "subsets/" in links
    assert not any("seed" in one for one in links)
    assert "0 to 101" in page.text
    assert "of more than 30 at a size, 30 from the lowest to the highest" in page.text
    assert 'class="scroll tall"' in text
    assert "Failed runs" in page.text
    assert "Diverged" in page.text, "also while the study runs"
    accuracies = [row["accuracy"] for row in study.finished_rows()]
    rings = read_points(list(metric.draw(load_results(tmp_path)))[1], "runs")
    assert len({one["link"] for one in rings}) == 30
    assert {min(accuracies), max(accuracies)} <= {one["y"] for one in rings}


def test_a_size_of_pictures_that_models_override_is_not_called_fixed():
    study = resolved(compose_study("quick", ["data=digits", "models={a: vit_nano, b: {model: vit_nano}}"]))
    assert dict(list_choices(study))["image size"].endswith("16 pixels")
    study["models"]["b"]["data.image_size"] = 24
    assert dict(list_choices(study))["image size"].endswith("pixels, unless a model has its own")
