"""The results of a study, loaded once from its folder."""

import shutil
from collections import Counter

import pytest

from tests.unit.reports.html_page import Page
from tests.unit.reports.written_study import make_study
from vitlab.cli import main
from vitlab.commands.scale import show
from vitlab.config import TrainConfig, compose, resolved
from vitlab.reports.pages import study as study_page
from vitlab.studies.results import load_results
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles


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
    left = study.results_path.read_bytes() if study.results_path.exists() else None
    assert main(["sync", str(study.folder)]) == 0
    assert capsys.readouterr().out.count("its offline files are gone") == 4
    assert load_results(study.folder).rows == rows
    assert (study.results_path.read_bytes() if study.results_path.exists() else None) == left, "a reader writes nothing"
    assert main(["report", str(study.folder)]) == 0
    assert study.report_path.read_text() == page
    assert study.rows() == rows


def test_the_copy_of_a_runs_folder_is_not_another_run(tmp_path):
    study = make_study(tmp_path / "quick", sizes=(53,), seeds=(0,), failed=0)
    rows = load_results(study.folder).rows
    shutil.copytree(study.run(rows[0]["run"]).folder, study.folder / "backup")
    assert load_results(study.folder).rows == rows
    shutil.rmtree(study.run(rows[0]["run"]).folder)
    assert {row["run"] for row in study.finished_rows()} == {"backup", rows[1]["run"]}, "a renamed folder is a run"


def test_only_the_cells_that_were_asked_for_are_missing(tmp_path):
    """Two starts, of other models and other sizes, are not the product of both."""
    study = make_study(tmp_path / "quick", models={"vit_nano": "vit"}, sizes=(53, 59), seeds=(0,), failed=0)
    study.add_start({**study.config(), "models": ["resnet_nano"]}, [("resnet_nano", 61, 0)])
    results = load_results(study.folder)
    assert results.unfinished == ["resnet_nano-n61-s0"]
    assert study_page.collect_caveats(results)[-1] == "1 run has not finished."
    assert study_page.make_tiles(results)[0]["value"] == "2 of 3"


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
        study_page.write_report(results)
        show(results)
        assert ("vitlab sync" in capsys.readouterr().out) is there
        assert ("vitlab sync" in study.report_path.read_text()) is there


@pytest.mark.parametrize(
    ("tuned_on", "tune", "advised"),
    [
        ("[glyphs]", {}, True),
        ("[glyphs]", {"recipe.lr": [0.1, 0.2]}, False),
        ("[glyphs,pointer,fashion_mnist]", {}, False),
    ],
)
def test_recipes_that_were_tuned_on_few_other_data_are_named_with_the_words_that_tune_them(
    tuned_on, tune, advised, tmp_path, capsys
):
    study = make_study(tmp_path / "quick", sizes=(53, 59), seeds=(0,), failed=0)
    study.write_config({**study.config(), "data": {"name": "digits", "image_size": 24}, "tune": tune})
    for row in study.rows():
        words = [f"model={row['model']}", "data=digits", f"recipe.tuned_on={tuned_on}"]
        study.run(row["run"]).write_config(resolved(compose(TrainConfig, words)))
    results = load_results(study.folder)
    study_page.write_report(results)
    show(results)
    says = " ".join(capsys.readouterr().out.split())
    for text in (says, Page(study.report_path.read_text()).text):
        assert ("recipes vit_nano and resnet_nano were tuned on glyphs, not on digits" in text) is advised
        assert ("tune.recipe.lr=[x0.5,x1,x2]" in text) is advised
