import json
import re

import numpy as np
import pytest

from vitlab.cli import main


@pytest.fixture
def table(tmp_path):
    """Writes a table of runs: two models that cross at 6,000, three seeds, in tasks `easy` and `hard`."""
    rng = np.random.default_rng(0)
    lines = ["task,model,train_size,seed,error,chance"]
    for task, times in (("easy", 1), ("hard", 1.5)):
        for model, slope in (("steep", 0.45), ("flat", 0.25)):
            for size in np.geomspace(500, 32_000, 7).round():
                for seed in range(3):
                    error = times * 0.12 * (size / 6_000) ** -slope * np.exp(0.02 * rng.normal())
                    lines.append(f"{task},{model},{size:.0f},{seed},{error},0.1")
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run_json(capsys, *words):
    assert main(["fit", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_group_has_its_law_and_pairs_within_a_task_their_crossover(table, capsys):
    found = run_json(capsys, table, "--group", "task,model")
    assert list(found["groups"]) == ["easy, steep", "easy, flat", "hard, steep", "hard, flat"]
    group = found["groups"]["easy, steep"]
    assert (group["points"], group["law"], set(group["params"])) == (21, "mean", {"m2", "m3", "m4"})
    assert set(group) == {"law", "params", "at_bound", "points", "rmse_holdout", "predict"}
    assert [(one["a"], one["b"]) for one in found["crossovers"]] == [
        ("easy, steep", "easy, flat"),
        ("hard, steep", "hard, flat"),
    ]
    for one in found["crossovers"]:
        assert one["inside"]
        assert one["low"] < one["size"] < one["high"]
        assert one["size"] == pytest.approx(6_000, rel=0.1)
        assert one["p_none"] < 0.05
        assert (one["claim"], one["reason"]) == ("sure", "")
    for one, times in zip(found["multipliers"], (1, 1.5), strict=True):
        assert set(one) == {"a", "b", "error", "ratio", "low", "high", "reason"}
        steep, flat = ((one["error"] / times / 0.12) ** (-1 / slope) for slope in (0.45, 0.25))
        assert one["low"] < steep / flat < one["high"]


def test_curves_of_other_sizes_are_compared(table, capsys):
    moved = re.sub(r"flat,(\d+)", lambda found: f"flat,{1.2 * int(found[1])}", table.read_text())
    table.write_text(moved)
    assert {one["claim"] for one in run_json(capsys, table, "--group", "task,model")["crossovers"]} == {"sure"}
    assert main(["fit", str(table), "--group", "task,model"]) == 0
    sentence = r"easy, steep needs [\d.]+ \([\d.]+ to [\d.]+\) times the data of easy, flat for [\d.]+% error\."
    assert re.search(sentence, capsys.readouterr().out)


def test_sizes_above_the_limit_are_predicted(table, capsys):
    found = run_json(capsys, table, "--group", "task,model", "--up-to", 8_000, "--law", "m1")
    group = found["groups"]["easy, flat"]
    assert group["points"] == 15
    assert list(group["predict"]) == ["16000", "32000"]
    value, low, high = group["predict"]["32000"]
    assert low < value < high
    assert value == pytest.approx(0.12 * (32 / 6) ** -0.25, rel=0.05)
    assert group["rmse_holdout"] < 0.05


def test_the_folder_gets_the_document_and_a_figure(table, capsys, tmp_path):
    assert main(["fit", str(table), "--group", "task,model", "--up-to", "8000", "--out", str(tmp_path / "fits")]) == 0
    assert "steep passes easy, flat at " in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "fits").iterdir()) == ["fits.json", "fits.png", "fits.svg"]
    picture = (tmp_path / "fits" / "fits.svg").read_text()
    assert all(f">{text}</text>" in picture for text in ("easy", "hard", "steep", "flat"))


def test_three_sizes_have_no_law_and_no_prediction(tmp_path, capsys):
    path = tmp_path / "few.csv"
    rows = [f"{model},{size},{share / size}" for model, share in (("a", 1), ("b", 2)) for size in (10, 20, 40)]
    path.write_text("\n".join(["model,train_size,error", *rows]) + "\n")
    found = run_json(capsys, path)
    assert (found["groups"]["a"]["law"], found["groups"]["a"]["predict"]) == (None, {})
    assert found["crossovers"][0]["size"] is None
    assert found["crossovers"][0]["reason"]
    assert main(["fit", str(path)]) == 0
    assert "3 sizes; auto needs 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words", "expected"),
    [
        ("", [], ["no rows"]),
        ("model,train_size,err\na,1,2\n", [], ["--y error: ", "did you mean 'err'"]),
        (
            "model,train_size,error\na,1,x\na,2,y\na,3,.1\n",
            [],
            ["2 lines (2, 3)", "error='x' is not a positive number"],
        ),
        ("model,train_size,error\na,1,-.5\na,2,.2\na,3,.1\n", [], ["1 line (2)", "error='-.5'"]),
        ("model,train_size,error\na,1,.5\na,2,.2\na,3,0\n", [], ["1 line (4)", "test on more examples"]),
        ("model,train_size,error\na,1,.5\na,2,.2\n", [], ["a: 2 different sizes; a law needs 3"]),
        ("model,train_size,error\na,1,\n", [], ["no value in this column"]),
        ("model,train_size,error\na,0,.5\na,2,.2\na,3,.1\n", [], ["1 line (2)", "train_size=0"]),
        ("model,train_size,error,error\na,1,.5,.4\na,2,.2,.3\na,3,.1,.1\n", [], ["two columns are named 'error'"]),
        ("model;train_size;error\na;1;0,5\na;2;0,2\na;3;0,1\n", [], ["separated by ';'"]),
        ('model,train_size,error\na,1,"0,5"\na,2,.2\na,3,.1\n', [], ["1 line (2)", "error='0,5'"]),
        ("model,train_size,error,chance\na,1,.5,1.5\na,2,.2,.1\na,3,.1,.1\n", [], ["1 line (2)", "chance=1.5"]),
        ("model,train_size,error\na,1,.5\na,2,.2\na,3,.1\n", ["--up-to", "2"], ["a: 2 different sizes within --up"]),
    ],
)
def test_a_bad_table_is_refused_in_one_line(tmp_path, capsys, content, words, expected):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    assert main(["fit", str(path), *words, "--out", str(tmp_path / "out")]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    for part in expected:
        assert part in output.err
    assert not (tmp_path / "out").exists()


def test_a_row_with_too_few_or_too_many_cells_is_named_and_not_dropped(tmp_path, capsys):
    lines = ["model,train_size,error", *(f"a,{size},{size**-0.3:.4f}," for size in (100, 200, 400, 800)), "", "a,3200,"]
    (tmp_path / "cells.csv").write_text("\n".join(lines))
    assert main(["fit", str(tmp_path / "cells.csv")]) == 0, "empty cells at the end say nothing, nor do empty rows"
    capsys.readouterr()
    (tmp_path / "cells.csv").write_text("\n".join([*lines[:3], "a,250", *lines[3:], "a,6400,0.1,7"]))
    assert main(["fit", str(tmp_path / "cells.csv")]) == 2
    expected = "cells.csv, 2 lines (4, 9): not one cell for each of the 3 columns; correct the row, or delete it"
    assert expected in capsys.readouterr().err


def test_models_that_never_beat_guessing_are_fitted_and_a_file_is_no_folder(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    lines = [
        f"a,{size},{seed},{0.6 - size / 10_000},0.5" for size in (10, 100, 900) for seed in ("0", "\N{SUPERSCRIPT TWO}")
    ]
    path.write_text("\n".join(["model,train_size,seed,error,chance", *lines]) + "\n")
    assert run_json(capsys, path)["groups"]["a"]["points"] == 6
    assert main(["fit", str(path), "--out", str(path)]) == 2
    assert f"--out {path}: cannot write there" in capsys.readouterr().err
