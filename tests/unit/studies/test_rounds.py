"""Seeds where they count: what a round adds, when rounds stop, that they repeat."""

from itertools import product
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np

from vitlab.files import write_json
from vitlab.studies import rounds
from vitlab.studies.results import Results
from vitlab.studies.rounds import (
    Design,
    Question,
    Spending,
    Target,
    charge_looks,
    judge,
    plan_round,
    propose,
    rank,
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
    assert counts["vit", 4000] == counts["resnet", 4000] == 3
    assert "the 95% interval over seeds is wider than ± 1.5 points at\n  vit at 250: ± " in texts[0]
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
    assert added == [("vit", 250, 1), ("vit", 250, 2)]
    assert "vit at 250: one seed, 2 more" in text
    added, text = plan_round(rows, Target(1.0), {("vit", 250)})
    assert (added, text[:40]) == ([], "No more seeds: runs failed at vit at 250")


# ---- a time that is spent


def test_looks_are_charged_so_that_all_of_them_err_in_two_thirds_of_5_percent():
    shares, random = np.arange(1, 6) / 5, np.random.default_rng(0)
    paths = (random.standard_normal((200_000, 5)) * np.sqrt(0.2)).cumsum(axis=1) / np.sqrt(shares)
    bounds = [NormalDist().inv_cdf(1 - 0.05 / charge_looks(share) / 2) for share in shares]
    assert 0.028 < (np.abs(paths) > bounds).any(axis=1).mean() < 0.035
    assert charge_looks(1.0) < charge_looks(1.0, stage=1) < charge_looks(0.5)


def test_the_run_that_takes_most_of_the_variance_per_second_comes_first():
    one, two, other = np.random.default_rng(0).standard_normal((3, 2400))
    cells = {(("vit",), 100): (one, 1.0), (("vit",), 400): (2 * two, 2.0), (("vit",), 900): (other, 1.0)}
    answer = (one + 2 * two)[:, None]
    assert next(rank(answer, cells, {}, dict.fromkeys(cells, 1.0)))[0] == (("vit",), 400)
    (first, share), (second, _), *_ = rank(answer, cells, {}, dict(zip(cells, (1.0, 8.0, 1e-9), strict=True)))
    assert (first[1], second[1]) == (100, 400), "a third seed at 100 takes less than the first"
    assert 0.08 < share < 0.12, "half of the fifth that this mean leaves open"
    luck = {"vit": (5 * one[:, None], 2, 3)}
    key, share = next(rank(5 * one[:, None], {(("vit",), 900): (other, 1.0)}, luck, {"vit": 1.0, (("vit",), 900): 1.0}))
    assert (key, round(share, 2)) == ("vit", 0.33), "a third recipe"


class Clock:
    """Trains nothing: the runs of each round take a second each, and their errors are drawn."""

    def __init__(self, folder, monkeypatch, gap):
        self.files, self.now, self.gap, self.rows = StudyFiles(folder), 0.0, gap, []
        self.design = Design({"vit": ["vit"], "resnet": ["resnet"]}, [1000], [1000], [0, 1, 2])
        monkeypatch.setattr(rounds, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(rounds, "load_results", lambda _, alpha: Results(self.rows, outcomes={}, alpha=alpha))

    def spend(self, kind, seconds, kill_after=100):
        spending, began = Spending(self.files, Question(kind, 1000, seconds), self.now), self.now
        for _ in range(kill_after):
            added, text = spending.plan(self.design, 1)
            write_json(self.files.runs_path, [*self.files.run_keys(), *added])
            for model, size, seed in added:
                noise = 0.005 * np.random.default_rng([seed, len(model)]).standard_normal()
                row = {"run": f"{model}-{seed}", "model": model, "train_size": size, "seed": seed, "wall_s": 1.0}
                self.rows.append({**row, "accuracy": 0.8 + self.gap * (model == "vit") + noise})
                self.now += 1.0
            if not added:
                return text, self.now - began
        return text, self.now - began


def test_a_decided_question_stops_early_and_an_undecided_one_says_what_it_would_do(tmp_path, monkeypatch):
    text, spent = Clock(tmp_path / "clear", monkeypatch, 0.1).spend("leader", 60)
    assert spent < 40
    assert text.startswith("Decided, with ")
    assert "left unspent: vit at 1,000 leads resnet by " in text
    open_one = Clock(tmp_path / "open", monkeypatch, 0.002)
    text, spent = open_one.spend("leader", 15)
    assert text.startswith("Not decided: ")
    assert 8 <= spent <= 10
    assert "With more time: vit and resnet at 1,000" in text
    text, spent = open_one.spend("leader", 15)
    stages = open_one.files.spent()
    assert [stage["seconds"] for stage in stages] == [15, 15], "another --spend adds its time"
    assert spent <= 10
    assert stages[1]["looks"] > stages[0]["looks"] > 1
    assert open_one.spend("best", 30)[0].startswith("Decided"), "where an interval is narrow, whatever it says"
    assert open_one.files.spent()[2]["looks"] == 1
    history = Results(open_one.rows, {}, open_one.files, outcomes={}).tables["history"]
    assert history.answer.iloc[-1].startswith("Decided")
    assert history.spend.unique().tolist() == [1, 2, 3]
    plain, charged = (Results(open_one.rows, outcomes={}, alpha=alpha) for alpha in (1, 0.5))
    widths = [one.gap("vit", "resnet", 1000).estimate.half_width for one in (plain, charged)]
    assert widths[0] < widths[1], "what the page says at a look leaves out less"


def test_one_seed_decides_nothing_however_clear_its_test_items_are():
    rows = [{"run": m, "model": m, "train_size": 1000, "seed": 0, "accuracy": a} for m, a in (("vit", 1), ("mlp", 0))]
    items = {"vit": np.ones(100), "mlp": np.arange(100) < 5}
    results = Results(rows, outcomes=items)
    assert results.gap("vit", "mlp", 1000).verdict == "lead"
    assert not judge(results, Question("leader", 1000)).decided
    assert not judge(results, Question("best", 1000)).decided
    same = [{**rows[0], "seed": seed} for seed in range(3)]
    decided = [judge(Results(same[:n], outcomes={}), Question("best", 1000)).decided for n in (2, 3)]
    assert decided == [False, True], "two seeds may agree by chance"


def test_a_command_that_was_killed_goes_on_with_its_time(tmp_path, monkeypatch):
    clock = Clock(tmp_path, monkeypatch, 0.002)
    _, before = clock.spend("leader", 20, kill_after=3)
    text, after = clock.spend("leader", 20)
    (stage,) = clock.files.spent()
    assert text.startswith("Not decided")
    assert before + after <= 17
    assert stage["end"] == text
    runs = [tuple(run) for one in stage["rounds"] for run in one["runs"]]
    assert len({*runs}) == len(runs) == len(clock.rows)


def test_a_crossover_is_sought_where_it_lies():
    laws = {"vit": lambda x: 0.2 * (x / 2000) ** -0.5, "resnet": lambda x: 0.2 * (x / 2000) ** -0.25}
    sizes, rows = [500, 1000, 2000, 4000], []
    for model, size, seed in product(laws, sizes, range(2)):
        noise = 0.03 * np.random.default_rng([seed, size, len(model)]).standard_normal()
        error = laws[model](size) * np.exp(noise)
        row = {"run": f"{model}-{size}-{seed}", "model": model, "family": model, "train_size": size, "seed": seed}
        rows.append({**row, "accuracy": 1 - error, "wall_s": 1.0})
    results, question = Results(rows, outcomes={}), Question()
    design = Design({model: [model] for model in laws}, sizes, [*sizes, 2800], [0, 1])
    answer = judge(results, question)
    asked = [(row["model"], row["train_size"], row["seed"]) for row in rows]
    (one, *_) = propose(results, question, design, answer, asked, left=60.0)
    assert {size for _, size, _ in one.runs} <= {2000, 2800}
    assert {name for name, *_ in one.runs} == {*laws}
    assert not propose(results, question, design, answer, asked, left=1.5), "a pair takes two seconds"


def make_rows(laws, sizes, seeds, noise):
    rows = []
    for model, size, seed in product(laws, sizes, range(seeds)):
        error = laws[model](size) * np.exp(noise * np.random.default_rng([seed, size, len(model)]).standard_normal())
        row = {"run": f"{model}-{size}-{seed}", "model": model, "train_size": size, "seed": seed, "wall_s": 1.0}
        rows.append({**row, "accuracy": 1 - error})
    return rows


LAWS = {"vit": lambda x: 0.2 * (x / 2000) ** -0.5, "resnet": lambda x: 0.2 * (x / 2000) ** -0.25}
SIZES = [500, 1000, 2000, 4000, 8000]


def test_a_crossover_of_one_seed_is_sure_and_decides_nothing():
    rows = {seeds: make_rows(LAWS, SIZES, seeds, 1e-3) for seeds in (1, 3)}
    items = {row["run"]: (np.arange(4000) < 4000 * row["accuracy"]).astype(np.float32) for row in rows[3]}
    of_items = {row["run"]: items[row["run"]] for row in rows[1]}
    answers = [judge(Results(rows[n], outcomes=kept), Question()) for n, kept in ((1, of_items), (3, items))]
    assert all(answer.text.startswith("ViT passes ResNet at 2,000") for answer in answers)
    assert [answer.decided for answer in answers] == [False, True]
    noisy = judge(Results(make_rows(LAWS, SIZES, 2, 0.3), outcomes={}), Question())
    assert (answers[1].draws.shape[1], noisy.draws.shape[1]) == (1, 3), "what is not sure needs clear leaders"


def test_a_model_without_a_law_stops_no_other_and_a_law_that_misses_is_measured_where_it_is_asked():
    question, design = Question("law", 8000), Design({m: [m] for m in ("vit", "mlp")}, SIZES[:4], SIZES, range(3))
    rising = {**LAWS, "mlp": lambda x: 0.2 * (x / 2000) ** 0.5}
    rising.pop("resnet")
    one, two = (judge(Results(make_rows(rising, SIZES[:4], n, 0.01), outcomes={}), question) for n in (1, 2))
    assert not one.draws.size, "one seed rises by chance"
    assert two.draws.shape[1] == 1
    assert two.text.endswith("mlp: no law, its error rises")
    jumps = {"vit": LAWS["vit"], "mlp": lambda x: 0.3 if x in (500, 2000) else 0.05}
    rows = make_rows(jumps, SIZES[:4], 1, 0.01)
    results = Results(rows, outcomes={})
    assert not results.fits.by_model["mlp"].holds
    asked = [(row["model"], row["train_size"], row["seed"]) for row in rows]
    proposals = propose(results, question, design, judge(results, question), asked, left=60.0)
    assert proposals[0].runs == [("mlp", 8000, 0)]
