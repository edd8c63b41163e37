"""Parts of one's own, as docs/extending.md and README.md show: a mixer, a task and a probe."""

import shutil

import torch

from tests.configurations import problem, train
from vitlab import build_model, tasks
from vitlab.analysis.probes import measure
from vitlab.config import groups
from vitlab.data.opening import open_data

MIXER = """
from torch import nn
class Roll(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by
    def forward(self, x):
        return x.roll(self.by, dims=1)
def build(config, spec):
    return Roll(config.by)
"""
TASK = """
from vitlab.tasks import images, metrics
class Weighted(images.ImageTask):
    def loss(self, model, batch):
        return self.by * super().loss(model, batch)
def build(config, *, recipe, data, data_config):
    task = Weighted(recipe, data, data_config, metrics.IMAGES, len(data.classes))
    task.by = config.by
    return task
"""
PROBE = """
def run(train, test, config, progress=None):
    return {"seen": config.by * len(train.x) + len(test.x)}
"""


def test_a_mixer_is_chosen_by_its_file_and_the_keys_of_that_are_its_options(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ownmixers").mkdir()
    (tmp_path / "ownmixers" / "roll.py").write_text(MIXER)
    (tmp_path / "roll.yaml").write_text("kind: ownmixers.roll\nby: 1\n")
    path = str(tmp_path / "roll.yaml")
    config = train(f"model.mixer={path}", "model.mixer.by=2", "model.positions=none")
    assert (config.model.mixer.name, config.model.mixer.by) == ("roll", 2)
    assert "did you mean 'by'?" in problem(f"model.mixer={path}", "model.mixer.bye=2")
    model = build_model("vit_nano", image_size=8, patch_size=4, num_classes=3, mixer={"name": path, "by": 2})
    assert [block.mixer.by for block in model.encoder.blocks] == [2] * len(model.encoder.blocks)
    assert model(torch.randn(2, 3, 8, 8)).shape == (2, 3)


def test_a_task_is_chosen_by_its_file_and_a_probe_by_the_name_of_its_file(tmp_path, monkeypatch):
    shutil.copytree(groups.config_dir(), tmp_path / "configs")
    monkeypatch.setattr(groups, "config_dir", lambda: tmp_path / "configs")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ownlab").mkdir()
    for name, text, group in (("weighted", TASK, ""), ("seen", PROBE, "configs/probe")):
        (tmp_path / "ownlab" / f"{name}.py").write_text(text)
        (tmp_path / group / f"{name}.yaml").write_text(f"kind: ownlab.{name}\nby: 1\n")
    config = train(f"task={tmp_path}/weighted.yaml", "task.by=3", "data=digits", "probes=[seen]")
    parts = {"recipe": config.recipe, "data": (data := open_data(config.data)), "data_config": config.data}
    own, shipped = tasks.build(config.task, **parts), tasks.build(train("data=digits").task, **parts)
    model, batch = build_model("vit_nano", **own.shape).eval(), [torch.zeros(2, 1, 16, 16), torch.zeros(2).long()]
    assert torch.equal(own.loss(model, batch), 3 * shipped.loss(model, batch))
    assert own.metric.key == "accuracy"
    assert measure(model, own, config.probes, range(5)) == {"seen": 5 + len(data.test)}
