"""results.csv of a study that runs: it grows with the runs, and what has not changed is not read again."""

import json
from collections import Counter

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.files import write_json
from vitlab.studies import live_table
from vitlab.studies.live_table import LiveTable
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path, models={"a": "vit"}, sizes=(100,), seeds=range(5), failed=0)


def test_a_result_is_read_once_and_again_when_it_has_changed(study, monkeypatch):
    reads = Counter()
    read = RunFiles.result
    monkeypatch.setattr(RunFiles, "result", lambda files: reads.update([files.folder.name]) or read(files))
    hidden = study.run("a-n100-s4").result_path
    hidden.rename(hidden.with_name("hidden"))
    files = StudyFiles(study.folder)
    assert [row["seed"] for row in files.finished_rows()] == [0, 1, 2, 3]
    hidden.with_name("hidden").rename(hidden)
    changed = study.run("a-n100-s1").result_path
    write_json(changed, {**json.loads(changed.read_text()), "accuracy": 0.125})
    rows = files.finished_rows()
    assert [row["seed"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[1]["accuracy"] == 0.125
    assert reads == {"a-n100-s0": 1, "a-n100-s1": 2, "a-n100-s2": 1, "a-n100-s3": 1, "a-n100-s4": 1}
    files.write_config({**files.config(), "models": {"a": {"model": "vit_nano", "recipe.lr": 0.5}}})
    assert {row["recipe.lr"] for row in files.finished_rows()} == {0.004}, "what a later start varies is a column"


def test_the_table_takes_a_share_of_the_time(study, monkeypatch):
    clock, written = [100.0], []
    monkeypatch.setattr(live_table.time, "monotonic", lambda: clock[0])

    def write(files):
        written.append(clock[0])
        clock[0] += 1.0

    monkeypatch.setattr(live_table, "collect", write)
    table = LiveTable(study)
    table.update(changed=False)
    for _ in range(1000):  # a run ends every half second
        table.update(changed=True)
        clock[0] += 0.5
    assert written[:3] == [100.0, 150.0, 200.0]
    table.update(changed=False)
    clock[0] += 60.0
    count = len(written)
    table.update(changed=False)
    assert len(written) == count + 1, "what ended last is written at the next event"
