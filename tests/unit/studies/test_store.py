"""The files of runs and studies: whole or not there, and read back as they were written."""

import csv
import errno
import itertools
import json
import os
import warnings

import pytest

from tests.unit.reports.written_study import make_study
from vitlab import cli
from vitlab.config import UserError
from vitlab.files import replacing, write_text
from vitlab.formatting import round_numbers
from vitlab.studies.results import load_results
from vitlab.studies.store import StudyFiles, list_missing
from vitlab.training.files import RunFiles

NASTY = ["comma, quote \" and '", "two\nlines", "both\r\n", "ünï 模型 💥", "1e5x", "18", "007", "1e3"]


def row(**changes):
    values = {"study": "s", "run": "r-n7-s0", "model": "m", "family": "f", "data": "d", "train_size": 7, "seed": 0}
    values |= {"budget": "steps=3", "steps": 3, "examples_seen": 384, "params": 12345678901, "train_flops": 10**18 + 1}
    values |= {"accuracy": 0.3, "error": 0.7, "loss": 1e-17, "train_loss": 2.5, "images_per_s": 1.0}
    return values | {"wall_s": 0.25, "precision": "32-true", "status": "finished"} | changes


# ---- writing whole files


def test_a_file_is_replaced_only_when_its_writer_ends_well(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        fail_to_write(path)
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["file.txt"], "no part of the new one stays"
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["file.txt"]
    (plain := path.with_name("plain.txt")).touch()
    assert path.stat().st_mode == plain.stat().st_mode, "others may read it as far as the umask lets them"


def fail_to_write(path):
    with replacing(path) as file:
        file.write(b"half of the new")
        file.flush()
        assert path.read_text() == "old", "while it is being written the old one is there"
        raise ZeroDivisionError


# ---- results.csv


def read_csv(files):
    with files.results_path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("text", NASTY)
def test_results_come_back_as_they_were_whatever_names_hold(text, tmp_path):
    files = StudyFiles(tmp_path)
    files.write_rows([row(study=text, model=text, note=f"{text}x"), row(run="other", data=text)])
    first, second = read_csv(files)
    assert (first["study"], first["model"], first["note"]) == (text, text, f"{text}x")
    assert (second["data"], second["note"]) == (text, "")


@pytest.mark.parametrize(
    "text", ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "\t=1", "'=1", "''=1", "'quoted'", "1=1"]
)
def test_a_name_is_no_formula_of_a_spreadsheet_and_stays_another_than_others(text, tmp_path):
    files = StudyFiles(tmp_path)
    files.write_rows([row(model=text, note=text, bleu=-3)])
    line = (tmp_path / "results.csv").read_text().splitlines()[1]
    cells = next(csv.reader([line]))
    assert not any(cell[:1] in "=+-@\t" for cell in cells if cell and cell != "-3")
    written = f"'{text}" if text.lstrip("'")[0] in "=+-@\t" else text
    assert [(found["model"], found["note"], found["bleu"]) for found in read_csv(files)] == [(written, written, "-3")]


def test_shares_have_six_decimals_and_other_floats_six_digits_in_both_files(tmp_path):
    values = {"accuracy": 0.4424999952316284, "error": 1 / 3, "loss": 3.7001595497131348, "train_loss": 1.2345678e-4}
    rounded = {"accuracy": 0.4425, "error": 0.333333, "loss": 3.70016, "train_loss": 0.000123457}
    files = StudyFiles(tmp_path)
    files.write_rows([row(**values)])
    assert "0.4425,0.333333,3.70016,0.000123457" in files.results_path.read_text()
    assert round_numbers(row(**values)) == row(**rounded)


# ---- study.yaml and runs.json


def start(models, sizes, seeds, **config):
    """What a start of a study writes: its configuration and its runs."""
    grid = {"name": "s", "models": models, "sizes": sizes, "seeds": seeds, "grid": {}, "tune": {}}
    return grid | config, itertools.product(models, sizes, seeds)


def test_a_study_lists_the_runs_of_all_starts_and_no_product_of_them(tmp_path):
    files = StudyFiles(tmp_path)
    files.add_start(*start(["a"], [1, 20], [0]))
    files.add_start(*start(["b"], [3], [1]))
    files.add_start(*start(["a"], [20], [0]))
    assert files.run_keys() == [("a", 1, 0), ("a", 20, 0), ("b", 3, 1)]
    assert [files.config()[key] for key in ("sizes", "seeds", "models")] == [[1, 3, 20], [0, 1], ["a", "b"]]


# ---- a run's files


@pytest.mark.parametrize("content", [b"- a", b"a: [", b"\xff\xfe\x00", b"", b"3", b"{}", b"[" * 9999])
def test_a_configuration_that_is_none_is_the_users_mistake(content, tmp_path):
    for files, says in (
        (RunFiles(tmp_path), r"config\.yaml: "),
        (StudyFiles(tmp_path), r"study\.yaml: .*; restore it"),
    ):
        files.config_path.write_bytes(content)
        with pytest.raises(UserError, match=says):
            files.config()


@pytest.mark.parametrize("content", [b'{"id": ', b"", b"\xff\xfe", b"3", b'"x"', b"[" * 10**5])
def test_a_file_of_a_run_that_does_not_parse_says_what_to_do(content, tmp_path):
    files = RunFiles(tmp_path)
    readers = {files.init_path: files.init, files.data_path: files.data_hash}
    readers[files.analysis_folder / "cka.json"] = lambda: files.analysis("cka")
    files.analysis_folder.mkdir()
    for path, read in readers.items():
        assert read() is None
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"^{path}: cannot read it \(.*\); delete it and run the command again$"):
            read()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"id": ', "Expecting value"),
        (b"[]", r"it is no result but \[\]"),
        (b"[" * 10**5, "maximum recursion depth"),
        (b"{}", "it lacks study, run, model, train_size, seed"),
        (json.dumps(row(accuracy="high")).encode(), 'accuracy: "high" is not a number'),
        (json.dumps(row(study=3)).encode(), "study: 3 is not a text"),
    ],
)
def test_a_result_that_is_none_counts_as_not_finished_everywhere(content, says, tmp_path):
    files = StudyFiles(tmp_path)
    files.add_start(*start(["m"], [7], [0]))
    run = files.run("m-n7-s0")
    run.write_config(dict.fromkeys(("model", "data", "task", "recipe", "seed")))
    run.result_path.write_bytes(content)
    assert files.finished_rows() == []
    assert list_missing(run, {"analyses": [], "probes": [], "task": {}}) == ["training"]
    with pytest.raises(
        UserError, match=rf"result\.json: cannot read it \({says}.*\); the run counts as not finished"
    ) as one:
        run.finished_result()
    assert files.damaged == {"m-n7-s0": str(one.value)}
    run.write_error("the loss is nan")
    assert load_results(tmp_path).failures == [{"run": "m-n7-s0", "error": "the loss is nan"}]


def test_metrics_leave_out_a_last_line_that_was_cut(tmp_path):
    files = RunFiles(tmp_path)
    assert files.metrics() == []
    rows = [{"step": step, "train/loss": step / 7} for step in (1, 2, 3)]
    text = "".join(json.dumps(r) + "\n" for r in rows)
    for cut in range(len(json.dumps(rows[2]))):  # wherever the crash came
        files.metrics_path.write_text(text[: len(text) - 1 - cut])
        assert files.metrics() == (rows if cut == 0 else rows[:2])
    files.metrics_path.write_bytes(text.encode() + b'{"step": 4, "note": "\xc3')
    assert files.metrics() == rows
    files.metrics_path.write_bytes(text.encode() + b"\0" * 9)
    assert files.metrics() == rows


@pytest.mark.parametrize("damage", [b"\0" * 9, b'{"step": 2, "train/lo', b"{}", b"3", b"[" * 10**5])
def test_a_damaged_line_does_not_drop_the_rows_after_it(damage, tmp_path):
    files = RunFiles(tmp_path)
    rows = [{"step": step, "train/loss": step / 7} for step in (1, 2, 3)]
    lines = [json.dumps(row).encode() for row in rows]
    files.metrics_path.write_bytes(b"\n".join([lines[0], damage, *lines[1:]]) + b"\n")
    with pytest.warns(UserWarning, match="line 2 is damaged and was skipped"):
        assert files.metrics() == rows
    with pytest.warns(UserWarning, match="line 2 is damaged"):
        files.keep_metrics(3)
    assert files.metrics() == rows, "a resumed run keeps them too"


@pytest.mark.parametrize("content", [b"", b'{"step": 1, "train/lo', b"\x8b\n\x9c\n\xff"])
def test_a_report_names_the_damaged_files_of_a_finished_run(content, tmp_path):
    study = make_study(tmp_path / "study", sizes=(500,), seeds=(0,), failed=0)
    run = study.run("vit_nano-n500-s0")
    run.metrics_path.write_bytes(content)
    run.heldout_path.write_bytes(b"PK\3\4 no archive")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        left = load_results(study.folder).run_files[run.folder.name]
        assert (left.metrics, left.outcomes) == ([], None)
    said = [str(one.message) for one in caught if one.category is UserWarning]
    assert [text.partition(": ")[0] for text in said] == [str(run.metrics_path), str(run.heldout_path)]
    assert all("; delete the run's folder and start again" in text for text in said)


def test_rows_past_a_checkpoint_are_dropped_and_the_others_kept(tmp_path):
    files = RunFiles(tmp_path)
    rows = [{"step": step, "value": step * 10} for step in (0, 5, 10, 10, 15)]
    files.metrics_path.write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"step": 1')
    files.keep_metrics(10)
    assert files.metrics() == rows[:4]
    with files.metrics_path.open("a") as file:
        file.write(json.dumps(rows[4]) + "\n")
    assert files.metrics() == rows, "what is appended begins on a line of its own"
    files.keep_metrics(-1)
    assert files.metrics() == []


# ---- a full disk


def save_on_a_full_disk(path):
    """What torch.save does there: its archive ends with an error of its own."""
    with replacing(path) as file:
        file.write(b"new")
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            raise RuntimeError("unexpected pos 221568 vs 221456")  # noqa: B904


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "last.ckpt"
    path.write_text("old")
    monkeypatch.setattr(cli, "run", lambda words: save_on_a_full_disk(path))
    assert cli.main([]) == 2
    assert "last.ckpt: No space left on device; free some space" in capsys.readouterr().err
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]
