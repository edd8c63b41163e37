"""Parts of one's own, as docs/extending.md and README.md show: a mixer and an augmentation."""

import sys

import torch

from tests.configurations import problem, train
from vitlab import build_model
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
AUGMENTATION = """
from dataclasses import dataclass
ORDER = 20
@dataclass(frozen=True)
class Config:
    darker: int = 0
def apply(images, config, recipe, generator):
    return images - config.darker if config.darker else images
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
