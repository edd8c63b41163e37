"""Configurations: what is accepted, what is refused and how it is said."""

import re
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from vitlab.config import (
    DescribeConfig,
    StudyConfig,
    TrainConfig,
    UserError,
    compose,
    groups,
    identity,
    load,
    names,
    parse_override,
    resolved,
)
from vitlab.config.compose import WITHOUT_EFFECT
from vitlab.studies.grid import compose_study, expand

SHIPPED = sorted(Path(groups.config_dir()).glob("*/*.yaml"))


def train(*overrides, **base):
    return compose(TrainConfig, overrides, base=base)


def problems(*overrides, schema=TrainConfig, **base):
    with pytest.raises(UserError) as caught:
        compose(schema, overrides, base=base)
    found = caught.value.problems
    assert found
    assert len(found) == len(set(found)), "a problem is said once"
    for line in found:
        assert "\n" not in line, "a problem is one line"
        assert "Traceback" not in line
    return found


def problem(*overrides, **kwargs):
    (line,) = problems(*overrides, **kwargs)
    return line


def roundtrip(config):
    """A configuration as it comes back from the file that a run leaves."""
    schema = TrainConfig if "seed" in config else StudyConfig if "seeds" in config else DescribeConfig
    return compose(schema, base=yaml.safe_load(yaml.safe_dump(resolved(config), sort_keys=False)))


# ---- what is shipped


def test_every_group_has_a_folder_and_no_folder_is_without_a_group():
    assert {path.parent.name for path in SHIPPED} == set(groups.GROUPS)


@pytest.mark.parametrize(
    "path", [p for p in SHIPPED if p.parent.name != "study"], ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_every_shipped_choice_resolves_with_its_name_and_types(path):
    group, choice = path.parent.name, path.stem
    node = load(group, choice)
    assert node.name == choice
    assert OmegaConf.get_type(node) is not dict, "an untyped choice would take any key"
    with pytest.raises(UserError, match="no_such_key"):
        load(group, {"name": choice, "no_such_key": 1})
    written = yaml.safe_load(path.read_text())
    again = OmegaConf.to_container(node)
    for key, value in written.items():  # nothing of the file is dropped or changed on the way
        if isinstance(value, dict):
            assert {k: again[key][k] for k in value} == value
        else:
            assert again[key] == value, key


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_shipped_file_begins_with_what_it_is(path):
    assert re.match(r"# \S.{10,}", path.read_text()), "vitlab list shows the first comment line"


@pytest.mark.parametrize("study", names("study"))
def test_every_shipped_study_composes_for_all_of_its_models(study):
    config = compose_study(study, [] if study == "quick" else required(study))
    specs = expand(config, [100])
    assert {spec.config["model"]["name"] for spec in specs} == {load("model", m).name for m in config.models}
    assert len({spec.identity for spec in specs}) == len(specs)


def required(study):
    """A value for each key that a study leaves to the user, such as data.root."""
    with pytest.raises(UserError) as caught:
        compose_study(study, ["no_such_key=1"])
    return [f"{m[1]}=x" for line in caught.value.problems if (m := re.match(r"(\S+) is missing", line))]


@pytest.mark.parametrize("model", names("model"))
@pytest.mark.parametrize("data", ["glyphs", "imagefolder"])
def test_every_shipped_model_goes_with_its_own_recipe(model, data):
    image = ["data.root=x"] if data == "imagefolder" else []
    size = {14: 28, 16: 32, 32: 64}.get(load("model", model).get("patch_size"), 24)
    config = train(f"model={model}", f"data={data}", f"data.image_size={size}", *image)
    assert config.recipe.name == load("model", model).recipe
    assert config.recipe.name in names("recipe")


@pytest.mark.parametrize("model", names("model"))
def test_every_shipped_model_with_mixers_takes_every_shipped_mixer(model):
    if "mixer" not in load("model", model):
        assert "no key 'mixer'" in problem(f"model={model}", "model.mixer=attention")
        return
    for mixer in names("mixer"):
        config = compose(DescribeConfig, [f"model={model}", f"model.mixer={mixer}"])
        assert config.model.mixer.name == mixer


# ---- groups and fields


def test_the_order_of_overrides_does_not_matter_groups_come_first():
    words = ["model.depth=3", "recipe.lr=0.5", "model=vit_s16", "data.image_size=32", "recipe=resnet", "data=digits"]
    forward, backward = train(*words), train(*reversed(words))
    assert resolved(forward) == resolved(backward)
    assert (forward.model.name, forward.model.depth, forward.model.width) == ("vit_s16", 3, 384)
    assert (forward.recipe.name, forward.recipe.lr, forward.recipe.optimizer) == ("resnet", 0.5, "sgd")
    assert (forward.data.name, forward.data.image_size) == ("digits", 32)


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
    assert train("model=timm:x", "model.options.deep=[1,2]").model.options.deep == [1, 2]


def test_auto_patches_follow_the_image():
    for size, patch in ((24, 6), (32, 8), (28, 7), (224, 56), (7, 1), ([24, 32], [6, 8]), ([12, 20], [3, 5])):
        config = train("model.patch_size=auto", f"data.image_size={size}")
        assert config.model.patch_size == patch, size
    assert compose(DescribeConfig, ["image_size=40", "model=vit_nano"]).model.patch_size == 10


def test_words_that_yaml_takes_for_booleans_and_nulls_stay_words_where_words_belong():
    assert train("wandb.mode=off").wandb.mode == "off"
    assert train(wandb={"mode": False}).wandb.mode == "off"
    assert train("model.positions=none").model.positions == "none"
    assert train("recipe.clip_norm=null").recipe.clip_norm is None
    assert train("data.augment.flip=off").data.augment.flip is False


def test_zero_is_a_seed():
    assert train("seed=0").seed == 0
    assert train(seed=0).seed == 0
    assert compose_study("quick", ["seeds=[0]"]).seeds == [0]


def test_numbers_are_read_as_people_write_them():
    config = train("recipe.lr=1e-3", "recipe.warmup=1e-2", "budget.flops=1e12", "seed=1_000")
    assert (config.recipe.lr, config.recipe.warmup, config.budget.flops, config.seed) == (1e-3, 1e-2, 1e12, 1000)


def test_a_space_around_the_equals_sign_is_no_obstacle():
    assert parse_override("recipe.lr = 0.25") == ("recipe.lr", 0.25)
    assert train("model =resnet_nano").model.name == "resnet_nano"


# ---- budgets


@pytest.mark.parametrize("unit", ["steps", "epochs", "examples", "flops"])
def test_a_unit_that_is_named_replaces_the_default_one(unit, tmp_path):
    wanted = {"steps": None, "epochs": None, "examples": None, "flops": None, unit: 7}
    assert train(f"budget.{unit}=7").budget == wanted
    assert train(f"budget={{{unit}: 7}}").budget == wanted
    assert train(budget={unit: 7}).budget == wanted
    assert compose_study("quick", [f"budget.{unit}=7"]).budget == wanted
    (tmp_path / "mine.yaml").write_text(f"models: [vit_nano]\nbudget:\n  {unit}: 7\n")
    assert compose_study(str(tmp_path / "mine.yaml"), []).budget == wanted


def test_two_units_or_none_are_refused():
    line = problem("budget.steps=3", "budget.epochs=2")
    assert "budget.steps=3 and budget.epochs=2.0: give exactly one" in line
    assert "budget.flops" in line
    assert problem("budget.steps=null").startswith("no budget: give exactly one of budget.steps")


def test_a_unit_that_is_refused_is_not_missing_as_well():
    assert "at least 1" in problem("budget.steps=0")
    assert "could not be converted" in problem("budget.steps=many")


# ---- what is refused


def test_all_problems_come_at_once_each_with_key_value_choices_and_the_nearest():
    model, data, rate = problems("model=vit_nanoo", "trainer.lrr=1", "data=glyps")
    assert "model=vit_nanoo: unknown model; did you mean 'vit_nano'? choices: bit_101x1" in model
    assert "data=glyps: unknown data; did you mean 'glyphs'? choices: cifar10" in data
    assert "trainer.lrr: no key 'lrr' in 'trainer'; did you mean 'recipe.lr'? choices: accelerator" in rate


def test_problems_of_a_study_and_of_its_models_come_at_once():
    with pytest.raises(UserError) as caught:
        compose_study("quick", ["models=[vit_nanoo,resnet_nano]", "sizes=[0]", "seeds=[1,1]", "recipe=resnt", "seed=1"])
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 5
    for part in (
        "models=vit_nanoo",
        "'vit_nano'",
        "sizes=0",
        "seeds=[1, 1]: '1' is given twice",
        "recipe=resnt",
        "seed:",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.depth=two", "model.depth=two: "),
        ("model.depth=1.5", "model.depth=1.5: "),
        ("model.depth=[1]", "model.depth=[1]: "),
        ("model.depth=", "model.depth=null: "),
        ("model.depth=0", "model.depth=0: must be at least 1"),
        ("model.width=1000000007", "must be at most"),
        ("model.dropout=1", "model.dropout=1.0: must be at most 0.99"),
        ("model.pool=cls", "expected one of ['token', 'mean', 'none']"),
        ("model.pool=none", "task=classification wants one an image; choices: token, mean"),
        ("model.positions=no", "expected one of ['learned', 'sincos1d', 'sincos2d', 'rotary', 'none']"),
        ("recipe.lr=0", "recipe.lr=0.0: must be above 0"),
        ("recipe.lr=nan", "recipe.lr=nan: must be a finite number"),
        ("recipe.lr=-inf", "recipe.lr=-inf: must be a finite number"),
        ("recipe.lr=1e400", "recipe.lr=inf: must be a finite number"),
        ("recipe.betas=[0.9]", "recipe.betas=[0.9]: give two"),
        ("recipe.betas=[0.9,1]", "recipe.betas=1.0: must be below 1"),
        ("recipe.betas=0.9", "expected a list, for example recipe.betas=[0.9]"),
        ("recipe.kind=adamw", "recipe.kind=adamw: comes with the choice; give recipe=NAME"),
        ("data.mean=[nan]", "data.mean=nan: must be a finite number"),
        ("data.mean=[[1]]", "expected a list of single values"),
        ("data.std=[0]", "data.std=0.0: must be above 0"),
        ("data.noise=inf", "data.noise=inf: must be a finite number"),
        ("data.sizes=[0.5,-1]", "data.sizes=-1: a size is a whole number"),
        ("data.sizes=[[1]]", "data.sizes=[1]: a size is a whole number"),
        ("data.sizes=[3,4,3]", "data.sizes=[3, 4, 3]: '3' is given twice"),
        ("data.image_size=[24]", "give one number or [height,width]"),
        ("data.image_size=[24,0]", "data.image_size=0: must be at least 1"),
        ("data.image_size=99999999999999999999", "must be at most 65536"),
        ("data.augment=3", "set one of its keys instead; choices: data.augment.flip"),
        ("data.augment={flop: 1}", "data.augment.flop: no key 'flop' in 'data.augment'; did you mean 'flip'?"),
        ("train_size=1.5", "train_size=1.5: a size is a whole number, a fraction between 0 and 1, or all"),
        ("train_size=nan", "train_size=nan: a size is"),
        ("train_size=-3", "train_size=-3: a size is"),
        ("seed=-1", "seed=-1: must be at least 0"),
        ("seed=2147483648", "must be at most 2147483647"),
        ("budget.epochs=inf", "budget.epochs=inf: must be a finite number"),
        ("trainer.workers=-1", "trainer.workers=-1: must be at least 0"),
        ("trainer.accelerator=tpu", "expected one of ['auto', 'cpu', 'gpu']"),
        ("trainer.compile=maybe", "trainer.compile=maybe: "),
        ("wandb.mode=on", "expected one of ['auto', 'offline', 'online', 'off']"),
        ("wandb=off", "set one of its keys instead"),
        ("analyses=[rollouts]", "analyses=rollouts: unknown analysis; choices: attention_distance"),
        ("probes=[fewshots]", "probes=fewshots: unknown probe; did you mean 'fewshot'? choices: fewshot, knn, linear"),
        ("model.mixer=attntion", "unknown mixer; did you mean 'attention'?"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(override, says):
    line = problem(override)
    assert says in line
    assert line.startswith(override.partition("=")[0])


def test_a_required_key_is_asked_for():
    assert problem("data=imagefolder") == "data.root is missing: give data.root=VALUE"
    assert problem("data=imagefolder", "data.root=").startswith("data.root=null:"), "said once, not also as missing"
    assert train("data=imagefolder", "data.root=photos").data.root == "photos"


def test_heads_that_do_not_divide_come_with_those_that_do():
    assert (
        problem("model.heads=5", "model.width=64")
        == "model.heads=5: does not divide model.width=64; nearest that do: 2, 4, 8; or give model.head_width"
    )


@pytest.mark.parametrize(
    ("image", "patch", "says"),
    [
        ("24", "5", "5 does not divide the image height of 24 pixels (data.image_size); nearest that do: 3, 4, 6"),
        (
            "[24,35]",
            "[6,6]",
            "6 does not divide the image width of 35 pixels (data.image_size); nearest that do: 1, 5, 7",
        ),
        ("[24,36]", "[5,6]", "5 does not divide the image height of 24"),
        ("[20,30]", "4", "4 does not divide the image width of 30 pixels (data.image_size); nearest that do: 1, 2, 5"),
    ],
)
def test_patches_that_do_not_divide_come_with_those_that_do(image, patch, says):
    assert says in problem(f"data.image_size={image}", f"model.patch_size={patch}")
    assert train("data.image_size=[24,35]", "model.patch_size=[6,7]").model.patch_size == [6, 7]


def test_both_sides_of_a_patch_are_checked():
    height, width = problems("data.image_size=[24,35]", "model.patch_size=[5,6]")
    assert "height" in height
    assert "width" in width


def test_nesterov_needs_momentum():
    assert "recipe.nesterov=True" in problem("recipe=resnet", "recipe.momentum=0")
    assert train("recipe=adamw", "recipe.momentum=0", "recipe.nesterov=true").recipe.nesterov  # AdamW has none


# Whatever is given: a configuration that comes back from its file as it was, or lines for the user.
ODD = """
a= | =b | = | a.b.c.d=1 | model | --foo | foo bar=3 | .=1 | model.=1 | .model=1 | model..depth=1
model=null | model= | model=[] | model={} | model=1 | model=true | model=. | model=.. | model=/ | model=.yaml | model=~
model=timm: | model={name: 3} | model={kind: vit} | model={kind: null} | model={kind: [1]} | model={kind: {a: 1}}
model={name: vit_nano, 3: 4} | model={name: vit_nano, true: 4} | model={name: vit_nano, "a.b": 4} | model={name: null}
model={kind: vit, name: x, mixer: null} | model={kind: vit, name: x, mixer: {kind: y}} | model={kind: a..b, name: x}
model={kind: mine, name: x, mixer: attention, recipe: adamw} | model={kind: mine, name: x, mixer: {name: attention}}
model.kind=resnet | model.kind=nope | model.recipe=resnet | model.mixer.kind=os.path | model.mixer.kind=foo
model.mixer=null | model.mixer=[1] | model.mixer={qkv_bias: false} | model.mixer={name: attention, qkv_bias: false}
model.mixer={kind: foo, name: bar, x: 1} | model.mixer.qkv_bias.x=1 | model=resnet_nano model.mixer=attention
model=../model/vit_nano | data=../data/digits | model=/etc/passwd | model=configs/model/vit_nano.yaml | model= /
model=vit_nänö | ünïcode=1 | model.ünï=1 | 模型=1 | model=模型 | data.name=模型 | study=💥 | model=vit_nano\0
model.depth=99999999999999999999999999999999 | model.heads=99999999999999999999 | model.patch_size=99999999999999999999
model.width=0 | model.heads=0 | model.heads=-2 | model.width=7 | model.mlp_width=0 | model.depth=1:30 | model.depth=0x3
model.patch_size=0 | model.patch_size=[] | model.patch_size=[6] | model.patch_size=[6,6,6] | model.patch_size=[0,6]
model.patch_size=nope | model.patch_size=[auto,auto] | model.patch_size=null | model.patch_size=[null,6]
model.depth=??? | model.heads=??? | data.image_size=??? | train_size=??? | recipe=??? | model=??? | model.mixer=???
model.depth=${model.width} | model.depth=${ | model.depth=${oc.env:HOME} | model=${data} | recipe.lr=${oc.env:NO_SUCH}
data=null | data=[1] | data={kind: digits} | data={name: digits, "": 3} | data={name: digits, image_size: [1,2,3]}
data={kind: foo, name: x, class: 3} | data={kind: foo, name: x, "a b": 3} | data={kind: foo, name: x, 5: 2}
data={kind: foo, name: x, a: [[1],[2]]} | data={kind: foo, name: x, a: {b: [1]}} | data={kind: foo, name: x, a: {1: 2}}
data={kind: foo, name: x, a: null, b: [], c: {}} | data={kind: foo, name: x, keys: 3, items: 4, get: 5, self: 6}
data.image_size=null | data.image_size=[null,24] | data.image_size={a: 1} | data.image_size=true | data.image_size=1.5
data.mean=null | data.mean={a: 1} | data.mean=[null] | data.sizes=[] | data.sizes=3 | data.sizes=[{a: 1},{a: 1}]
data.sizes=[null] | data.sizes=[nan] | data.name= | data.name=[1] | data.augment=null | data.augment.flip.x=1
recipe=[] | recipe={} | recipe={lr: 1} | recipe={kind: recipe, lr: 1} | recipe={kind: adamw, name: x} | recipe.betas=[]
recipe={name: adamw, lr: 1} | recipe.warmup=nan | recipe.warmup=-1 | recipe.clip_norm=0 | recipe.betas=[a,b]
task=null | task.foo=1 | task={kind: foo, name: x} | train_size=null | train_size=[1] | train_size=true | train_size=
train_size=99999999999999999999 | seed=null | seed=[0] | seed=true | seed=1.5 | seed=a: b: c | seed=[1 | seed={a
seed=" | seed=!!python/object/apply:os.getcwd [] | seed=&a [*a] | seed=*x | seed=% | seed=@ | seed=` | seed=2001-01-01
data.name=!!binary aGk= | data.name=!!set {a} | study=3 | study=null | budget=3 | budget=null | budget=[] | budget={}
budget={steps: 3, epochs: 4} | budget={foo: 3} | budget={3: 4} | budget.foo=3 | budget.steps.x=3 | budgett.steps=3
trainer=null | trainer={threads: 1} | trainer={threadss: 1} | trainer.threads=x | wandb.entity=3 | wandb.project=
probes=null | probes=knn | probes=[[1]] | probes=[{a: 1}]
analyses=[] | analyses=null | analyses=attention_distance | analyses=[[1]] | analyses=[null] | analyses=[{a: 1}]
model=timm:resnet18 model.options=1 | model=timm:resnet18 model.options=null | model=timm:resnet18 model.options={1: 2}
model=timm:resnet18 model.options={a: {b: [1,nan]}} | model=timm:resnet18 model.options.b.c=1
model=resnet_nano model.layers=3 | model=resnet_nano model.layers=[] | model=resnet_nano model.layers=[a]
"""


@pytest.mark.parametrize(
    "words", [w.strip().replace("\\0", "\0") for line in ODD.strip().splitlines() for w in line.split(" | ")]
)
def test_odd_overrides_compose_and_come_back_or_are_the_users_mistake(words):
    words = words.split(" model.", 1)
    overrides = [words[0], *(f"model.{word}" for word in words[1:])]
    config = composed(lambda: compose(TrainConfig, overrides))
    assert config is None or identity(roundtrip(config)) == identity(config)


def composed(compose_it):
    """What it gives, or None where it raised a well-formed UserError."""
    try:
        return compose_it()
    except UserError as error:
        found = error.problems
    assert found
    assert all(line and "\n" not in line for line in found)
    return None


ODD_STUDIES = """
models=vit_nano | models=[] | models=[nope] | models=[vit_nano,vit_nano] | models=[3] | models=[null] | models=[[a]]
models=[{name: vit_nano}] | models=[timm:resnet18] | models=null | models=[vit_b16] | models={a: 1}
sizes=5 | sizes=[] | sizes=null | sizes=[0] | sizes=[nan] | sizes=[null] | sizes=[[5]] | sizes=[{a: 1}] | sizes=[true]
sizes=[0.5,0.5] | sizes=[all] | sizes=all | seeds=0 | seeds=[] | seeds=[a] | seeds=[[1]] | seeds=[99999999999999]
seeds=null | set=foo | set=[foo] | set=[1] | set=['='] | set=[null] | set=[[a=1]] | set=[a=b]
set=[data=digits] | set=[model=x] | set=[recipe=resnet] | set=[trainer.threads=1]
set=[model.kind=x] | per_model=null | per_model=3 | per_model={3: [a]}
per_model={vit_nano: a} | per_model={vit_nano: null} | per_model={vit_nano: [1]} | per_model.vit_nano=[model.depth=2]
per_model.nope=[a=1] | per_model.vit_nano.x=1 | recipe={name: resnet} | recipe.lr=1 | recipe=null | data=null
task=null | name=null | name= | name=[1] | name=ä/ö | budget=null | wandb={mode: false}
trainer={3: 4} | data={kind: x, name: y}
"""


@pytest.mark.parametrize("word", [w.strip() for line in ODD_STUDIES.strip().splitlines() for w in line.split(" | ")])
def test_odd_studies_compose_and_come_back_or_are_the_users_mistake(word):
    config = composed(lambda: compose_study("quick", [word]))
    if config is not None:
        assert resolved(roundtrip(config)) == resolved(config)


# ---- a user's own file


def test_a_users_file_is_a_choice_like_any_other(tmp_path):
    path = tmp_path / "slim.yaml"
    path.write_text("kind: vit\ndepth: 2\nwidth: 12\nheads: 3\npatch_size: auto\nrecipe: vit_nano\ndropout: 1e-1\n")
    config = train(f"model={path}", "model.pool=mean")
    assert (config.model.name, config.model.depth, config.model.pool) == ("slim", 2, "mean")
    assert (config.model.dropout, config.recipe.name) == (0.1, "vit_nano")
    assert train(f"model={{name: {path}, depth: 5}}").model.depth == 5
    study = compose_study("quick", [f"models=[{path},vit_nano]"])
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


@pytest.mark.parametrize("group", ["model", "data", "recipe", "task", "model.mixer"])
def test_a_misspelt_key_in_a_users_file_names_file_key_and_nearest(group, tmp_path):
    kind, key, near = {
        "model": ("vit", "depht", "depth"),
        "data": ("glyphs", "rotatoin", "rotation"),
        "recipe": ("recipe", "wieght_decay", "weight_decay"),
        "task": ("classification", "knd", "kind"),
        "model.mixer": ("attention", "qkv_bais", "qkv_bias"),
    }[group]
    path = tmp_path / "mine.yaml"
    path.write_text(f"kind: {kind}\n{key}: 1\n")
    patch = ["model.patch_size=auto"] if group == "model" else []
    assert f"{group}=mine: {key}: no key '{key}'; did you mean '{near}'?" in problem(f"{group}={path}", *patch)


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "3",
        "a: [",
        "\ta: 1",
        "a: 1\na: 2",
        "? [a]\n: b",
        "null: 3",
        "3: 4",
        "a b: 3",
        "class: 3",
        "a: &x [*x]",
        "a: !!set {b}",
        "a: ${b}",
        "a: {1: 2}",
        "name: {a: 1}",
        "name: null",
        b"\xff\xfe\x00",
    ],
    ids=repr,
)
@pytest.mark.parametrize("group", ["model", "recipe"])
def test_a_broken_file_is_the_users_mistake(group, text, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for line in problems(f"{group}={path}"):
        assert line.startswith(f"{group}")


@pytest.mark.parametrize(
    "text", ["- a", "a: [", "3: 4", "null: 3", "a: ${b}", "models: 3", "budget: {3: 4}", "data: {kind: x}"]
)
def test_a_broken_study_is_the_users_mistake(text, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert composed(lambda: compose_study(str(path), [])) is None


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert problem("model=nowhere.yaml") == "model=nowhere.yaml: no such file"
    (tmp_path / "folder.yaml").mkdir()
    assert "no such file" in problem(f"model={tmp_path / 'folder.yaml'}")
    with pytest.raises(UserError, match=r"study=qick: unknown study; did you mean 'quick'\?"):
        compose_study("qick", [])


# ---- identity


def test_a_resolved_configuration_has_every_key_and_comes_back_with_the_same_identity():
    config = train("model.mixer={name: attention, qkv_bias: false}", "budget.epochs=0.5", "train_size=0.25", "seed=0")
    plain = resolved(config)
    assert OmegaConf.to_container(config) == plain, "nothing is left to resolve"
    assert plain["model"]["mixer"] == {"name": "attention", "kind": "attention", "qkv_bias": False, "qk_norm": False}
    assert plain["budget"] == {"steps": None, "epochs": 0.5, "examples": None, "flops": None}
    again = roundtrip(config)
    assert resolved(again) == plain
    assert OmegaConf.get_type(again.model) is OmegaConf.get_type(config.model)
    assert re.fullmatch(r"[0-9a-f]{16}", identity(config))
    assert identity(again) == identity(config)


def test_what_a_run_does_not_compute_with_is_no_part_of_its_identity():
    same = identity(train())
    for override in (
        "wandb.mode=off",
        "wandb.project=x",
        "wandb.entity=y",
        "study=z",
        "data.sizes=[7]",
        "data.cache=never",
    ):
        assert identity(train(override)) == same, override
    assert identity(train("recipe=deit", "recipe.budget.epochs=9", "budget.steps=7")) == identity(
        train("recipe=deit", "budget.steps=7")
    )
    assert identity(train("data=imagefolder", "data.root=a")) != identity(train("data=imagefolder", "data.root=b"))


DEFAULTS = train()


def leaves(node, path=""):
    for key, value in node.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def changed(key, value):
    words = {"model.name": "x", "data.name": "x", "recipe.name": "x", "task.name": "x", "model.mixer.name": "x"}
    words |= {"model.family": "x", "model.patch_size": 3, "model.positions": "none", "model.pool": "token"}
    words |= {"model.head_width": 8, "model.mlp": "relu", "model.stem": "[1]", "model.class_token": "true"}
    words |= {"init.weights": "timm:x", "init.head": "new", "model.norm": "rmsnorm", "model.layer_scale": 0.1}
    words |= {"model.mlp_width": 8, "data.cache": "never", "recipe.optimizer": "sgd", "recipe.schedule": "linear"}
    words |= {
        "model.heads": 2,
        "model.width": 32,
        "data.image_size": 36,
        "trainer.accelerator": "cpu",
        "trainer.precision": "32-true",
    }
    words |= {"trainer.memory_format": "contiguous", "trainer.threads": 3, "trainer.workers": 3, "train_size": 7}
    words |= {
        "analyses": "[]",
        "probes": "[knn]",
        "data.sizes": "[3]",
        "recipe.betas": "[0.5,0.5]",
        "data.scale": "[0.5,0.5]",
    }
    words |= {"recipe.lr_batch": 7, "recipe.layer_decay": 0.5, "recipe.ema": 0.5, "recipe.timescale": 7}
    words |= {"recipe.milestones": "[0.5]", "data.augment.crop_scale": "[0.5,1]", "data.augment.crop_aspect": "[1,1]"}
    if key in words:
        return words[key]
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, list):
        return [value[0] / 2 + 0.01]
    assert isinstance(value, (int, float)), f"say above what else {key} may be"
    return value + 1 if isinstance(value, int) else value / 2 + 0.01


@pytest.mark.parametrize("key", [key for key, _ in leaves(resolved(DEFAULTS))])
def test_anything_else_is(key):
    if key.startswith(tuple(f"{k}." for k in WITHOUT_EFFECT)) or key in WITHOUT_EFFECT:
        assert key.partition(".")[0] in ("wandb", "study", "data", "trainer") or key.startswith("recipe.budget.")
        return
    if key.startswith("budget."):
        assert identity(train(f"{key}=7")) != identity(DEFAULTS)
        return
    if key.endswith(".kind") or key == "model.recipe":
        assert "comes with the choice" in problem(f"{key}=other")
        return
    value = dict(leaves(resolved(DEFAULTS)))[key]
    beside = {  # what else a key needs, and another choice of it with the same
        "recipe.cooldown": ["recipe.schedule=constant"],
        "recipe.timescale": ["recipe.schedule=rsqrt"],
        "recipe.milestones": ["recipe.schedule=multistep", "recipe.milestones=[0.4]"],
    }.get(key, [])
    assert identity(train(*beside, f"{key}={changed(key, value)}")) != identity(train(*beside))


def test_the_error_crosses_processes_whole():
    import pickle

    error = pickle.loads(pickle.dumps(UserError(["a", "b"])))
    assert (error.problems, str(error)) == (["a", "b"], "a\nb")
