"""The grid of a study: its runs, their names, their identities."""

import pytest

from vitlab.config import TrainConfig, compose, identity, load, resolved
from vitlab.config.groups import dump_yaml, read
from vitlab.studies.grid import compose_models, compose_study, expand, list_study_changes, name_run


def study(*overrides):
    return compose_study("quick", overrides)


def test_every_model_size_and_seed_is_one_run_small_sizes_first():
    specs = expand(study("seeds=[3,0]"), [7, 31])
    assert [spec.name for spec in specs] == [
        f"{model}-n{size}-s{seed}" for seed in (3, 0) for size in (7, 31) for model in ("vit_nano", "resnet_nano")
    ]
    assert len({identity(spec.config, "") for spec in specs}) == len(specs)
    for spec in specs:
        config = spec.config
        assert spec.name == name_run(config["model"]["name"], config["train_size"], config["seed"])
        assert config["study"] == "quick"


def test_a_run_is_what_train_would_compose():
    shared = ["data=digits", "budget.epochs=3"]
    specs = expand(study(*shared, "seeds=[5]", "set=[recipe.lr=0.01,model.name=mine]", "models=[vit_nano]"), [100])
    words = ["model=vit_nano", "model.name=mine", "seed=5", "train_size=100", "recipe.lr=0.01"]
    alone = compose(TrainConfig, [*shared, *words])
    assert identity(specs[0].config, "") == identity(resolved(alone), ""), "so that its result counts"
    assert resolved(compose(TrainConfig, base=specs[0].config)) == specs[0].config, "and comes back from its file"


def test_a_run_does_not_depend_on_the_rest_of_the_grid():
    """More models, sizes and seeds keep the runs that are finished already."""
    before = {spec.name: spec.config for spec in expand(study("seeds=[0]"), [7, 31])}
    after = {
        spec.name: spec.config
        for spec in expand(study("models=[resnet18,vit_nano,resnet_nano]", "seeds=[1,0]"), [5, 7, 31])
    }
    assert before.items() <= after.items()


def test_a_variants_keys_hold_wherever_the_choice_of_variants_stands(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text(dump_yaml({**read("study", "quick", "study"), "models": {"a": "vit_nano", "b": "resnet_nano"}}))
    for words in (["models=[b]", "models.b.recipe.lr=0.25"], ["models.b.recipe.lr=0.25", "models=[b]"]):
        (run,) = compose_models(resolved(compose_study(str(file), words))).values()
        assert run.recipe.lr == 0.25
    lora = compose_study("adapt", ["models.lora.recipe.lr=0.25", "data.root=."]).models["lora"]
    assert (lora["recipe"], lora["recipe.lr"]) == ("lora", 0.25)


def test_each_model_has_its_own_recipe_unless_the_study_names_one():
    own = {name: load("model", name).recipe for name in ("vit_nano", "resnet_nano")}
    assert {name: run.recipe.name for name, run in compose_models(study()).items()} == own
    assert len(set(own.values())) == 2
    assert {r.recipe.name for r in compose_models(study("recipe=adamw")).values()} == {"adamw"}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("vit_nano", "vit_nano-n7-s0"),
        ("timm:vit_tiny_patch16_224.augreg_in21k", "timm-vit_tiny_patch16_224.augreg_in21k-n7-s0"),
        ("a/b c", "a-b-c-n7-s0"),
        ("../up", "..-up-n7-s0"),
        ("löwe", "l-we-n7-s0"),
    ],
)
def test_a_runs_name_is_safe_as_a_folder(model, name):
    assert name_run(model, 7, 0) == name


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ([], ["analyses=[attention_distance,cka]", "probes=[knn]", "trainer.evaluations=2", "wandb.mode=off"]),
        ([], ["set=[trainer.log_every=1]"]),
        (["recipe=adamw"], ["set=['recipe={name: adamw}']"]),
        (
            ["models={vit_nano: {model: vit_nano, recipe.lr: 0.5}, resnet_nano: resnet_nano}"],
            ["models=[vit_nano]", "set=[recipe.lr=0.5]"],
        ),
        (["models={vit_nano: {model: vit_nano, recipe.lr: 0.5}, resnet_nano: resnet_nano}"], ["models=[resnet_nano]"]),
        ([], ["models={resnet18: {model: resnet18, recipe.lr: 0.5}}"]),
        (["sizes=[7]", "seeds=[1]"], ["sizes=[9]", "seeds=[2]"]),
    ],
)
def test_a_study_is_the_same_where_its_runs_end_with_the_same_weights(before, later):
    assert list_study_changes(resolved(study(*later)), resolved(study(*before))) == []
