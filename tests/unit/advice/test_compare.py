"""Which classifier is best, from arrays alone."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.ensemble import RandomForestClassifier

from vitlab.advice import compare as advice
from vitlab.reports.advice import describe_advice, draw_curves


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """One repetition: each classifier is fitted five times, not twenty; in this process, with few trees."""
    monkeypatch.setattr(advice, "REPEATS", 1)
    forest = (None,), lambda _: RandomForestClassifier(9, random_state=0)
    monkeypatch.setitem(advice.KINDS, "random forest", forest)
    with parallel_config("sequential"):
        yield


def draw(count, classes=3, width=8, noise=1.0, seed=0):
    """Classes around points at random: (labels, features)."""
    generator = np.random.default_rng(seed)
    centers = 1.5 * np.random.default_rng(1).standard_normal((classes, width))
    labels = generator.integers(0, classes, count)
    return labels, (centers[labels] + noise * generator.standard_normal((count, width))).astype(np.float32)


def answer(features, labels, groups=None, held_out=None, networks=()):
    groups = np.arange(len(labels)) if groups is None else groups
    splits = advice.make_splits(labels, groups, held_out)
    outcomes = advice.compare_candidates(features, labels, splits)
    return advice.judge(outcomes, networks, labels, groups, held_out), outcomes


def test_each_picture_is_tested_by_each_repetition_and_copies_stay_together(monkeypatch):
    monkeypatch.undo()
    labels, groups = np.arange(53) % 3, np.arange(53) // 2
    splits = advice.make_splits(labels, groups, None)
    assert len(splits) == advice.FOLDS * advice.REPEATS >= 20
    assert (np.bincount(np.concatenate([test for _, test in splits])) == advice.REPEATS).all()
    for train, test in splits:
        assert not set(groups[train]) & set(groups[test])
        assert sorted([*train, *test]) == list(range(53))


def test_hits_are_shares_of_the_repetitions(monkeypatch):
    monkeypatch.setattr(advice, "REPEATS", 2)
    labels, x = draw(60, noise=0.01)
    _, outcomes = answer({"pixels": x}, labels)
    assert max(one.hits[0].mean() for one in outcomes) == 1


def test_given_test_pictures_are_the_test_of_all_splits():
    held_out = np.arange(40) >= 30
    splits = advice.make_splits(np.arange(40) % 2, np.arange(40), held_out)
    assert all((test == np.arange(30, 40)).all() and len(train) == 30 for train, test in splits)


def test_frozen_features_are_taken_where_they_are_surely_better():
    labels, good = draw(150)
    poor = np.random.default_rng(2).random((150, 12), dtype=np.float32)
    found, _ = answer({"pixels": poor + 0.1 * labels[:, None].astype(np.float32), "net": good}, labels)
    assert found.chosen.name.endswith("frozen net")
    assert found.chosen.lead.low > 0
    assert found.floor.name.endswith("pixels")


def test_noise_does_not_beat_the_largest_class():
    labels = np.random.default_rng(4).choice(2, 150, p=[0.7, 0.3])
    found, _ = answer({"pixels": np.random.default_rng(5).random((150, 6), dtype=np.float32)}, labels)
    assert not found.beats_chance


@pytest.mark.slow
def test_now_and_twice_the_labels_lie_in_their_intervals():
    """On data whose truth is measured with new pictures."""
    inside, total = 0, 8
    for seed in range(4, 4 + total):
        labels, x = draw(500, classes=5, width=10, noise=3.0, seed=seed)
        later_labels, later_x = draw(8000, classes=5, width=10, noise=3.0, seed=seed + 100)
        found, _ = answer({"pixels": x[:250]}, labels[:250])
        for size, given in ((250, found.chosen.now), (500, found.chosen.later)):
            kind = found.chosen.outcome.candidate.kind
            model = advice.fit_classifier(kind, x, labels, np.arange(size))
            truth = float((advice.score(model, later_x, 5).argmax(axis=1) == later_labels).mean())
            inside += given.low <= truth <= given.high
    assert inside >= 0.75 * 2 * total


def judge_drawn(seed, networks, share=0.85, count=150):
    """Three floors of 60% and trained networks of a share, which differ by chance alone."""
    random = np.random.default_rng(seed)
    drawn = [advice.Candidate(kind, "pixels") for kind in advice.FLOOR]
    floors = [advice.Outcome(one, np.array([count]), (random.random((1, count)) < 0.6) * 1.0, None) for one in drawn]
    floors.sort(key=lambda one: -one.hits.mean())
    hits = [(random.random(count) < share) * 1.0 for _ in range(networks)]
    trained = [advice.Network(f"n{place}", one, 1, 10, False) for place, one in enumerate(hits)]
    return advice.judge(floors, trained, np.arange(count) % 2, np.arange(count), None)


@pytest.mark.parametrize("networks", [0, 3])
def test_what_is_named_of_several_that_are_equal_is_lowered_by_its_luck(networks):
    """A trained network too, and a floor that is named though another is best within a standard error."""
    chosen = [judge_drawn(seed, networks).chosen for seed in range(6)]
    assert all(one.is_floor is not bool(networks) for one in chosen)
    assert all(0.003 < one.hits.mean() - one.now.value < 0.04 for one in chosen)


def test_sentences_say_why_the_best_is_not_named_and_how_many_splits_were_made():
    found, none = judge_drawn(5, 0), SimpleNamespace(suspects=np.array([]), tested=1, rows=[])
    best = found.standings[0]
    assert best is not found.chosen
    best = replace(best, outcome=replace(best.outcome, repeats=0.2))
    text = " ".join(describe_advice(replace(found, standings=[best, *found.standings[1:]]), none, None))
    assert f"Take {found.chosen.name}" in text
    assert f"{best.name} ({100 * best.now.value:.1f}%) may be chance" in text
    assert "Time was enough for 1 split of 20 into" in text


def test_the_axis_of_curves_holds_whole_bands():
    labels, x = draw(160, noise=3.0)
    chart = json.loads(draw_curves(answer({"pixels": x}, labels)[0]).chart.to_json())
    (data,), (first, *_) = chart["datasets"].values(), chart["layer"]
    ends = [row[end] for row in data for end in ("low", "high") if row[end] is not None]
    low, high = first["encoding"]["y"]["scale"]["domain"]
    assert (low, high) == (pytest.approx(min(ends)), pytest.approx(max(ends)))


def test_the_same_lead_is_less_sure_where_more_were_tried():
    few, many = (next(one.lead for one in judge_drawn(0, count).standings if one.name == "n0") for count in (1, 9))
    assert few.value == many.value
    assert many.low < few.low < few.high < many.high


def test_a_network_whose_lead_may_be_chance_is_hopeful_and_not_chosen():
    found = judge_drawn(0, 1, share=0.62)
    assert found.chosen.is_floor
    assert found.hopeful.name == "n0"
    assert found.hopeful.lead.low < 0 < found.hopeful.lead.value


def test_labels_for_a_target_and_what_is_out_of_reach():
    curve = advice.Curve(1000, 0.2, 0.5, np.full(100, 0.2), np.linspace(0.4, 0.6, 100))
    assert curve.labels_for(0.9).value == pytest.approx(4000)
    assert curve.labels_for(0.9).low < 4000 < curve.labels_for(0.9).high
    assert curve.labels_for(0.99) is None
    assert curve.at(4000).value == pytest.approx(0.9)
    assert curve.gain(1000, 3000).value == pytest.approx(0.1)


def test_wrong_labels_are_suspects():
    labels, x = draw(300, noise=0.3)
    wrong = np.arange(0, 300, 10)
    given = labels.copy()
    given[wrong] = (labels[wrong] + 1) % 3
    _, outcomes = answer({"pixels": x}, given)
    suspects = advice.find_mistakes(outcomes[0], given).suspects
    assert set(suspects) <= set(wrong)
    assert len(suspects) >= 10


def test_a_trained_network_is_compared_on_its_own_test_pictures():
    labels, x = draw(100, noise=2.5)
    hits = np.full(100, np.nan)
    hits[::4] = 1.0
    found, _ = answer({"pixels": x}, labels, networks=[advice.Network("vit", hits, 1, 100, False)])
    assert found.chosen.name == "vit"
    assert found.chosen.later is None


def test_after_the_deadline_one_split_is_finished():
    labels, x = draw(60)
    splits = advice.make_splits(labels, np.arange(60), None)
    outcomes = advice.compare_candidates({"pixels": x}, labels, splits, deadline=time.monotonic() - 1)
    assert {*np.flatnonzero(~np.isnan(outcomes[0].hits).any(axis=0))} == {*splits[0][1]}
    assert advice.judge(outcomes, [], labels, np.arange(60), None).standings


@pytest.mark.parametrize(("deadline", "repeats"), [(66, 2.8), (1000, 4)])
def test_a_split_begins_only_if_it_ends_before_the_deadline(deadline, repeats, monkeypatch):
    """Each fit takes a second by this clock; the ranking has two thirds of the time, with three fits a split."""
    monkeypatch.setattr(advice, "REPEATS", 4)
    clock, fit = [0], advice.fit_scores
    monkeypatch.setattr(advice, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def fit_in_a_second(*of):
        clock[0] += 1
        return fit(*of)

    monkeypatch.setattr(advice, "fit_scores", fit_in_a_second)
    labels, x = draw(120)
    splits = advice.make_splits(labels, np.arange(120), None)
    outcomes = advice.compare_candidates({"pixels": x}, labels, splits, deadline=deadline)
    assert [one.repeats for one in outcomes] == [repeats] * 3
    assert clock[0] <= deadline - 3, "a split less: the best is fitted once more, to time it"
