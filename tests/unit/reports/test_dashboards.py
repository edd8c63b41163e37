"""`vitlab report --wandb`: W&B's own classes read back what is written, with every panel."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces.reports.v2 import internal as report_internal
from wandb_workspaces.workspaces import internal as workspace_internal

from tests.unit.reports.fake_wandb import KEY, wandb_server
from tests.unit.reports.written_study import change_results, make_study
from vitlab.cli import main
from vitlab.files import write_json


def write_study(folder):
    study = make_study(folder, sizes=(53, 59), seeds=(0,), failed=0)
    for index, path in enumerate(sorted(study.folder.glob("*/result.json"))):
        result = json.loads(path.read_text())
        write_json(path, {**result, "wandb": {"mode": "offline", "id": f"id{index}", "path": "wandb/offline/files"}})
        for analysis in path.parent.glob("analysis/attention_distance.json"):
            analysis.with_suffix(".png").touch()  # as training leaves it that logs the picture
    return study


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path / "quick")


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")


@pytest.fixture(scope="module")
def written(tmp_path_factory, drawing):
    """The study with its dashboards, which no test changes."""
    study = write_study(tmp_path_factory.mktemp("written") / "quick")
    with pytest.MonkeyPatch.context() as patch, drawing():
        patch.setenv("WANDB_MODE", "offline")
        assert main(["report", str(study.folder), "--wandb"]) == 0
    return study


def workspace_of(study):
    """What W&B's own class makes of the file."""
    text = (study.folder / "wandb-workspace.json").read_text()
    return ws.Workspace._from_model(workspace_internal.View.model_validate_json(text))


def report_of(study):
    text = (study.folder / "wandb-report.json").read_text()
    return wr.Report._from_model(report_internal.ReportViewspec.model_validate_json(text))


def panels_of(board):
    """Title -> panel, of a workspace's sections or a report's grids."""
    holders = board.sections if isinstance(board, ws.Workspace) else board.blocks
    panels = [panel for holder in holders for panel in getattr(holder, "panels", [])]
    return {getattr(panel, "title", None) or type(panel).__name__: panel for panel in panels}


PANELS = {  # section -> every panel in it, by kind and title: what the page of a study of images has
    "Result": [("LinePlot", "accuracy by size, mean over seeds"), ("MediaBrowser", "mean and interval against size")],
    "Curves": [
        *(("LinePlot", key) for key in ("train/loss", "validation/loss", "validation/accuracy")),
        *(("LinePlot", f"train/{key}") for key in ("lr", "grad_norm", "images_per_s")),
    ],
    "Analyses": [
        ("MediaBrowser", "mean attention distance"),
        ("LinePlot", "mean attention distance by layer, mean over heads"),
        ("LinePlot", "mean attention distance by size, mean over heads"),
    ],
    "Compute": [("BarPlot", "train_flops of each run")],
    "Runs": [("RunComparer", None)],
}


def named(panels):
    return [(type(panel).__name__, getattr(panel, "title", None)) for panel in panels]


def dumped(model):
    return json.loads(model.model_dump_json(by_alias=True, exclude_none=True))


def test_the_workspace_comes_back_with_every_panel(written):
    """The file, loaded and saved by W&B's own classes twice over, is the file; and it has each panel, no more."""
    read = workspace_of(written)
    assert (read.name, read.project) == ("quick", "vitlab")
    assert {section.name: named(section.panels) for section in read.sections} == PANELS
    assert all(section.is_open for section in read.sections)
    kept = json.loads((written.folder / "wandb-workspace.json").read_text())
    once = dumped(read._to_model())
    assert once == kept
    again = ws.Workspace._from_model(workspace_internal.View.model_validate(once))
    assert dumped(again._to_model()) == kept
    assert again == read


def test_the_workspace_shows_the_runs_of_this_study_alone(written):
    settings = workspace_of(written).runset_settings
    assert settings.filters == "Metric(\"Group\") == 'quick' and Metric(\"JobType\") in ['train', 'summary']"
    assert settings.pinned_columns[1:] == [
        f"summary:{key}" for key in ("family", "train_size", "accuracy", "train_flops")
    ]


def test_the_report_has_the_conclusion_the_table_and_a_run_set_per_family(written):
    read = report_of(written)
    assert read.description.startswith("Undecided (one seed): resnet_nano ahead of vit_nano by ")
    text = next(block.text for block in read.blocks if isinstance(block, wr.MarkdownBlock))
    assert text.strip() == (written.folder / "tables" / "results.md").read_text().strip()
    assert set(panels_of(read)) == set(panels_of(workspace_of(written)))
    grid = next(block for block in read.blocks if isinstance(block, wr.PanelGrid))
    assert [runset.name for runset in grid.runsets] == ["study", "ViT", "ResNet"]
    assert all("family" in runset.filters for runset in grid.runsets[1:])


def test_the_studys_metric_decides_the_panels_and_the_project_is_its_own(study, offline, capsys):
    config = study.config()
    study.write_config({**config, "wandb": {**config["wandb"], "project": "mine"}})
    change_results(study, lambda _: {"accuracy": None, "error": None, "perplexity": 9.5})
    for row in study.finished_rows():
        run = study.run(row["run"])
        run.metrics_path.write_text(
            run.metrics_path.read_text().replace("validation/accuracy", "validation/perplexity")
        )
    assert main(["report", str(study.folder), "--wandb"]) == 0
    assert "wandb-workspace.json" in capsys.readouterr().out
    assert workspace_of(study).project == "mine"
    found = panels_of(workspace_of(study))
    assert "perplexity by size, mean over seeds" in found
    assert "validation/perplexity" in found
    assert not any("accuracy" in title for title in found)


def test_without_the_package_one_line_says_what_to_install(study, offline, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "vitlab.reports.dashboards", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb_workspaces"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["report", str(study.folder), "--wandb"]) == 2
    assert "pip install wandb-workspaces" in capsys.readouterr().err


@pytest.mark.slow
def test_logged_in_both_are_saved_and_the_next_time_changed(study, monkeypatch, capsys):
    """As offline and then online: W&B gets what the files hold, under an id that the files keep."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main(["report", str(study.folder), "--wandb"]) == 0
    assert "run the command again" in capsys.readouterr().err
    with wandb_server() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.delenv("WANDB_MODE")
        words = ["report", str(study.folder), "--wandb"]
        code = f"import sys; from vitlab.cli import main; sys.exit(main({words}) or main({words}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert [view["entityName"] for view in server.views] == ["someone"] * 4
    assert [view["displayName"] for view in server.views] == ["quick"] * 4
    assert [view.get("id") for view in server.views] == [None, None, "view1", "view2"]
    assert server.views[0]["name"] == server.views[2]["name"]
    assert f"{server.url}/someone/vitlab" in done.stdout
    for view, name in zip(server.views[2:], ("workspace", "report"), strict=True):
        assert json.loads(view["spec"]) == json.loads((study.folder / f"wandb-{name}.json").read_text())["spec"]
    # offline once more: the ids stay
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main(["report", str(study.folder), "--wandb"]) == 0
    assert (workspace_of(study)._internal_id, report_of(study).id) == ("view1", "view2")


def test_a_server_that_refuses_leaves_the_files_and_one_line(study, monkeypatch, capsys):
    def refuse(workspace):
        raise ConnectionError("W&B is down\nsecond line")

    monkeypatch.setattr("vitlab.reports.wandb.default_mode", lambda: "online")
    monkeypatch.setattr(ws.Workspace, "save", refuse)
    monkeypatch.setattr("wandb.Api", lambda: SimpleNamespace(default_entity="someone"))
    assert main(["report", str(study.folder), "--wandb"]) == 1
    line = "vitlab: W&B did not save the dashboards: W&B is down; run the command again\n"
    assert capsys.readouterr().err == line
    assert "accuracy by size, mean over seeds" in panels_of(workspace_of(study))
