"""What `vitlab verify` says of two trainings: planted changes of rows, result, weights, outcomes and texts."""

import json
import shutil

import numpy as np
import pytest
import torch

from vitlab.commands.verify import EXIT_CODES, compare, show
from vitlab.console import Console
from vitlab.files import write_json
from vitlab.studies.outcomes import Outcomes, write_outcomes
from vitlab.training.files import RunFiles

RESULT = {"run": "again", "model": "m", "train_size": 100, "seed": 0, "steps": 6, "accuracy": 0.75, "error": 0.25}
RESULT |= {"loss": 0.5, "macro_f1": 0.74, "train_loss": 0.4, "validation_accuracy": 0.8}
RESULT |= {"study": "", "status": "finished", "by_class": {"a": [3, 4], "b": [0, 0]}}
RESULT |= {"wall_s": 1.0, "images_per_s": 9.0, "finished_at": "2026-01-01", "environment": {}, "wandb": None}
ROWS = [
    {"step": 3, "wall_s": 0.1, "train/loss": 1.5, "train/lr": 0.5, "train/grad_norm": 2.0, "train/images_per_s": 1.0},
    {"step": 3, "validation/accuracy": 0.7, "validation/loss": 1.25},
    {"step": 6, "wall_s": 0.2, "train/loss": 1.0, "train/lr": 0.25, "train/grad_norm": 1.0, "train/images_per_s": 1.0},
    {"step": 6, "validation/accuracy": 0.8, "validation/loss": 1.125},
]


def write_rows(files, rows):
    files.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_weights(files, value):
    state = {"state_dict": {"model.w": torch.tensor([value]), "model.b": torch.zeros(2)}}
    torch.save({**state, "global_step": 6, "shape": {}, "classes": [], "scale": None}, files.checkpoint_path)


@pytest.fixture
def pair(tmp_path):
    """Two equal runs of a task that writes texts: (then, again)."""
    files = RunFiles(tmp_path / "again")
    files.checkpoint_path.parent.mkdir(parents=True)
    write_json(files.result_path, RESULT)
    write_rows(files, ROWS)
    write_weights(files, 1.0)
    write_outcomes(files.heldout_path, Outcomes("accuracy", np.array([1.0, 1.0, 1.0, 0.0]), np.ones(4)))
    write_json(files.generated_path, [{"source": "s", "reference": "r", "generated": "r"}] * 2)
    write_json(files.tokenizer_path, {"model": {}})
    return RunFiles(shutil.copytree(files.folder, tmp_path / "then")), files


def answer(pair, **options):
    return compare(*pair, *(each.result() for each in pair), **options)


def said(pair, capsys, **options):
    show({"run": "then", "steps": 6, "changes": [], **answer(pair, **options)}, Console())
    return capsys.readouterr().out.splitlines()


PARTS = ["rows", "result", "weights", "test outcomes", "generated texts", "tokenizer"]


def test_an_unchanged_run_is_equal_wherever_and_whenever_it_was_trained(pair, capsys):
    elsewhere = {"run": "then", "wall_s": 9.0, "images_per_s": 1.0, "finished_at": "2027", "wandb": {"id": "x"}}
    write_json(pair[0].result_path, RESULT | elsewhere | {"environment": {"torch": "1"}, "mfu": 0.1})
    write_rows(pair[0], [{**row, **({"wall_s": 7.0} if "wall_s" in row else {})} for row in ROWS])
    for same in (True, False):
        found = answer(pair, same=same)
        assert (found["verdict"], found["compared"], found["missing"], found["left_out"]) == ("equal", PARTS, [], [])
    assert said(pair, capsys)[0] == f"then: equal bit for bit ({', '.join(PARTS)})"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("accuracy", 0.95), ("error", 0.05), ("loss", 0.5000001), ("macro_f1", 0.9), ("train_loss", 0.1)],
        *[("validation_accuracy", 0.81), ("by_class", {"a": [4, 4], "b": [0, 0]})],
        *[("accuracy", None), ("steps", 5), ("train_size", 200), ("status", "diverged")],
    ],
)
def test_a_changed_column_of_the_result_differs(pair, key, value):
    write_json(pair[0].result_path, RESULT | {key: value})
    found = answer(pair)
    assert (found["verdict"], found["differs"], found["then"], found["now"]) == ("differs", key, value, RESULT[key])


def test_a_column_that_is_gone_differs_and_one_that_is_not_measured_again_is_named(pair, capsys):
    write_json(pair[0].result_path, {key: value for key, value in RESULT.items() if key != "macro_f1"})
    assert answer(pair)["differs"] == "macro_f1"
    write_json(pair[0].result_path, RESULT | {"knn": 0.9, "accuracy@other": 0.6, "probe_s": 1.0})
    found = answer(pair)
    assert (found["verdict"], found["left_out"]) == ("equal", ["knn", "accuracy@other"])
    assert said(pair, capsys)[1] == "  not compared: knn, accuracy@other"


GONE = [
    ("checkpoints/last.ckpt", "weights"),
    ("heldout.npz", "test outcomes"),
    ("generated.json", "generated texts"),
    ("tokenizer.json", "tokenizer"),
]


@pytest.mark.parametrize(("name", "part"), GONE)
@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_what_is_gone_or_damaged_is_named_and_not_claimed(pair, name, part, damage, capsys):
    path = pair[0].folder / name
    path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes()[:9])
    found = answer(pair)
    assert (found["verdict"], found["missing"]) == ("incomplete", [f"{name} is {damage}"])
    assert EXIT_CODES["incomplete"] == 3
    rest = [each for each in PARTS if each != part]
    assert found["compared"] == rest
    assert said(pair, capsys)[:2] == [
        f"then: cannot be verified; the rest is equal bit for bit ({', '.join(rest)})",
        f"  not compared: {name} is {damage}",
    ]


def test_altered_outcomes_texts_weights_and_tokenizers_differ(pair):
    write_outcomes(pair[0].heldout_path, Outcomes("accuracy", np.array([1.0, 1.0, 0.0, 1.0]), np.ones(4)))
    assert (answer(pair)["verdict"], answer(pair)["differs"]) == ("differs", "outcomes on the test items")
    shutil.copy(pair[1].heldout_path, pair[0].heldout_path)
    write_json(pair[0].generated_path, [{"source": "s", "reference": "r", "generated": "other"}] * 2)
    assert (answer(pair)["verdict"], answer(pair)["differs"]) == ("differs", "generated texts (generated.json)")
    shutil.copy(pair[1].generated_path, pair[0].generated_path)
    write_json(pair[0].tokenizer_path, {"model": {"vocab": {}}})
    assert (answer(pair)["verdict"], answer(pair)["differs"]) == ("differs", "tokenizer (tokenizer.json)")
    shutil.copy(pair[1].tokenizer_path, pair[0].tokenizer_path)
    write_weights(pair[0], 1.0000001)
    assert (answer(pair)["verdict"], answer(pair)["differs"]) == ("differs", "1 tensor of the weights")


def change_rows(files, **factors):
    """Multiply values of all rows by key, with slashes written as `__`."""
    factors = {key.replace("__", "/"): factor for key, factor in factors.items()}
    write_rows(files, [{key: value * factors.get(key, 1) for key, value in row.items()} for row in ROWS])


def test_rounding_is_small_in_every_number_and_of_the_same_configuration(pair, capsys):
    change_rows(pair[0], train__loss=1 + 1e-6, train__grad_norm=1 + 1e-5)
    write_json(pair[0].result_path, RESULT | {"loss": 0.50001})
    found = answer(pair)
    assert (found["verdict"], found["from_step"], found["differs"]) == ("rounding", 3, "train/loss")
    assert (found["largest"], found["largest_of"]) == (pytest.approx(2e-5, rel=0.01), "loss")
    assert found["left_out"] == ["by_class", "weights"]
    lines = said(pair, capsys)
    assert lines[0] == "then: equal within rounding (rows, result, test outcomes, generated texts, tokenizer)"
    assert lines[1] == "  not compared: by_class, weights"
    assert lines[2].startswith("  first difference at step 3: train/loss 1.50000")
    assert lines[2].endswith(" then, 1.5 now, relative 1e-06")
    assert lines[3] == "  largest difference: loss, relative 2e-05"
    assert answer(pair, same=False)["verdict"] == "differs"
    pair[0].heldout_path.unlink()
    assert answer(pair)["verdict"] == "incomplete"
    assert said(pair, capsys)[0].startswith(
        "then: cannot be verified; the rest is equal within rounding (rows, result,"
    )


@pytest.mark.parametrize(
    ("columns", "means"), [({"accuracy": 0.95}, [1, 1, 1, 0]), ({}, [1, 1, 0, 1]), ({"train_size": 101}, [1, 1, 1, 0])]
)
def test_rounding_of_the_rows_excuses_no_other_result(pair, columns, means):
    change_rows(pair[0], train__loss=1 + 1e-6)
    write_json(pair[0].result_path, RESULT | columns)
    write_outcomes(pair[0].heldout_path, Outcomes("accuracy", np.array(means, float), np.ones(4)))
    assert answer(pair)["verdict"] == "differs"


@pytest.mark.parametrize("key", ["train/lr", "train/grad_norm", "validation/accuracy", "train/loss"])
def test_a_doubled_number_in_every_row_differs(pair, key):
    change_rows(pair[0], **{key: 2.0})
    assert (answer(pair)["verdict"], answer(pair)["differs"]) == ("differs", key)
    assert answer(pair, steps=3)["verdict"] == "differs"


def test_rows_are_compared_by_key_and_number(pair):
    change_rows(pair[0], **{"train/lr": 1 + 1e-4})
    assert answer(pair)["verdict"] == "differs"  # the rate follows from the step
    for place, row in enumerate(ROWS):
        for rows in ([*ROWS[:place], *ROWS[place + 1 :]], [*ROWS[: place + 1], *ROWS[place:]]):
            write_rows(pair[0], rows)
            found = answer(pair)
            assert (found["verdict"], found["from_step"]) == ("differs", row["step"])
            assert found["differs"] == f"4 rows in place of {len(rows)}"
    write_rows(pair[0], [{key: value for key, value in row.items() if key != "train/grad_norm"} for row in ROWS])
    assert answer(pair)["differs"] == "train/grad_norm"
    write_rows(pair[0], [*ROWS[:3], ROWS[3] | {"validation/loss": None}])
    assert (answer(pair)["verdict"], answer(pair)["largest"]) == ("differs", None)


def test_of_the_first_steps_rows_alone_are_compared(pair, capsys):
    pair[0].heldout_path.unlink()
    options = {"then": RESULT, "now": None, "steps": 3}
    found = compare(*pair, **options)
    assert (found["verdict"], found["compared"]) == ("equal", ["rows"])
    show({"run": "then", "steps": 3, "changes": [], **found}, Console())
    assert capsys.readouterr().out.startswith("then: equal bit for bit (rows of 3 steps)")
    write_rows(pair[0], ROWS[:1])
    assert compare(*pair, **options)["differs"] == "2 rows in place of 1"


def test_a_trial_that_diverged_has_neither_weights_nor_outcomes(pair):
    result = RESULT | {"status": "diverged", "diverged": "step 6: the loss is nan"}
    for files in pair:
        write_json(files.result_path, result)
    pair[1].heldout_path.unlink()
    assert (answer(pair)["verdict"], answer(pair)["compared"]) == ("equal", ["rows", "result"])
    write_json(pair[0].result_path, RESULT)
    assert (answer(pair)["verdict"], answer(pair)["differs"]) == ("differs", result["diverged"])


def test_a_run_that_another_run_began_was_evaluated_at_other_steps(pair):
    write_json(pair[0].result_path, RESULT | {"shared_steps": 3})
    write_rows(pair[0], [ROWS[0], {"step": 2, "validation/loss": 4.0}, *ROWS[2:]])
    assert (answer(pair)["verdict"], answer(pair)["left_out"]) == ("equal", [])
