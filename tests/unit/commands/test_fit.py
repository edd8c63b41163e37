import itertools
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
    output = capsys.readouterr()
    assert "steep passes easy, flat at " in output.out
    assert "fits.json" in output.err
    assert "fits.json" not in output.out, "a pipe reads the results alone"
    assert sorted(path.name for path in (tmp_path / "fits").glob("[!.]*")) == ["fits.json", "fits.png", "fits.svg"]
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
    assert "none: 3 sizes of 4 needed" in capsys.readouterr().out
    lines = tmp_path / "few.jsonl"
    lines.write_text(re.sub(r"(\w),(\d+),(.*)", r'{"model": "\1", "train_size": \2, "error": \3}', "\n".join(rows)))
    assert run_json(capsys, lines) == found


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
        ("model,train_size,error\na,1,.5\na,2,.2\na,3,0\n", [], ["1 line (4)", "test on more examples"]),
        ("model,train_size,error\na,1,.5\na,2,.2\n", [], ["a: 2 different sizes; a law needs 3"]),
        ("model,train_size,error\na,1,\n", [], ["no value in this column"]),
        ("model,train_size,error,error\na,1,.5,.4\na,2,.2,.3\na,3,.1,.1\n", [], ["two columns are named 'error'"]),
        ("model;train_size;error\na;1;0,5\na;2;0,2\na;3;0,1\n", [], ["error=0,5: write 0.5"]),
        ("model,train_size,error,chance\na,1,.5,1.5\na,2,.2,.1\na,3,.1,.1\n", [], ["1 line (2)", "chance=1.5"]),
        ("model,train_size,error\na,1,.5\na,2,.2\na,3,.1\n", ["--up-to", "2"], ["a: 2 different sizes within --up"]),
        ("model,train_size,error\na,1,.5\na,2,.2\na,3,.1\na,4k,.1\n", [], ["1 line (5)", "train_size='4k' is not a"]),
        ("Model,train_size,error\na,1,.5\na,2,.2\nb,1,.1\n", [], ["--group model: ", "did you mean 'Model'"]),
        ("1,2,3\n4,5,6\n", ["--y", "3"], ["--x train_size: "]),
        ("train_size,acc1\n1,54.1\n2,66\n4,75.5\n8,75.2\n", ["--y", "acc1"], ["rises", "1 of 1", "100 - acc1"]),
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


@pytest.mark.parametrize(
    ("unit", "shown"),
    [(1e-6, ("at 0.001, ", "at 0.064 ", "error at 0.128 ")), (1e15, ("at 1e+18, ", "at 6.4e+19 ", "at 1.28e+20 "))],
)
def test_one_curve_needs_no_group_and_its_sizes_have_any_scale(tmp_path, capsys, unit, shown):
    rows = [f"{1000 * unit * 2**k:.6g},{0.5 * 0.8**k:.6g},{k}" for k in range(7)]
    (tmp_path / "one.csv").write_text("\n".join(["train_size,error,loss", *rows]) + "\n")
    assert main(["fit", str(tmp_path / "one.csv")]) == 0
    text = capsys.readouterr().out
    assert all(part in text for part in shown), text
    sizes = run_json(capsys, tmp_path / "one.csv")["groups"]["all"]["predict"]
    assert list(sizes) == [f"{64_000 * unit * times:.15g}" for times in (2, 4, 10)]


def test_seeds_of_any_length_tell_runs_apart(tmp_path, capsys):
    rows = [
        f"{m},{2**k},{seed},{0.5 * 0.8**k}" for m in "ab" for k in range(5) for seed in ("7" * 5000, 2**62, 2**62 + 1)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["model,train_size,seed,error", *rows]) + "\n")
    assert run_json(capsys, tmp_path / "runs.csv")["groups"]["a"]["points"] == 15


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
    assert f"--out {path}: is a file; give a folder" in capsys.readouterr().err


def test_a_group_with_too_few_sizes_is_left_out(tmp_path, capsys):
    rows = [
        f"{size},{model},{0.9 * size**-0.3}" for model, sizes in (("a", (1, 2, 4, 8)), ("b", (1, 2))) for size in sizes
    ]
    (tmp_path / "t.csv").write_text("\n".join(["train_size,model,error", *rows]))
    assert main(["fit", str(tmp_path / "t.csv"), "--json"]) == 0
    out, err = capsys.readouterr()
    assert [*json.loads(out)["groups"]] == ["a"]
    assert "left out" in err
    assert "b: 2 different sizes; a law needs 3 or more" in err


def test_copies_steps_and_failed_runs_are_no_further_seeds(tmp_path, capsys):
    rows = [("ok", "a", size, seed, 3, 0.9 * size**-0.3 + seed / 100) for size in (1, 2, 4, 8) for seed in (0, 1)]
    more = [(*row[:4], 1, 0.95) for row in rows] + rows + [*rows, ("crash", "a", 1, 7, 3, 0.1)]
    for name, of in (("once", rows), ("more", more)):
        lines = [",".join(map(str, row)) for row in [("status", "model", "train_size", "seed", "Epoch", "error"), *of]]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    assert main(["fit", str(tmp_path / "more.csv")]) == 2
    (tmp_path / "more.csv").write_text("\n".join(lines[: 2 * len(rows) + 1] + lines[-1:]))
    assert run_json(capsys, tmp_path / "more.csv") == run_json(capsys, tmp_path / "once.csv")


def test_two_sizes_have_the_law_of_hoffmann(tmp_path, capsys):
    rng, lines = np.random.default_rng(0), ["model,N,D,loss"]
    for n, d in itertools.product(2e7 * 2.0 ** np.arange(5), 4e8 * 2.0 ** np.arange(5)):
        loss = 1.8 + 480 / n**0.35 + 2000 / d**0.37
        lines += [f"gpt,{n},{d},{loss * np.exp(0.002 * rng.standard_normal())}", f"flat,{n},{2 * n},{3 + d / 1e12}"]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines))
    words = (path, "--x", "N,D", "--y", "loss", "--out", tmp_path / "out")
    found = run_json(capsys, *words)
    assert json.loads((tmp_path / "out" / "fits.json").read_text()) == found
    (group,) = found["groups"].values()  # of the other one N and D vary together
    assert (group["points"], [*group["params"]]) == (25, ["A", "B", "E", "alpha", "beta", "exponent"])
    for name, true in (("E", 1.8), ("alpha", 0.35), ("beta", 0.37), ("exponent", 0.37 / 0.72)):
        value, low, high = group["params"][name]
        assert low < value < high
        assert value == pytest.approx(true, rel=0.1)
    assert main(["fit", *map(str, words)]) == 0
    output = capsys.readouterr()
    assert re.fullmatch(r"gpt: E \+ A/N\^alpha \+ B/D\^beta with alpha 0.3\d+ .*; the best N .*\n", output.out)
    assert "left out: --x N,D: " in output.err
    for more, problem in (
        (["--law", "m1"], "--law m1: is a law of errors"),
        (["--up-to", "9"], "--x N,D: fits L(N, D); give two columns other than --y, without --up-to"),
        (["--y", "D"], "--x N,D: fits L(N, D); give two columns other than --y"),
        (["--y", "accuracy"], "--y accuracy: "),
        (["--y", "model"], "has no line with positive numbers as N, D, model"),
    ):
        assert main(["fit", *map(str, words), *more]) == 2
        assert problem in capsys.readouterr().err
