"""Configurations that are refused, and how it is said."""

import pytest

from tests.configurations import composed, problem, problems, roundtrip, train
from vitlab.config import (
    TrainConfig,
    UserError,
    compose,
    resolved,
)
from vitlab.studies.grid import compose_study


def test_all_problems_come_at_once_each_with_key_value_choices_and_the_nearest():
    data, model, rate = problems("model=vit_nanoo", "trainer.lrr=1", "data=glyps")
    assert "model=vit_nanoo: unknown model; did you mean 'vit_nano'? choices: bert_base" in model
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
        ("model.pool=none", "gives logits per patch; classification needs pool=token or mean"),
        ("model.positions=no", "expected one of ['learned', 'sincos1d', 'sincos2d', 'rotary', 'none']"),
        ("recipe.lr=0", "recipe.lr=0.0: must be above 0"),
        ("recipe.lr=nan", "recipe.lr=nan: must be a finite number"),
        ("recipe.lr=-inf", "recipe.lr=-inf: must be a finite number"),
        ("recipe.lr=1e400", "recipe.lr=inf: must be a finite number"),
        ("recipe.betas=[0.9]", "recipe.betas=[0.9]: give two"),
        ("recipe.betas=[0.9,1]", "recipe.betas=1.0: must be below 1"),
        ("recipe.betas=0.9", "expected a list, for example recipe.betas=[0.9]"),
        ("recipe.kind=adamw", "recipe.kind=adamw: is fixed by the choice; give recipe=NAME"),
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
        ("train_size=1.5", "train_size=1.5: a size is a whole number of examples, a share of them up to 1.0, or all"),
        ("train_size=nan", "train_size=nan: a size is"),
        ("train_size=-3", "train_size=-3: a size is"),
        ("seed=-1", "seed=-1: must be at least 0"),
        ("seed=2147483648", "must be at most 2147483647"),
        ("budget.epochs=inf", "budget.epochs=inf: must be a finite number"),
        ("trainer.analyze_every=0", "trainer.analyze_every=0: must be at least 1"),
        ("trainer.analyze_every=2.5", "trainer.analyze_every=2.5: "),
        ("trainer.workers=-1", "trainer.workers=-1: must be at least 0"),
        ("trainer.accelerator=tpu", "expected one of ['auto', 'cpu', 'gpu']"),
        ("trainer.compile=maybe", "trainer.compile=maybe: "),
        ("wandb.mode=on", "expected one of ['auto', 'offline', 'online', 'off']"),
        ("wandb=off", "set one of its keys instead"),
        ("analyses=[rollouts]", "analyses=rollouts: unknown analysis; did you mean 'rollout'? choices: "),
        ("probes=[fewshots]", "probes=fewshots: unknown probe; did you mean 'fewshot'? choices: fewshot, knn, linear"),
        ("model.mixer=attntion", "unknown mixer; did you mean 'attention'?"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(override, says):
    line = problem(override)
    assert says in line
    assert line.startswith(override.partition("=")[0])


def test_a_held_out_share_is_below_one():
    with pytest.raises(UserError, match=r"data\.test_share=1\.5: must be between 0 and 1, the share that is held out"):
        compose(TrainConfig, ["data=digits", "data.test_share=1.5"])


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
    assert config is None or resolved(roundtrip(config)) == resolved(config)


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
