"""The end of `vitlab scale`: the results outlive a report that cannot be drawn."""

import re

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.commands.scale import finish, print_table
from vitlab.reports.pages import study as page
from vitlab.reports.words import SizeTable


def test_a_report_that_fails_costs_no_result_and_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    files = make_study(tmp_path / "quick")
    before = files.results_path.read_bytes()

    def fail(results):
        raise KeyError("planted")

    monkeypatch.setattr(page, "write_report", fail)
    assert finish(files, {}) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vitlab: the report failed: ")
    assert f"'vitlab report {files.folder}' writes the report again" in line
    assert "planted" in (files.folder / "report.log").read_text()
    assert files.results_path.read_bytes() == before

    monkeypatch.setattr(page, "write_report", lambda results: files.report_path)
    assert finish(files, {}) == 0
    assert not (files.folder / "report.log").exists()


# ---- the table: whole in a pipe, a row for each model on a narrow terminal

VERDICT = "undecided: a_model_with_a_long_name ahead by 6.4 ± 8.5 points"
NAMES = ["a_model_with_a_long_name", "another_model_with_a_long_name", "a_third_model"]
TABLE = SizeTable(["training examples", *NAMES, "best vs. runner-up"], [["250", "73.6%", "79.9%", "1.0%", VERDICT]], "")


@pytest.fixture
def printed(monkeypatch, capsys):
    def run(columns):
        if columns:
            monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
            monkeypatch.setenv("COLUMNS", str(columns))
        print_table(TABLE)
        return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)

    return run


def test_in_a_pipe_it_is_whole(printed):
    lines = [line for line in printed(0).splitlines() if line.startswith("250")]
    assert len(lines) == 1
    assert lines[0].endswith(VERDICT)


@pytest.mark.parametrize("columns", [200, 60])
def test_in_a_terminal_no_cell_is_cut_and_no_word_is_broken(printed, columns):
    text = printed(columns)
    assert "\u2026" not in text
    words = {*" ".join(NAMES).split(), *VERDICT.split()}
    assert words <= set(text.split())
    assert max(map(len, text.splitlines())) <= columns
