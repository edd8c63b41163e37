"""The page that compares runs: in a browser, from the command line, of one study and of several."""

import json
import re
import shutil

import numpy as np
import pytest

from tests.unit.reports.few_runs import EVIL_RUN, FOUR, RESNET
from tests.unit.reports.html_page import Page, read_script_data
from tests.unit.reports.written_study import change_results, make_study
from vitlab.cli import main
from vitlab.files import write_json
from vitlab.reports.pages.compare import merge_studies, write_compare_page
from vitlab.reports.words import make_size_table
from vitlab.studies.results import Results, load_results

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
    write_compare_page({"quick": load_results(study.folder)}, study.folder / "compare.html")
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


def test_many_lines_differ_in_colour_or_dash(browser, study):
    browser.open(study.folder / "compare.html")
    browser.choose("#by-chosen", "")
    browser.run("document.querySelector('#runs-table thead input').click()")
    assert browser.run(TITLE) == "24 runs compared"
    browser.run("document.getElementById('single').click()")
    keys = browser.run("[...document.querySelectorAll('#keys path')].map(p => p.outerHTML)")
    assert len(set(keys)) == len(keys) == 24
    wait_for_lines(browser, train=24, metric=24)


# ---- from the command line


def test_the_command_line_chooses_runs_also_by_patterns(study, capsys):
    assert main(["report", str(study.folder), "--runs", "vit_nano-n500-*,resnet_nano-n500-s1"]) == 0
    page = study.folder / "compare.html"
    assert capsys.readouterr().out.splitlines()[-1] == str(page)
    seeds = [f"vit_nano-n500-s{seed}" for seed in (0, 1, 2)]
    assert read_script_data(page.read_text())["start"] == [*seeds, "resnet_nano-n500-s1"]


def test_of_many_models_a_dozen_runs_are_chosen(tmp_path):
    study = make_study(tmp_path / "many", models={f"m{n}": "resnet" for n in range(13)}, sizes=(500,), failed=0)
    page = write_compare_page({"many": load_results(study.folder)}, study.folder / "compare.html")
    assert read_script_data(page.read_text())["start"] == [f"m{n}-n500-s0" for n in range(12)]


def test_an_unknown_run_is_an_error_with_the_nearest_one(study, capsys):
    assert main(["report", str(study.folder), "--runs", "vit_nano-n50-s0,vit_nano-n500-s0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "--runs vit_nano-n50-s0: " in lines[0]
    assert "did you mean 'vit_nano-n500-s0'? choices: " in lines[0]
    assert main(["report", str(study.folder), str(study.folder / ".." / "quick"), "--wandb"]) == 2


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
    assert main(["report", str(first), str(second), "--runs", "vit/*-n500-s*,res/*-n500-s0"]) == 0
    path = first / "compare-res.html"
    assert capsys.readouterr().out.strip() == str(path)
    data = read_script_data(path.read_text())
    assert len(data["start"]) == 4
    whole = load_results(study.folder)
    whole = type(whole)([{**row, "test_items": 2000} for row in whole.rows], whole.config, run_files=whole.run_files)
    texts = [re.sub(r"\b(vit|res)(net)?_nano", r"\1/\1\2_nano", line[-1]) for line in make_size_table(whole).body]
    assert [text for _, _, text in data["gaps"]] == texts
    links = [a["href"] for a in Page(path.read_text()).all("a")]
    assert "../res/resnet_nano-n500-s0/" in links
    assert [link for link in links if "attention" not in link and not (first / link).exists()] == [
        "report.html",
        "../res/report.html",
    ]


def test_models_of_studies_on_other_data_have_no_interval(study, tmp_path):
    parts = split_study(study, tmp_path, sha="b" * 64)
    assert main(["report", *map(str, parts)]) == 0
    text = (parts[0] / "compare-res.html").read_text()
    assert read_script_data(text)["gaps"] == []
    assert "vit and res: not the same metric, data and test items, so no differences between them." in text


def test_models_of_several_studies_are_level_within_the_narrowest_margin():
    studies = {name: Results([], {"margin": margin}, run_files={}) for name, margin in (("a", 2.0), ("b", 0.5))}
    assert merge_studies(studies).margin == 0.5


def test_runs_of_vitlab_train_are_compared_without_a_study(study, tmp_path, capsys):
    names = ["vit_nano-n500-s0", "resnet_nano-n500-s0"]
    for name in names:
        shutil.copytree(study.run(name).folder, tmp_path / "runs" / name, symlinks=True)
    assert main(["report", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "runs" / "compare.html")
    data = read_script_data((tmp_path / "runs" / "compare.html").read_text())
    assert sorted(run["name"] for run in data["runs"]) == sorted(names)
    assert main(["report", *(str(tmp_path / "runs" / name) for name in names)]) == 0
    assert (tmp_path / "runs" / names[0] / f"compare-{names[1]}.html").is_file()
    assert main(["report", str(tmp_path / "runs"), "--json"]) == 2
