"""The table that ends a study: whole in a pipe, a row for each model on a narrow terminal."""

import re

import pytest

from vitlab.commands.scale import show
from vitlab.reports.results.conclusion import Conclusion
from vitlab.reports.results.size_table import SizeTable

VERDICT = "undecided: a_model_with_a_long_name ahead by 6.4 ± 8.5 points"
NAMES = ["a_model_with_a_long_name", "another_model_with_a_long_name", "a_third_model"]
TABLE = SizeTable(["training examples", *NAMES, "best vs. runner-up"], [["250", "73.6%", "79.9%", "1.0%", VERDICT]], "")


@pytest.fixture
def print_table(monkeypatch, capsys):
    def run(columns):
        if columns:
            monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
            monkeypatch.setenv("COLUMNS", str(columns))
        show(Conclusion(TABLE, ["A sentence that ends the study, in words that are not broken at any width."], []))
        return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)

    return run


def test_in_a_pipe_it_is_whole(print_table):
    lines = [line for line in print_table(0).splitlines() if line.startswith("250")]
    assert len(lines) == 1
    assert lines[0].endswith(VERDICT)


@pytest.mark.parametrize("columns", [200, 60])
def test_in_a_terminal_no_cell_is_cut_and_no_word_is_broken(print_table, columns):
    text = print_table(columns)
    assert "\u2026" not in text
    words = {*" ".join(NAMES).split(), *VERDICT.split(), "sentence", "broken"}
    assert words <= set(text.split())
    assert max(map(len, text.splitlines())) <= columns
