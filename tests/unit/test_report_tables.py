"""Results as Markdown and LaTeX: the numbers of the study, whatever its names are."""

import re
import shutil
import subprocess

import pytest
from test_report_study import make_study

from vitlab.cli import main
from vitlab.reports import reading
from vitlab.reports.tables import caption, escape_latex, escape_markdown, latex, markdown, write_tables, written


def row(model, size, seed, accuracy):
    return {"model": model, "family": "vit", "data": "digits", "train_size": size, "seed": seed, "accuracy": accuracy}


ROWS = [row("vit_a", 1009, 0, 0.5), row("vit_a", 1009, 1, 0.7), row("r&b|x", 53, 0, 0.25)]


def test_markdown_has_a_row_per_size_and_a_column_per_model():
    assert markdown(ROWS).splitlines() == [
        r"| training examples | vit\_a | r\&b\|x |",
        "| ---: | ---: | ---: |",
        "| 53 | \N{EN DASH} | 25.0% |",
        "| 1,009 | 60.0 ± 14.1% | \N{EN DASH} |",  # of 0.5 and 0.7 the sample standard deviation is 0.1414
        "",
        "Held-out accuracy on digits, mean ± standard deviation over 2 seeds.",
    ]


def test_latex_has_the_same_cells():
    lines = latex(ROWS).splitlines()
    assert r"training examples & vit\_a & r\&b|x \\" in lines
    assert r"53 & -- & 25.0\% \\" in lines
    assert r"1,009 & 60.0 $\pm$ 14.1\% & -- \\" in lines
    assert r"\begin{tabular}{rrr}" in lines
    assert [line for line in lines if "rule" in line] == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_a_single_seed_is_said():
    assert caption(ROWS[:1]) == "Held-out accuracy on digits, one seed."


def test_perplexity_is_no_share():
    rows = [{**row("gpt", 53, seed, None), "perplexity": value} for seed, value in ((0, 12.0), (1, 14.0))]
    assert "| 53 | 13.0 ± 1.41 |" in markdown(rows)
    assert caption(rows).startswith("Held-out perplexity")


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
    assert escape_latex(text) == tex
    assert escape_markdown(text) == md


def test_the_report_command_writes_both(tmp_path, capsys):
    study = make_study(tmp_path / "quick", sizes=(53, 59), failed=0)
    assert main(["report", str(study.folder)]) == 0
    folder = study.folder / "tables"
    written = [str(folder / name) for name in ("results.md", "results.tex")]
    assert capsys.readouterr().out.splitlines() == [str(study.report_path), *written]
    rows = reading.results(study)
    assert (folder / "results.md").read_text() == markdown(rows)
    numbers = re.findall(r"[\d.]+ ± [\d.]+%", (folder / "results.md").read_text())
    assert len(numbers) == 4
    assert all(number.replace("±", r"$\pm$")[:-1] in (folder / "results.tex").read_text() for number in numbers)


def test_a_study_without_a_run_has_no_table(tmp_path):
    write_tables(tmp_path, [])
    assert written(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no LaTeX here")
def test_latex_takes_it(tmp_path):
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{latex(ROWS)}\end{{document}}"
    (tmp_path / "a.tex").write_text(document)
    subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"], cwd=tmp_path, check=True)
