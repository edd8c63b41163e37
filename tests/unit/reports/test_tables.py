"""Results as Markdown and LaTeX: the numbers of the study, whatever its names are."""

import re

import numpy as np
import pytest

from vitlab.reports.words import LATEX, MARKDOWN, escape, format_latex, format_markdown
from vitlab.studies.results import Results


def row(model, size, seed, accuracy):
    return {"model": model, "family": "vit", "data": "digits", "train_size": size, "seed": seed, "accuracy": accuracy}


def results_of(rows, outcomes=None):
    return Results(rows, outcomes=outcomes or {})


ROWS = [row("vit_a", 1009, 0, 0.5), row("vit_a", 1009, 1, 0.7), row("r&b|x", 53, 0, 0.25)]


def test_markdown_has_a_row_per_size_and_a_column_per_model():
    assert format_markdown(results_of(ROWS)).splitlines() == [
        r"| training examples | vit\_a | r\&b\|x |",
        "| ---: | ---: | ---: |",
        "| 53 | \N{EN DASH} | 25.0% (n=1) |",
        "| 1,009 | 60.0 ± 14.1% (n=2) | \N{EN DASH} |",  # of 0.5 and 0.7 the sample standard deviation is 0.1414
        "",
        "Held-out accuracy on digits. Mean ± standard deviation over 1 to 2 seeds (n).",
    ]


def test_an_undertrained_cell_is_marked():
    rows = [{**one, "undertrained": one["model"] == "vit_a"} for one in ROWS]
    lines = format_markdown(results_of(rows)).splitlines()
    assert lines[2] == "| 53 | \N{EN DASH} | 25.0% (n=1) |"
    assert lines[3] == "| 1,009 | 60.0 ± 14.1% (n=2, more steps) | \N{EN DASH} |"
    assert lines[-1].endswith(" (more steps): undertrained.")
    assert r"14.1\% (n=2, more steps) & --" in format_latex(results_of(rows))


def test_plain_tables_have_no_brackets():
    rows = [{**one, "model": f"{one['model']} (big)", "undertrained": True} for one in ROWS]
    text = format_latex(Results(rows, config={"plain_tables": True}, outcomes={}))
    assert r"1,009 & 60.0 $\pm$ 14.1\% & -- \\" in text
    assert "more steps" not in text
    assert r"vit\_a (big) &" in text, "a model's name"
    assert r"digits. Mean $\pm$ standard deviation over 1 to 2 seeds.}" in text


def test_a_lone_seed_beside_three_has_the_spread_of_other_cells():
    rows = [row(model, 53, seed, 0.5 + 0.01 * seed) for model, seed in (("a", 0), ("a", 1), ("a", 2), ("b", 0))]
    rows = [{**one, "run": f"{one['model']}-{one['seed']}"} for one in rows]
    assert "(95% interval over seeds; seeds not paired)" in format_markdown(results_of(rows))


def test_the_last_column_is_the_lead_with_its_interval_and_the_note_says_what_chance_is():
    rows = [row(model, 53, seed, share + 0.01 * seed) for model, share in (("a", 0.5), ("b", 0.7)) for seed in (0, 1)]
    rows = [{**one, "run": f"{one['model']}-{one['seed']}", "chance": 0.25, "test_items": 400} for one in rows]
    right = {one["run"]: (np.arange(400) < 400 * one["accuracy"]).astype(float) for one in rows}
    head, _, line, _, caption = format_markdown(results_of(rows, right)).splitlines()
    assert head.endswith("| b | best vs. runner-up |")
    assert re.fullmatch(r"\| 53 \| 50.5 ± 0.7% \| 70.5 ± 0.7% \| b by 20.0 points \(1[45].\d to 2[45].\d\) \|", line)
    assert caption == (
        "Held-out accuracy on digits. Mean ± standard deviation over 2 seeds. Last column: difference (95% interval "
        "over seeds and held-out examples; seeds not paired). Always choosing the largest class gives 25.0% on 400 "
        "held-out examples."
    )
    one_seed = format_markdown(results_of(rows[::2], right))
    assert "over held-out examples; other seeds are not covered" in one_seed
    right[rows[1]["run"]] = right[rows[0]["run"]][::-1]
    assert "| undecided: even, 0.0 points (-9." in format_markdown(
        results_of([rows[0], {**rows[1], "model": "b", "seed": 0}], right)
    )
    assert "| none beats chance |" in format_markdown(results_of([{**one, "chance": 0.8} for one in rows], right))


@pytest.mark.parametrize(
    ("text", "tex", "md"),
    [
        ("a_b", r"a\_b", r"a\_b"),
        ("100% #1 $x$ {y}", r"100\% \#1 \$x\$ \{y\}", r"100% #1 \$x\$ {y}"),
        ("\\input{x}", r"\textbackslash{}input\{x\}", r"\\input{x}"),
        ("~^<>", r"\textasciitilde{}\textasciicircum{}\textless{}\textgreater{}", r"\~^\<\>"),
        ("two\nlines | more", r"two lines | more", r"two lines \| more"),
    ],
)
def test_what_means_something_in_a_format_is_escaped(text, tex, md):
    assert escape(text, LATEX) == tex
    assert escape(text, MARKDOWN) == md
