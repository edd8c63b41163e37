"""Every key of recipes, augmentations, tasks, mixers and models acts, as three steps show, or one line refuses it."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import torch
from torch import nn

from tests.configurations import refused
from vitlab import models, tasks
from vitlab.config import TrainConfig, compose
from vitlab.config.groups import kinds
from vitlab.config.schema import InitConfig
from vitlab.config.schema.data import AugmentConfig
from vitlab.config.schema.fields import WEIGHTS
from vitlab.data.loader import train_loader
from vitlab.data.opening import open_data
from vitlab.tasks.base import evaluate
from vitlab.training.optim import build_optimizer, build_schedule, freeze

SHORT = {
    "VIT": "ALL data=digits model=vit_nano model.patch_size=4 SMALL model.heads=2",
    "TEXT": "ALL data=textfile data.path=text data.length=12 data.vocabulary=280",
    "CLASSES": "ALL task=text_classification data=csv data.path=table.csv data.length=12 data.vocabulary=280",
    "PAIRS": "ALL data=numbers data.count=400 data.vocabulary=280 data.length=40 data.exact=false",
    "BLOCKS": "width=16 depth=3 heads=3 head_width=4 mlp_width=20 mlp=swiglu norm=rmsnorm norm_eps=.1 norm_first=false "
    "dropout=.5 attention_dropout=.5 drop_path=.5 positions=none",
    "SPANS": "share=.5 masking=static sequences=documents",
    "SMALL": "model.width=12 model.depth=2",
    "ALL": "recipe=adamw recipe.lr=.01 recipe.lr_batch=6 recipe.batch_size=6 recipe.warmup=1",
}
CASES = """
recipe | VIT | optimizer=sgd lr=.1 lr_batch=3 weight_decay=.9 layer_decay=.5 freeze=body lora.rank=2 betas=[.1,.2] eps=1
recipe | VIT | schedule=linear warmup=3 final_lr=.5 clip_norm=.01 batch_size=5 repeats=2 label_smoothing=.5
recipe | VIT | class_weights=balanced mixup=1 cutmix=1 random_erasing=1 rand_augment.layers=2
recipe | VIT recipe.lora.rank=2 | lora.on=[qkv]
recipe | VIT recipe.optimizer=sgd | momentum=.1 nesterov=true
recipe | VIT recipe.schedule=constant | cooldown=.9
recipe | VIT recipe.schedule=multistep recipe.milestones=[.5] | milestones=[.3] decay_factor=.5
recipe | VIT recipe.rand_augment.layers=2 | rand_augment.magnitude=1 rand_augment.std=3 rand_augment.probability=.1
recipe | VIT recipe.rand_augment.layers=2 recipe.rand_augment.magnitude=2 | rand_augment.increasing=false
data.augment | VIT | flip=true shift=2 crop_scale=[.3,.5]
data.augment | VIT data.augment.crop_scale=[.3,.5] | crop_aspect=[2,3]
model.vit | VIT | BLOCKS patch_size=2 stem=[1] pool=token registers=1 class_token=true fc_norm=true
model.vit | VIT model.stem=[1] | stem_widths=[5]
model.vit | VIT model.pool=token | distillation=true prefix_positions=false layer_scale=.1 norm_pre=true pre_logits=true
mixer.attention | VIT | qkv_bias=false qk_norm=true
mixer.depthwise | ALL data=digits model=vit_nano SMALL model.mixer=depthwise | kernel=1
mixer.token_mlp | ALL data=digits model=vit_nano SMALL model.mixer=token_mlp | hidden=3
model.timm | ALL data=digits model=timm:resnet18 | stem=small options={"drop_rate":.5}
model.resnet | ALL data=digits model=resnet_nano | layers=[2,1,1] widths=[8,32,64]
model.color_histogram | ALL data=digits model=color_histogram | bins=3
model.text | TEXT SMALL model.heads=2 | BLOCKS segments=2 scaled_residuals=true
model.text | CLASSES SMALL model.heads=2 | causal=true pool=token
model.encoder_decoder | PAIRS SMALL | BLOCKS decoder_depth=1 bias=false share_embeddings=none
model.captioner | ALL task=captioning data.train_images=60 data.test_images=9 SMALL | BLOCKS
model.lstm | CLASSES model=lstm_nano SMALL | cell=gru causal=false depth=1 width=16 segments=2 pool=mean dropout=.5
model.recurrent | PAIRS model=gru_seq2seq_nano SMALL | cell=lstm depth=1 decoder_depth=1 width=16 score=dot dropout=.5
model.recurrent | PAIRS model=gru_seq2seq_nano SMALL | attend=before input_feeding=true share_embeddings=none
model.recurrent | PAIRS model=gru_seq2seq_nano SMALL model.share_embeddings=none | embedding=8
task.text_classification | CLASSES model=gpt_nano SMALL model.heads=2 | auxiliary_lm=.5
task.text_classification | CLASSES SMALL model.heads=2 data.text=[text,b] | both_orders=true
task.causal_lm | TEXT SMALL model.heads=2 | pack=documents
task.masked_lm | TEXT task=masked_lm SMALL model.heads=2 | SPANS
task.span_lm | TEXT task=span_lm SMALL model.heads=2 | SPANS
task.span_corruption | TEXT task=span_corruption SMALL | share=.4 mean_span=1
task.translation | PAIRS SMALL | beams=9
task.translation | PAIRS SMALL task.beams=9 | length_penalty=9
"""
SAME = ("captioning", "summarization", "pooling")  # kinds with the dataclass of another kind
# these are shown by test_selection.py, test_averaging.py, test_seq2seq.py; timm_name and pretrained choose the weights
ELSEWHERE = {*(f"recipe.{key}" for key in ("patience", "keep", "ema", "average"))}
ELSEWHERE |= {"model.timm.timm_name", "model.timm.pretrained", "task.translation.long", "task.translation.one_sequence"}
ELSEWHERE |= {"task.captioning.test_items", "task.translation.test_items"}
IDLE = """
recipe.betas=[.1,.2] recipe.optimizer=sgd | recipe.eps=1 recipe.optimizer=sgd
recipe.momentum=.1 recipe.optimizer=adamw | recipe.nesterov=true recipe.optimizer=adamw
recipe.nesterov=true recipe.optimizer=sgd recipe.momentum=0 | recipe.final_lr=.5 recipe.schedule=constant
recipe.cooldown=.5 recipe.schedule=cosine | recipe.milestones=[.5] recipe.schedule=cosine
recipe.decay_factor=.5 recipe.schedule=cosine | recipe.lora.on=[qkv]
recipe.layer_decay=.5 recipe=adamw recipe.freeze=body
recipe.rand_augment.magnitude=1 | recipe.rand_augment.std=1
recipe.rand_augment.probability=.1 | recipe.rand_augment.increasing=false
data.augment.crop_aspect=[1,2] | init.head=new | task.length_penalty=9 task=translation
model.head_width=3 model=fnet_nano | model.attention_dropout=.5 model=fnet_nano
model.prefix_positions=false model.positions=none | data.seed=3 data=imagetable data.root=/ data.path=/ data.split=part
data.target_length=9 data=pydoc | data.exact=true task=span_extraction data=squad data.path=/
data.test_share=.3 data=csv data.path=/ data.test_path=/ | data.test_share=.3 data=webdataset data.train=a data.test=b
"""
REFUSED = [words.strip() for line in IDLE.strip().splitlines() for words in line.split(" | ")]


def read_cases():
    for line in CASES.strip().splitlines():
        for name, words in SHORT.items():
            line = line.replace(f" {name} ", f" {words} ").removesuffix(name) + words * line.endswith(f" {name}")
        yield [part.split() for part in line.split(" | ")]


def steps(words):
    """Train three steps; return the losses, the sums of the weights, and the texts of a task that writes."""
    config = compose(TrainConfig, words)
    task = tasks.build(config.task, recipe=config.recipe, data=open_data(config.data), data_config=config.data)
    torch.manual_seed(0)
    model, losses, texts = models.build(config.model, **task.shape), [], None
    freeze(model, recipe := config.recipe)
    optimizer = build_optimizer(model, recipe)
    schedule = build_schedule(optimizer, recipe, 4, vars(config.model).get("width"))
    options = {"batch_size": recipe.batch_size, "steps": 3, "seed": 0, "repeats": recipe.repeats}
    task.train_on(rows := np.arange(min(40, len(task.train))))
    for batch in train_loader(task.train, rows, **options):
        batch = task.prepare(batch, torch.Generator().manual_seed(0))
        loss = (task.loss(model, batch) / task.count_targets(batch).clamp(min=1)).sum()
        optimizer.zero_grad()
        loss.backward()
        if recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    if "beams" in vars(config.task):
        found = evaluate(model.eval(), task, task.test, torch.autocast("cpu", enabled=False), 0, detailed=True)
        texts = dict(found)["texts"].list_texts()
    return losses, [value.sum().item() for value in model.state_dict().values()], texts


@pytest.mark.parametrize(("group", "words", "values"), read_cases(), ids=lambda case: case[0])
def test_a_key_acts(group, words, values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"the {n % 7} cats see {n % 11} dogs" for n in range(300)]
    (tmp_path / "table.csv").write_text("text,b,label\n" + "".join(f"{x},{x[4:]},{len(x) % 2}\n" for x in lines))
    (tmp_path / "text").mkdir()
    for number, line in enumerate(lines):
        (tmp_path / "text" / f"{number}.txt").write_text(line)
    kind = group[0].partition(".")[0]
    path = {"model": "model", "mixer": "model.mixer", "task": "task"}.get(kind, group[0])
    plain = steps(words)
    assert [value for value in values if steps([*words, f"{path}.{value}"]) == plain] == []


def list_keys(parent, path, when=False):
    for field in fields(parent):
        if is_dataclass(field.type) and field.name != "budget":
            yield from list_keys(field.type, f"{path}.{field.name}", when)
        elif when:
            yield from [f"{path}.{field.name}"] * bool(field.metadata.get("when"))
        elif not any(field.metadata.get(key) for key in ("fixed", "group")) and field.name not in ("name", "family"):
            yield from [f"{path}.{field.name}"] * (WEIGHTS in field.metadata.get("affects", WEIGHTS))


def test_the_cases_are_all_keys():
    parents = [*kinds().items(), (("init", ""), InitConfig)]
    keys = {*list_keys(kinds()["recipe", "recipe"], "recipe"), *list_keys(AugmentConfig, "data.augment")}
    for (group, kind), parent in parents:
        if group in ("model", "task", "mixer") and kind not in ("", *SAME):
            keys |= {*list_keys(parent, f"{group}.{kind}")}
    cased = {f"{group[0]}.{value.partition('=')[0]}" for group, _, values in read_cases() for value in values}
    assert keys - cased - ELSEWHERE == set()
    conditional = {key for (group, _), parent in parents for key in list_keys(parent, group, when=True)}
    assert conditional == {words.partition("=")[0] for words in REFUSED}


@pytest.mark.parametrize("words", REFUSED)
def test_a_key_that_cannot_act_is_refused(words):
    (problem,) = refused(compose, TrainConfig, words.split())
    assert problem.startswith(f"{words.partition('=')[0]}=")
    assert any(reason in problem for reason in ("uses it, not", "has no effect without", "needs model.mixer=attention"))
