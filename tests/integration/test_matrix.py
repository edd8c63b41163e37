"""Tasks x analyses x probes x other tests x resuming x a study's workers x figures: all of it runs, or one line refuses
it before the first step. The rows are those of tests/matrix.py.
"""

import json
import math

import numpy as np
import pytest

from tests.integration.commands import assert_same_training
from tests.matrix import ROWS, SHALLOW, SMALL, ask, configure, list_accepted, own_data, small_world
from tests.runs import train_run
from vitlab.commands import scale
from vitlab.console import Console
from vitlab.reports.figures import draw_study
from vitlab.studies.grid import compose_study
from vitlab.studies.plan import plan_study
from vitlab.studies.results import load_results
from vitlab.studies.store import StudyFiles
from vitlab.studies.worker import work
from vitlab.training.files import RunFiles
from vitlab.training.loop import Interrupted


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with small_world(tmp_path_factory.mktemp("world")) as folder:
        yield folder


@pytest.fixture(autouse=True)
def own_folder(world, monkeypatch):
    monkeypatch.chdir(world)


def test_a_line_refuses_what_a_task_has_no_targets_for():
    """Of 374 combinations 130 begin; of some of these the model is said not to have what they need, also in a line."""
    answers = [ask(row) for row in ROWS]
    assert sum(len(names) for asked, _ in answers for names in asked.values()) == 374
    assert sum(len(refused) for _, refused in answers) == 244
    for asked, refused in answers:
        assert all(name in asked[key] and "; " in line for (key, name), line in refused.items())


@pytest.mark.parametrize("row", ROWS)
def test_everything_runs_to_its_end_or_is_refused_before_the_first_step(row, tmp_path, capsys):
    words, run, stops = list_accepted(row), tmp_path / "run", iter([True])
    config = configure(row, *words)
    with pytest.raises(Interrupted):
        train_run(config, run, stop=lambda: next(stops, False))
    result, files = train_run(config, run), RunFiles(run)
    said = capsys.readouterr().err
    assert not files.error(), said
    assert result["test_items"] < 50, "the small world is not used: the rows take three times as long"
    for name in config.analyses:
        found = files.analysis(name)
        assert (f"{name}: does not apply" in said) == (found is None), said
        check_finite(found, files.analysis_folder / f"{name}.npz")
    again = {key: value for key, value in result.items() if key.endswith(f"@{own_data(row)}")}
    assert again == {key: result[key.partition("@")[0]] for key in again} != {}, "the same data again"
    for name in config.probes:
        numbers = [
            value for key, value in result.items() if key.startswith(name.partition("@")[0]) and "_flops" not in key
        ]
        assert numbers
        assert all(value is None or 0 <= value <= 1 for value in numbers)
    study = run_study(row, tmp_path / "study")
    (worked,) = study.runs.run
    assert_same_training(run, study.files.folder / worked)
    figures = draw_study(study, lambda figure: json.dumps(figure.spec, allow_nan=False))
    assert figures


def check_finite(found, arrays):
    for row in (found or {}).get("rows", ()):
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float)), repr(row)
        assert found["unit"] != "share" or -1e-6 <= row["value"] <= 1 + 1e-6, repr(row)
    for values in np.load(arrays).values() if arrays.exists() else ():
        assert values.dtype.kind not in "fc" or np.isfinite(values).all()


def run_study(row, folder):
    """The row's run as that of a study, by a worker in this process."""
    config = configure(row)
    words = [word for word in (*ROWS[row], *SMALL, SHALLOW) if "model=" not in word and word != "train_size=all"]
    own = [word for word in words if word.startswith(("recipe.", "model."))]
    words = [f"data={config.data.name}", f"set=[{','.join(own)}]", *(word for word in words if word not in own)]
    (path := folder.with_suffix(".yaml")).write_text(f"models: [{config.model.name}]\nsizes: [all]\n")
    plan = plan_study(compose_study(str(path), words), jobs=1, console=Console())
    files = StudyFiles(folder)
    scale.add_runs(files, plan)
    work(files.folder, 1, stop=lambda: False)
    return load_results(files.folder)
