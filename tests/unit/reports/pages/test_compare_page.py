"""The page that compares runs: in a browser, from the command line, of several studies and of single runs."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from tests.unit.reports.few_runs import EVIL_RUN, FOUR, RESNET
from tests.unit.reports.html_page import Page, read_script_data
from tests.unit.reports.written_study import change_results, make_study
from vitlab.cli import main
from vitlab.files import write_json
from vitlab.reports.pages.compare import write_compare_page
from vitlab.reports.words import make_size_table
from vitlab.studies.others import load_others
from vitlab.studies.results import Results, load_results
from vitlab.training.files import RunFiles

TITLE = "document.querySelector('h1').textContent"


def read_table(browser, id):
    rows = browser.run(f"[...document.querySelectorAll('#{id} tr')].map(r => [...r.cells].map(c => c.textContent))")
    return {first: cells for first, *cells in rows}


def wait_for_lines(browser, **charts):
    for name, count in charts.items():
        browser.wait(f"document.querySelectorAll('[data-chart={name}] .mark-line path').length === {count}")


def go_to(browser, *names):
    address = ",".join(names)
    browser.run(f"location.hash = {json.dumps(address)}.split(',').map(encodeURIComponent).join(',')")
    browser.run("new Promise((done) => setTimeout(done, 50))")


def test_runs_that_are_chosen_in_the_report_are_compared(browser, few_runs, compare):
    browser.open(few_runs.report_path)
    for run in (FOUR, RESNET):
        browser.run(f"document.querySelector('#runs-table input[value=\"{run}\"]').click()")
    assert browser.run("document.getElementById('compare').textContent") == "Compare the chosen 2 runs"
    browser.choose("#by-chosen", "1")
    assert browser.run("document.getElementById('announce').textContent") == "2 of 3 runs"
    browser.run("document.getElementById('compare').click()")
    browser.wait(f"{TITLE} === '2 runs compared'")
    assert browser.run("location.href").endswith(f"/compare.html#{FOUR},{RESNET}")
    rows = {row["run"]: row for row in few_runs.finished_rows()}
    means = read_table(browser, "means")
    assert means["vit_nano, 60 examples"][1] == f"{100 * rows[FOUR]['accuracy']:.1f}%"
    settings = read_table(browser, "settings")
    assert settings["model.name"] == ["vit_nano", "resnet_nano"]
    assert all(len(set(values)) > 1 for key, values in settings.items() if key != "setting")
    wait_for_lines(browser, train=2, metric=2, distance=1)
    links = "[...document.querySelectorAll('#attention a')].map(a => [a.textContent, a.getAttribute('href')])"
    assert browser.run(links) == [[FOUR, f"attention/{FOUR}.html"]]
    assert browser.errors == []


def test_boxes_and_the_address_choose_and_an_unknown_run_is_said(browser, compare):
    browser.open(compare)
    assert browser.run(TITLE) == "3 runs compared"
    wait_for_lines(browser, train=3, distance=2)
    browser.run("document.querySelectorAll('#runs-table tbody input')[0].click()")
    assert browser.run(TITLE) == "2 runs compared"
    assert browser.run("location.hash.split(',').length") == 2
    browser.assert_quiet()
    go_to(browser, EVIL_RUN)
    assert browser.run(TITLE) == EVIL_RUN
    go_to(browser, "<b>gone</b>", FOUR)
    assert browser.run(TITLE) == FOUR
    assert browser.run("document.getElementById('unknown').textContent") == "This page has no run <b>gone</b>."
    assert browser.run("document.querySelectorAll('b').length") == 0
    assert browser.errors == []


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two models, four sizes, three seeds, with its page."""
    study = make_study(tmp_path_factory.mktemp("studies") / "quick", seeds=(0, 1, 2), failed=0)
    write_compare_page(load_results(study.folder), study.folder / "compare.html")
    return study


def test_a_line_is_the_mean_of_the_chosen_seeds_with_a_band(browser, study):
    runs = [f"vit_nano-n500-s{seed}" for seed in (0, 2)]
    browser.open(study.folder / "compare.html")
    go_to(browser, *runs, "resnet_nano-n500-s0")
    wait_for_lines(browser, train=2, validation=2, metric=2, distance=1)
    items = browser.run("""[...document.querySelectorAll('[data-chart=train] .mark-symbol path')]
        .map(({ __data__: item }) => item.datum).filter(({ label }) => label.startsWith('vit'))""")
    logged = [[row["train/loss"] for row in study.run(run).metrics() if "train/loss" in row] for run in runs]
    np.testing.assert_allclose([item["y"] for item in items], np.mean(logged, axis=0), rtol=1e-3)
    np.testing.assert_allclose([item["low"] for item in items], np.min(logged, axis=0), rtol=1e-3)
    assert read_table(browser, "settings")["seed"] == ["0, 2", "0"]
    size_table = make_size_table(load_results(study.folder)).body
    assert read_table(browser, "means")["vit_nano, 500 examples"][1] == size_table[0][1]
    assert len(read_table(browser, "gaps")) == 2
    browser.page.locator("[data-chart=train] .mark-symbol path").first.hover(force=True)
    tip = browser.page.wait_for_selector("#vg-tooltip-element.visible").text_content()
    assert re.match(r"\w+_nano, 500 examples: [\d.]+ at \d", tip)
    browser.run("document.getElementById('single').click()")
    wait_for_lines(browser, train=3, distance=2)
    browser.assert_quiet()


# ---- from the command line


def test_the_command_line_chooses_runs_also_by_patterns(study, capsys):
    assert main(["report", str(study.folder), "--runs", "vit_nano-n500-*,resnet_nano-n500-s1"]) == 0
    page = study.folder / "compare.html"
    assert capsys.readouterr().out.splitlines()[-1] == str(page)
    seeds = [f"vit_nano-n500-s{seed}" for seed in (0, 1, 2)]
    assert read_script_data(page.read_text())["start"] == [*seeds, "resnet_nano-n500-s1"]


def test_an_unknown_run_is_an_error_with_the_nearest_one(study, capsys):
    assert main(["report", str(study.folder), "--runs", "vit_nano-n50-s0,vit_nano-n500-s0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "--runs vit_nano-n50-s0: " in lines[0]
    assert "did you mean 'vit_nano-n500-s0'? choices: " in lines[0]


# ---- several studies


def split_study(study, folder, sha="a" * 64):
    """The models of a study as two studies, on data of two checksums."""
    parts = []
    for (model, family), contents in zip(
        {"vit_nano": "vit", "resnet_nano": "resnet"}.items(), ("a" * 64, sha), strict=True
    ):
        part = make_study(folder / model[:3], models={model: family}, seeds=(0, 1, 2), failed=0)
        change_results(part, lambda _: {"test_items": 2000})
        for row in part.finished_rows():
            write_json(part.run(row["run"]).data_path, {"sha256": contents})
        parts.append(part.folder)
    return parts


def test_models_of_two_studies_with_the_same_test_items_have_the_interval_of_one_study(study, tmp_path, capsys):
    first, second = split_study(study, tmp_path)
    out = tmp_path / "out"
    assert main(["report", str(first), str(second), "--runs", "vit_*-n500-s*,res*-n500-s0", "--out", str(out)]) == 0
    assert "accuracy on test items (higher is better), runs = 24 runs of 2 sources" in capsys.readouterr().err
    text = (out / "compare.html").read_text()
    data = read_script_data(text)
    assert len(data["start"]) == 4
    whole = load_results(study.folder)
    rows = [{**row, "test_items": 2000, "family": None} for row in whole.rows]
    whole = Results(rows, whole.config, run_files=whole.run_files)
    assert [text for _, _, text in data["gaps"]] == [line[-1] for line in make_size_table(whole).body]
    assert load_others([first, second]).gaps.equals(whole.gaps)
    links = [a["href"] for a in Page(text).all("a")]
    assert "../res/resnet_nano-n500-s0/" in links
    assert [link for link in links if "attention" not in link and not (out / link).exists()] == []
    assert "source" in (out / "results.csv").read_text().partition("\n")[0]


def test_models_of_studies_on_other_data_are_not_compared(study, tmp_path, capsys):
    parts = split_study(study, tmp_path, sha="b" * 64)
    command = ["report", *map(str, parts), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "vit and res: not the same metric, data and test items" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([*command, "--metric", "test_accuracy"]) == 0


def test_models_of_studies_that_left_other_pairs_out_are_not_compared(study, tmp_path, capsys):
    parts = split_study(study, tmp_path)
    for part, length in zip(parts, (60, 80), strict=True):
        for run in part.glob("*-s?"):
            task = {"long": "leave_out"}
            config = {"model": {}, "recipe": {}, "seed": 0, "task": task, "data": {"length": length}}
            write_json(run / "config.yaml", config)
    assert main(["report", *map(str, parts), "--out", str(tmp_path / "out")]) == 2
    assert "vit and res: not the same metric, data and test items" in capsys.readouterr().err


def test_of_trials_the_best_are_compared(tmp_path):
    study = make_study(tmp_path / "quick", sizes=(500,), failed=0)
    change_results(study, lambda row: {"trial": 1 + row["seed"], "seed": 0, "validation_accuracy": row["accuracy"]})
    found = load_others([study.folder])
    assert found.runs.groupby("model").size().tolist() == [1, 1]
    best = pd.DataFrame(study.finished_rows()).groupby("model").accuracy.max()
    assert found.cells.set_index("model")["mean"].to_dict() == best.to_dict()


def test_runs_of_vitlab_train_are_compared_without_a_study(study, tmp_path, capsys):
    names = ["vit_nano-n500-s0", "resnet_nano-n500-s0"]
    for name in names:
        shutil.copytree(study.run(name).folder, tmp_path / "runs" / name, symlinks=True)
    faster = shutil.copytree(tmp_path / "runs" / names[0], tmp_path / "runs" / "faster", symlinks=True)
    config = RunFiles(faster).config()
    RunFiles(faster).write_config({**config, "recipe": {**config["recipe"], "lr": 0.1}})
    command = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--json"]
    assert main(command) == 2
    assert "runs of one model and size differ in recipe.lr" in capsys.readouterr().err
    assert main([*command, "--model", "model,recipe.lr"]) == 0
    models = [cell["model"] for cell in json.loads(capsys.readouterr().out)["cells"]]
    assert sorted(models) == ["resnet_nano lr=0.004", "vit_nano lr=0.004", "vit_nano lr=0.1"]
