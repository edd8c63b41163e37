"""Where workers run: an executor of one's own, and the jobs that SLURM is given."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from vitlab.commands import executors, scale
from vitlab.config import UserError, resolved
from vitlab.config.schema import ExecutorConfig, SlurmConfig
from vitlab.studies.grid import compose_study, expand
from vitlab.studies.store import StudyFiles

OWN = """
from vitlab.studies.store import StudyFiles
STARTED = []
class Crew:
    def count(self):
        return 0
def start(folder, workers, config):
    STARTED.append((folder, workers, config.cpus, config.options))
    StudyFiles(folder).run("vit_nano-n30-s0").write_error("its node is gone")
    return Crew()
"""


def test_a_module_of_ones_own_starts_the_workers(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ownexecutors").mkdir()
    (tmp_path / "ownexecutors" / "cluster.py").write_text(OWN)
    (tmp_path / "ownexecutors" / "empty.py").touch()
    words = [
        "models=[vit_nano]",
        "executor.kind=ownexecutors.cluster",
        "executor.cpus=2",
        "executor.options={queue: long}",
    ]
    config, files = compose_study("quick", [*words, "sizes=[30]", "seeds=[0]"]), StudyFiles(tmp_path / "study")
    specs = expand(config, [30])
    files.add_start(resolved(config), [spec[:3] for spec in specs])
    asked = SimpleNamespace(config=config, specs=specs, jobs=3, cores=2, variants={"vit_nano": specs[0].config})
    monkeypatch.setattr(scale, "SHARE", 1)  # it looks often
    failed = scale.watch(files, asked, SimpleNamespace(update=lambda changed: None))
    assert failed == {"vit_nano-n30-s0": "its node is gone"}
    started = sys.modules["ownexecutors.cluster"].STARTED
    assert started == [(files.folder, 1, 2, {"queue": "long"})], "one run, one worker"
    with pytest.raises(UserError, match=r"ownexecutors\.empty has no function 'start'"):
        executors.find_start("ownexecutors.empty")


def test_slurm_gets_an_array_of_workers_with_a_warning_and_the_options_of_submitit(tmp_path, monkeypatch, capsys):
    """By an `sbatch` that keeps the script which it is given."""
    pytest.importorskip("submitit")
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", ""), ("sbatch", f'cp "$1" {tmp_path}/script; echo Submitted batch job 7')):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    options = {"setup": ["module load cuda"], "additional_parameters": {"constraint": "a100"}}
    config = ExecutorConfig("slurm", 4, 1, 32, slurm=SlurmConfig(partition="gpu", hours=12), options=options)
    executors.check_executor(config)
    workers = executors.find_start("slurm")(tmp_path / "study", 3, config)
    assert workers.job == "7"
    script = (tmp_path / "script").read_text().splitlines()
    asked = dict(
        line.removeprefix("#SBATCH --").split("=", 1)
        for line in script
        if line.startswith("#SBATCH --") and "=" in line
    )
    wanted = {"array": "0-2%3", "partition": "gpu", "time": "720", "cpus-per-task": "4", "gpus-per-node": "1"}
    wanted |= {"mem": "30518M", "signal": "USR2@90", "constraint": "a100"}
    assert wanted.items() <= asked.items()
    assert "module load cuda" in script
    assert asked["output"].startswith(f"{tmp_path}/study/slurm/")
    workers.stop()
    assert "'scancel 7' ends them" in capsys.readouterr().err


JOB = """
import os, signal, sys, time
from vitlab.commands import executors
def work(folder, cores, stop):
    os.kill(os.getpid(), int(sys.argv[1]))
    while not stop():
        time.sleep(0.01)
executors.run_worker = work
executors.run_job("study", 1)
"""


@pytest.mark.parametrize(("number", "asked"), [(signal.SIGUSR2, "requeue 7_2\n"), (signal.SIGTERM, "")])
def test_a_job_that_slurm_warns_is_stopped_and_requeued_and_one_that_is_cancelled_is_not(number, asked, tmp_path):
    pytest.importorskip("submitit")
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho $@ >> {tmp_path}/asked\n")
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "asked").touch()
    job = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    environment = {**os.environ, **job, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", JOB, str(number.value)], env=environment, timeout=100)
    assert (done.returncode, (tmp_path / "asked").read_text()) == (1, asked)
