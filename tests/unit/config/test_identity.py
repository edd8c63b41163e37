"""What is part of a run's identity."""

import copy
import re

import pytest

from tests.configurations import leaves, roundtrip, train
from vitlab.config import identity, resolved
from vitlab.config.identity import get_value

CONTENTS = "57d18f90"  # the SHA-256 of some data
LOOKED_AT = ("analyses", "probes", "eval_on", "trainer.evaluations", "trainer.analyze_every", "trainer.log_every")
ELSEWHERE = (
    *("study", "variant", "trial", "data.cache", "data.sizes", "trainer.checkpoint_every", "trainer.workers"),
    *("recipe.tuned_on", "task.metric", "model.size"),  # whose depth and width are keys of their own
    *(f"model.published_{size}" for size in ("image_size", "channels", "num_classes")),
)
SAME_NUMBERS = ("trainer.checkpoint_activations",)
# by the choice, no user sets them
FIXED = ("task.data", "task.model", "task.analyses", "task.of", "data.task", "model.init", "model.mixer.attends")


def identify(*overrides, contents=CONTENTS):
    return identity(resolved(train(*overrides)), contents)


def test_a_resolved_configuration_has_every_key_and_comes_back_with_the_same_identity():
    words = ["model.mixer={name: attention, qkv_bias: false}", "budget.epochs=0.5", "train_size=0.25", "seed=0"]
    config = train(*words)
    plain = resolved(config)
    mixer = {"name": "attention", "kind": "attention", "attends": True, "qkv_bias": False, "qk_norm": False}
    assert plain["model"]["mixer"] == mixer
    assert plain["budget"] == {"steps": None, "epochs": 0.5, "examples": None, "flops": None}
    again = roundtrip(config)
    assert resolved(again) == plain
    assert type(again.model) is type(config.model)
    assert re.fullmatch(r"[0-9a-f]{16}", identify(*words))
    assert identity(resolved(again), CONTENTS) == identify(*words)


@pytest.mark.parametrize(
    ("data", "one", "other"),
    [
        ("imagefolder", "data.root=photos", "data.root=/mnt/photos"),
        ("csv", "data.path=a.csv", "data.path=/mnt/a.csv"),
        ("parallel", "data.source=a data.target=b", "data.source=c data.target=d"),
        ("textfile", "data.path=a.txt data.test_path=b.txt", "data.path=x.txt data.test_path=y.txt"),
    ],
)
def test_the_contents_of_the_data_stand_for_their_path(data, one, other):
    one, other = [f"data={data}", *one.split()], [f"data={data}", *other.split()]
    assert identify(*one) == identify(*other)
    assert identify(*one) != identify(*one, contents="other")


def test_the_path_of_data_of_an_own_module_counts_for_their_contents_are_their_labels_alone(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("kind: my.module\nroot: ???\n")
    assert identify(f"data={path}", "data.root=a") != identify(f"data={path}", "data.root=b")


def test_a_budget_that_the_recipe_proposes_does_not_count_where_the_run_has_its_own():
    words = ["recipe=deit", "budget.steps=7"]
    assert identify(*words, "recipe.budget.epochs=9") == identify(*words)


def other_value(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value, 7]
    return value + 1 if isinstance(value, (int, float)) else "other" if isinstance(value, str) else 7


def test_a_key_is_part_of_the_identity_unless_the_final_weights_do_not_depend_on_it():
    plain, without = resolved(train("train_size=500")), set()
    keys = [(key, value) for key, value in leaves(plain) if not key.endswith("kind") and key not in FIXED]
    for key, value in keys:
        changed, (slot, _, last) = copy.deepcopy(plain), key.rpartition(".")
        (get_value(changed, slot) if slot else changed)[last] = other_value(value)
        if identity(changed, CONTENTS) == identity(plain, CONTENTS):
            without.add(key)
    beside = {key for key, _ in keys if key.startswith(("wandb.", "recipe.budget."))}
    assert without == {*LOOKED_AT, *ELSEWHERE, *SAME_NUMBERS} | beside
    assert identify("subset_seed=3") == identify() != identify("subset_seed=3", "data.label_noise=.1")


def test_of_devices_nodes_and_accumulate_the_product_counts():
    two, four = "trainer.accumulate=2", "trainer.accumulate=4"
    assert identify("trainer.devices=2") == identify("trainer.nodes=2") == identify(two) != identify()
    assert identify("trainer.devices=2", two) == identify(four) != identify(two)
