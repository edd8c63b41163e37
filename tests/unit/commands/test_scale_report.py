"""The table of `vitlab scale`: a row for each model on a narrow terminal."""

import re

import pytest

from vitlab.commands.scale import print_table
from vitlab.reports.words import SizeTable

VERDICT = "undecided: a_model_with_a_long_name ahead by 6.4 points (-2.1 to 14.9)"
NAMES = ["a_model_with_a_long_name", "another_model_with_a_long_name", "a_third_model"]
TABLE = SizeTable(["training examples", *NAMES, "best vs. runner-up"], [["250", "73.6%", "79.9%", "1.0%", VERDICT]], "")


@pytest.mark.parametrize("columns", [200, 60])
def test_in_a_terminal_no_cell_is_cut_and_no_word_is_broken(columns, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(TABLE)
    text = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "\u2026" not in text
    words = {*" ".join(NAMES).split(), *VERDICT.split()}
    assert words <= set(text.split())
    assert max(map(len, text.splitlines())) <= columns
