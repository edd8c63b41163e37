"""results.csv of a study that runs: it grows with the runs, and what has not changed is not read again."""

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.studies import store
from vitlab.studies.store import LiveTable


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path, models={"a": "vit"}, sizes=(100,), seeds=range(5), failed=0)


def test_the_table_takes_a_share_of_the_time(study, monkeypatch):
    clock, written = [100.0], []
    monkeypatch.setattr(store.time, "monotonic", lambda: clock[0])

    def write(files):
        written.append(clock[0])
        clock[0] += 1.0

    monkeypatch.setattr(store, "collect", write)
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
