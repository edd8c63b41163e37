"""Seeds where they count: what a round adds, when rounds stop, that they repeat."""

from itertools import product
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest

from vitlab.config import UserError
from vitlab.files import write_json
from vitlab.studies import rounds
from vitlab.studies.results import Results
from vitlab.studies.rounds import (
    FEWEST_SEEDS,
    Question,
    Spending,
    Target,
    charge_looks,
    estimate_seconds,
    judge,
    plan_round,
    plan_seeds,
)
from vitlab.studies.store import StudyFiles

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
    assert counts["vit", 4000] == counts["resnet", 4000] == FEWEST_SEEDS
    assert (
        "the 95% interval over seeds is wider than ± 1.5 points, or of fewer than 6 seeds, at\n  vit at 250: ± "
        in texts[0]
    )
    assert texts[-1].startswith(
        "No more seeds: every mean's 95% interval over seeds, on this test set, is within ± 1.5"
    )
    assert "Other test sets of 2,000 items would move a result by up to ± 2.1 points" in texts[-1]
    assert play(Target(1.5)) == (cells, texts), "the next start repeats the same rounds"


def test_fewer_runs_are_needed_than_with_equal_seeds_for_every_cell():
    spent, equal = 0, 0
    for study in range(8):
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
    assert added == [("vit", 250, seed) for seed in range(1, FEWEST_SEEDS)]
    assert "vit at 250: one seed, 5 more" in text
    added, text = plan_round(rows, Target(1.0), {("vit", 250)})
    assert (added, text[:40]) == ([], "No more seeds: runs failed at vit at 250")


# ---- a time that is spent


def test_looks_are_charged_so_that_all_of_them_err_in_two_thirds_of_5_percent():
    shares, random = np.arange(1, 6) / 5, np.random.default_rng(0)
    paths = (random.standard_normal((200_000, 5)) * np.sqrt(0.2)).cumsum(axis=1) / np.sqrt(shares)
    bounds = [NormalDist().inv_cdf(1 - 0.05 / charge_looks(share) / 2) for share in shares]
    assert 0.028 < (np.abs(paths) > bounds).any(axis=1).mean() < 0.035
    assert charge_looks(1.0) < charge_looks(1.0, stage=1) < charge_looks(0.5)


SECONDS = {("vit", 100): 1.0, ("mlp", 100): 1.0, ("vit", 400): 4.0, ("mlp", 400): 4.0}


def list_places(runs):
    return [(size, seed) for name, size, seed in runs if name == "vit"]


@pytest.mark.parametrize("text", ["leader", "leader@", "leader@0", "leader@1.5", "law@100", "best@100", "100"])
def test_a_question_is_a_crossover_or_a_leader(text):
    assert [str(Question.parse(one, 60.0)) for one in ("crossover", "leader@100")] == ["crossover", "leader@100"]
    with pytest.raises(UserError, match=f"--find {text}: .*choices: crossover, leader@N"):
        Question.parse(text, 60.0)


def test_a_round_is_a_seed_of_every_size_at_a_time_until_the_next_look():
    alike = dict.fromkeys(SECONDS, 1.0)
    assert plan_seeds(alike, [7, 3], set(), until_look=4.0, left=60.0) == [(*cell, 7) for cell in SECONDS]
    runs = plan_seeds(alike, [7, 3], set(), until_look=5.0, left=60.0, jobs=2)
    assert list_places(runs) == [(100, 7), (400, 7), (100, 3), (400, 3), (100, 0)], "the study's seeds, then others"
    unknown = plan_seeds(dict.fromkeys(SECONDS, 0.0), [7, 3], set(), until_look=5.0, left=60.0)
    assert list_places(unknown) == [(100, 7), (400, 7)]
    assert plan_seeds({}, [7, 3], set(), until_look=5.0, left=60.0) == [], "every cell has failed"


def test_a_size_that_costs_less_gets_more_seeds_and_one_that_would_not_end_in_time_gets_none():
    runs = plan_seeds(SECONDS, [7, 3], set(), until_look=22.0, left=60.0)
    assert list_places(runs) == [(100, 7), (400, 7), (100, 3), (100, 0), (400, 3)]
    more = plan_seeds(SECONDS, [7, 3], {*runs[:3], *runs[4:]}, until_look=5.0, left=60.0)
    assert more == [runs[3], ("vit", 100, 1), ("mlp", 100, 1)], "what lacks comes first"
    late = plan_seeds(SECONDS, [7, 3], set(), until_look=22.0, left=7.0)
    assert list_places(late) == [(100, 7), (100, 3), (100, 0)]


def test_the_seconds_of_a_run_follow_the_pace_of_the_nearest_size():
    rows = [{"model": "vit", "train_size": 100, "wall_s": 2.0, "steps": 10, "trial": 1}]
    rows += [{"model": "vit", "train_size": 400, "wall_s": wall, "steps": 40} for wall in (3.0, 5.0)]
    steps = {("vit trial=2", 100): 10, ("vit", 400): 40, ("vit", 900): 90, ("mlp", 100): 10}
    assert [*estimate_seconds(rows, steps).values()] == [2.0, 4.0, 9.0, 0.0]


class Clock:
    """Trains nothing: the runs of each round take a second each, and their errors are drawn."""

    def __init__(self, folder, monkeypatch, gap):
        self.files, self.now, self.gap, self.rows = StudyFiles(folder), 0.0, gap, []
        monkeypatch.setattr(rounds, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(rounds, "load_results", lambda _, alpha: Results(self.rows, outcomes={}, alpha=alpha))

    def spend(self, seconds, kill_after=100):
        spending, began = Spending(self.files, Question(1000, seconds), self.now), self.now
        for _ in range(kill_after):
            added, text = spending.plan({("vit", 1000): 10, ("resnet", 1000): 10}, [0, 1, 2], 1)
            write_json(self.files.runs_path, [*self.files.run_keys(), *added])
            for model, size, seed in added:
                noise = 0.005 * np.random.default_rng([seed, len(model)]).standard_normal()
                row = {"run": f"{model}-{seed}", "model": model, "train_size": size, "seed": seed, "steps": 10}
                self.rows.append({**row, "wall_s": 1.0, "accuracy": 0.8 + self.gap * (model == "vit") + noise})
                self.now += 1.0
            if not added:
                return text, self.now - began
        return text, self.now - began


def test_a_decided_question_stops_early_and_an_undecided_one_says_what_it_would_do(tmp_path, monkeypatch):
    text, spent = Clock(tmp_path / "clear", monkeypatch, 0.1).spend(60)
    assert spent < 40
    assert text.startswith("Decided, with ")
    assert "left unspent: vit at 1,000 leads resnet by " in text
    open_one = Clock(tmp_path / "open", monkeypatch, 0.008)
    text, spent = open_one.spend(15)
    assert text.startswith("Not decided: ")
    assert 8 <= spent <= 10
    assert "With more time: 2 runs at 1,000, seed " in text
    text, spent = open_one.spend(15)
    stages = open_one.files.spent()
    assert [stage["seconds"] for stage in stages] == [15, 15], "another --spend adds its time"
    assert spent <= 10
    assert stages[1]["looks"] > stages[0]["looks"] > 1
    history = Results(open_one.rows, {}, open_one.files, outcomes={}).tables["history"]
    assert history.answer.iloc[-1].startswith("Not decided")
    assert history.spend.unique().tolist() == [1, 2]
    plain, charged = (Results(open_one.rows, outcomes={}, alpha=alpha) for alpha in (1, 0.5))
    widths = [one.gap("vit", "resnet", 1000).estimate.half_width for one in (plain, charged)]
    assert widths[0] < widths[1], "what the page says at a look leaves out less"


def test_one_seed_decides_nothing_however_clear_its_test_items_are():
    rows = [{"run": m, "model": m, "train_size": 1000, "seed": 0, "accuracy": a} for m, a in (("vit", 1), ("mlp", 0))]
    items = {"vit": np.ones(100), "mlp": np.arange(100) < 5}
    results = Results(rows, outcomes=items)
    assert results.gap("vit", "mlp", 1000).verdict == "lead"
    assert not judge(results, Question(1000)).decided


def test_a_model_that_is_clearly_behind_gets_no_more_seeds():
    levels = {"vit": 0.9, "resnet": 0.899, "mlp": 0.5}
    noise = 0.005 * np.random.default_rng(0).standard_normal((3, 2))
    rows = [
        {"run": f"{m}-{k}", "model": m, "train_size": 1000, "seed": k, "accuracy": levels[m] + noise[place, k]}
        for place, m in enumerate(levels)
        for k in range(2)
    ]
    answer = judge(Results(rows, outcomes={}), Question(1000))
    assert (answer.decided, answer.done) == (False, ["mlp"])


def test_a_command_that_was_killed_goes_on_with_its_time(tmp_path, monkeypatch):
    clock = Clock(tmp_path, monkeypatch, 0.006)
    _, before = clock.spend(20, kill_after=3)
    text, after = clock.spend(20)
    (stage,) = clock.files.spent()
    assert text.startswith("Not decided")
    assert before + after <= 15 + 4, "this clock forgets the round in which it was killed"
    assert stage["end"] == text
    runs = [tuple(run) for one in stage["rounds"] for run in one["runs"]]
    assert len({*runs}) == len(runs) == len(clock.rows)


def make_rows(laws, sizes, seeds, noise):
    rows = []
    for model, size, seed in product(laws, sizes, range(seeds)):
        error = laws[model](size) * np.exp(noise * np.random.default_rng([seed, size, len(model)]).standard_normal())
        row = {"run": f"{model}-{size}-{seed}", "model": model, "train_size": size, "seed": seed, "wall_s": 1.0}
        rows.append({**row, "accuracy": 1 - error})
    return rows


LAWS = {"vit": lambda x: 0.2 * (x / 2000) ** -0.5, "resnet": lambda x: 0.2 * (x / 2000) ** -0.25}
SIZES = [500, 1000, 2000, 4000, 8000]


def test_a_crossover_of_one_seed_is_possible_and_decides_nothing():
    rows = {seeds: make_rows(LAWS, SIZES, seeds, 1e-3) for seeds in (1, 3)}
    items = {row["run"]: (np.arange(4000) < 4000 * row["accuracy"]).astype(np.float32) for row in rows[3]}
    of_items = {row["run"]: items[row["run"]] for row in rows[1]}
    answers = [judge(Results(rows[n], outcomes=kept), Question()) for n, kept in ((1, of_items), (3, items))]
    assert answers[0].text.startswith("possible: ViT passes ResNet between")
    assert answers[1].text.startswith("ViT passes ResNet at 2,000")
    assert [answer.decided for answer in answers] == [False, True]
