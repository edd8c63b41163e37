import re

import numpy as np
import pytest

from vitlab.config.errors import UserError
from vitlab.statistics.crossover import (
    crossover,
    data_multiplier,
    describe_crossover,
    describe_multiplier,
)
from vitlab.statistics.fit import SCATTER, fit_points, fit_scaling_law, order_runs

SIZES = np.geomspace(250, 32_000, 8)
pytestmark = pytest.mark.filterwarnings("error")  # NumPy's would reach the terminal


def measure(law, noise=0.03, seeds=3, shared=(), start=0, sizes=SIZES):
    """Sizes and errors of runs of a law; `shared` is noise that another model has too."""
    rng = np.random.default_rng(start)
    x = np.repeat(sizes, seeds)
    return x, law(x) * np.exp(noise * rng.normal(size=len(x)) + (shared if len(shared) else 0))


@pytest.mark.parametrize(
    ("law", "planted", "error"),
    [
        ("m1", {"b": 3, "c": -0.3}, lambda x: 3 * x**-0.3),
        ("m2", {"e_inf": 0.04, "b": 5, "c": -0.5}, lambda x: 0.04 + 5 * x**-0.5),
        ("m3", {"b": 4, "g": 1e-4, "c": 0.4}, lambda x: 4 * (1 / x + 1e-4) ** 0.4),
    ],
)
def test_planted_parameters_are_found(law, planted, error):
    exact = fit_scaling_law(SIZES, error(SIZES), law)
    assert exact.params == pytest.approx(planted, rel=1e-3)
    noisy = fit_scaling_law(*measure(error), law)
    for name, drawn in noisy.laws[0].name_params(noisy.theta_draws[0]).items():
        assert np.quantile(drawn, 0.0005) <= planted[name] <= np.quantile(drawn, 0.9995)
    assert noisy.measured_by == "seeds resampled"


def test_m4_predicts_from_chance_down_to_its_limit():
    from scipy.optimize import brentq

    def error(sizes):
        planted = lambda e, x: np.log(e - 0.03) - 1.5 * np.log(0.9 - e) - np.log(200) + 0.9 * np.log(x)  # noqa: E731
        return np.array([brentq(planted, 0.03 + 1e-12, 0.9 - 1e-12, args=(x,)) for x in sizes])

    fit = fit_scaling_law(SIZES, error(SIZES), "m4", chance=0.9)
    assert fit.params["e_0"] == 0.9
    np.testing.assert_allclose(fit.predict([10, 1e5, 1e6]), error([10, 1e5, 1e6]), rtol=0.01)
    assert fit.rmse_holdout < 0.01


def test_auto_is_the_mean_of_the_laws_that_the_sizes_can_tell():
    fit = fit_scaling_law(*measure(lambda x: 0.1 + 30 * x**-0.7))
    assert fit.law == "mean"
    assert set(fit.params) == {"m2", "m3", "m4"}
    parts = [one.log_errors(np.log(SIZES)) for one in fit.laws]
    np.testing.assert_allclose(np.log(fit.predict(SIZES)), np.mean(parts, axis=0))
    four = SIZES[::2]
    assert set(fit_scaling_law(four, 3 * four**-0.3).params) == {"m2", "m3"}
    assert set(fit_scaling_law(four, 0.8 * four**-0.1, chance=0.9).params) == {"m2", "m3", "m4"}


def test_three_sizes_have_points_and_no_law():
    three = np.repeat(SIZES[:3], 3)
    steep, flat = (fit_scaling_law(*measure(law, sizes=SIZES[:3])) for law in crossing(SIZES[1]))
    assert (steep.law, steep.holds) == (None, False)
    assert np.isnan(steep.predict(three)).all()
    assert crossover(steep, flat).claim == "sure"  # read off the data
    single = [fit_scaling_law(SIZES[:3], law(SIZES[:3])) for law in crossing(SIZES[1])]
    assert crossover(*single).claim == "none"  # one seed and no law: nothing tells the noise


def test_laws_that_disagree_and_curves_that_left_their_law_have_wide_intervals():
    straight = fit_scaling_law(*measure(lambda x: 3 * x**-0.3, noise=0.005))
    drifting = fit_scaling_law(*measure(lambda x: 3 * x**-0.3 * np.exp(-0.01 * np.log2(x / 250) ** 2), noise=0.005))
    widths = [np.log(high / low) for low, high in (fit.interval(128_000) for fit in (straight, drifting))]
    assert widths[1] > 1.5 * widths[0]
    low, high = straight.interval([32_000, 128_000])
    assert high[1] / low[1] > (high[0] / low[0]) ** 2  # the drift grows with each doubling beyond the data


def test_parameters_at_a_bound_are_listed():
    steeper = measure(lambda x: 3 * x**-0.3 * np.exp(-0.005 * np.log2(x / 250) ** 2))
    fits = [fit_scaling_law(*of, "m2") for of in (steeper, measure(lambda x: 0.04 + 5 * x**-0.5))]
    assert [fit.at_bound for fit in fits] == [["e_inf"], []]
    assert "m2.e_inf" in fit_scaling_law(*steeper).at_bound


def test_intervals_of_one_run_hold_those_of_the_curve():
    fit = fit_scaling_law(*measure(lambda x: 3 * x**-0.3, noise=0.1), "m1")
    low, high = fit.interval([1e3, 1e5])
    lowest, highest = fit.prediction_interval([1e3, 1e5])
    assert (lowest < low).all()
    assert (high < highest).all()
    assert high[1] / low[1] > high[0] / low[0]  # less is known beyond the data
    assert fit_scaling_law(SIZES, 3 * SIZES**-0.3 * np.linspace(1, 1.1, 8), "m1").measured_by == SCATTER


@pytest.mark.parametrize(
    ("errors", "trend"),
    [
        ((0.54, 0.66, 0.72, 0.77, 0.79, 0.80, 0.80), 1),  # an accuracy
        ((0.5, 0.7, 0.78, 0.79, 0.788, 0.792, 0.789), 1),
        ((0.5, 0.4, 0.35, 0.352, 0.33, 0.331, 0.32), -1),
        ((0.9, 0.905, 0.897, 0.903, 0.902, 0.899, 0.904), 0),
        ((0.9, 0.5, 0.4, 0.45, 0.55, 0.6, 0.7), 0),
        ((0.3,) * 7, 0),
    ],
)
@pytest.mark.parametrize("scale", [1, 100])
def test_the_data_say_whether_a_curve_rises(errors, trend, scale):
    sizes = 1000 * 2.0 ** np.arange(7)
    assert order_runs(sizes, scale * np.array(errors), None).trend == trend
    if trend > 0:
        with pytest.raises(UserError, match="rise with the size"):
            fit_scaling_law(sizes, errors)
        fit = fit_points(sizes, errors, [0] * 7)
        assert (fit.law, fit.holds) == (None, False)


def test_the_scatter_of_seeds_is_no_rise():
    sizes, errors = np.repeat([1, 2, 4, 8], 2), [0.30, 0.32, 0.31, 0.33, 0.30, 0.34, 0.32, 0.35]
    assert order_runs(sizes, errors, None).trend == 0
    assert order_runs(sizes[::2], errors[1::2], None).trend == 1


def test_a_curve_that_jumps_has_no_law():
    fit = fit_scaling_law(*measure(lambda x: np.where(x < 8_000, 0.8, 0.03)))
    assert not fit.holds
    steady = fit_scaling_law(*measure(lambda x: 0.5 * x**-0.1))
    assert crossover(fit, steady).inside  # the data tell of themselves
    four = SIZES[::2]
    for chance in (None, 0.97):
        jump = fit_scaling_law(four, [0.75, 0.74, 0.75, 0.001], chance=chance)
        assert not jump.holds


@pytest.mark.parametrize(("size", "inside"), [(6_000, True), (50_000, False)])
def test_a_planted_crossover_is_in_its_interval(size, inside):
    first, second = (fit_scaling_law(*measure(law, start=s), "m1") for s, law in enumerate(crossing(size)))
    found = crossover(first, second)
    assert (found.inside, found.ahead) == (inside, 0)
    assert found.low < size < found.high
    assert found.high / found.low < 3
    text = describe_crossover(found, "steep", "flat")
    assert text.startswith("steep passes flat at ")
    assert ("extrapolated" in text) != inside
    assert ("extrapolated by a factor of 1." in text) != inside


def crossing(size):
    return lambda x: 6 * x**-0.45, lambda x: 6 * size**-0.2 * x**-0.25


def test_a_sudden_fall_crosses_anywhere_between_two_sizes():
    held, sizes = [], SIZES[1:5]  # 500 to 4,000
    for place in np.geomspace(2100, 3800, 6):
        flat = fit_scaling_law(*measure(lambda x: 0.2 * (x / 2000) ** -0.4, sizes=sizes))
        step = fit_scaling_law(*measure(lambda x, at=place: np.where(x < at, 0.35, 0.06), start=1, sizes=sizes))
        found = crossover(step, flat)
        held.append(found.low < place < found.high)
        assert np.log2(found.high / found.low) > 0.8
    assert all(held)
    assert re.fullmatch(
        r"a passes b between 2,000 and 4,000 .* examples, near 2,\d00", describe_crossover(found, "a", "b")
    )


def test_a_crossover_that_half_of_the_draws_have_is_likely():
    first, second = (fit_scaling_law(*measure(law, start=s)) for s, law in enumerate(crossing(100_000)))
    crossing_place = crossover(first, second)
    assert crossing_place.claim == "likely"
    assert crossing_place.low < 100_000 < crossing_place.high
    text = describe_crossover(crossing_place, "steep", "flat")
    assert re.fullmatch(
        r"possible: steep passes flat between [\d,]+ and [\d,]+ .* \(64% of such claims came true\)", text
    )


def test_the_interval_of_a_sure_crossover_may_have_no_end():
    found = crossover(*(fit_scaling_law(*measure(law, start=s)) for s, law in enumerate(crossing(70_000))))
    assert (found.claim, found.high) == ("sure", None)


def test_models_that_never_cross_have_none_and_a_reason():
    first, second = (fit_scaling_law(*measure(lambda x, b=b: b * x**-0.4, start=b)) for b in (3, 6))
    crossing_place = crossover(first, second)
    assert (crossing_place.size, crossing_place.claim) == (None, "none")
    assert crossing_place.reason
    assert crossing_place.p_none > 0.9
    text = describe_crossover(crossing_place, "a", "b")
    assert text == "a and b: no crossover is seen within 2x of the data (probability of none: above 99%)"
    noisy = [fit_scaling_law(*measure(lambda x: 3 * x**-0.4, noise=0.2, start=start)) for start in (0, 1)]
    assert describe_crossover(crossover(*noisy), "a", "b").endswith("neither is clearly ahead at any size")


def test_the_model_that_leads_clearly_is_not_said_to_pass_by_laws_that_smooth_its_lead_away():
    sizes, times = 1000 * 2.0 ** np.arange(6), np.array([1.03, 0.94, 1.03, 1.03, 0.997, 0.996])
    line, noise = 0.03 + 4 * np.repeat(sizes, 3) ** -0.4, 0.01 * np.tile([-1, 0, 1], 6)
    curves = line * np.repeat(times, 3) * np.exp(noise), line * np.exp(-noise)
    first, second = (fit_scaling_law(np.repeat(sizes, 3), errors) for errors in curves)
    assert (first.log_errors(np.log(sizes)) > second.log_errors(np.log(sizes))).any()
    assert crossover(first, second, leads={size: size == 2000 for size in sizes}).claim == "none"


def test_an_order_that_is_open_at_small_sizes_is_not_ruled_out():
    sizes = np.repeat([60, 250, 1_000, 2_160], 2)
    vit = fit_scaling_law(sizes, 1 - np.array([0.24, 0.302, 0.395, 0.455, 0.45, 0.434, 0.36, 0.39]))
    resnet = fit_scaling_law(sizes, 1 - np.array([0.26, 0.194, 0.3, 0.374, 0.75, 0.734, 0.74, 0.754]))
    crossing_place = crossover(vit, resnet)
    assert crossing_place.claim == "none"
    assert crossing_place.below == pytest.approx(1_000)
    assert crossing_place.p_none is None or crossing_place.p_none < 0.5
    assert describe_crossover(crossing_place, "vit", "resnet").endswith("a crossover, if any, is below 1,000")


@pytest.mark.parametrize("times", [1, 1.1, 1.5])
def test_a_crossover_is_found_whatever_sizes_the_curves_share(times):
    sizes = np.array([100, 250, 600, 1_500, 4_000])
    steep, flat = crossing(510)
    found = crossover(fit_scaling_law(sizes, steep(sizes)), fit_scaling_law(sizes * times, flat(sizes * times)))
    assert found.size == pytest.approx(510, rel=0.002)
    assert (found.claim, found.inside) == ("likely", True)  # of one seed and few sizes


def test_scatter_tells_the_noise_of_one_seed_unless_the_points_are_smoothed():
    sizes = np.geomspace(100, 20_000, 24)
    steep, flat = (measure(law, 0.05, 1, start=s, sizes=sizes) for s, law in enumerate(crossing(1500)))
    found = crossover(fit_scaling_law(*steep), fit_scaling_law(*flat))
    assert (found.claim, found.low < 1500 < found.high) == ("sure", True)
    assert describe_crossover(found, "a", "b").endswith("by the curves' scatter")
    lowest = [fit_scaling_law(x, np.minimum.accumulate(errors)) for x, errors in (steep, flat)]
    assert "may be smoothed" in crossover(*lowest).reason
    waves = [fit_scaling_law(sizes, level * np.exp(0.1 * np.sin(np.arange(24) / 1.6))) for level in (0.3, 0.4)]
    assert "long waves" in crossover(*waves).reason
    sizes = np.concatenate([np.geomspace(100, 8_000, 40), np.linspace(8_100, 20_000, 20)])
    steep, flat = (measure(law, 0.02, 1, start=s, sizes=sizes)[1] for s, law in enumerate(crossing(1500)))
    mixed = [[*np.minimum.accumulate(errors[:40]), *errors[40:]] for errors in (steep, flat)]
    moved = crossover(*(fit_scaling_law(sizes, one) for one in mixed))  # the largest sizes tell the noise of all
    assert (moved.claim, moved.low < 1500 < moved.high, moved.low > 1000) == ("sure", True, True)


def test_sizes_that_do_not_overlap_and_laws_that_never_cross_have_no_crossover():
    law = lambda x: 3 * x**-0.4  # noqa: E731
    low, high, apart = (
        fit_scaling_law(*measure(lambda x, t=t: t * law(x), start=k, sizes=sizes))
        for k, (t, sizes) in enumerate([(1, SIZES), (1, 1_000 * SIZES), (1.3, 1.2 * SIZES)])
    )
    assert crossover(low, high).reason == "their training-set sizes do not overlap"
    assert crossover(low, apart).claim == "none"
    assert crossover(low, apart, leads={}).reason  # a study whose models share no size


def test_how_many_times_the_data_one_model_needs():
    first, second = (
        fit_scaling_law(*measure(lambda x, b=b: b * x**-0.5, start=k, sizes=sizes))
        for k, (b, sizes) in enumerate([(2, SIZES), (3, 1.3 * SIZES)])
    )  # (2 / 3) ** 2 = .444 times the data for any error
    for asked in ({}, {"error": 0.05}, {"size": 4_000}, {"size": 1.5 * second.largest}):
        found = data_multiplier(first, second, **asked)
        assert found.low < 4 / 9 < found.high < 1.4 * found.ratio
        back = data_multiplier(second, first, error=found.error)
        assert back.ratio == pytest.approx(1 / found.ratio, rel=0.02)
    assert re.fullmatch(
        r"ViT needs 0\.4\d \(0\.[34]\d to 0\.[45]\d\) times the data of ResNet for 5\.0% error",
        describe_multiplier(data_multiplier(first, second, error=0.05), "ViT", "ResNet"),
    )


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"error": 0.9}, "the first reaches it below its smallest size"),
        ({"error": 0.001}, "the first is not seen to reach it within 10x of its data"),
        ({"error": 0.05}, "the second is not seen to reach it within 10x of its data"),
        ({"size": 20}, "the first reaches it below its smallest size"),
    ],
)
def test_an_error_that_a_law_does_not_reach_has_no_multiplier(asked, reason):
    first = fit_scaling_law(*measure(lambda x: 4 * x**-0.5))
    second = fit_scaling_law(*measure(lambda x: 0.1 + 4 * x**-0.5, start=1))
    found = data_multiplier(first, second, **asked)
    assert (found.ratio, found.reason) == (None, reason)
    assert reason in describe_multiplier(found, "a", "b")


def test_the_multiplier_is_refused_where_nothing_is_known_or_too_much_is_asked():
    fit = fit_scaling_law(*measure(lambda x: 3 * x**-0.3))
    assert data_multiplier(fit, fit_scaling_law(*measure(lambda x: 3 * x**-0.3, sizes=SIZES[:3]))).reason
    assert "in common" in data_multiplier(fit, fit_scaling_law(*measure(lambda x: 30 * x**-0.3))).reason
    for asked in ({"error": 0.1, "size": 1_000}, {"error": -1}, {"size": 0}):
        with pytest.raises(UserError, match="give one positive number"):
            data_multiplier(fit, fit, **asked)


def test_noise_that_models_share_does_not_blur_their_crossover():
    rng = np.random.default_rng(5)
    shared = 0.15 * rng.normal(size=24)
    fits = [fit_scaling_law(*measure(law, 0.02, shared=shared, start=s), "m1") for s, law in enumerate(crossing(6_000))]
    paired = crossover(*fits)
    x, e = measure(crossing(6_000)[1], 0.02, shared=shared, start=1)
    apart = crossover(fits[0], fit_scaling_law(x, e, "m1", seeds=[7, 8, 9] * 8))  # other seeds: other subsets
    assert paired.high / paired.low < (apart.high / apart.low) ** 0.5


@pytest.mark.parametrize(
    ("sizes", "errors", "options", "message"),
    [
        ([1, 2], [0.5, 0.4], {}, "needs 3"),
        ([1, 2, 3], [0.5, 0.4, 0], {}, "positive"),
        ([1, 2, 3], [0.5, 0.4], {}, "3 and 2 values"),
        ([1, 2, 3], [0.5, 0.4, 0.3], {"law": "m5"}, "choices: auto"),
        ([1, 2, 3], [0.5, 0.4, 0.3], {"law": "m4"}, "parameters"),
        ([1, 2, 3], [0.5, 0.4, 0.3], {"chance": 0.1}, "error of guessing"),
    ],
)
def test_what_cannot_be_fitted_is_refused(sizes, errors, options, message):
    with pytest.raises(UserError, match=message):
        fit_scaling_law(sizes, errors, **options)
