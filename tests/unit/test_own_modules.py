"""Parts of one's own, as docs/extending.md and README.md show: a mixer, a probe, an augmentation."""

import sys

import pytest
import torch

from tests.configurations import problem, train
from vitlab import build_model
from vitlab.analysis import probes
from vitlab.config import load
from vitlab.data import augment

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
PROBE = """
def run(train, test, config, progress=None):
    return {"nearest_mean": float(len(train.labels) * config.factor)}
"""
AUGMENTATION = """
from dataclasses import dataclass
ORDER = 20
@dataclass(frozen=True)
class Config:
    darker: int = 0
def apply(images, config, recipe, generator):
    return images - config.darker if config.darker else images
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module `ownlab.NAME` and NAME.yaml, whose path it gives."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ownlab").mkdir()

    def make(name, code, options):
        (tmp_path / "ownlab" / f"{name}.py").write_text(code)
        (tmp_path / f"{name}.yaml").write_text(f"kind: ownlab.{name}\n{options}")
        return str(tmp_path / f"{name}.yaml")

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == "ownlab"]:
        del sys.modules[name]


def test_a_mixer_is_chosen_by_its_file_and_the_keys_of_that_are_its_options(write):
    path = write("roll", MIXER, "by: 1\n")
    config = train(f"model.mixer={path}", "model.mixer.by=2", "model.positions=none")
    assert (config.model.mixer.name, config.model.mixer.by) == ("roll", 2)
    assert "did you mean 'by'?" in problem(f"model.mixer={path}", "model.mixer.bye=2")
    model = build_model("vit_nano", image_size=8, patch_size=4, num_classes=3, mixer={"name": path, "by": 2})
    assert [block.mixer.by for block in model.encoder.blocks] == [2] * len(model.encoder.blocks)
    assert model(torch.randn(2, 3, 8, 8)).shape == (2, 3)


def test_a_probe_gives_its_columns(write):
    config = load("probe", {"name": write("means", PROBE, "factor: 0.5\n"), "factor": 2.0})
    features = probes.Features(torch.randn(7, 3), torch.arange(7) % 2)
    assert probes.run_of(config)(features, features, config) == {"nearest_mean": 14.0}


def test_an_augmentation_is_one_module_in_its_folder(tmp_path, monkeypatch):
    (tmp_path / "darker.py").write_text(AUGMENTATION)
    paths = [*augment.__path__, str(tmp_path)]
    monkeypatch.setattr(augment, "__path__", paths)
    monkeypatch.setattr(augment.__spec__, "submodule_search_locations", paths)
    monkeypatch.setitem(sys.modules, "vitlab.data.augment.darker", None)  # restored afterwards
    del sys.modules["vitlab.data.augment.darker"]
    found = augment.list_augmentations.__wrapped__()
    own = sys.modules["vitlab.data.augment.darker"]
    assert [one.__name__.rpartition(".")[2] for one in found] == ["geometry", "darker", "rand_augment"], "by ORDER"
    images = torch.full((2, 1, 3, 3), 9, dtype=torch.uint8)
    assert own.apply(images, own.Config(darker=2), None, None).unique().tolist() == [7]
    assert own.apply(images, own.Config(), None, None) is images
