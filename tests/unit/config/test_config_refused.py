"""Configurations that are refused, and how it is said."""

import os
import subprocess
import sys

import pytest

from tests.configurations import composed, problem, problems, roundtrip, train
from vitlab.config import TrainConfig, UserError, compose, first_line, read_yaml, resolved
from vitlab.studies.grid import compose_study


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.depth=two", "model.depth=two: "),
        ("model.depth=0", "model.depth=0: must be at least 1"),
        ("budget.steps=0", "budget.steps=0: must be at least 1"),
        ("budget.steps=many", "budget.steps=many: expected a whole number"),
        ("recipe.lr=fast", "recipe.lr=fast: expected a number"),
        ("model.width=1000000007", "must be at most"),
        ("model.dropout=1", "model.dropout=1.0: must be at most 0.99"),
        ("model.pool=cls", "choices: token, mean, none"),
        ("recipe.lr=0", "recipe.lr=0.0: must be above 0"),
        ("recipe.lr=nan", "recipe.lr=nan: must be a finite number"),
        ("recipe.betas=[0.9]", "recipe.betas=[0.9]: give two"),
        ("recipe.betas=0.9", "expected a list, for example recipe.betas=[0.9]"),
        ("recipe.kind=adamw", "recipe.kind=adamw: is fixed by the choice; give recipe=NAME"),
        ("data.mean=[nan]", "data.mean=nan: must be a finite number"),
        ("data.mean=[[1]]", "expected a list of single values"),
        ("data.sizes=[0.5,-1]", "data.sizes=-1: a size is a whole number"),
        ("data.sizes=[3,4,3]", "data.sizes=[3, 4, 3]: '3' is given twice"),
        ("data.image_size=[24]", "give one number or [height,width]"),
        ("data.image_size=99999999999999999999", "must be at most 65536"),
        (
            "data={name: digits, test_share: 1.5}",
            "data.test_share=1.5: must be between 0 and 1, the share",
        ),
        ("data.augment=3", "set one of its keys instead; choices: data.augment.flip"),
        ("data.augment={flop: 1}", "data.augment.flop: no key 'flop' in 'data.augment'; did you mean 'flip'?"),
        ("train_size=1.5", "train_size=1.5: a size is a whole number of examples, a share of them up to 1.0, or all"),
        ("seed=-1", "seed=-1: must be at least 0"),
        ("wandb.mode=on", "did you mean 'online'? choices: auto, offline, online, off"),
        ("wandb=off", "set one of its keys instead"),
        ("analyses=[rollouts]", "analyses=rollouts: unknown analysis; did you mean 'rollout'? choices: "),
        ("model.mixer=attntion", "unknown mixer; did you mean 'attention'?"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(override, says):
    line = problem(override)
    assert says in line
    assert line.startswith(override.partition("=")[0])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("model.patch_size=5 recipe.lr=-1", "model.patch_size recipe.lr"),
        ("model.heads=5 model.depth=-1", "model.depth model.heads"),
        ("model.width=-64 model.heads=5 model.patch_size=5", "model.patch_size model.width"),  # nothing follows width
        ("data.image_size=abc model.patch_size=5 seed=-1", "data.image_size seed"),
        ("model.width=abc model.heads=5", "model.width"),
        ("recipe.repeats=999 recipe.batch_size=0", "recipe.batch_size"),
        ("recipe.betas=[0.9] foo=1 data=glyphss model.heads=5", "data foo model.heads recipe.betas"),
        ("data=imagefolder data.root=nowhere recipe.lr=-1 model.patch_size=5", "data.root model.patch_size recipe.lr"),
        ("data=csv data.path=a.csv data.test_path=b.csv data.length=1", "data.length data.path data.test_path"),
        ("tune.recipe.lr=[-1,2] tune.model.heads=[5] seed=-1", "seed tune.model.heads tune.recipe.lr"),
        ("tune.recipe.lr=[x0.5] recipe.lr=-1", "recipe.lr"),
        ("tune.recipe.lr=[-1] tune.data.x=[1] tune.seed=3", "tune.data.x tune.recipe.lr tune.seed"),
    ],
)
def test_one_wrong_key_hides_no_other_and_nothing_follows_from_it(words, named):
    data = [] if "data=" in words else ["data=glyphs"]
    assert sorted(line.partition("=")[0].partition(":")[0] for line in problems(*data, *words.split())) == named.split()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("sizes=[-1] | grid.model.patch_size=[5] | name=a/b", "model.patch_size name sizes"),
        ("sizes=[0] | models={a: {model: vit_nano, recipe.lr: -1}, b: {model: foo}}", "models recipe.lr sizes"),
        ("grid.recipe.lr=3 | grid.model=[a] | models=[vit_nano,vit_nano]", "grid.model grid.recipe.lr models"),
        ("data=glyphss | set=[recipe.lr=-1] | sizes=[0]", "data recipe.lr sizes"),
        ("trainer.devices=0 | set=[recipe.lr=-1,model.patch_size=5]", "model.patch_size recipe.lr trainer.devices"),
        ("data=imagefolder | data.root=nowhere | grid.recipe.lr=[-1]", "data.root recipe.lr"),
        ("grid.foo.bar=[1] | sizes=[0] | set=[seed=3]", "set sizes"),
    ],
)
def test_a_wrong_key_of_a_study_hides_no_mistake_of_its_variants(words, named):
    with pytest.raises(UserError) as caught:
        compose_study("quick", ["models=[vit_nano]", *words.split(" | ")])
    found = sorted(line.partition("=")[0].partition(":")[0] for line in caught.value.problems)
    assert found == named.split()


def test_a_study_that_cannot_be_read_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "long.yaml").write_text(f"seeds: [{'9' * 5000}]")
    for name, says in (("pipe", "not a regular file"), ("long", "cannot read the file: Exceeds")):
        with pytest.raises(UserError, match=says):
            compose_study(str(tmp_path / f"{name}.yaml"), [])
    with pytest.raises(UserError, match="is not a regular file"):
        read_yaml(tmp_path / "pipe.yaml")


@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_logits_of_patches_are_no_answer_for_an_image(task):
    assert problem("model.pool=none", f"task={task}").startswith(
        f"model.pool=none gives logits per patch; {task} needs"
    )


def test_a_required_key_is_asked_for():
    assert problem("data=imagefolder") == "data.root is missing: give data.root=VALUE"
    assert problem("data=imagefolder", "data.root=null").startswith("data.root=null:"), "said once, not also as missing"
    assert train("data=imagefolder", "data.root=photos").data.root == "photos"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["model.heads=5", "model.width=64"],
            "model.heads=5: does not divide model.width=64; nearest that do: 2, 4, 8; or give model.head_width",
        ),
        (
            ["data.image_size=24", "model.patch_size=5"],
            "5 does not divide the image height of 24 pixels (data.image_size); nearest that do: 3, 4, 6",
        ),
        (
            ["data.image_size=[24,35]", "model.patch_size=[6,6]"],
            "6 does not divide the image width of 35 pixels (data.image_size); nearest that do: 1, 5, 7",
        ),
        (
            ["data.image_size=[20,30]", "model.patch_size=4"],
            "4 does not divide the image width of 30 pixels (data.image_size); nearest that do: 1, 2, 5",
        ),
    ],
)
def test_heads_and_patches_that_do_not_divide_come_with_those_that_do(words, says):
    assert says in problem(*words)
    assert train("data.image_size=[24,35]", "model.patch_size=[6,7]").model.patch_size == [6, 7]


def test_nesterov_needs_momentum():
    assert "recipe.nesterov=True" in problem("recipe=resnet", "recipe.momentum=0")
    assert train("recipe=adamw", "recipe.momentum=0", "recipe.nesterov=true").recipe.nesterov  # AdamW has none


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("model=./deep.yaml", "model=./deep.yaml: cannot read the file: "),
        (f"model.depth={'[' * 400}{']' * 400}", "the value is not valid YAML: "),
    ],
)
def test_yaml_that_would_crash_its_parser_is_one_line(tmp_path, words, says):
    (tmp_path / "deep.yaml").write_text("name: deep\nwidth: " + "[" * 100_000)
    done = subprocess.run(
        [sys.executable, "-m", "vitlab", "describe", words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


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


def test_what_is_wrong_with_a_long_value_is_said():
    (line,) = UserError(f"model.depth={'[' * 900}: not valid; give {'x' * 900}").problems
    assert ": not valid; give xxx" in line
