"""What is part of a run's identity."""

import re

import pytest
from omegaconf import OmegaConf

from tests.configurations import leaves, problem, roundtrip, train
from vitlab.config import (
    UserError,
    identity,
    resolved,
)
from vitlab.config.compose import SETTLED, WITHOUT_EFFECT


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
        "trainer.analyze_every=7",
    ):
        assert identity(train(override)) == same, override
    assert identity(train("recipe=deit", "recipe.budget.epochs=9", "budget.steps=7")) == identity(
        train("recipe=deit", "budget.steps=7")
    )
    assert identity(train("data=imagefolder", "data.root=a")) != identity(train("data=imagefolder", "data.root=b"))


DEFAULTS = train()


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
        "init.encoder": "runs/other",
        "probes": "[knn]",
        "data.sizes": "[3]",
        "recipe.betas": "[0.5,0.5]",
        "data.scale": "[0.5,0.5]",
    }
    words |= {
        "recipe.lr_batch": 7,
        "recipe.layer_decay": 0.5,
        "recipe.freeze": "body",
        "recipe.ema": 0.5,
        "recipe.timescale": 7,
    }
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
    if key in SETTLED or key.rpartition(".")[2] in SETTLED:
        assert "comes with the choice" in problem(f"{key}=other")
        return
    if key.startswith(tuple(f"{k}." for k in WITHOUT_EFFECT)) or key in WITHOUT_EFFECT:
        assert key.partition(".")[0] in ("wandb", "study", "data", "trainer") or key.startswith("recipe.budget.")
        return
    if key.startswith("budget."):
        assert identity(train(f"{key}=7")) != identity(DEFAULTS)
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
