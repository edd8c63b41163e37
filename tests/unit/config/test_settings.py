"""What a field of a settings dataclass declares is what identity, caches, exclusions and the list of keys say."""

import json
import sys

import pytest

from tests.configurations import problem, train
from vitlab.cli import main
from vitlab.config import identity, resolved
from vitlab.config.groups import find_class, list_keys, read_comments
from vitlab.config.schema import StudyConfig
from vitlab.studies.grid import compose_study

OWN = """
from dataclasses import dataclass
from vitlab.config.schema.fields import setting
from vitlab.config.schema.models import ModelConfig

@dataclass(frozen=True)
class Config(ModelConfig):
    depth: int = setting(2, least=1, most=9)  # layers
    colour: str = setting("red", affects="")
    note: str = "none"
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "slim.py").write_text(OWN)
    (tmp_path / "slim.yaml").write_text("kind: mine.slim\ndepth: 3\nfamily: own\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield str(tmp_path / "slim.yaml")
    for name in ("mine", "mine.slim"):
        sys.modules.pop(name, None)
    find_class.cache_clear()


def test_a_dataclass_of_an_own_module_has_its_ranges_and_keys_checked(own_module):
    assert train(f"model={own_module}").model.depth == 3
    assert problem(f"model={own_module}", "model.depth=-3") == "model.depth=-3: must be at least 1"
    assert problem(f"model={own_module}", "model.depth=10") == "model.depth=10: must be at most 9"
    assert "did you mean 'depth'" in problem(f"model={own_module}", "model.dpth=1")


def test_what_an_own_dataclass_says_has_no_effect_is_not_part_of_the_identity(own_module):
    def identify(*words):
        return identity(resolved(train(f"model={own_module}", *words)), "data")

    assert identify("model.colour=blue") == identify()
    assert len({identify(), identify("model.depth=4"), identify("model.note=x")}) == 3


def test_an_own_module_that_cannot_be_imported_is_typed_by_its_file(own_module, tmp_path):
    (tmp_path / "mine" / "slim.py").write_text("import no_such_library\n")
    assert train(f"model={own_module}", "model.depth=4").model.depth == 4


def test_dotted_keys_of_a_study_file_are_those_of_the_command_line(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("models: [vit_nano]\ndata.image_size: 30\nbudget.steps: 7\ntrainer.threads: 1\n")
    study = compose_study(str(path), ["data=glyphs"])
    assert (study.data.image_size, study.budget.steps, study.trainer.threads) == (30, 7, 1)
    assert compose_study(str(path), ["budget.steps=9"]).budget.steps == 9


def test_the_list_of_keys_is_that_of_the_classes_with_their_comments(capsys):
    keys = {key.name: key for key in list_keys(StudyConfig)}
    assert keys["trainer.devices"].type == "whole number, from 1, to 1,024"
    assert keys["trainer.devices"].about.startswith("of a machine")
    assert keys["trainer.checkpoint_every"].type == "number, from 0"
    assert keys["trainer.checkpoint_every"].about == "seconds"
    assert read_comments("# above\na: 1  # beside\nb: 2\n") == {"a": "above beside"}
    assert main(["list", "mixers.keys", "--json"]) == 0
    kernel = {"kind": "depthwise", "name": "kernel", "type": "whole number, from 1, to 999", "default": "3"}
    assert {**kernel, "about": "an odd number"} in json.loads(capsys.readouterr().out)
    assert main(["list", "data.keys", "--json"]) == main(["list", "cifar10.keys", "--json"]) == 0
    of_kinds, of_cifar10 = map(json.loads, capsys.readouterr().out.replace("]\n[", "]\n\0[").split("\0"))
    shown = {(key["kind"], key["name"]): key["default"] for key in [*of_cifar10, *of_kinds]}
    assert shown["imagefolder", "augment.flip"] == "True", "a file's, not its dataclass's"
    assert {key["name"]: key["default"] for key in of_cifar10}["dataset"] == "CIFAR10"
