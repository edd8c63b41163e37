"""Configurations: what is accepted, what is refused and how it is said."""

import dataclasses
import os
import re

import pytest
import yaml
from omegaconf import OmegaConf

from tests.configurations import composed, problem, problems, roundtrip, train
from vitlab.config import (
    DescribeConfig,
    TrainConfig,
    UserError,
    compose,
    first_line,
    groups,
    load,
    names,
    read_yaml,
    resolved,
)
from vitlab.config.groups import load_node
from vitlab.config.schema import BudgetConfig
from vitlab.studies.grid import compose_study, expand, name_models

SHIPPED = sorted(groups.config_dir().glob("*/*.yaml"))


# ---- what is shipped


@pytest.mark.parametrize(
    "path", [p for p in SHIPPED if p.parent.name != "study"], ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_every_shipped_choice_resolves_with_its_name_and_types(path):
    group, choice = path.parent.name, path.stem
    node = load_node(group, choice)
    assert node.name == choice
    with pytest.raises(UserError, match="no_such_key"):
        load(group, {"name": choice, "no_such_key": 1})
    written = yaml.safe_load(path.read_text())
    again = OmegaConf.to_container(node)
    for key, value in written.items():  # nothing of the file is dropped or changed on the way
        if isinstance(value, dict):
            assert {k: again[key][k] for k in value} == value
        else:
            assert again[key] == value, key


@pytest.mark.parametrize("study", names("study"))
def test_every_shipped_study_composes_for_all_of_its_models(study):
    try:
        config = compose_study(study, [])
    except UserError as error:  # it leaves keys to the user, such as data.root
        missing = [re.match(r"(\S+) is missing", line)[1] for line in error.problems]
        config = compose_study(study, [f"{key}=x" for key in missing])
    specs = expand(config, [100])
    assert {spec.config["model"]["name"] for spec in specs} == {
        load("model", settings["model"]).name for settings in name_models(resolved(config)["models"]).values()
    }
    assert len({spec.name for spec in specs}) == len(specs)


@pytest.mark.parametrize("model", names("model"))
def test_every_shipped_model_goes_with_its_own_recipe(model):
    data, words = "pydoc" if load("model", model).modality == "text" else "glyphs", []
    if load("model", model).kind == "captioner":
        assert "is not for task=classification" in "\n".join(problems(f"model={model}", f"data={data}", *words))
        words += ["task=captioning", "data.image_size=24"]
    elif load("model", model).modality == "image":
        words.append(
            f"data.image_size={({14: 28, 16: 32, 32: 64}).get(getattr(load('model', model), 'patch_size', None), 24)}"
        )
    config = train(f"model={model}", f"data={data}", *words)
    assert config.recipe.name == load("model", model).recipe
    assert config.recipe.name in names("recipe")


# ---- groups and fields


def test_the_order_of_overrides_does_not_matter_groups_come_first():
    words = ["model.depth=3", "recipe.lr=0.5", "model=vit_s16", "data.image_size=32", "recipe=resnet", "data=digits"]
    forward, backward = train(*words), train(*reversed(words))
    assert resolved(forward) == resolved(backward)
    assert (forward.model.name, forward.model.depth, forward.model.width) == ("vit_s16", 3, 384)
    assert (forward.recipe.name, forward.recipe.lr, forward.recipe.optimizer) == ("resnet", 0.5, "sgd")
    assert (forward.data.name, forward.data.image_size) == ("digits", 32)


def test_a_configuration_cannot_be_changed_and_shares_no_list_with_the_next_one():
    words = ["data=glyphs", "model=vit_nano"]
    first = train(*words)
    before = resolved(first)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.trainer.threads = 7
    first.data.mean[0] = load("data", "glyphs").mean[0] = 7.0
    assert resolved(train(*words)) == before


def test_the_last_of_two_values_counts():
    assert train("model.depth=3", "model.depth=2").model.depth == 2
    assert train("model=resnet_nano", "model=vit_nano").model.name == "vit_nano"


def test_a_choice_as_a_mapping_changes_the_named_choice():
    config = train("data={name: digits, image_size: 20, augment: {shift: 2}}")
    assert (config.data.kind, config.data.image_size, config.data.test_share) == ("digits", 20, 0.2)
    assert (config.data.augment.shift, config.data.augment.flip) == (2, False)


def test_any_model_of_timm_goes_by_its_name():
    config = train("model=timm:vit_tiny_patch16_224", "model.options={img_size: 24, patch_size: 6}")
    assert (config.model.kind, config.model.timm_name) == ("timm", "vit_tiny_patch16_224")
    assert config.model.options == {"img_size": 24, "patch_size": 6}
    assert train("model=timm:x", "model.options.deep=[1,2]").model.options == {"deep": [1, 2]}


def test_auto_patches_follow_the_image():
    for size, patch in ((24, 6), (32, 8), (28, 7), (224, 56), (7, 1), ([24, 32], [6, 8]), ([12, 20], [3, 5])):
        config = train("model.patch_size=auto", f"data.image_size={size}")
        assert config.model.patch_size == patch, size
    assert compose(DescribeConfig, ["image_size=40", "model=vit_nano"]).model.patch_size == 10
    assert train("data.image_size=[24,35]", "model.patch_size=[6,7]").model.patch_size == [6, 7]
    with pytest.raises(UserError, match=r"along 37 pixels; give data.image_size=36, or model.patch"):
        train("model.patch_size=auto", "data.image_size=[24,37]")


def test_words_that_yaml_takes_for_booleans_and_nulls_stay_words_where_words_belong():
    assert train("wandb.mode=off").wandb.mode == "off"
    assert train(wandb={"mode": False}).wandb.mode == "off"
    assert train("model.positions=none").model.positions == "none"
    assert train("recipe.clip_norm=null").recipe.clip_norm is None
    assert train("data.augment.flip=off").data.augment.flip is False


def test_numbers_are_read_as_people_write_them():
    config = train("recipe.lr=1e-3", "recipe.warmup=1e-2", "budget.flops=1e12", "seed=1_000")
    assert (config.recipe.lr, config.recipe.warmup, config.budget.flops, config.seed) == (1e-3, 1e-2, 1e12, 1000)


# ---- budgets


@pytest.mark.parametrize("unit", ["steps", "epochs", "examples", "flops"])
def test_a_unit_that_is_named_replaces_the_default_one(unit, tmp_path):
    wanted = BudgetConfig(**{unit: 7})
    assert train(f"budget.{unit}=7").budget == wanted
    assert train(f"budget={{{unit}: 7}}").budget == wanted
    assert train(budget={unit: 7}).budget == wanted
    assert compose_study("quick", [f"budget.{unit}=7"]).budget == wanted
    (tmp_path / "mine.yaml").write_text(f"models: [vit_nano]\nbudget:\n  {unit}: 7\n")
    assert compose_study(str(tmp_path / "mine.yaml"), []).budget == wanted


# ---- a user's own file


def test_a_users_file_is_a_choice_like_any_other(tmp_path):
    path = tmp_path / "slim.yaml"
    path.write_text("kind: vit\ndepth: 2\nwidth: 12\nheads: 3\npatch_size: auto\nrecipe: vit_nano\ndropout: 1e-1\n")
    config = train(f"model={path}", "model.pool=mean")
    assert (config.model.name, config.model.depth, config.model.pool) == ("slim", 2, "mean")
    assert (config.model.dropout, config.recipe.name) == (0.1, "vit_nano")
    assert train(f"model={{name: {path}, depth: 5}}").model.depth == 5
    study = compose_study("quick", [f"models=[{path},vit_nano]", "seeds=[0]"])
    assert [spec.name for spec in expand(study, [7])] == ["slim-n7-s0", "vit_nano-n7-s0"]


def test_a_file_declares_the_options_of_its_own_kind_by_example(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("kind: my.module\nroot: ???\nlevels: [1, 2]\nshare: 0.5\nnote: null\nextra: {a: 1}\nnight: 1e-2\n")
    assert problem(f"data={path}") == "data.root is missing: give data.root=VALUE"
    config = train(f"data={path}", "data.root=x", "data.levels=[3]", "data.note=hi", "data.extra.b=2", "data.share=1")
    assert (config.data.levels, config.data.note, config.data.share) == ([3], "hi", 1.0)
    assert (config.data.extra, config.data.night) == ({"a": 1, "b": 2}, 0.01)
    wrong = problems(f"data={path}", "data.root=x", "data.levels=[a]", "data.share=half", "data.lvels=1")
    assert [line.partition("=")[0].partition(":")[0] for line in wrong] == ["data.levels", "data.share", "data.lvels"]
    assert "did you mean 'levels'" in wrong[2]


BROKEN = ["- a", "a: [", "a: 1\na: 2", "null: 3", "a b: 3", "class: 3", "a: &x [*x]", "a: ${b}", "name: {a: 1}"]


@pytest.mark.parametrize("text", [*BROKEN, b"\xff\xfe"], ids=repr)
def test_a_broken_file_is_the_users_mistake(text, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for line in problems(f"model={path}"):
        assert line.startswith("model")


@pytest.mark.parametrize(
    "text", ["", "- a", "a: [", "3: 4", "null: 3", "a: ${b}", "models: 3", "budget: {3: 4}", "data: {kind: x}"]
)
def test_a_broken_study_is_the_users_mistake(text, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert composed(lambda: compose_study(str(path), [])) is None


# ---- whatever is given


def test_a_study_that_cannot_be_read_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "long.yaml").write_text(f"seeds: [{'9' * 5000}]")
    for name, says in (("pipe", "not a regular file"), ("long", "cannot read the file: Exceeds")):
        with pytest.raises(UserError, match=says):
            compose_study(str(tmp_path / f"{name}.yaml"), [])
    with pytest.raises(UserError, match="is not a regular file"):
        read_yaml(tmp_path / "pipe.yaml")


def test_two_analyses_of_one_name_would_write_to_the_same_files(tmp_path):
    copy = tmp_path / "far.yaml"
    copy.write_text("name: cka\n" + (groups.config_dir() / "analysis/cka.yaml").read_text())
    with pytest.raises(UserError, match="is named 'cka' like cka; give it another name in its file"):
        compose(TrainConfig, [f"analyses=[cka,{copy}]"])


# Whatever is given: a configuration that comes back from its file as it was, or lines for the user.
ODD = """
a= | =b | a.b.c.d=1 | model | foo bar=3 | model.=1 | model..depth=1 | model=null | model=[] | model={} | model=/
model=timm: | model={kind: vit} | model={kind: null} | model={name: vit_nano, 3: 4} | model={name: vit_nano, "a.b": 4}
model={kind: vit, name: x, mixer: {kind: y}} | model={kind: mine, name: x, mixer: attention, recipe: adamw}
model.mixer.kind=os.path | model.mixer=null | model.mixer=[1] | model.mixer={qkv_bias: false} | model.mixer.qkv_bias.x=1
model=../model/vit_nano | model=/etc/passwd | ünïcode=1 | model=模型 | data.name=模型 | model=vit_nano\0
model.depth=99999999999999999999999999999999 | model.heads=0 | model.width=7 | model.depth=1:30 | model.depth=???
model.patch_size=0 | model.patch_size=[] | model.patch_size=[null,6] | model.depth=${ | model.depth=${oc.env:HOME}
data={name: digits, "": 3} | data={kind: foo, name: x, "a b": 3} | data={kind: foo, name: x, a: {1: 2}}
data={kind: foo, name: x, keys: 3, items: 4, get: 5, self: 6} | data.image_size=[null,24] | data.image_size={a: 1}
data.mean=[null] | data.sizes=[{a: 1},{a: 1}] | data.augment=null | recipe={kind: adamw, name: x} | recipe.betas=[a,b]
train_size=99999999999999999999 | seed=true | seed=a: b: c | seed=[1 | seed=!!python/object/apply:os.getcwd [] | seed=*x
data.name=!!binary aGk= | budget={steps: 3, epochs: 4} | budget={3: 4} | budget.steps.x=3 | trainer={threadss: 1}
analyses=attention_distance | analyses=[{a: 1}] | model=timm:resnet18 model.options={a: {b: [1,nan]}}
model=timm:resnet18 model.options.b.c=1 | model=resnet_nano model.layers=[a] | model=resnet_nano model.mixer=attention
"""


@pytest.mark.parametrize(
    "words", [w.strip().replace("\\0", "\0") for line in ODD.strip().splitlines() for w in line.split(" | ")]
)
def test_odd_overrides_compose_and_come_back_or_are_the_users_mistake(words):
    words = words.split(" model.", 1)
    overrides = [words[0], *(f"model.{word}" for word in words[1:])]
    config = composed(lambda: compose(TrainConfig, overrides))
    assert config is None or resolved(roundtrip(config)) == resolved(config)


ODD_STUDIES = """
models=vit_nano | models=[] | models=[null] | models=[[a]] | models=[{name: vit_nano}] | sizes=[nan] | sizes=[{a: 1}]
sizes=all | seeds=[a] | seeds=[99999999999999] | set=foo | set=['='] | set=[[a=1]] | set=[model.kind=x]
models={3: {a: 1}} | models={vit_nano: {model: vit_nano, model.depth: 2}}
recipe={name: resnet} | name=[1] | name=ä/ö | wandb={mode: false} | trainer={3: 4}
"""


@pytest.mark.parametrize("word", [w.strip() for line in ODD_STUDIES.strip().splitlines() for w in line.split(" | ")])
def test_odd_studies_compose_and_come_back_or_are_the_users_mistake(word):
    config = composed(lambda: compose_study("quick", [word]))
    if config is not None:
        assert resolved(roundtrip(config)) == resolved(config)


@pytest.mark.parametrize("quote", ["q" * 10**6, "q " * 10**6])
def test_a_long_quote_is_cut_in_its_middle(quote):
    """The key and the fix stay, wherever the line goes: terminal, JSON, log."""
    error = UserError(["short", f"data.path=x: '{quote}' is wrong; give another"])
    assert UserError(error.problems).problems == error.problems
    assert error.problems[0] == "short"
    assert len(error.problems[1]) <= 1000
    assert error.problems[1].startswith("data.path=x: 'q")
    assert error.problems[1].endswith("' is wrong; give another")
    assert len(first_line(ValueError(quote))) <= 1000
