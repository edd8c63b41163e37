"""Seeds where they count: what a round adds, when rounds stop, that they repeat."""

import numpy as np

from vitlab.studies.rounds import Target, plan_round

SPREADS = {
    ("vit", 250): 0.03,
    ("vit", 1000): 0.011,
    ("vit", 4000): 0.004,
    ("resnet", 250): 0.01,
    ("resnet", 1000): 0.0055,
    ("resnet", 4000): 0.003,
}


def draw(cells, generator_seed=0):
    """A row for each (variant, size, seed) of a study whose spreads over seeds are SPREADS."""
    rows = []
    for variant, size, seed in cells:
        entropy = [generator_seed, seed, size, len(variant)]
        accuracy = 0.7 + SPREADS[variant, size] * np.random.default_rng(entropy).standard_normal()
        rows.append({"model": variant, "train_size": size, "seed": seed, "accuracy": accuracy, "test_items": 2000})
    return rows


def play(target, generator_seed=0, seeds=3):
    """All cells of a study whose rounds ran to their end, and each round's text."""
    cells, texts = [(*cell, seed) for cell in SPREADS for seed in range(seeds)], []
    while True:
        added, text = plan_round(draw(cells, generator_seed), target)
        texts.append(text)
        if not added:
            return cells, texts
        assert not {*added} & {*cells}
        cells += added


def test_seeds_are_added_where_the_interval_is_wide_until_it_is_not():
    cells, texts = play(Target(1.5))
    counts = {cell: sum(one[:2] == cell for one in cells) for cell in SPREADS}
    assert counts["vit", 250] > 2 * counts["resnet", 250]
    assert counts["vit", 4000] == counts["resnet", 4000] == 3
    assert "the 95% interval over seeds is wider than ± 1.5 points at\n  vit at 250: ± " in texts[0]
    assert texts[-1].startswith(
        "No more seeds: every mean's 95% interval over seeds, on this test set, is within ± 1.5"
    )
    assert "Other test sets of 2,000 items would move a result by up to ± 2.1 points" in texts[-1]
    assert play(Target(1.5)) == (cells, texts), "the next start repeats the same rounds"


def test_fewer_runs_are_needed_than_with_equal_seeds_for_every_cell():
    spent, equal = 0, 0
    for study in range(20):
        spent += len(play(Target(1.5), study)[0])
        seeds = 3
        while plan_round(draw([(*c, s) for c in SPREADS for s in range(seeds)], study), Target(1.5))[0]:
            seeds += 1
        equal += seeds * len(SPREADS)
    assert spent < 0.6 * equal


def test_rounds_stop_at_the_largest_number_of_runs_the_widest_cells_first():
    cells, texts = play(Target(0.2, max_runs=21))
    assert len(cells) == 21
    assert {cell[:2] for cell in cells[18:]} == {("vit", 250)}
    assert "--max-runs 21 is reached; wider than ± 0.2 points is vit at 250" in texts[-1]


def test_a_cell_without_a_result_is_named_and_not_counted_as_certain():
    rows = [{**row, "accuracy": None} for row in draw([("vit", 250, 0), ("vit", 250, 1)])]
    assert plan_round(rows, Target(1.0)) == ([], "No more seeds: no run has a result in accuracy.")
    rows += draw([("resnet", 4000, seed) for seed in range(9)])
    text = plan_round(rows, Target(1.0), {("vit", 1000)})[1]
    assert "is within ± 1.0 points. Without a result in accuracy: vit at 1,000, vit at 250." in text


def test_a_seed_that_ended_without_a_result_is_not_asked_for_again():
    rows = draw([("vit", 250, seed) for seed in range(4)])
    added, _ = plan_round([*rows[:3], {**rows[3], "accuracy": None}], Target(0.5))
    assert [seed for *_, seed in added] == [4, 5, 6]


def test_one_seed_tells_nothing_and_gets_more_unless_its_runs_fail():
    rows = draw([("vit", 250, 0)])
    added, text = plan_round(rows, Target(1.0))
    assert added == [("vit", 250, 1), ("vit", 250, 2)]
    assert "vit at 250: one seed, 2 more" in text
    added, text = plan_round(rows, Target(1.0), {("vit", 250)})
    assert (added, text[:40]) == ([], "No more seeds: runs failed at vit at 250")
