"""A run that was stopped or killed ends as one that was not, bit for bit, and nothing that looks at it changes it.

That of two devices is in tests/unit/training/test_devices.py, that of tar shards in test_webdataset.py.
"""

import itertools
import json
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.integration import commands
from tests.integration.commands import TINY, assert_same_training, rows, weights
from tests.integration.test_train import EVERYTHING, RANDOM
from tests.runs import train_run
from vitlab.analysis.layers import effective_size
from vitlab.config import TrainConfig, compose
from vitlab.models import build_model
from vitlab.models.export import export_weights
from vitlab.training.files import RunFiles
from vitlab.training.finished import read_checkpoint
from vitlab.training.loop import Interrupted

LORA = ["recipe.optimizer=adamw", "recipe.lora.rank=2", "recipe.ema=0.7"]
TEXT = ["model.width=24", "model.depth=2", "model.dropout=0.2", "data=textfile", "data.path={folder}/text.txt"]
TEXT += ["data.length=16", "data.vocabulary=300", "train_size=0.5", "recipe.batch_size=8", *LORA]
IMAGES = ["train_size=50", "probes=[knn]"]
RUNS = {  # words of the run, and the analyses that look at it
    "vit_nano, everything random, the best average": (
        ["model=vit_nano", *IMAGES, *RANDOM, *EVERYTHING, "recipe.keep=best"],
        ["attention_distance", "receptive_field"],
    ),
    "resnet_nano of a source that is gone, checkpoints averaged": (
        ["model=resnet_nano", *IMAGES, "recipe.average=3", "init={folder}/source.safetensors"],
        ["receptive_field"],
    ),
    "resnet_nano on kept features of a source that is gone, averaged": (
        ["model=resnet_nano", *IMAGES, "recipe=linear_probe", "recipe.ema=0.7", "init={folder}/source.safetensors"],
        ["receptive_field"],
    ),
    "gpt_nano, products of low rank, averaged": (
        ["task=causal_lm", "model=gpt_nano", *TEXT],
        ["attention_entropy"],
    ),
}
KILLED = {
    "everything random": [*RANDOM, *EVERYTHING, "train_size=90"],
    "vit_nano, products of low rank": ["model=vit_nano", *RANDOM, "train_size=90", *LORA],
    "bert_nano, products of low rank": ["task=masked_lm", "model=bert_nano", *TEXT],
}
RESULT = ("id", "loss", "accuracy", "validation_loss", "train_loss", "steps")


def read_analysis(folder, name):
    return json.loads((folder / "analysis" / f"{name}.json").read_text())["rows"]


def write_texts(folder):
    (folder / "text.txt").write_text("\n".join(f"the {n % 7} cats see {n % 11} dogs" for n in range(300)))


@pytest.mark.parametrize(("words", "analyses"), RUNS.values(), ids=RUNS)
def test_a_run_that_is_stopped_twice_ends_as_one_that_is_not_and_is_not_looked_at(words, analyses, tmp_path):
    write_texts(tmp_path)
    source = tmp_path / "source.safetensors"
    save_file(export_weights(build_model("resnet_nano", num_classes=10, image_size=8, channels=1)), source)
    words = [*TINY, *(word.format(folder=tmp_path) for word in words), "budget.steps=14", "wandb.mode=off"]
    plain = compose(TrainConfig, [*words, "probes=[]", "analyses=[]"])
    looking = compose(TrainConfig, [*words, f"analyses=[{','.join(analyses)}]", "trainer.analyze_every=4"])
    whole, parts = tmp_path / "whole", tmp_path / "parts"

    def interrupt(asked):
        calls = itertools.count(1)
        with pytest.raises(Interrupted):
            train_run(looking, parts, stop=lambda: next(calls) >= asked)
        assert not (parts / "result.json").exists()

    expected, last = train_run(plain, whole), []
    interrupt(4)
    source.unlink()
    begun = read_analysis(parts, analyses[0])
    assert {row["step"] for row in begun} == {0, 4}
    # as of a process that was killed after the next look: its checkpoint is older than its rows
    path = parts / "analysis" / f"{analyses[0]}.json"
    ahead = [*begun, *({**row, "step": 8, "value": -1.0} for row in begun if row["step"] == 0)]
    path.write_text(json.dumps({**json.loads(path.read_text()), "rows": ahead}))
    interrupt(3)  # where the stop meets the evaluation of step 7
    for ending in ("resumed", "killed between its last step and its result"):
        found = train_run(looking, parts)
        assert_same_training(whole, parts)
        assert [found[key] for key in RESULT] == [expected[key] for key in RESULT], ending
        seconds = [0, *(row["wall_s"] for row in RunFiles(parts).metrics() if "wall_s" in row)]
        assert seconds == sorted(seconds), "of the run, summed over interruptions"
        for name in analyses:
            looked = read_analysis(parts, name)
            places = [tuple(row.get(key) for key in ("step", "layer", "head")) for row in looked]
            assert len({*places}) == len(places)
            assert [*dict.fromkeys(step for step, *_ in places)] == [0, 4, 8, 12, 14]
            assert all(row["value"] > 0 for row in looked), "looked at again"
        if "receptive_field" in analyses:
            with np.load(parts / "analysis" / "receptive_field.npz") as arrays:
                sizes = [round(effective_size(torch.from_numpy(field)), 5) for field in arrays["fields"]]
            assert sizes == [row["value"] for row in read_analysis(parts, "receptive_field") if row["step"] == 14]
        kept = read_analysis(parts, analyses[0])
        assert kept[: len(begun)] == begun
        assert last in ([], kept), "of the average too"
        last = kept
        (parts / "result.json").unlink()
        path.write_text(json.dumps({**json.loads(path.read_text()), "rows": [r for r in kept if r["step"] < 14]}))
        state = torch.load(checkpoint := parts / "checkpoints" / "last.ckpt", weights_only=True)
        if "training" in state:  # the weights, which nobody may take for their average
            state["training"] = {name: 2 * value for name, value in state["training"].items()}
            torch.save(state, checkpoint)


COOLED = ["recipe.schedule=constant", "recipe.cooldown=0.25", "recipe.warmup=3", "trainer.log_every=1"]
BRANCHES = {
    "vit_nano, everything random, the best average": ["model=vit_nano", *IMAGES, *RANDOM, *EVERYTHING],
    "resnet_nano, checkpoints averaged": ["model=resnet_nano", *IMAGES, "recipe.average=2"],
    "resnet_nano, more than the cooldown averaged": ["model=resnet_nano", *IMAGES, "recipe.average=7"],
    "gpt_nano, products of low rank, averaged": ["task=causal_lm", "model=gpt_nano", *TEXT],
}


@pytest.mark.parametrize("words", BRANCHES.values(), ids=BRANCHES)
def test_a_run_that_goes_on_from_one_of_a_smaller_budget_ends_as_one_that_does_not(words, tmp_path):
    write_texts(tmp_path)
    early = "recipe.average=7" in words  # the first of them before the cooldown
    keep = ["recipe.keep=best"] * ("model=resnet_nano" not in words)
    words = [*TINY, *(word.format(folder=tmp_path) for word in words), *COOLED, *keep, "wandb.mode=off", "analyses=[]"]
    folders = {steps: tmp_path / str(steps) for steps in (8, 14, 24)}  # cooldowns begin at 6, 10 and 18
    for steps, stopped_at, shared in ((8, 4, 0), (14, 6, 6), (24, 3, 10)):
        config = compose(TrainConfig, [*words, f"budget.steps={steps}", "trainer.evaluations=4"])
        options = {"trunks": [str(folders[less]) for less in folders if less < steps]}
        calls = itertools.count(1)
        with pytest.raises(Interrupted):  # on the way that others share, and on the own one
            train_run(config, folders[steps], stop=lambda: next(calls) >= stopped_at, **options)  # noqa: B023
        if steps == 24:  # as if it was killed before its first checkpoint
            RunFiles(folders[steps]).checkpoint_path.unlink()
        found = train_run(config, folders[steps], **options)
        expected = train_run(config, whole := tmp_path / f"whole-{steps}")
        shared = {14: 1, 24: 7}.get(steps, 0) if early else shared
        assert (found["shared_steps"], expected["shared_steps"]) == (shared, 0)
        same = ("kept_step", *RESULT)
        assert [found.get(key) for key in same] == [expected.get(key) for key in same]
        for name in ("last.ckpt", "best.ckpt") if keep else ("last.ckpt",):
            one, other = (read_checkpoint(folder / "checkpoints" / name) for folder in (folders[steps], whole))
            assert all(torch.equal(value, other["state_dict"][key]) for key, value in one["state_dict"].items())
        losses = [[r for r in rows(folder) if "train/loss" in r] for folder in (folders[steps], whole)]
        assert losses[0] == losses[1]
        assert len(losses[0]) == steps


@pytest.mark.parametrize("words", KILLED.values(), ids=KILLED)
def test_a_signal_stops_at_a_checkpoint_and_a_killed_run_ends_with_the_same_weights_and_loses_no_row(words, tmp_path):
    write_texts(tmp_path)
    words = ["train", *TINY, *(word.format(folder=tmp_path) for word in words), "budget.steps=48"]
    words += ["trainer.checkpoint_every=0.2", "wandb.mode=off", "analyses=[]"]
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    program = commands.Program(*words, "--out", folder)
    program.wait_for(lambda: (folder / "metrics.jsonl").exists() and rows(folder))
    program.signal(signal.SIGTERM)
    done = program.end()
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)
    stopped = read_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"]
    program = commands.Program(*words, "--out", folder)
    program.wait_for(lambda: read_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"] > stopped)
    program.kill()
    assert not (folder / "result.json").exists()
    commands.succeed(*words, "trainer.evaluations=5", "--out", folder)
    commands.succeed(*words, "trainer.workers=1", "--out", whole)
    one, other = weights(folder), weights(whole)
    assert all(torch.equal(one[key], other[key]) for key in one)
    kept, expected = ([row for row in rows(path) if "train/loss" in row] for path in (folder, whole))
    assert kept == expected


def test_a_run_killed_in_its_test_tests_again_and_does_not_train_again(tmp_path):
    words = ["train", "task=translation", "data=numbers", "data.count=4000", "model.width=24", "model.heads=2"]
    words += ["budget.steps=20", "trainer.evaluations=1", "trainer.log_every=5", "wandb.mode=off", "task.beams=2"]
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    program, last = commands.Program(*words, "--out", folder), folder / "checkpoints" / "last.ckpt"
    program.wait_for(lambda: last.exists() and read_checkpoint(last)["global_step"] == 20)
    program.kill()
    assert not (folder / "result.json").exists()
    for path in (folder, whole):
        commands.succeed(*words, "--out", path)
    assert [row["step"] for row in rows(folder) if "train/loss" in row] == [5, 10, 15, 20]
    for name in ("generated.json", "heldout.npz"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
