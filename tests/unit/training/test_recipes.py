"""Published recipes against docs/reference.md, in both directions, and what a recipe may not hold."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.configurations import leaves, problem
from tests.conftest import ROOT
from vitlab.config import TrainConfig, compose, groups, names, resolved
from vitlab.config.identity import get_value
from vitlab.studies.grid import compose_study, expand

# they reproduce nothing that was published
OWN = {
    *("adamw", "bert_nano", "color_histogram", "finetune", "gpt_nano", "lstm_nano", "gru_seq2seq_nano", "muon"),
    *("linear_probe", "lora"),
    *("lstm_seq2seq_nano", "resnet", "resnet_nano", "t5_finetune", "transformer_nano", "vit_nano"),
}
PUBLISHED = sorted(set(names("recipe")) - OWN)


def table():
    """(recipe, key, value, note) of each number in the first section of docs/reference.md."""
    found, recipes = [], []
    page = (ROOT / "docs" / "reference.md").read_text().partition("\n## ")[0]
    for line in re.findall(r"^\|(?!---)(.+)\|$", page, re.MULTILINE):
        key, *texts, note = (cell.strip() for cell in line.split("|"))
        if key == "key":
            recipes = texts
        else:
            found += [(name, key, number(text), note) for name, text in zip(recipes, texts, strict=True) if text]
    return found


def number(text):
    """As YAML reads it, but also 1e-3, which YAML takes for a word."""
    try:
        return float(text)
    except ValueError:
        return yaml.safe_load(text)


def header(recipe):
    return re.findall(r"^#(.*)", (Path(groups.config_dir()) / "recipe" / f"{recipe}.yaml").read_text(), re.MULTILINE)


def command(recipe):
    """The words after `vitlab train` in a recipe's header."""
    return shlex.split(re.search(r"vitlab train ((?:.*\\\s*)*.*)", "\n".join(header(recipe)))[1].replace("\\\n", " "))


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_a_recipe_resolves_to_the_published_numbers_and_every_number_of_it_is_published(recipe):
    config = compose(TrainConfig, command(recipe))
    assert config.recipe.name == recipe
    rows = [row[1:] for row in table() if row[0] == recipe]
    assert len({key for key, *_ in rows}) == len(rows), "a key is given once"
    for key, value, note in rows:
        path = key if ("." in key and not key.startswith("rand_augment")) or key == "train_size" else f"recipe.{key}"
        found = get_value(resolved(config), path)
        assert found == (pytest.approx(value) if isinstance(value, float | list) else value), key
        if "one of" in note:
            assert value in [float(x) for x in note.partition("one of")[2].split(",")]
    written = yaml.safe_load((Path(groups.config_dir()) / "recipe" / f"{recipe}.yaml").read_text())
    assert {key for key, _ in leaves(written)} <= {key for key, *_ in rows}
    assert re.search(r"Expect [^.]*\d", " ".join(header(recipe))), "its header says what to expect"


# ---- budgets


def given(config):
    return {key: value for key, value in vars(config.budget).items() if value is not None}


def test_a_recipes_budget_counts_until_the_user_names_one():
    assert given(compose(TrainConfig, ["recipe=deit"])) == {"epochs": 300}
    assert given(compose(TrainConfig, ["recipe=bit_hyperrule_small"])) == {"steps": 500}
    assert given(compose(TrainConfig, ["recipe=deit", "recipe.budget.epochs=7"])) == {"epochs": 7}
    assert given(compose(TrainConfig, ["recipe=deit", "budget.steps=9"])) == {"steps": 9}
    assert given(compose(TrainConfig, ["recipe=deit"], base={"budget": {"examples": 9}})) == {"examples": 9}
    assert given(compose(TrainConfig, ["recipe=adamw"])) == {"steps": 1000}


def test_a_study_has_its_own_budget():
    for spec in expand(compose_study("quick", ["recipe=deit"]), [100]):
        assert spec.config["recipe"]["name"] == "deit"
        assert spec.config["budget"]["steps"] == 1200
        assert spec.config["budget"]["epochs"] is None


# ---- what is refused


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("recipe.optimizer=lion", "choices: adamw, sgd, muon"),
        ("recipe.schedule=noam recipe.warmup=0", "recipe.warmup=0: recipe.schedule=noam divides by it; give"),
        ("recipe.schedule=multistep", "recipe.milestones=[]: give one or more that increase"),
        ("recipe.schedule=multistep recipe.milestones=[0.6,0.3]", "recipe.milestones=[0.6, 0.3]: give one or more"),
        ("recipe.repeats=5 recipe.batch_size=4", "recipe.repeats=5: must be at most recipe.batch_size=4"),
        ("recipe.betas=[0.9]", "recipe.betas=[0.9]: give two"),
        ("data.augment.crop_scale=[0.9,0.5]", "data.augment.crop_scale=[0.9, 0.5]: give [min,max]"),
        ("recipe.schedule=step", "choices: cosine, linear, constant, noam, multistep"),
        ("model=resnet_nano recipe.schedule=noam", "recipe.schedule=noam: scales the rate with the model's width"),
        ("recipe.layer_decay=0", "recipe.layer_decay=0.0: must be above 0"),
        ("recipe.ema=1", "recipe.ema=1.0: must be below 1"),
        ("recipe.ema=0.9 recipe.average=5", "recipe.average=5: recipe.ema=0.9 is an average too; give one of them"),
        ("recipe.patience=3 recipe.average=5", "recipe.average=5: is of the last steps, and with recipe.patience=3"),
        ("recipe=deit recipe.budget.steps=9", "recipe.budget.steps=9 and recipe.budget.epochs=300.0: give at most one"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_with_what_would_be_right(words, says):
    assert says in problem(*words.split())
