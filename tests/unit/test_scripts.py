"""Scripts that judge, count and kill run, at a size of seconds; those of scripts/bench are run by hand."""

import subprocess
import sys
import tarfile
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scripts import debian_texts, make, public_curves, verdicts
from vitlab.data.cache import write_kept

ROOT = Path(__file__).resolve().parents[2] / "scripts"


def test_public_curves_are_judged(monkeypatch, tmp_path):
    """Two learners that cross at 100 items, on a data set with 25 splits; a third has a gap in its sizes."""
    monkeypatch.setattr(public_curves, "LEARNERS", 2)
    monkeypatch.setattr(public_curves, "CUTS", (1,))
    noise, rows = np.random.default_rng(0), []
    for learner, level, slope in (("steep", 4.0, -0.6), ("flat", 1.0, -0.3), ("short", 1.0, -0.3)):
        for size, outer, inner in product(2 ** np.arange(4, 12), range(5), range(5)):
            if learner != "short" or size != 64:
                score = 1 - level * size**slope * np.exp(0.03 * noise.standard_normal())
                rows.append((3, learner, size, 500, outer, inner, score))
    columns = ["openmlid", "learner", "size_train", "size_test", "outer_seed", "inner_seed", "score_test"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "database-accuracy.csv")
    with tarfile.open(tmp_path / "lcdb.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "database-accuracy.csv", "lcdb-0.1.0/lcdb/database-accuracy.csv")
    (curves,) = public_curves.read_curves(tmp_path / "lcdb.tar.gz")
    laws, pairs = public_curves.judge(curves)
    assert (len(laws), all(row["drawn"] for row in laws)) == (12, True)
    assert {row["claim"] for row in pairs} == {"sure, inside"}
    assert all(row["agree"] and row["interval"] for row in pairs)


def test_intervals_of_advice_are_judged_on_other_pictures(monkeypatch, tmp_path):
    labels, noise, digests = np.arange(90) % 2, np.random.default_rng(0), [f"{row:016x}" for row in range(90)]
    network = (3 * labels[:, None] + noise.normal(size=(90, 3))).astype(np.float32)
    (tmp_path / "features").mkdir()
    for name, rows in (("pixels-32", noise.integers(255, size=(90, 3, 4, 4), dtype=np.uint8)), ("network", network)):
        write_kept(tmp_path / "features" / f"{name}.safetensors", dict(zip(digests, rows, strict=True)))
    table = pd.DataFrame({"label": labels, "group": range(90), "digest": digests})
    table.to_csv(tmp_path / "pictures.csv", index=False)
    monkeypatch.setattr(verdicts, "STUDY", tmp_path)
    monkeypatch.setattr(verdicts, "FEWEST_TESTED", 30)
    is_network, now, inside, _, later, *_ = verdicts.advised(45, noise)
    assert (is_network, inside) == (True, True)
    assert 0 < now < 0.5
    assert np.isnan(later), "too few are left for twice the labels"


def test_models_are_counted(monkeypatch, capsys):
    monkeypatch.setattr(make, "names", lambda group: ["vit_nano", "gpt_nano", "resnet_nano", "mixer_nano", "vit_b16"])
    make.print_models()
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 4, "not of text"
    assert {head, *rows} <= {*(make.DOCS / "models.md").read_text().splitlines()}


@pytest.mark.slow
def test_a_study_survives_kills(tmp_path):
    words = ["--times=1", "--steps=20", "--folder", tmp_path / "study", "sizes=[100]", "models=[vit_nano]"]
    done = subprocess.run([sys.executable, ROOT / "kill_runs.py", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same results, each run trained once" in done.stdout


LISTS = {
    "Translation-en": 'Description-md5: 1\nDescription-en: lists all files\n and "more" of\n  them\n .\n short',
    "Translation-it": "Description-md5: 1\nDescription-it: elenca i file\n e altro\n .\n breve",
    "Packages": "Package: ls\nSource: core (1.2)\nSection: non-free/utils\nDescription-md5: 1",
}


def test_texts_of_packages_are_paired_and_labeled(monkeypatch, tmp_path, capsys):
    def run(command, **options):
        return subprocess.CompletedProcess(command, 0, LISTS.get(Path(command[-1]).name[1:], "").encode())

    (tmp_path / "lists").mkdir()
    for name in LISTS:
        (tmp_path / "lists" / f"_{name}").touch()
    monkeypatch.setattr(debian_texts.subprocess, "run", run)
    monkeypatch.setattr(debian_texts.shutil, "which", lambda name: name)
    monkeypatch.setattr(sys, "argv", ["debian_texts.py", str(tmp_path), "--languages", "it"])
    debian_texts.main()
    # paragraphs of fewer than three words are left out
    assert (tmp_path / "pairs-en-it.tsv").read_text() == "en\tit\tsource\nlists all files\telenca i file\tcore\n"
    assert (tmp_path / "english.txt").read_text() == 'lists all files and "more" of them short\n'
    sections = pd.read_csv(tmp_path / "sections.csv")
    assert sections.to_numpy().tolist() == [['lists all files and "more" of them short', "utils", "core"]]
    monkeypatch.setattr(debian_texts.shutil, "which", lambda name: None)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        debian_texts.main()
    assert capsys.readouterr().err == "debian_texts: needs apt-get of Debian or Ubuntu\n"


def test_the_project_is_within_its_weight():
    done = subprocess.run([sys.executable, ROOT / "weight.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
