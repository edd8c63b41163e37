"""How a study goes, from its files: what trains here and elsewhere, what was lost, what failed."""

import json
import os
import time
from dataclasses import asdict, replace

import pytest

from tests.unit.reports.written_study import make_study
from vitlab.cli import main
from vitlab.files import write_json
from vitlab.studies.executors.slurm_jobs import Submitted
from vitlab.training.lease import hold, path_of

HERE, ELSEWHERE, LOST, WAITS, FAILED = (f"{name}-s1" for name in ("a-n100", "b-n100", "a-n200", "b-n200", "c-n200"))


@pytest.fixture
def study(tmp_path):
    """A study of 12 runs: of 7 finished ones by 20 s each; of seed 1, one of each other state."""
    study = make_study(tmp_path / "study", models=dict.fromkeys("abc", "vit"), sizes=(100, 200), failed=1)
    for run in (HERE, ELSEWHERE, LOST, WAITS):
        study.run(run).result_path.unlink()
    for path in study.folder.glob("*/result.json"):
        write_json(path, {**json.loads(path.read_text()), "wall_s": 20.0})
    return study


def leave_lease(folder, ago, **changes):
    """A lease of another host, whose last beat was some seconds ago."""
    with hold(folder) as lease:
        claim = replace(lease.claim, machine="another", host="node7", pid=1, **changes)
    path = path_of(folder, claim.generation)
    write_json(path, asdict(claim))
    os.utime(path, (time.time() - ago,) * 2)


def test_the_state_of_each_run(study, capsys):
    progress = {"step": 50, "steps": 100, "seconds_left": 30.0}
    leave_lease(study.run(ELSEWHERE).folder, 12.0, where="SLURM job 4_1 on node7", progress=progress)
    leave_lease(study.run(LOST).folder, 400.0)
    write_json(
        study.folder / "slurm" / "jobs" / "4.json", {"time": 1.0, "runs": [asdict(Submitted(WAITS, "4_2", "me"))]}
    )
    with hold(study.run(HERE).folder) as lease:
        lease.progress = {**progress, "seconds_left": 10.0}
        lease.write()
        before = {*study.folder.rglob("*")}
        assert main(["status", str(study.folder)]) == 0
        shown = capsys.readouterr().out
        assert main(["status", str(study.folder), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {*study.folder.rglob("*")} == before, "nothing is written"
    assert {state: found[state] for state in ("runs", "finished", "failed", "running", "waiting")} == {
        "runs": 12,
        "finished": 7,
        "failed": 1,
        "running": 3,
        "waiting": 1,
    }
    cells = {cell["run"]: cell for cell in found["cells"]}
    assert (cells[HERE]["step"], cells[HERE]["steps"]) == (50, 100)
    assert cells[HERE]["heard_seconds_ago"] < 5
    assert cells[ELSEWHERE]["where"] == "SLURM job 4_1 on node7"
    assert cells[ELSEWHERE]["heard_seconds_ago"] == pytest.approx(12, abs=5)
    assert cells[ELSEWHERE]["seconds_left"] == pytest.approx(18, abs=5), "less than it said, for that was a while ago"
    assert cells[WAITS] == {"run": WAITS, "state": "waiting", "job": "4_2"}
    assert cells[FAILED]["error"].startswith("Diverged: the loss is not a number")
    # 10 and 18 s of those that train, 20 s each of one that waits and of one that was lost, by two at a time
    assert found["seconds_left"] == pytest.approx(34, abs=5)
    first, submitted, *rest = shown.splitlines()
    assert first.startswith("12 runs: 7 finished, 1 failed, 3 running, 1 waiting; about 3")
    assert submitted.endswith("job 4 (1 task)")
    assert f"{FAILED}  Diverged" in shown
    assert "node7, process 1" in next(line for line in rest if line.startswith(LOST))
    assert "1 run not heard of for 50 s, probably lost" in shown


def test_all_studies_of_a_folder_and_the_study_of_a_run(study, capsys):
    main(["status", str(study.folder.parent)])
    assert capsys.readouterr().out.startswith(f"{study.folder}\n12 runs: 7 finished")
    (study.run(HERE).folder / "config.yaml").touch()
    main(["status", str(study.run(HERE).folder), "--json"])
    assert json.loads(capsys.readouterr().out)["runs"] == 12


def test_a_run_whose_process_of_this_machine_was_killed_waits(study, capsys):
    with hold(study.run(HERE).folder) as lease:
        lease.progress = {"step": 50, "steps": 100, "seconds_left": 10.0}
        lease.write()
        gone = asdict(replace(lease.claim, pid=2**22 + 1))
    write_json(path_of(study.run(HERE).folder, lease.claim.generation), gone)
    main(["status", str(study.folder)])
    assert capsys.readouterr().out == "12 runs: 7 finished, 1 failed, 4 waiting\n" + (
        f"stopped, to be continued: {HERE} at step 50\n\nfailed\n"
        f"{FAILED}  Diverged: the loss is not a number at step 412; try a lower recipe.lr\n"
        f"what they said: {study.folder}/RUN/log.txt\n"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [("cells.json", "[[1]]"), (f"{FAILED}/error.json", "3"), ("slurm/jobs/1.json", '{"time": 1, "runs": [{}]}')],
)
def test_a_file_of_something_else_is_one_line(study, capsys, name, text):
    path = study.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert main(["status", str(study.folder)]) == 2
    assert capsys.readouterr().err.startswith(f"vitlab: {path}: cannot read it (")
