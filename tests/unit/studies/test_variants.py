"""Variants of models and axes of a study: which runs they are, what they are called, what is refused."""

import json

import pytest

from tests.integration import commands
from vitlab import load_results
from vitlab.config import UserError, identity, resolved
from vitlab.studies.grid import compose_models, compose_study, expand, list_shorter, list_study_changes, name_run
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles


def study(*words, file="quick"):
    return compose_study(str(file), words)


def values(config, *keys):
    """The values of dotted keys of each variant's runs."""
    found = {}
    for name, run in compose_models(config).items():
        assert run.variant == name
        found[name] = tuple(eval("run." + key, {"run": run}) for key in keys)
    return found


def test_one_model_is_in_a_study_as_variants_with_settings_of_their_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "models:\n  fast: {model: vit_nano, recipe.lr: 1e-2}\n  deep: {model: vit_nano, "
        "model.depth: 6, recipe: {lr: 2e-3}}\n  plain: resnet_nano\ntune: {recipe.weight_decay: [0.1, 0.2]}\n"
    )
    assert study("tune={}", file=path).tune == {}, "an empty mapping takes the place of the file's"
    expected = {"fast": ("vit_nano", 0.01), "deep": ("vit_nano", 0.002), "plain": ("resnet_nano", 0.06)}
    assert values(study("tune={}", file=path), "model.name", "recipe.lr") == expected
    word = "models={fast: {model: vit_nano, recipe.lr: 1e-2}, plain: resnet_nano}"
    assert values(study(word), "model.name", "recipe.lr") == {n: expected[n] for n in ("fast", "plain")}
    chosen = study("tune={}", "models=[plain,vit_nano]", file=path)
    assert values(chosen, "recipe.lr") == {"plain": (0.06,), "vit_nano": (0.016,)}, "a variant is chosen by its name"
    assert values(study("tune={}", "models=[deep]", file=path), "model.depth", "recipe.lr") == {"deep": (6, 0.002)}


def test_patterns_are_models_of_timm():
    chosen = study("models=[vit_nano,'timm:test_vit?','timm:test_vit*','timm:test_resnet']").models
    tests = ["test_vit2", "test_vit3", "test_vit4", "test_vit", "test_vit_relpos", "test_resnet"]
    assert chosen == ["vit_nano", *(f"timm:{name}" for name in tests)]
    for pattern, says in {
        "test_vitt*": r"none; near: .*test_vit",
        "vit_*": r"\d+ models of timm, more than 64",
    }.items():
        with pytest.raises(UserError, match=says):
            study(f"models=['timm:{pattern}']")


def test_axes_vary_the_models_that_have_the_key_and_all_combinations_are_run():
    config = study("grid={model.patch_size: [4, 8], recipe.lr: [1e-3, 1e-2]}", "seeds=[0]")
    found = values(config, "model.kind", "recipe.lr")
    assert len(found) == 6, "a ResNet has no patches"
    assert found["vit_nano patch_size=8 lr=0.001"] == ("vit", 0.001)
    assert found["resnet_nano lr=0.01"] == ("resnet", 0.01)
    specs = expand(config, [50])
    assert len({identity(spec.config, "") for spec in specs}) == len({spec.name for spec in specs}) == 6
    assert name_run("vit_nano patch_size=8 lr=0.001", 50, 0) == "vit_nano-patch_size-8-lr-0.001-n50-s0"


def test_lists_mappings_and_choices_of_a_group_are_values_of_an_axis():
    found = values(
        study("models=[resnet_nano]", "grid={model.widths: [[8, 16], [16, 32]], model.layers: [[1, 1]]}"),
        "model.widths",
    )
    assert {n: list(w) for n, (w,) in found.items()} == {
        "resnet_nano widths=8,16 layers=1,1": [8, 16],
        "resnet_nano widths=16,32 layers=1,1": [16, 32],
    }
    word = "grid={model.mixer: [attention, {name: depthwise, kernel: 5}], model.mixer.qk_norm: [true, false]}"
    found = values(study("models=[vit_nano]", word), "model.mixer")
    assert sorted(found) == [
        "vit_nano mixer=attention qk_norm=false",
        "vit_nano mixer=attention qk_norm=true",
        "vit_nano mixer=depthwise kernel=5",
    ], "an axis applies where the one before it has made room for it"
    assert found["vit_nano mixer=depthwise kernel=5"][0].kernel == 5


def test_a_list_of_budgets_is_an_axis_and_runs_that_cool_down_share_the_way_to_the_smaller_ones(tmp_path):
    path = tmp_path / "mine.yaml"
    recipe = {"schedule": "constant", "cooldown": 0.2, "warmup": 5}
    cooled = {"cooled": {"model": "vit_nano", "recipe": recipe}, "plain": "vit_nano"}
    path.write_text(json.dumps({"models": cooled, "budget": {"steps": [70, 30]}}))
    variants = {name: resolved(run) for name, run in compose_models(study(file=path)).items()}
    assert [*variants] == ["cooled steps=70", "cooled steps=30", "plain steps=70", "plain steps=30"]
    assert list_shorter(variants) == {"cooled steps=70": ["cooled steps=30"], "cooled steps=30": []}
    assert [*compose_models(study("budget.epochs=3", file=path))] == ["cooled", "plain"], "one takes the list's place"
    assert [*compose_models(study("budget.epochs=[3,5]", "models=[vit_nano]"))] == [
        "vit_nano epochs=3",
        "vit_nano epochs=5",
    ]
    cooled["cooled"]["recipe"]["warmup"] = 0.1
    path.write_text(json.dumps({"models": cooled, "budget": {"steps": [70, 30]}}))
    with pytest.raises(
        UserError, match=r"^recipe.warmup=0.1: a share of the steps differs between budgets, .* such as 50$"
    ):
        study(file=path)


def test_the_subset_has_a_seed_of_its_own():
    specs = expand(study("models=[vit_nano]", "grid.subset_seed=[0,1]", "seeds=[0,1]"), [50])
    assert [(s.config["seed"], s.config["subset_seed"]) for s in specs] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({identity(spec.config, "") for spec in specs}) == 4
    alone = expand(study("models=[vit_nano]"), [50])[0]
    assert identity(alone.config, "") == identity(specs[0].config, ""), "the same run as without a seed for the subset"


def test_a_study_grows_by_variants_and_values_and_keeps_its_runs(tmp_path):
    files = StudyFiles(tmp_path)

    def start(*words):
        config = study(*words)
        files.refuse(config)
        cells = [spec[:3] for spec in expand(config, [50])]
        files.add_start({**resolved(config), "sizes": [50]}, cells)
        again = study(file=files.config_path)
        assert list_study_changes(resolved(again), resolved(config)) == [], "the file that it leaves is the same study"
        return set(compose_models(again))

    one = start("models=[vit_nano]", "grid.recipe.lr=[0.1]")
    two = start("models=[vit_nano,resnet_nano]", "grid.recipe.lr=[0.2]")
    assert one == {"vit_nano lr=0.1"}
    assert two == {"vit_nano lr=0.1", "vit_nano lr=0.2", "resnet_nano lr=0.2"}, "no product of both is meant"
    three = start("models={deep: {model: vit_nano, model.depth: 6}}", "grid.model.patch_size=[4,8]")
    assert three == two | {"deep patch_size=4", "deep patch_size=8"}
    with pytest.raises(UserError, match=r"another configuration \(model.depth 6 -> 5\)"):
        files.refuse(study("models={deep patch_size=4: {model: vit_nano, model.depth: 5, model.patch_size: 4}}"))


def test_variants_see_the_same_items_at_sizes_and_normalisations_of_their_own(tmp_path):
    words = ["data=digits", "sizes=[60]", "seeds=[0]", "budget.steps=2", "analyses=[]", "trainer.evaluations=1"]
    seen = "{data.image_size: 12, data.mean: [0.2], data.augment.shift: 1, recipe: linear_probe"
    models = f"models={{whole: {{model: resnet_nano}}, seen: {seen}, model: resnet_nano}}}}"
    commands.succeed("scale", "quick", *words, models, "--out", tmp_path / "study")
    found = load_results(tmp_path / "study")
    assert len(found.gaps) == 1, "the test items are paired"
    configs = {run.name[:5]: RunFiles(run).config() for run in (tmp_path / "study").glob("*-n60-s0")}
    assert {name: of["data"]["image_size"] for name, of in configs.items()} == {"whole": 16, "seen-": 12}
    hashes = {RunFiles(run).data_hash() for run in (tmp_path / "study").glob("*-n60-s0")}
    assert len(hashes) == 1
    wrong = commands.vitlab("scale", "quick", *words, models.replace("[0.2]", "[0.2,0.3]"), "--dry-run").stderr
    assert wrong.startswith("vitlab: models.seen: data.mean")
