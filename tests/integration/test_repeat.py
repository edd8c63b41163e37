"""The commands that a study's report prints work in the folder that it names."""

import html
import re
import shlex

import pytest

from tests.integration import commands
from vitlab.studies.store import StudyFiles

STUDY = ["data=imagefolder", "data.image_size=16", "sizes=[8]", "seeds=[0]", "budget.steps=2", "trainer.evaluations=1"]
STUDY += ["models=[resnet_nano]", "analyses=[]", "wandb.mode=off"]


@pytest.mark.slow  # five commands, a minute of processor time
def test_printed_commands_work_with_a_relative_root(photos, tmp_path, monkeypatch):
    started = tmp_path / "started"
    started.mkdir()
    monkeypatch.chdir(started)
    done = commands.vitlab("scale", *STUDY, "data.root=../photos", "--jobs", "1", "--out", "a b/study")
    assert done.returncode == 0, done.stderr
    study = StudyFiles(started / "a b" / "study")
    monkeypatch.chdir("/")  # where the page is written again does not matter
    assert commands.vitlab("report", study.folder).returncode == 0
    page = study.report_path.read_text()
    section = page[page.index('<section id="repeat">') :].partition("</section>")[0]
    (place,) = re.findall(r"in <code>(.*?)</code>", section)
    assert (study.folder / place).resolve() == started
    monkeypatch.chdir(study.folder / place)
    printed = [shlex.split(text) for text in re.findall(r"<dd><code>(.*?)</code>", html.unescape(section))]
    assert {words[1] for words in printed} == {"scale", "report", "eval"}
    for program, *words in printed:
        assert program == "vitlab"
        done = commands.vitlab(*words)
        assert done.returncode == 0, done.stderr
    again = StudyFiles(started / "a b" / "study-again")
    assert [row["run"] for row in again.rows()] == [row["run"] for row in study.rows()]
