"""What is part of a run's identity."""

import re

import pytest

from tests.configurations import leaves, problem, roundtrip, train
from vitlab.config import identity, resolved
from vitlab.config.identity import get_value

CONTENTS = "57d18f90"  # the SHA-256 of some data
LOOKED_AT = ("analyses", "probes", "trainer.evaluations", "trainer.analyze_every", "trainer.log_every")
ELSEWHERE = (
    *("study", "variant", "data.cache", "data.sizes", "trainer.checkpoint_every", "trainer.workers"),
    *("recipe.tuned_on", "task.metric"),
    *(f"model.published_{size}" for size in ("image_size", "channels", "num_classes")),
)
SAME_NUMBERS = ("trainer.checkpoint_activations",)


def identify(*overrides, contents=CONTENTS):
    return identity(resolved(train(*overrides)), contents)


def test_a_resolved_configuration_has_every_key_and_comes_back_with_the_same_identity():
    words = ["model.mixer={name: attention, qkv_bias: false}", "budget.epochs=0.5", "train_size=0.25", "seed=0"]
    config = train(*words)
    plain = resolved(config)
    assert plain["model"]["mixer"] == {"name": "attention", "kind": "attention", "qkv_bias": False, "qk_norm": False}
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


DEFAULTS = train()


OTHER_VALUES = """
model.published_image_size=7 model.published_channels=7 model.published_num_classes=7
variant=x subset_seed=7 recipe.patience=3 recipe.keep=best
model.name=x data.name=x recipe.name=x task.name=x model.mixer.name=x model.family=x study=x wandb.project=x
model.patch_size=3 trainer.threads=3 trainer.workers=3 model.positions=none model.pool=token
model.head_width=8 model.mlp_width=8 model.mlp=relu model.stem=[1] model.class_token=true init.weights=timm:x
init.head=new model.norm=rmsnorm model.layer_scale=0.1 wandb.mode=off trainer.analyze_every=7 train_size=7
recipe.lr_batch=7 recipe.timescale=7 data.cache=never recipe.optimizer=sgd recipe.schedule=cosine model.heads=2
model.width=32 data.image_size=36 trainer.accelerator=cpu trainer.precision=32-true trainer.memory_format=contiguous
analyses=[] init.encoder=runs/other probes=[knn] data.sizes=[3] recipe.betas=[0.5,0.5] data.scale=[0.5,0.5]
recipe.layer_decay=0.5 recipe.ema=0.5 recipe.freeze=body recipe.milestones=[0.5] data.augment.crop_scale=[0.5,1]
data.augment.crop_aspect=[1,1] recipe.average=5 recipe.tuned_on=[digits]
data.holdout=7 task.metric=macro_f1 recipe.class_weights=balanced
"""  # of keys whose other values do not follow from the default


def other_value(key, value):
    if given := re.search(rf"^{re.escape(key)}=(\S+)", OTHER_VALUES.replace(" ", "\n"), re.MULTILINE):
        return given[1]
    if "budget." in key:
        return 7
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, list):
        return [value[0] / 2 + 0.01]
    assert isinstance(value, (int, float)), f"say above what else {key} may be"
    return value + 1 if isinstance(value, int) else value / 2 + 0.01


@pytest.mark.parametrize("key", [key for key, _ in leaves(resolved(DEFAULTS))])
def test_a_key_is_part_of_the_identity_unless_the_final_weights_do_not_depend_on_it(key):
    slot, _, last = key.rpartition(".")
    choice = get_value(vars(DEFAULTS), slot) if slot in ("model", "data", "task", "recipe") else None
    if last == "kind" or (choice and type(choice).__dataclass_fields__[last].metadata.get("fixed")):
        assert "is fixed by the choice" in problem(f"{key}=other")
        return
    value = dict(leaves(resolved(DEFAULTS)))[key]
    beside = {  # what else a key needs, and another choice of it with the same
        "recipe.cooldown": ["recipe.schedule=constant"],
        "recipe.freeze": ["recipe.optimizer=adamw"],
        "recipe.timescale": ["recipe.schedule=rsqrt"],
        "recipe.milestones": ["recipe.schedule=multistep", "recipe.milestones=[0.4]"],
    }.get(key, [])
    same = key in (*LOOKED_AT, *ELSEWHERE, *SAME_NUMBERS) or key.startswith(("wandb.", "recipe.budget."))
    beside += ["budget.steps=1000"] if key.startswith("recipe.budget.") else []
    assert (identify(*beside, f"{key}={other_value(key, value)}") == identify(*beside)) == same


def test_of_devices_nodes_and_accumulate_the_product_counts():
    two, four = "trainer.accumulate=2", "trainer.accumulate=4"
    assert identify("trainer.devices=2") == identify("trainer.nodes=2") == identify(two) != identify()
    assert identify("trainer.devices=2", two) == identify(four) != identify(two)


def test_a_run_from_before_data_bits_is_the_same_run():
    old = resolved(train("data=imagefolder", "data.root=photos"))
    assert old["data"].pop("bits") == 16
    assert identity(old, CONTENTS) == identify("data=imagefolder", "data.root=photos")
    assert identity(old, CONTENTS) != identify("data=imagefolder", "data.root=photos", "data.bits=12")
