"""What users get wrong: exit code 2 and a line for each problem, with the key, the value and a choice or the fix."""

import re
import shlex

import pytest

from vitlab.cli import main

# command: its words -> parts of the line of each problem; `&` is between parts, `||` between problems
MISTAKES = {
    "": """
scal -> unknown command 'scal' & did you mean 'scale'? & choices: scale
train --ouut x -> unrecognized arguments: --ouut; did you mean '--out'?
train --model vit_nano -> unrecognized arguments: --model; did you mean model=NAME?
train vit_nano -> 'vit_nano' is not key=value; did you mean model=vit_nano?
train data=imagefolder -> data.root is missing: give data.root=VALUE
train data=imagefolder data.root=null -> data.root=null:
train trainer.lrr=1 model=vit_nanoo x=1 recipe.weight_decay=-1 -> trainer.lrr: no key 'lrr' in 'trainer' & 'recipe.lr'?\
 & choices: accelerator || model=vit_nanoo: unknown model; did you mean 'vit_nano'? || x: no key 'x' ||\
 recipe.weight_decay=-1.0: must be at least 0
train task=regression analyses=[robustness,alignment] -> analyses=alignment: is for targets, but task=regression gives\
 measures; choices: attention_distance
train task=causal_lm analyses=[robustness] probes=[finetune@digits] -> analyses=robustness: is for images, labels,\
 measures, but task=causal_lm gives tokens; choices: attention_entropy, head_patterns, token_reach ||\
 probes=finetune@digits: needs text, but data=digits has images; give probes=[finetune@DATA], choices: conll
train analyses=[./own.yaml] -> analyses=./own.yaml: title is missing
scale --jobs 0 -> --jobs: '0' is not auto or a positive integer
scale --executor locl -> executor=locl: & did you mean 'local'? & choices: local
scale --detach -> --detach: runs on executor=local end with this command & --executor
scale --out mine -> --out mine: is not empty and holds no study
scale qick -> study=qick: unknown study; did you mean 'quick'?
scale quick other -> 'other' is not key=value, and the study is 'quick' already
scale text_quick recipe.batch_size=4 -> recipe.batch_size: 'recipe' has no keys &\
 "set=[model.dropout=0.2,recipe.batch_size=4]"
scale model.depth=4 -> model.depth: no key 'model' in a study & "set=[model.depth=4]"
scale models=[vit_nano, mixer_nano, resnet_nano] -> models=[vit_nano,: the list has no ']'; quote ||\
 'mixer_nano,' & quote a list || 'resnet_nano]' & quote a list
list -> the following arguments are required: what; choices: models, data
scale own -> study=own: unknown study; did you mean 'own.yaml'? choices: adapt
scale ./owm.yaml -> study=./owm.yaml: no such file; did you mean 'own.yaml'?
describe own.yaml -> 'own.yaml' is not key=value; of a study's file: vitlab scale own.yaml --dry-run
describe model=vit_nano data.image_size=64 -> data.image_size: 'data' has no keys; give data=NAME too
fit photos -> photos: is a folder; give a CSV file, of a study photos/results.csv
list modles -> unknown 'modles'; did you mean 'models'? choices: models
eval nowhere -> nowhere: not a run, it holds no config.yaml
report nowhere -> nowhere: no such file or folder
status nowhere -> nowhere: not a study, it holds no study.yaml
generate run --temperature -1 -> --temperature: '-1' is not a number from 0 to 1e+06
generate gone --beams 3 --top-p 0.9 -> --beams cannot be combined with & --top-p || gone:
generate gone --length-penalty 0.5 -> --length-penalty only works with & give --beams N too || gone:
describe model=gpt2 image_size=64 -> image_size=64: model=gpt2 does not have this; choices: length, vocabulary
describe model=vit_nano data=digits channels=3 -> channels=3: data=digits sets it too
data -> the following arguments are required: FOLDER
data nowhere -> data.root=nowhere: no such folder
data file -> data.root=file: not a folder
data empty -> data.root=empty: holds no folders; put the images of each class into a folder of its own
data photos --out file -> --out file: is a file; give a folder
data photos --out photos/look -> --out photos/look: is inside photos, whose folders are classes
""",
    "train data=glyphs": """
model= -> model=: has no value & null for none
model.width=1000000007 -> model.width & must be at most
model.dropout=1 -> model.dropout=1.0: must be at most 0.99
model.pool=cls -> model.pool=cls & choices: token, mean, none
model.mixer=attntion -> model.mixer=attntion: unknown mixer; did you mean 'attention'?
model.pool=none task=classification -> model.pool=none gives logits per patch; classification needs
data=digit_labels probes=[knn,fewshot@digits] -> probes=knn: needs one class of each item, but data=digit_labels is for\
 task=multilabel; give probes=[knn@DATA], choices: arrow, cifar10
probes=[knn@digit_labels,finetune@pydoc] -> probes=knn@digit_labels: & but data=digit_labels is for task=multilabel ||\
 probes=finetune@pydoc: needs images, but data=pydoc has text & choices: arrow
model=nowhere.yaml -> model=nowhere.yaml: no such file
model=mine -> model=mine: holds no config.json
model=./deep.yaml -> model=./deep.yaml: cannot read the file:
model=./folder.yaml -> model=./folder.yaml & not a regular file
model.mixer=./bais.yaml -> model.mixer=bais: qkv_bais: no key 'qkv_bais'; did you mean 'qkv_bias'?
data=./tion.yaml -> data=tion: rotatoin: no key 'rotatoin'; did you mean 'rotation'?
model=gpt_nano -> model=gpt_nano: takes
data=pydoc model=vit_nano -> model=vit_nano: takes
model.heads=5 model.width=64 -> model.heads=5: does not divide model.width=64; nearest that do: 2, 4, 8; or give
model.patch_size=5 data.image_size=24 -> 5 does not divide the image height of 24 & data.image_size & do: 3, 4, 6
model.patch_size=[6,6] data.image_size=[24,35] -> 6 does not divide the image width of 35 & nearest that do: 1, 5, 7
recipe.lr=fast -> recipe.lr=fast: expected a number
recipe.lr=nan -> recipe.lr=nan: must be a finite number
recipe.betas=0.9 -> recipe.betas & expected a list, for example recipe.betas=[0.9]
recipe.kind=adamw -> recipe.kind=adamw: is fixed by the choice; give recipe=NAME
budget.steps=0 -> budget.steps=0: must be at least 1
budget.steps=many -> budget.steps=many: expected a whole number
budget.steps=null -> no budget: give exactly one of budget.steps
budget.steps=3 budget.epochs=2 -> budget.steps=3 and budget.epochs=2.0: give exactly one & budget.flops
train_size=1.5 -> train_size=1.5: & a whole number of examples, a share of them up to 1.0, or all
seed=-1 -> seed=-1: must be at least 0
wandb.mode=on -> wandb.mode=on & did you mean 'online'? choices: auto, offline, online, off
wandb=off -> wandb & set one of its keys instead
analyses=[rollouts] -> analyses=rollouts: unknown analysis; did you mean 'rollout'? choices:
data.sizes=[0.5,-1] -> data.sizes=-1: a size is a whole number
data.sizes=[3,4,3] -> data.sizes=[3, 4, 3]: '3' is given twice
data.image_size=[24] -> data.image_size & give one number or [height,width]
data.image_size=99999999999999999999 -> data.image_size & must be at most 65536
'data={name: digits, test_share: 1.5}' -> data.test_share=1.5: must be below 1
data.augment=3 -> data.augment=3 & set one of its keys instead; choices: data.augment.flip
'data.augment={flop: 1}' -> data.augment.flop: no key 'flop' in 'data.augment'; did you mean 'flip'?
epochs=3 -> epochs & did you mean 'budget.epochs'?
max_epochs=3 -> max_epochs & did you mean 'budget.epochs'?
model=vit_nan patch_size=2 -> model=vit_nan || patch_size & did you mean 'model.patch_size'?
model.width=-64 model.heads=5 model.patch_size=5 -> model.patch_size || model.width
data.image_size=abc model.patch_size=5 seed=-1 -> data.image_size || seed
model.width=abc model.heads=5 -> model.width
recipe.repeats=999 recipe.batch_size=0 -> recipe.batch_size
recipe.betas=0.9 foo=1 data=glyphss model.heads=5 -> data || foo || model.heads || recipe.betas
data=imagefolder data.root=nowhere recipe.lr=-1 model.patch_size=5 -> data.root || model.patch_size || recipe.lr
data=csv data.path=a.csv data.test_path=b.csv data.length=1 -> data.length || data.path || data.test_path
""",
    "scale quick": """
grid=5 -> grid=5: expected a mapping
grid.model.pach_size=[4] -> grid.model.pach_size: no key 'pach_size' in 'model'; did you mean 'patch_size'?
grid.recipe.lr=0.1 -> grid.recipe.lr=0.1: expected its values, for example grid.recipe.lr=[0.1]
grid.recipe.lr=[1,1.0] -> 'vit_nano lr=1' and 'vit_nano lr=1' are alike; their runs would share
grid.model=[vit_nano] -> grid.model: give the models in models=[vit_nano]
grid.model.patch_size=[7] -> model.patch_size=7: 7 does not divide the image height
models=[vit_nano,vit_nano] -> models: 'vit_nano' is given twice; name variants, for example models={a:
'models={1: vit_nano}' -> models: 1 is a number; a name is text
'models={a: {recipe.lr: 1}}' -> models.a={'recipe.lr': 1}: needs a model; for example models={a:
'models={a: vit_nanoo}' -> vit_nanoo: unknown model; did you mean 'vit_nano'?
"models={'a b': vit_nano, a/b: vit_nano}" -> 'a b' and 'a/b' are alike; their runs would share a folder
'models={a: {model: vit_nano, recipe.lrr: 1}}' -> recipe.lrr: no key 'lrr' in 'recipe'; did you mean 'lr'?
set=[data=digits] -> set: data=digits: data is the same for all runs of a study; give data=digits without set
set=[seed=1] -> set: seed=1: seed is the same for all runs of a study
'models={a: {model: vit_nano, train_size: 5}}' -> : train_size: train_size is the same for all runs of a study
data=glyphs grid.data.image_size=[24,48] -> grid: data.image_size: data of kind glyphs draws other pictures then
grid.data.cache=[never] -> : data.cache: data is the same for all runs of a study
'set=[recipe.lrr=1,foo]' 'models={v: {model: vit_nano, model.heads: 5, model.width: 64}, r: resnet_nano}' ->\
 recipe.lrr: no key 'lrr' || 'foo' is not key=value || models.v: model.heads=5: does not divide model.width=64
tune.recipe.lr=[0.1,0.2] grid.recipe.lr=[0.1,0.2] -> grid.recipe.lr: tune chooses its value
""",
    "scale quick models=[vit_nano]": """
tune.recipe.lrr=[1] -> tune.recipe.lrr
tune.recipe.lr=[] -> tune.recipe.lr=[]: expected a list of values such as
tune.recipe.lr=0.1 -> tune.recipe.lr=0.1: expected a list of values such as
tune.recipe.lr=log(3,1) tune.trials=4 -> tune.recipe.lr=log(3,1): expected & or a range: log(LOW,HIGH)
tune.recipe.lr=log(x1,3) tune.trials=4 -> tune.recipe.lr=log(x1,3): expected
tune.recipe.lr=log(1,3) -> tune.recipe.lr=log(1,3): is a range; say how many trials to draw & tune.trials=16
tune.recipe.lr=log(1,3) tune.trials=0 -> tune.trials=0: expected how many to draw from the ranges
tune.trials=4 -> tune.trials=4: expected how many to draw from the ranges of other keys
tune.recipe.weight_decay=uniform(-1,1) tune.trials=8 sizes=[0] -> sizes || tune.recipe.weight_decay=-
tune.recipe.lr=[1,1] -> tune.recipe.lr=[1, 1]: '1' is given twice
tune.data.noise=[1] -> tune.data.noise: cannot be tuned; give keys of recipe or model
tune.recipe.lr=[-1,2] tune.model.heads=[5] seeds=[-1] -> seeds || tune.model.heads || tune.recipe.lr=-1.0: must
tune.recipe.lr=[x0.5] set=[recipe.lr=-1] -> recipe.lr
tune.recipe.lr=[-1] tune.data.x=[1] tune.seed=3 -> tune.data.x || tune.recipe.lr || tune.seed
sizes=[0] 'models={a: {model: vit_nano, recipe.lr: -1}, b: {model: foo}}' -> models.a: recipe.lr || models=foo || sizes
grid.recipe.lr=3 grid.model=[a] models=[vit_nano,vit_nano] -> grid.model || grid.recipe.lr || models
trainer.devices=0 set=[recipe.lr=-1,model.patch_size=5] -> model.patch_size || recipe.lr || trainer.devices
""",
}
ROWS = [
    (shlex.split(f"{command} {words}"), [problem.split(" & ") for problem in said.split(" || ")])
    for command, table in MISTAKES.items()
    for words, said in (line.split(" -> ") for line in table.strip().replace(" ->\n", " -> ").splitlines())
]

ROWS.append((["train", f"model.depth={'[' * 400}{']' * 400}"], [["the value is not valid YAML: "]]))


@pytest.mark.parametrize(
    ("words", "problems"), ROWS, ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else ""
)
def test_a_mistake_is_a_line_with_the_nearest_choice_and_nothing_is_written(words, problems, there, capsys):
    before = {*there.rglob("*")}
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert {*there.rglob("*")} == before
    lines = err.splitlines()
    assert len(lines) == len(problems), lines
    assert all(line.startswith("vitlab: ") for line in lines)
    for parts in problems:
        assert sum(says(line.removeprefix("vitlab: "), *parts) for line in lines) == 1, (parts, lines)


def says(line, first, *rest):
    """Whether it has all the parts, of which a key alone is what it begins with."""
    begins = re.split("[=:]", line)[0] == first if re.fullmatch(r"[a-z_.]+", first) else first in line
    return begins and all(part in line for part in rest)
